//! A client belongs to the runtime on which it was made. What happens when that runtime stalls or ends.

use crate::support::{Faults, LIMIT, MS, SECOND, Scene, Server, eventually, soon, timed};
use lockkeeper::{Error, LockClient, LockConfig, LockConfigBuilder, LockGuard};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A client whose runtime runs only while the client is made.
fn client_of_a_still_runtime(url: &str, config: LockConfigBuilder) -> (Runtime, LockClient, LockGuard) {
    let (runtime, url, config) = (runtime(), url.to_owned(), config.build().unwrap());
    let client = std::thread::spawn(move || {
        let (client, guard) = runtime.block_on(async {
            let client = LockClient::connect_with(url, config).await.unwrap();
            let guard = client.rlock("held").lock().await.unwrap();
            (client, guard)
        });
        (runtime, client, guard)
    });
    client.join().unwrap()
}

/// Callers on another runtime get an error within the limits of their configuration.
#[tokio::test]
async fn a_stalled_runtime_does_not_hang_callers_on_another() {
    let scene = Scene::start();
    let config = LockConfig::builder().command_timeout(200 * MS).retry_timeout(SECOND);
    let (runtime, locks, guard) = client_of_a_still_runtime(&scene.server.url(), config);
    drop(guard);
    let error = soon(locks.rlock("a").try_lock()).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    for _ in 0..2 {
        let (result, took) = timed(locks.rlock("a").lock()).await;
        assert!(result.unwrap_err().is_transient());
        assert!(took < LIMIT / 2, "{took:?}");
        let (result, took) = timed(locks.rlock("a").try_lock_for(300 * MS)).await;
        assert!(result.unwrap_err().is_transient());
        assert!(took < LIMIT / 2, "{took:?}");
        assert!(soon(locks.rlock("a").is_locked()).await.is_err());
        assert!(soon(locks.inspect("a")).await.is_err());
    }
    soon(locks.shutdown()).await.unwrap_err();
    // The runtime runs once more and releases what was left.
    tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            scene.end(locks).await;
        });
    })
    .await
    .unwrap();
}

/// The case of a client in a `static` with `#[tokio::test]`, which makes a runtime for each test.
#[tokio::test]
async fn calls_after_the_runtime_ended_return_runtime_gone() {
    let scene = Scene::start();
    let (runtime, locks, guard) = client_of_a_still_runtime(&scene.server.url(), LockConfig::builder());
    runtime.shutdown_background();
    let error = soon(locks.rlock("a").lock()).await.unwrap_err();
    assert!(matches!(error, Error::RuntimeGone), "{error:?}");
    for words in ["runtime", "one client for each runtime"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(matches!(soon(locks.rlock("a").try_lock()).await, Err(Error::RuntimeGone)));
    assert!(matches!(soon(locks.inspect("a")).await, Err(Error::RuntimeGone)));
    drop((guard, locks));
    scene.server.run::<()>(&["DEL", "held"]);
    scene.end(()).await;
}

/// Nobody releases what was dropped after the runtime of the client ended, and an unlock and a shutdown say so.
#[test]
fn a_shutdown_after_the_runtime_ended_returns_runtime_gone() {
    let (one, two) = (runtime(), runtime());
    let (server, locks, [dropped, unlocked]) = one.block_on(async {
        let server = Server::start();
        let locks = LockClient::connect(server.url()).await.unwrap();
        let guards = [locks.rlock("a").lock().await.unwrap(), locks.rlock("b").lock().await.unwrap()];
        (server, locks, guards)
    });
    drop(one);
    drop(dropped);
    let (unlocked, took) = two.block_on(timed(unlocked.unlock()));
    assert!(matches!(unlocked, Err(Error::RuntimeGone)) && took < LIMIT / 4, "{unlocked:?} after {took:?}");
    let shut = two.block_on(soon(locks.shutdown()));
    assert!(matches!(shut, Err(Error::RuntimeGone)), "{shut:?}");
    drop(server);
}

/// A waiter on one runtime, and the runtime of its client ends. Nothing could wake the waiter any more.
#[tokio::test]
async fn a_waiter_learns_at_once_that_the_runtime_of_its_client_ended() {
    let scene = Scene::start();
    let beside = scene.client().await;
    let held = beside.rlock("a").lock().await.unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let url = scene.server.url();
    let locks = runtime.spawn(async move { LockClient::connect(url).await.unwrap() }).await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.rlock("a").lock().await.map(drop) }
    });
    let limited = tokio::spawn({
        let locks = locks.clone();
        async move { locks.rlock("a").try_lock_for(60 * SECOND).await.map(drop) }
    });
    eventually("a waiter subscribes", || scene.server.channels(), |channels| !channels.is_empty()).await;
    sleep(100 * MS).await; // both wait
    runtime.shutdown_background();
    for call in [waiting, limited] {
        let (result, took) = timed(call).await;
        let result = result.unwrap();
        assert!(matches!(result, Err(Error::RuntimeGone)) && took < LIMIT / 4, "{result:?} after {took:?}");
    }
    held.unlock().await.unwrap();
    scene.end((locks, beside)).await;
}

/// The background goes on with the release, and its runtime ends before there is an answer.
#[tokio::test]
async fn an_unlock_that_the_background_sends_fails_if_the_runtime_ends() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = LockConfig::builder().retry_timeout(4 * SECOND).build().unwrap();
    let locks = runtime.spawn(LockClient::connect_with(proxy.url(), config)).await.unwrap().unwrap();
    let guard = locks.rlock("a").lock().await.unwrap();
    proxy.set(Faults::black_hole());
    let mut unlocking = Box::pin(guard.unlock());
    assert!(timeout(3 * SECOND, &mut unlocking).await.is_err()); // the background has it after `command_timeout`
    runtime.shutdown_background();
    soon(unlocking).await.unwrap_err();
    scene.server.run::<()>(&["DEL", "a"]);
    scene.end((locks, proxy)).await;
}

//! A server or a connection that is gone for a while, or that lost its scripts or data.

use lockkeeper::LockConfig;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

use crate::support::fixture::Fixture;
use crate::support::{
    Faults, MS, SECOND, Scene, connect, eventually, listens, patient, renewed, soon, waiter,
};

/// Guarantee 17. `NOSCRIPT`.
pub async fn scripts_that_were_flushed_are_loaded_again<F: Fixture>() {
    let (scene, locks) = Scene::with_client_of(patient().watchdog_lease(5 * SECOND)).await;
    let mut lock = F::lock(&locks, "a");
    let mut flushed = 0;
    let mut flush = || {
        scene.server.run::<()>(&["SCRIPT", "FLUSH"]);
        flushed += 1;
    };
    flush();
    let outer = lock.lock().await.unwrap();
    flush();
    let inner = lock.lock().await.unwrap();
    flush();
    renewed(&outer).await;
    assert!(!outer.is_lost() && !inner.is_lost());
    flush();
    assert!(lock.is_locked().await.unwrap());
    flush();
    inner.unlock().await.unwrap();
    flush();
    outer.unlock().await.unwrap();
    flush();
    assert!(!lock.force_unlock().await.unwrap());
    assert!(scene.server.calls("eval") >= flushed - 1, "no script was missing, so this test shows nothing");
    scene.end((lock, locks)).await;
}

/// A client may be used on other runtimes than the one on which it was made, and those may end earlier. A connection
/// or a probe that was started there for all callers does not end with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_connections_survive_the_runtime_that_started_them() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().connections(1).command_timeout(200 * MS);
    let locks = connect(proxy.url(), config).await;
    let held = locks.rlock("a").lock().await.unwrap();
    for cut in [false, true] {
        if cut {
            proxy.cut(); // with a cut, the client connects; without, it probes
        }
        proxy.set(Faults::replies_held());
        let (accepted, pings) = (proxy.accepted(), scene.server.calls("ping"));
        let other = Runtime::new().unwrap();
        let elsewhere = locks.clone();
        other.spawn(async move { elsewhere.rlock("b").lock().await });
        let has_begun = || if cut { proxy.accepted() > accepted } else { scene.server.calls("ping") > pings };
        eventually("it connects or probes", has_begun, |&begun| begun).await;
        other.shutdown_background();
        proxy.set(Faults::default());
        soon(locks.rlock("c").lock()).await.unwrap().unlock().await.unwrap();
    }
    assert!(!held.is_lost());
    held.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    scene.end((locks, proxy)).await;
}

/// After each loss, the commands move to new connections, because the name of the server perhaps leads to another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_breaks_again_and_again_seldom_moves_the_commands() {
    let (scene, proxy, locks) = Scene::behind_proxy(patient().connections(1)).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let waiting = waiter(locks.rlock("a"));
    listens(&scene.server).await;
    let (start, before) = (Instant::now(), proxy.accepted());
    let mut lost = 0;
    while start.elapsed() < 4 * SECOND {
        lost += scene.server.run::<usize>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        locks.rlock("b").lock().await.unwrap().unlock().await.unwrap();
        sleep(5 * MS).await;
    }
    let made = proxy.accepted() - before;
    assert!(lost >= 4 && made < 40, "{lost} were lost, and {made} were made");
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    scene.end((locks, proxy)).await;
}

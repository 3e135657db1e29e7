//! Waiting for a lock that another owner holds.

use std::sync::{Arc, Mutex};

use lockkeeper::{Error, LockClient, LockConfig};
use tokio::time::Instant;

use crate::conformance::Subject;
use crate::support::fixture::Acquire;
use crate::support::{
    LIMIT, MS, SECOND, Scene, Server, address, connect, eventually, patient, soon, throughout, timed,
};

/// A client whose waiters attempt by themselves only when a lease ends.
async fn never_polls(scene: &Scene) -> LockClient {
    scene.client_with(patient().safety_poll(3_600 * SECOND).fair_allowance(60 * SECOND)).await
}

/// Guarantee 8.
pub async fn a_waiter_is_woken_by_the_release<F: Subject>() {
    let scene = Scene::start();
    let (ours, theirs) = (never_polls(&scene).await, never_polls(&scene).await);
    for waiting_client in [&ours, &theirs] {
        let guard = F::lock(&ours, "a").lock().await.unwrap();
        let waiting = tokio::spawn({
            let client = waiting_client.clone();
            async move {
                let guard = F::rival(&client, "a").lock().await.unwrap();
                let at = Instant::now();
                guard.unlock().await.unwrap();
                at
            }
        });
        eventually("the waiter subscribes", || scene.server.channels(), |channels| !channels.is_empty())
            .await;
        throughout(20 * MS, async || assert!(!waiting.is_finished())).await;
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let woken = soon(waiting).await.unwrap() - released;
        assert!(woken < 10 * SECOND, "woken after {woken:?}, not by the message");
        scene.quiet().await;
    }
    scene.end((ours, theirs)).await;
}

/// Redisson: testTryLockWait.
pub async fn a_wait_times_out<F: Subject>() {
    let scene = Scene::start();
    let locks = never_polls(&scene).await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    let (got, waited) = timed(F::rival(&locks, "a").try_lock_for(300 * MS)).await;
    assert!(got.unwrap().is_none());
    assert!((300 * MS..10 * SECOND).contains(&waited), "{waited:?}");
    eventually("the waiter unsubscribes", || scene.server.channels(), Vec::is_empty).await;

    // Also behind a waiter without a limit, and with several waiters in the queue.
    let in_front = tokio::spawn({
        let locks = locks.clone();
        async move { F::rival(&locks, "a").lock().await.unwrap().unlock().await }
    });
    eventually("the waiter subscribes", || scene.server.channels(), |channels| !channels.is_empty()).await;
    let (first, second, third) = tokio::join!(
        timed(async { F::rival(&locks, "a").try_lock_for(100 * MS).await.unwrap().is_none() }),
        timed(async { F::rival(&locks, "a").try_lock_for(200 * MS).await.unwrap().is_none() }),
        timed(async { F::rival(&locks, "a").try_lock_for(150 * MS).await.unwrap().is_none() }),
    );
    for ((gave_up, waited), wait) in [(first, 100 * MS), (second, 200 * MS), (third, 150 * MS)] {
        assert!(gave_up && waited >= wait && waited < 10 * SECOND, "{waited:?} of {wait:?}");
    }
    guard.unlock().await.unwrap();
    soon(in_front).await.unwrap().unwrap();
    scene.end(locks).await;
}

/// Guarantee 8.
pub async fn a_waiter_gets_a_lock_whose_lease_ended<F: Subject>() {
    let scene = Scene::start();
    let locks = never_polls(&scene).await;
    for (behind_another, lease) in [(false, 600 * MS), (true, 4 * SECOND)] {
        let start = Instant::now();
        let guard = F::leased(&locks, "a", lease).lock().await.unwrap();
        if behind_another {
            // The waiter at the head leaves. The next one has to know when the lease ends.
            assert!(F::rival(&locks, "a").try_lock_for(100 * MS).await.unwrap().is_none());
        }
        let rival = soon(F::rival(&locks, "a").lock()).await.unwrap();
        let waited = start.elapsed();
        assert!(waited >= lease, "acquired after {waited:?}, before the lease ended");
        rival.unlock().await.unwrap();
        drop(guard);
    }
    scene.end(locks).await;
}

pub async fn waiters_of_one_process_are_served_in_order<F: Subject>() {
    let (scene, locks) = Scene::with_client().await;
    let guard = F::rival(&locks, "a").lock().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..40 {
        let (locks, order) = (locks.clone(), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let guard = F::rival(&locks, "a").lock().await.unwrap();
            order.lock().unwrap().push(number);
            guard.unlock().await.unwrap();
        }));
        if number == 0 {
            eventually(
                "the first waiter subscribes",
                || scene.server.channels(),
                |channels| !channels.is_empty(),
            )
            .await;
        }
        tokio::task::yield_now().await;
    }
    guard.unlock().await.unwrap();
    for waiter in waiting {
        soon(waiter).await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..40).collect::<Vec<_>>());
    scene.end(locks).await;
}

pub async fn a_client_that_shuts_down_wakes_its_waiters<F: Subject>() {
    let (scene, ours, theirs) = Scene::with_two_clients().await;
    let guard = F::lock(&theirs, "a").lock().await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let ours = ours.clone();
            tokio::spawn(async move { F::rival(&ours, "a").lock().await.map(drop) })
        })
        .collect();
    eventually("the waiters subscribe", || scene.server.channels(), |channels| !channels.is_empty()).await;
    ours.shutdown().await.unwrap();
    for waiter in waiting {
        assert!(matches!(soon(waiter).await.unwrap(), Err(Error::Closed)));
    }
    guard.unlock().await.unwrap();
    scene.end((ours, theirs)).await;
}

/// Guarantee 17. Redisson: testRedisFailed.
pub async fn without_a_server_a_wait_is_an_error<F: Subject>() {
    let mut server = Server::start();
    let locks = connect(server.url(), LockConfig::builder().retry_timeout(500 * MS)).await;
    server.kill();
    let mut lock = F::lock(&locks, "a");
    for (result, least) in [
        (timed(lock.try_lock_for(3 * SECOND)).await, 2_500 * MS),
        (timed(lock.try_lock()).await, 200 * MS),
        (timed(async { lock.lock().await.map(Some) }).await, 200 * MS),
    ] {
        let (result, took) = result;
        let error = result.expect_err("no server is running");
        assert!(error.is_transient() && matches!(error, Error::Unreachable(_)), "{error:?}");
        assert!(took >= least && took < LIMIT / 2, "retried for {took:?}");
        let text = error.to_string();
        assert!(text.contains(&address(&server.url())) && text.contains("refused"), "{text}");
    }
    server.start_again();
    let found = async {
        loop {
            match lock.lock().await {
                Err(error) if error.is_transient() => {} // its limit is short for a busy machine
                got => return got,
            }
        }
    };
    let guard = soon(found).await.unwrap();
    assert!(guard.remaining() < LIMIT * 2);
    guard.unlock().await.unwrap();
}

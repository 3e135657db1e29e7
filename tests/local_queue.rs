//! The wait queue of one client for one lock: what wakes its waiters, and what they cost.

use crate::support::fixture::{Fixture, for_each_lock};
use crate::support::{MS, SECOND, Scene, eventually, patient, soon, timed, waiter};
use lockkeeper::{Error, LockConfigBuilder};
use std::time::Duration;

/// Neither the safety poll nor the heartbeat of a fair waiter comes during a test.
fn without_polls() -> LockConfigBuilder {
    patient().safety_poll(60 * SECOND).fair_allowance(60 * SECOND)
}

/// Guarantee 8. Another client deleted the key of a held lock. The holder is the first to learn it, by a release or an extension that
/// finds nothing, and tells the waiters of its client: nothing else would wake them before their safety poll.
async fn a_call_that_finds_nothing_wakes_the_waiters<F: Fixture>() {
    let scene = Scene::start();
    // Otherwise an unlock would pass the hold on, and not ask the server.
    let locks = scene.client_with(without_polls().sharing(Duration::ZERO)).await;
    for extends in [true, false] {
        let guard = F::lock(&locks, "a").lock().await.unwrap();
        let (attempts, before) = (|| scene.server.calls("pttl"), scene.server.calls("pttl"));
        let waiting = waiter(F::rival(&locks, "a"));
        let channels = || scene.server.channels();
        eventually("the waiter subscribes", channels, |channels| !channels.is_empty()).await;
        eventually("it attempts again", attempts, |attempts| *attempts >= before + 2).await;
        // An extension finds nothing although other keys of the lock, such as its queue, are still there.
        for key in scene.server.keys().iter().filter(|key| !extends || !key.contains('{')) {
            scene.server.run::<()>(&["DEL", key]);
        }
        if extends {
            assert!(matches!(guard.extend(60 * SECOND).await, Err(Error::Lost(_))));
        } else {
            assert!(matches!(guard.unlock().await, Err(Error::NotHeld(_))));
        }
        let (next, waited) = timed(waiting).await;
        assert!(waited < 5 * SECOND, "{waited:?}");
        next.unwrap().unlock().await.unwrap();
    }
    scene.end(locks).await;
}

/// Guarantee 9. A waiter that times out behind a live waiter sends no command: the waiter at the head attempts for
/// all.
#[tokio::test]
async fn waiters_that_time_out_cost_no_command_of_their_own() {
    let scene = Scene::start();
    let (locks, beside) =
        (scene.client_with(patient().safety_poll(600 * SECOND)).await, scene.client().await);
    let guard = beside.rlock("a").lock().await.unwrap();
    let before = scene.server.calls("pttl"); // each attempt has one, and no other script of this test
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.rlock("a").lock().await.unwrap().unlock().await }
    });
    let attempts = || scene.server.calls("pttl") - before;
    eventually("it attempts again after it has subscribed", attempts, |attempts| *attempts == 2).await;
    for _ in 0..10 {
        assert!(locks.rlock("a").try_lock_for(10 * MS).await.unwrap().is_none());
    }
    assert_eq!(attempts(), 2);
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    scene.end((locks, beside)).await;
}

for_each_lock! { a_call_that_finds_nothing_wakes_the_waiters }

//! The wait queue of one client for one lock: its order, and what happens behind an unpolled waiter.

use crate::support::fixture::{Fixture, for_each_lock};
use crate::support::{
    MS, SECOND, Scene, eventually, patient, poll_until_it_waits, soon, timed, waiter, woken,
};
use lockkeeper::{Error, LockConfigBuilder};
use tokio::time::sleep;
use tokio_test::task;

/// Guarantee 8. A waiter future is polled until it waits, and never again. It keeps no other waiter from a free lock,
/// not even a waiter whose time limit is shorter than any poll interval.
async fn a_stalled_waiter_does_not_hide_a_free_lock<F: Fixture>() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let guard = F::rival(&beside, "a").lock().await.unwrap();
    let mut stalled = F::lock(&locks, "a");
    let mut waiting = task::spawn(stalled.lock());
    // From here on, the next wake-up goes to it.
    poll_until_it_waits(&scene.server, &locks, || waiting.poll().is_pending()).await;
    assert!(F::lock(&locks, "a").try_lock_for(20 * MS).await.unwrap().is_none(), "the lock is held");
    guard.unlock().await.unwrap();
    woken(&mut waiting).await; // by the message
    for _ in 0..5 {
        let guard = F::lock(&locks, "a").try_lock_for(SECOND).await.unwrap();
        guard.expect("the lock is free").unlock().await.unwrap();
    }
    drop(waiting);
    drop((stalled, locks, beside));
    scene.end().await;
}

/// Neither the safety poll nor the heartbeat of a fair waiter comes during a test.
fn without_polls() -> LockConfigBuilder {
    patient().safety_poll(60 * SECOND).fair_allowance(60 * SECOND)
}

/// Guarantee 8. Another client deleted the key of a held lock. The holder is the first to learn it, and tells the waiters of its
/// client: nothing else would wake them before their safety poll.
async fn a_release_that_finds_nothing_wakes_the_waiters<F: Fixture>() {
    let scene = Scene::start();
    let locks = scene.client_with(without_polls()).await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    let waiting = waiter(F::rival(&locks, "a"));
    eventually("the waiter subscribes", || scene.server.channels(), |channels| !channels.is_empty()).await;
    sleep(100 * MS).await; // it has attempted again
    for key in scene.server.keys() {
        scene.server.run::<()>(&["DEL", &key]);
    }
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld(_))));
    let (next, waited) = timed(waiting).await;
    assert!(waited < 5 * SECOND, "{waited:?}");
    next.unwrap().unlock().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// Guarantee 8. As above, and it is a renewal that finds nothing. Other keys of the lock, such as its queue, are still there.
async fn a_renewal_that_finds_nothing_wakes_the_waiters<F: Fixture>() {
    let scene = Scene::start();
    let locks = scene.client_with(without_polls()).await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    let waiting = waiter(F::rival(&locks, "a"));
    eventually("the waiter subscribes", || scene.server.channels(), |channels| !channels.is_empty()).await;
    sleep(100 * MS).await; // it has attempted again
    for key in scene.server.keys().iter().filter(|key| !key.contains('{')) {
        scene.server.run::<()>(&["DEL", key]);
    }
    assert!(matches!(guard.extend(60 * SECOND).await, Err(Error::Lost(_))));
    let (next, waited) = timed(waiting).await;
    assert!(waited < 5 * SECOND, "{waited:?}");
    next.unwrap().unlock().await.unwrap();
    drop((guard, locks));
    scene.end().await;
}

/// Guarantee 9. A waiter that times out behind a live waiter sends no command: the waiter at the head attempts for
/// all.
#[tokio::test]
async fn waiters_that_time_out_cost_no_command_of_their_own() {
    let scene = Scene::start();
    let (locks, beside) =
        (scene.client_with(patient().safety_poll(600 * SECOND)).await, scene.client().await);
    let guard = beside.rlock("a").lock().await.unwrap();
    let before = scene.server.calls("evalsha");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.rlock("a").lock().await.unwrap().unlock().await }
    });
    let attempts = || scene.server.calls("evalsha") - before;
    eventually("it attempts again after it has subscribed", attempts, |attempts| *attempts == 2).await;
    for _ in 0..10 {
        assert!(locks.rlock("a").try_lock_for(10 * MS).await.unwrap().is_none());
    }
    assert_eq!(attempts(), 2);
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    drop((locks, beside));
    scene.end().await;
}

for_each_lock! {
    a_release_that_finds_nothing_wakes_the_waiters
    a_renewal_that_finds_nothing_wakes_the_waiters
}

mod stalled {
    use super::*;

    for_each_lock! {
        fenced: FencedLocks, multi: MultiLocks, read: ReadLocks, rlock: RLocks, write: WriteLocks => {
            a_stalled_waiter_does_not_hide_a_free_lock
        }
    }
}

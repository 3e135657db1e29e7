//! Guarantee 6: a guard is lost before its lease can end on the server, and lost is final. And what must not cost a
//! lock: a broken or silent connection.

use crate::support::fixture::{Fixture, for_each_lock};
use crate::support::{
    Faults, LIMIT, MS, SECOND, Scene, connect, eventually, patient, renewed, soon, throughout, timed,
};
use futures_util::FutureExt;
use lockkeeper::{Error, HoldWatch, LockConfig, LossCause, Lost};
use tokio::time::sleep;

/// Guarantee 6. However late the reply, the guard never relies on the lease for longer than the server keeps it.
async fn the_deadline_counts_from_before_the_command_was_sent<F: Fixture>() {
    let (scene, proxy, locks) = Scene::behind_proxy(patient().watchdog_lease(6 * SECOND)).await;
    let beside = scene.client().await;
    F::lock(&locks, "a").is_locked().await.unwrap(); // so that a connection exists and the command is sent at once
    proxy.set(Faults::replies_held());
    let locking = tokio::spawn({
        let locks = locks.clone();
        async move { F::lock(&locks, "a").lock().await.unwrap() }
    });
    let kept = || scene.server.run::<i64>(&["PTTL", "a"]);
    eventually("the reply is 400 ms late", kept, |ms| (1..5_600).contains(ms)).await;
    proxy.set(Faults::default());
    let guard = soon(locking).await.unwrap();
    let relies_on_less = async || {
        let relied_on = guard.remaining();
        let (kept, asked) = timed(async { F::lock(&beside, "a").remaining_lease().await }).await;
        let kept = kept.unwrap().expect("the lock is held").duration().unwrap();
        assert!(relied_on < kept + asked + MS, "{relied_on:?} of {kept:?}");
    };
    throughout(300 * MS, relies_on_less).await;
    // The same when the lease is renewed, and when it is extended.
    proxy.set(Faults { delay: 150 * MS, ..Faults::default() });
    throughout(2_500 * MS, relies_on_less).await;
    guard.extend(60 * SECOND).await.unwrap();
    throughout(100 * MS, relies_on_less).await;
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    scene.end((locks, beside, proxy)).await;
}

/// Guarantee 17. The lease is not much longer than `command_timeout`.
async fn a_short_lease_survives_one_silent_connection<F: Fixture>() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    for _ in 0..2 {
        let lease = 4 * SECOND;
        let config = LockConfig::builder().connections(1).watchdog_lease(lease);
        let locks = connect(proxy.url(), config.command_timeout(lease * 3 / 4)).await;
        let guard = F::lock(&locks, "a").lock().await.unwrap();
        renewed(&guard).await;
        let before = proxy.accepted();
        proxy.set_existing(Faults::black_hole());
        throughout(lease + 500 * MS, async || assert!(!guard.is_lost())).await;
        assert!(proxy.accepted() > before);
        guard.unlock().await.unwrap();
        locks.shutdown().await.unwrap();
    }
    scene.end(proxy).await;
}

/// Guarantee 6. A watch says that the guard is no longer valid, and `ended` returns at once and not when the lease would have ended:
/// whatever keeps the hold in memory, such as a release that the server does not answer, or a minimum hold time.
async fn a_watch_says_lost_as_soon_as_its_guard_has_ended<F: Fixture>() {
    let (scene, proxy, locks) = Scene::behind_proxy(patient()).await;
    let is_over = |watch: &HoldWatch, ended: Option<Result<(), Lost>>, how: &str| {
        assert!(watch.is_lost() && watch.remaining().is_zero(), "{how}: {watch:?}");
        assert!(matches!(ended, Some(Ok(()))), "{how}: {ended:?}");
    };

    let guard = F::lock(&locks, "a").lock().await.unwrap();
    let (watch, ended, waiting) = (guard.watch(), guard.ended(), tokio::spawn(guard.ended()));
    assert!(guard.ended().now_or_never().is_none(), "it is held");
    assert!(!watch.is_lost() && !watch.remaining().is_zero());
    soon(guard.unlock()).await.unwrap();
    is_over(&watch, ended.now_or_never(), "unlocked");
    soon(waiting).await.unwrap().expect("a future that waits is woken");

    let guard = F::lock(&locks, "b").lock().await.unwrap();
    let (watch, ended) = (guard.watch(), guard.ended());
    guard.leak();
    is_over(&watch, ended.now_or_never(), "leaked");
    F::lock(&locks, "b").force_unlock().await.unwrap();

    let guard = F::kept(&locks, "c", 500 * MS).lock().await.unwrap();
    let (watch, ended) = (guard.watch(), guard.ended());
    soon(guard.unlock()).await.unwrap();
    is_over(&watch, ended.now_or_never(), "unlocked before its minimum hold time is over");

    let guard = F::lock(&locks, "d").lock().await.unwrap();
    let (watch, ended) = (guard.watch(), guard.ended());
    proxy.set(Faults::replies_held());
    drop(guard);
    is_over(&watch, ended.now_or_never(), "dropped while the server does not answer");
    proxy.set(Faults::default());

    let guard = F::leased(&locks, "e", 300 * MS).lock().await.unwrap();
    let lost = soon(tokio::spawn(guard.ended())).await.unwrap().unwrap_err();
    assert_eq!(lost.lock.name, guard.name());
    let ended = guard.ended();
    drop(guard);
    assert!(matches!(ended.now_or_never(), Some(Err(Lost { .. }))), "lost is final");
    soon(locks.shutdown()).await.unwrap();
    scene.end((locks, proxy)).await;
}

/// A loss that is known already is told at once, and not after retries. What the servers still have is released behind it: at once, before
/// the next attempt of the owner, and before the end of a shutdown.
async fn unlock_of_a_lost_guard_returns_not_held_without_an_answer<F: Fixture>() {
    let (scene, proxy, locks) = Scene::behind_proxy(LockConfig::builder().watchdog_lease(1_500 * MS)).await;
    let mut lock = F::lock(&locks, "a");
    for is_silent in [true, false] {
        let guard = lock.lock().await.unwrap();
        // The server renews the lease, and the client never learns that.
        proxy.set(Faults::replies_held());
        soon(guard.ended()).await.unwrap_err();
        for key in scene.server.keys() {
            scene.server.run::<()>(&["PEXPIRE", &key, "60000"]);
        }
        if !is_silent {
            proxy.set(Faults::default());
        }
        let (unlocked, took) = timed(guard.unlock()).await;
        let error = unlocked.unwrap_err();
        assert!(matches!(error, Error::NotHeld(_)) && error.work_was_unprotected(), "{error:?}");
        assert_eq!(error.loss_cause(), Some(LossCause::NotRenewed));
        assert!(took < SECOND, "it waited {took:?}, is_silent: {is_silent}");
        proxy.set(Faults::default());
        // The owner is not locked out by what it had.
        let (again, took) = timed(lock.lock()).await;
        assert!(took < LIMIT / 2, "{took:?}");
        again.unwrap().unlock().await.unwrap();
    }
    let guard = lock.lock().await.unwrap();
    proxy.set(Faults::replies_held());
    soon(guard.ended()).await.unwrap_err();
    for key in scene.server.keys() {
        scene.server.run::<()>(&["PEXPIRE", &key, "60000"]);
    }
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld(_))));
    proxy.set(Faults::default());
    soon(locks.shutdown()).await.unwrap();
    let left: Vec<_> = scene.server.keys().into_iter().filter(|key| !key.contains("token")).collect();
    assert_eq!(left, [""; 0], "after the shutdown");
    scene.end((lock, locks, proxy)).await;
}

/// Guarantee 2. `finish` is the rest of a lock's `run`: a hold that was gone at the release is an error, and `LockGuard::run` cannot see it.
async fn finish_releases_and_returns_not_held_if_the_hold_was_gone<F: Fixture>() {
    let (scene, locks) = Scene::with_client_of(patient()).await;
    let (mut lock, mut rival) = (F::lock(&locks, "a"), F::rival(&locks, "a"));
    let delete = async || scene.server.run::<()>(&["DEL", "a", "{a}:OWNER:rwlock_timeout"]);

    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.run(async { 1 }).await.unwrap(), 1);
    assert!(rival.try_lock().await.unwrap().is_none(), "`run` of a guard releases nothing");
    assert_eq!(guard.finish(async { 2 }).await.unwrap(), 2);
    rival.try_lock().await.unwrap().expect("released").unlock().await.unwrap();

    let guard = lock.lock().await.unwrap();
    guard.run(delete()).await.expect("no loss is known");
    let error = guard.unlock().await.unwrap_err();
    assert_eq!(error.loss_cause(), Some(LossCause::Removed));
    let removed = [lock.lock().await.unwrap().finish(delete()).await, lock.run(delete()).await];
    for error in removed.map(Result::unwrap_err) {
        assert!(matches!(error, Error::NotHeld(_)) && error.work_was_unprotected(), "{error:?}");
        assert_eq!(error.loss_cause(), Some(LossCause::Removed));
        assert!(error.to_string().ends_with("): the server no longer has it"), "{error}");
    }

    let mut short = F::leased(&locks, "a", 300 * MS);
    let guard = short.lock().await.unwrap();
    let error = soon(guard.finish(sleep(LIMIT))).await.unwrap_err();
    assert!(matches!(error, Error::Lost(_)) && error.work_was_unprotected(), "{error:?}");
    assert_eq!(error.loss_cause(), Some(LossCause::LeaseEnded));
    scene.end((lock, rival, short, locks)).await;
}

for_each_lock! {
    a_watch_says_lost_as_soon_as_its_guard_has_ended
    finish_releases_and_returns_not_held_if_the_hold_was_gone
    unlock_of_a_lost_guard_returns_not_held_without_an_answer
    the_deadline_counts_from_before_the_command_was_sent
    a_short_lease_survives_one_silent_connection
}

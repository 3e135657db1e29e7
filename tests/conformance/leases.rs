//! How long a hold lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::{Error, LockClient, Lost, RemainingLease, Source};
use lockkeeper_memory::MemoryServer;
use tokio::time::{Instant, pause, sleep, timeout};

use crate::conformance::{Fixture, Lending, Subject, client_with_lease};
use crate::support::fixture::Acquire;
use crate::support::{LIMIT, MS, SECOND, Scene, eventually, patient, renewed, soon, throughout, timed};

/// Redisson: testRemainTimeToLive.
pub async fn the_lease_is_what_was_asked_for<F: Fixture>() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let (scene, locks) = Scene::with_client().await;
    for (mut lock, lease) in
        [(F::leased(&locks, "test-lock:1", HOUR), HOUR), (F::lock(&locks, "test-lock:1"), 30 * SECOND)]
    {
        assert_eq!(lock.remaining_lease().await.unwrap(), None);
        let guard = lock.lock().await.unwrap();
        let left = lock.remaining_lease().await.unwrap().expect("the lock is held").duration().unwrap();
        assert!(left <= lease && left > lease - 10 * SECOND, "{left:?} of {lease:?}");
        assert!(guard.remaining() < left, "the guard counts less than the server");
        assert!(guard.remaining() > lease - lease / 100 - 10 * SECOND);
        guard.unlock().await.unwrap();
        assert_eq!(lock.remaining_lease().await.unwrap(), None);
    }
    scene.end(locks).await;
}

/// Guarantee 4. Redisson: testRemainTimeToLive2. In Redisson, a re-entry with a shorter lease shortens it.
pub async fn reentry_and_partial_release_never_shorten_the_lease<F: Lending>() {
    let (scene, locks) = Scene::with_client().await;
    let mut owner = locks.owner();
    let mut lock = F::leased(&locks, "a", 60 * SECOND);
    let [one, two, three] =
        [lock.lock().await.unwrap(), lock.lock().await.unwrap(), lock.lock().await.unwrap()];
    one.unlock().await.unwrap();
    two.unlock().await.unwrap();
    let left = lock.remaining_lease().await.unwrap().expect("the lock is held").duration().unwrap();
    assert!(left <= 60 * SECOND && left > 50 * SECOND, "{left:?}");
    three.unlock().await.unwrap();

    // A long lease first, then a re-entry with a short one.
    let outer = F::lent(&mut owner, "b").lock().await.unwrap();
    outer.extend(60 * SECOND).await.unwrap();
    let inner = F::lent(&mut owner, "b").lock().await.unwrap();
    let left =
        F::lock(&locks, "b").remaining_lease().await.unwrap().expect("the lock is held").duration().unwrap();
    assert!(left > 50 * SECOND, "the re-entry set it to {left:?}");
    inner.unlock().await.unwrap();
    let left =
        F::lock(&locks, "b").remaining_lease().await.unwrap().expect("the lock is held").duration().unwrap();
    assert!(left > 50 * SECOND, "the partial release set it to {left:?}");
    outer.unlock().await.unwrap();
    scene.end((owner, lock, locks)).await;
}

/// Guarantees 7 and 14. All commands of two minutes: a renewal for each third of a lease, and none for a fixed lease. Java's watchdog can
/// shorten the lease of a lock that several owners hold, so that is looked at as often.
pub async fn what_a_hold_costs<F: Subject>() {
    pause();
    let (server, commands) = (MemoryServer::new(), Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&commands);
    server.observe(move |_, words, _, _| {
        seen.fetch_add(u64::from(&*words[0] != b"PING"), Ordering::Relaxed);
    });
    let config = patient().diagnosis(false).build().unwrap();
    let locks = LockClient::connect_with(Source::stream(server.connector()), config).await.unwrap();
    let renewals = 11..=14 * F::COMMANDS; // one for all locks, or one for each
    let of_fixed = if F::IS_SHARED { renewals.clone() } else { 0..=0 };
    for (mut lock, expected) in
        [(F::lock(&locks, "a"), renewals), (F::leased(&locks, "a", 300 * SECOND), of_fixed)]
    {
        let guard = lock.lock().await.unwrap();
        sleep(2 * SECOND).await; // the first look is over
        let before = commands.load(Ordering::Relaxed);
        sleep(120 * SECOND).await;
        let sent = commands.load(Ordering::Relaxed) - before;
        assert!(expected.contains(&sent), "{sent} commands, expected {expected:?}");
        guard.unlock().await.unwrap();
    }
    locks.shutdown().await.unwrap();
}

/// Guarantees 6 and 8. Redisson: testExpire.
pub async fn a_fixed_lease_ends<F: Subject>() {
    let scene = Scene::start();
    // No waiter polls. Only the end of the lease wakes the rival.
    let config = patient().safety_poll(3_600 * SECOND).fair_allowance(60 * SECOND);
    let (ours, theirs) = (scene.client().await, scene.client_with(config).await);
    let start = Instant::now();
    let guard = F::leased(&ours, "a", 500 * MS).lock().await.unwrap();
    let ended = guard.ended();
    let rival = soon(F::rival(&theirs, "a").lock()).await.unwrap();
    let acquired = start.elapsed();
    assert!(acquired >= 500 * MS, "the rival acquired after {acquired:?}");
    assert!(guard.is_lost() && guard.remaining().is_zero());
    soon(ended).await.unwrap_err();
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    rival.unlock().await.unwrap();
    scene.end((ours, theirs)).await;
}

/// Guarantee 7. Redisson: testLockReentrantRenew.
pub async fn a_watchdog_lease_does_not_end<F: Subject>() {
    let scene = Scene::start();
    let lease = 5 * SECOND;
    let locks = client_with_lease(&scene, lease).await;
    let (mut lock, mut rival) = (F::lock(&locks, "a"), F::rival(&locks, "a"));
    for time in [lease + 500 * MS, 500 * MS] {
        let guard = lock.lock().await.unwrap();
        throughout(time, async || {
            assert!(rival.try_lock().await.unwrap().is_none() && !guard.is_lost());
        })
        .await;
        renewed(&guard).await;
        guard.unlock().await.unwrap();
    }
    scene.end((lock, rival, locks)).await;
}

/// Redisson: testAutoExpire.
pub async fn a_leaked_lease_ends<F: Fixture>() {
    let scene = Scene::start();
    let locks = client_with_lease(&scene, 3 * SECOND).await;
    let mut lock = F::lock(&locks, "a");
    let guard = lock.lock().await.unwrap();
    guard.leak();
    assert!(lock.is_held() && lock.is_locked().await.unwrap(), "`leak` does not release the lock");
    let again = lock.lock().await.expect("the owner can still re-enter");
    again.unlock().await.unwrap();
    assert!(lock.is_locked().await.unwrap(), "a partial release does not release the leaked hold");
    soon(F::rival(&locks, "a").lock()).await.unwrap().unlock().await.unwrap();
    scene.end((lock, locks)).await;
}

/// `max_hold` ends a hold that is renewed, and one that is shorter than a lease.
pub async fn a_hold_ends_after_max_hold<F: Subject>() {
    let scene = Scene::start();
    let short = client_with_lease(&scene, 4_500 * MS).await;
    let long = client_with_lease(&scene, 30 * SECOND).await;
    let ends = async |locks: &LockClient, name: &str, most: Duration| {
        let start = Instant::now();
        let guard = F::bounded(locks, name, most).lock().await.unwrap();
        guard.extend(600 * SECOND).await.unwrap();
        soon(guard.ended()).await.unwrap_err();
        let held = start.elapsed();
        assert!(held > most - most / 50, "lost after {held:?}");
        // The guard is still alive, and the lock is free long before its last lease would end.
        let (rival, waited) = timed(F::rival(locks, name).lock()).await;
        assert!(waited < 2_500 * MS, "{waited:?}");
        rival.unwrap().unlock().await.unwrap();
        assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    };
    // The first is longer than a lease, so it is renewed, and most of its last lease is left at the end. The second is
    // shorter than a lease, so it is never renewed.
    tokio::join!(ends(&short, "a", 5_500 * MS), ends(&long, "b", SECOND));
    scene.end((short, long)).await;
}

/// Time spent waiting does not count.
pub async fn max_hold_counts_from_the_grant<F: Fixture>() {
    const MOST: Duration = Duration::from_secs(10);
    const WAIT: Duration = Duration::from_secs(3);
    let (scene, locks) = Scene::with_client().await;
    let rival = F::rival(&locks, "a").lock().await.unwrap();
    let mut lock = F::bounded(&locks, "a", MOST);
    let holding = async {
        let left = || scene.server.run::<u64>(&["PTTL", "a"]);
        let held_for = Duration::from_millis(left()) - WAIT;
        eventually("the rival held it for long", left, |&left| Duration::from_millis(left) < held_for).await;
        rival.unlock().await.unwrap();
    };
    let (guard, ()) = tokio::join!(lock.lock(), holding);
    let guard = guard.unwrap();
    assert!(guard.remaining() > MOST - WAIT, "{:?}", guard.remaining());
    guard.unlock().await.unwrap();
    scene.end((lock, locks)).await;
}

/// A guard that is released or dropped too soon leaves the lock held until the least time is over. Then a waiter is woken.
pub async fn a_lock_stays_held_for_its_least_time<F: Subject>() {
    const LEAST: Duration = Duration::from_secs(2);
    let (scene, locks, other) = Scene::with_two_clients().await;
    let mut lock = F::kept(&locks, "a", LEAST);
    for is_dropped in [false, true] {
        let start = Instant::now();
        let guard = lock.lock().await.unwrap();
        let held_since = Instant::now();
        if is_dropped {
            drop(guard)
        } else {
            guard.unlock().await.unwrap()
        }
        assert!(F::rival(&other, "a").try_lock().await.unwrap().is_none(), "it is kept");
        if !F::IS_SHARED {
            assert!(lock.try_lock().await.unwrap().is_none(), "the owner is refused like any other");
        }
        let guard = soon(F::rival(&other, "a").lock()).await.unwrap();
        assert!(start.elapsed() >= LEAST, "{:?}", start.elapsed());
        let waited = held_since.elapsed();
        assert!(waited < LEAST + 2 * SECOND, "{waited:?}: long before the lease would have ended");
        guard.unlock().await.unwrap();
    }
    // A section that lasts longer ends with its guard.
    let guard = lock.lock().await.unwrap();
    let end = Instant::now() + LEAST;
    eventually("the least time is over", || Instant::now() > end, |&is_over| is_over).await;
    guard.unlock().await.unwrap();
    drop(F::rival(&other, "a").try_lock().await.unwrap().expect("it is free"));
    scene.end((lock, locks, other)).await;
}

/// Guarantees 4 and 6.
pub async fn a_lease_can_be_extended<F: Fixture>() {
    let (scene, locks) = Scene::with_client().await;
    let mut lock = F::leased(&locks, "a", 20 * SECOND);
    let guard = lock.lock().await.unwrap();
    guard.extend(60 * SECOND).await.unwrap();
    assert!(guard.remaining() > 50 * SECOND);
    guard.extend(SECOND).await.unwrap();
    assert!(guard.remaining() > 50 * SECOND, "a shorter extension does not shorten the lease");
    assert!(lock.remaining_lease().await.unwrap() > Some(RemainingLease::For(50 * SECOND)));
    guard.unlock().await.unwrap();

    let guard = F::leased(&locks, "a", 400 * MS).lock().await.unwrap();
    soon(guard.ended()).await.unwrap_err();
    assert!(matches!(guard.extend(SECOND).await, Err(Error::Lost { .. })), "lost is final");
    drop(guard);
    let guard = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    assert!(
        matches!(guard.extend(SECOND).await, Err(Error::Lost { .. })),
        "the server no longer has the hold"
    );
    assert!(guard.is_lost());
    scene.end((guard, lock, locks)).await;
}

/// Guarantee 4.
pub async fn a_watchdog_hold_and_a_fixed_lease_do_not_shorten_each_other<F: Lending>() {
    let scene = Scene::start();
    let locks = client_with_lease(&scene, 5 * SECOND).await;
    let mut owner = locks.owner();
    let watched = F::lent(&mut owner, "a").lock().await.unwrap();
    // A longer lease, which a renewal with the watchdog's shorter lease must not shorten.
    let inner = F::lent(&mut owner, "a").lock().await.unwrap();
    inner.extend(60 * SECOND).await.unwrap();
    for _ in 0..2 {
        renewed(&watched).await;
        let left = F::lock(&locks, "a").remaining_lease().await.unwrap();
        assert!(left > Some(RemainingLease::For(40 * SECOND)), "{left:?}");
    }
    inner.unlock().await.unwrap();
    assert!(!watched.is_lost());
    watched.unlock().await.unwrap();
    scene.end((owner, locks)).await;
}

/// Guarantee 6.
pub async fn run_stops_the_work_when_the_lock_is_lost<F: Subject>() {
    let (scene, locks) = Scene::with_client().await;
    let lasting = F::lock(&locks, "b").lock().await.unwrap();
    assert_eq!(lasting.run(async { 42 }).await.unwrap(), 42);
    lasting.unlock().await.unwrap();
    let start = Instant::now();
    let guard = F::leased(&locks, "a", SECOND).lock().await.unwrap();
    let left = guard.remaining();
    assert!(left < SECOND, "{left:?}");
    // On a busy machine all timers fire late. So this timer decides, not a clock.
    let result = timeout(left + 2 * MS, guard.run(sleep(LIMIT))).await;
    let result = result.expect("`run` returned after the deadline");
    assert!(matches!(result, Err(Lost { lock, .. }) if lock.name == guard.name()));
    assert!(start.elapsed() > 900 * MS, "stopped after only {:?}", start.elapsed());
    assert!(
        matches!(guard.run(async { 42 }).await, Err(Lost { .. })),
        "on a lost hold, `run` starts no work"
    );
    scene.end((guard, locks)).await;
}

/// Guarantees 2 and 6. Whatever is asked or said twice has the same answer.
pub async fn what_a_second_time_does<F: Subject>() {
    let (scene, locks) = Scene::with_client().await;
    let lost = F::leased(&locks, "a", 500 * MS).lock().await.unwrap();
    let ended = [lost.ended(), lost.ended()];
    for ended in ended {
        soon(ended).await.unwrap_err();
        assert!(matches!(lost.extend(SECOND).await, Err(Error::Lost(_))));
        assert!(lost.run(async {}).await.is_err() && lost.is_lost());
    }
    let guard = soon(F::rival(&locks, "a").lock()).await.unwrap();
    let ended = [guard.ended(), guard.ended()];
    assert!(matches!(lost.unlock().await, Err(Error::NotHeld(_))));
    guard.unlock().await.unwrap();
    for ended in ended {
        soon(ended).await.unwrap();
        locks.shutdown().await.unwrap();
    }
    scene.end(locks).await;
}

/// Guarantee 6. Redisson: testAutoExpire, testLockIsNotRenewedAfterInterruptedTryLock.
pub async fn the_locks_of_a_client_that_shut_down_expire<F: Subject>() {
    let scene = Scene::start();
    let locks = client_with_lease(&scene, 3 * SECOND).await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    locks.shutdown().await.unwrap();
    assert!(!guard.is_lost(), "`shutdown` does not end a hold");
    let other = scene.client().await;
    let rival = soon(F::rival(&other, "a").lock()).await.unwrap();
    assert!(guard.is_lost());
    rival.unlock().await.unwrap();
    assert!(matches!(F::lock(&locks, "b").lock().await, Err(Error::Closed)));
    assert!(matches!(F::lock(&locks, "b").try_lock().await, Err(Error::Closed)));
    scene.end((guard, locks, other)).await;
}

//! Guarantees 1, 2 and 3 where two things happen at once: one call never takes away what another is acquiring.

use std::time::{Duration, Instant};

use crate::support::{
    Faults, MS, SECOND, Scene, at_most, connect, eventually, fixed, patient, poll_until, renewed, soon,
    throughout, timed,
};
use futures_util::FutureExt;
use lockkeeper::{Error, LockConfig};
use tokio::time::timeout;

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Guarantees 1 and 3. Another thread releases the last hold while the handle re-enters.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_release_during_a_reentry_does_not_free_the_lock() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut beside = 0;
    for round in 0..3_000_u64 {
        let mut lock = locks.rlock("a");
        let first = lock.lock().await.unwrap();
        let releasing = tokio::spawn(async move {
            spin(Duration::from_micros(round * 7 % 150));
            if round % 2 == 0 {
                first.unlock().await
            } else {
                drop(first);
                Ok(())
            }
        });
        let second = lock.lock().await.unwrap();
        releasing.await.unwrap().expect("the lock was held");
        let found = locks.inspect("a").await.unwrap();
        assert!(
            found.is_some() && !second.is_lost(),
            "round {round}: the lock is free although a guard is valid"
        );
        beside += u32::from(second.hold_count() == 1);
        second.unlock().await.expect("the lock was held");
    }
    assert!(beside > 0);
    locks.shutdown().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// A re-entry with a short lease is granted when that lease is already over. It is tried again under the same id. With
/// another id, this owner would wait for itself.
#[tokio::test]
async fn a_reentry_granted_too_late_is_retried() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient()).await;
    let mut me = locks.owner();
    let outer = me.rlock("a").lock().await.unwrap();
    proxy.set(Faults { hold_requests: true, ..Faults::default() });
    let mut handle = me.rlock("a").with(&fixed(300 * MS));
    let before = scene.server.calls("evalsha");
    let heal = async {
        // A lease of the same length that begins after the attempt was sent.
        scene.server.run::<()>(&["SET", "later", "", "PX", "300"]);
        let is_left = || scene.server.run::<bool>(&["EXISTS", "later"]);
        eventually("the lease ends", is_left, |left| !left).await;
        proxy.set(Faults::default());
    };
    let (inner, ()) = tokio::join!(soon(handle.lock()), heal);
    let attempts = scene.server.calls("evalsha") - before;
    assert!(attempts >= 2, "the first attempt was granted too late, and {attempts} ran");
    let inner = inner.unwrap();
    assert_eq!(locks.inspect("a").await.unwrap().unwrap().holders[0].holds, 2);
    drop(inner);
    outer.unlock().await.unwrap();
    drop(handle);
    drop((me, locks, proxy));
    scene.end().await;
}

/// A future is polled once and then left. Its command in flight must not block other calls on the lock for ever.
#[tokio::test]
async fn an_unpolled_future_with_a_command_in_flight_blocks_nobody() {
    let scene = Scene::start();
    let config = LockConfig::builder().command_timeout(2 * SECOND).retry_timeout(SECOND);
    let locks = scene.client_with(config).await;
    let mut lock = locks.rlock("a");

    let guard = lock.lock().await.unwrap();
    let mut left = Box::pin(guard.unlock());
    assert!((&mut left).now_or_never().is_none());
    eventually("the release ran", || scene.server.run::<bool>(&["EXISTS", "a"]), |held| !held).await;
    let guard = soon(lock.try_lock_for(50 * MS)).await.unwrap().expect("the lock is free");
    assert!(!guard.is_lost());
    drop(left);

    let mut left = Box::pin(lock.lock());
    assert!((&mut left).now_or_never().is_none());
    soon(guard.unlock()).await.expect("it was held");
    let again = soon(left).await.unwrap();
    again.unlock().await.unwrap();
    soon(locks.shutdown()).await.unwrap();
    drop((lock, locks));
    scene.end().await;
}

/// Guarantees 1 and 3. Release and re-entry in one task, and the release runs late.
#[tokio::test]
async fn a_late_release_does_not_end_a_concurrent_reentry() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    for command_timeout in [100 * MS, 150 * MS, 400 * MS] {
        let config = LockConfig::builder().command_timeout(command_timeout).connections(1);
        let locks = connect(proxy.url(), config).await;
        let mut lock = locks.rlock("a");
        let first = lock.lock().await.unwrap();
        proxy.set_existing(Faults { hold_requests: true, ..Faults::default() });
        let (second, released) = soon(async { tokio::join!(lock.lock(), first.unlock()) }).await;
        let second = second.unwrap();
        released.expect("the lock was held");
        proxy.set(Faults::default());
        throughout(200 * MS, async || {
            let is_held = scene.server.run::<bool>(&["EXISTS", "a"]);
            assert!(is_held && !second.is_lost(), "the lock is free although a guard is valid");
        })
        .await;
        second.unlock().await.expect("the lock was held");
        locks.shutdown().await.unwrap();
        proxy.cut();
    }
    drop(proxy);
    scene.end().await;
}

/// Guarantee 2. Both guards of a hold that is gone return `NotHeld`, also when they are released at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releasing_a_hold_that_is_gone_never_succeeds() {
    let scene = Scene::start();
    let locks = scene.client().await;
    for round in 0..500_u64 {
        let mut lock = locks.rlock("a");
        let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
        scene.server.run::<()>(&["DEL", "a"]);
        if round % 2 == 0 {
            drop(inner);
            spin(Duration::from_micros(round % 120));
            let released = outer.unlock().await;
            assert!(matches!(released, Err(Error::NotHeld { .. })), "round {round}: {released:?}");
        } else {
            let released = tokio::join!(outer.unlock(), inner.unlock());
            assert!(
                matches!(released, (Err(Error::NotHeld { .. }), Err(Error::NotHeld { .. }))),
                "round {round}: {released:?}"
            );
        }
    }
    drop(locks);
    scene.end().await;
}

/// Guarantee 2. The server refuses the release, and then another client deletes the key. The release returns
/// `NotHeld`.
#[tokio::test]
async fn a_release_that_was_refused_is_not_taken_for_one_that_ran() {
    let scene = Scene::start();
    scene.server.run::<()>(&["CONFIG", "SET", "busy-reply-threshold", "10"]);
    let locks = scene.client().await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let mut connection = scene.server.connect().unwrap();
    let running = std::thread::spawn(move || {
        let script = "local function now() local t = redis.call('time') return t[1] * 1000 + t[2] / 1000 end \
                      local start = now() repeat until now() > start + 4000 return redis.call('del', 'a')";
        redis::cmd("EVAL").arg(script).arg(0).query::<u32>(&mut connection).unwrap()
    });
    let is_busy = || {
        scene.server.try_run::<redis::Value>(&["GET", "x"]).is_err_and(|error| error.code() == Some("BUSY"))
    };
    eventually("the server is busy", is_busy, |&busy| busy).await;
    let (released, took) = timed(guard.unlock()).await;
    assert_eq!(running.join().unwrap(), 1, "the other script deletes the key");
    assert!(took > 100 * MS, "the release was not refused: {took:?}");
    assert!(matches!(released, Err(Error::NotHeld { .. })), "{released:?}");
    drop(locks);
    scene.end().await;
}

/// A lost hold does not count: releasing the last valid hold frees the lock.
#[tokio::test]
async fn expired_holds_do_not_keep_the_lock() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(5 * SECOND)).await;
    let mut lock = locks.rlock("leaked");
    let (leaked, kept) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    leaked.leak();
    eventually("the leaked hold ends", || (lock.hold_count(), kept.hold_count()), |&counts| counts == (1, 1))
        .await;
    kept.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());

    let mut owner = locks.owner();
    let fixed = owner.rlock("fixed").with(&fixed(300 * MS)).lock().await.unwrap();
    let kept = owner.rlock("fixed").lock().await.unwrap();
    soon(fixed.ended()).await.unwrap_err();
    kept.unlock().await.unwrap();
    assert!(!locks.rlock("fixed").is_locked().await.unwrap());
    assert!(matches!(fixed.unlock().await, Err(Error::NotHeld { .. })));
    drop((lock, owner, locks));
    scene.end().await;
}

/// Guarantee 7. A watched hold is lost while another hold keeps the lock. The owner's next watched hold is renewed.
#[tokio::test]
async fn a_hold_is_renewed_after_another_of_its_owner_was_lost() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(4 * SECOND)).await;
    let mut owner = locks.owner();
    let fixed = owner.rlock("a").with(&fixed(60 * SECOND)).lock().await.unwrap();
    // Longer than a lease, otherwise the watchdog has nothing to renew.
    let bounded = owner.rlock("a").with(&at_most(4_500 * MS)).lock().await.unwrap();
    let beside = locks.rlock("beside").lock().await.unwrap();
    soon(bounded.ended()).await.unwrap_err();
    // From one renewal of another lock to its next, a watchdog round passes with nothing to renew for this owner.
    for _ in 0..2 {
        renewed(&beside).await;
    }
    let watched = owner.rlock("a").lock().await.unwrap();
    renewed(&watched).await;
    assert!(!watched.is_lost() && !fixed.is_lost());
    watched.unlock().await.unwrap();
    fixed.unlock().await.unwrap();
    beside.unlock().await.unwrap();
    drop((bounded, owner, locks));
    scene.end().await;
}

/// A future that waits for a connection is not polled again. Other callers and the watchdog still get a connection.
#[tokio::test]
async fn an_unpolled_future_that_connects_blocks_nobody() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().connections(1).watchdog_lease(6 * SECOND);
    let locks = connect(proxy.url(), config).await;
    let held = locks.rlock("held").lock().await.unwrap();
    proxy.set(Faults::black_hole());
    proxy.cut();
    let mut left = locks.rlock("left");
    let mut waiting = Box::pin(left.lock());
    let before = proxy.accepted();
    poll_until(&mut waiting, || proxy.accepted() > before).await;
    proxy.set(Faults::default());

    soon(locks.rlock("b").lock()).await.unwrap().unlock().await.unwrap();
    throughout(6 * SECOND, async || assert!(!held.is_lost(), "the watchdog must get a connection, too"))
        .await;
    held.unlock().await.unwrap();
    drop(waiting);
    locks.shutdown().await.unwrap();
    drop((left, locks, proxy));
    scene.end().await;
}

/// Guarantee 8. The waiter at the head of the queue is not polled again. The waiters behind it attempt by themselves.
#[tokio::test]
async fn an_unpolled_future_at_the_head_of_the_queue_blocks_nobody() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().safety_poll(200 * MS)).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let mut left = locks.rlock("a");
    let mut waiting = Box::pin(left.lock());
    poll_until(&mut waiting, || !scene.server.channels().is_empty()).await;
    guard.unlock().await.unwrap();
    for _ in 0..3 {
        // Without a time limit, at the end of which a call attempts in any case.
        soon(locks.rlock("a").lock()).await.unwrap().unlock().await.unwrap();
    }
    soon(waiting).await.unwrap().unlock().await.unwrap();
    drop((left, locks));
    scene.end().await;
}

/// Guarantee 17. A time limit holds also when an earlier release of this owner is stuck.
#[tokio::test]
async fn a_stuck_release_does_not_extend_a_time_limit() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), LockConfig::builder().command_timeout(500 * MS)).await;
    let mut lock = locks.rlock("a");
    let guard = lock.lock().await.unwrap();
    proxy.set(Faults::black_hole());
    let sent = proxy.commands();
    drop(guard);
    eventually("the release is in flight", || proxy.commands(), |&now| now > sent).await;
    // On a busy machine all timers fire late. So this timer decides, not a clock.
    let got = timeout(700 * MS, lock.try_lock_for(100 * MS))
        .await
        .expect("later than the limit and one `command_timeout`");
    assert!(got.is_err());
    proxy.set(Faults::default());
    locks.shutdown().await.unwrap();
    drop((lock, locks, proxy));
    scene.end().await;
}

//! Promises 1, 2 and 7 where two things happen at once: what one does never takes away what another is getting.

#[path = "support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lockkeeper::{Error, LockConfig};
use support::{Faults, MS, SECOND, Scene, connect, eventually, patient, renewed, soon, throughout, timed};
use tokio::time::{sleep, timeout};

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Another thread gives the last hold back while the handle enters again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_release_beside_a_reentry_does_not_free_the_lock_under_it() {
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
        releasing.await.unwrap().expect("it was held");
        let found = locks.inspect("a").await.unwrap();
        assert!(found.is_some() && !second.is_lost(), "round {round}: a live guard, and a free lock");
        beside += u32::from(second.holds() == 1);
        second.unlock().await.expect("it was held");
    }
    assert!(beside > 0);
    locks.shutdown().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// A re-entry for a short time is granted when that time is over. It is tried again, and not with another id, by which
/// this owner would wait for itself.
#[tokio::test]
async fn a_reentry_that_comes_too_late_is_tried_again() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient()).await;
    let mut me = locks.owner();
    let outer = me.rlock("a").lock().await.unwrap();
    proxy.set(Faults { hold_requests: true, ..Faults::default() });
    let mut handle = me.rlock("a").lease(300 * MS).unwrap();
    let heal = async {
        sleep(400 * MS).await; // longer than that
        proxy.set(Faults::default());
    };
    let (inner, ()) = tokio::join!(soon(handle.lock()), heal);
    let inner = inner.unwrap();
    assert_eq!(locks.inspect("a").await.unwrap().unwrap().holders[0].holds, 2);
    drop(inner);
    outer.unlock().await.unwrap();
    drop(handle);
    drop((me, locks, proxy));
    scene.end().await;
}

/// Polled once and then left: what it has under way on the lock must not stop another for ever.
#[tokio::test]
async fn a_future_that_is_left_with_a_command_under_way_stops_nobody() {
    let scene = Scene::start();
    let config = LockConfig::builder().command_timeout(2 * SECOND).retry_timeout(SECOND);
    let locks = scene.client_with(config).await;
    let mut lock = locks.rlock("a");

    let guard = lock.lock().await.unwrap();
    let mut left = Box::pin(guard.unlock());
    assert!((&mut left).now_or_never().is_none());
    eventually("it ran", || scene.server.run::<bool>(&["EXISTS", "a"]), |held| !held).await;
    let guard = soon(lock.try_lock_for(50 * MS)).await.unwrap().expect("it is free");
    assert!(!guard.is_lost());
    drop(left);

    let mut left = Box::pin(lock.lock());
    assert!((&mut left).now_or_never().is_none());
    let error = soon(guard.unlock()).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
    let again = soon(left).await.unwrap();
    again.unlock().await.unwrap();
    soon(locks.shutdown()).await.unwrap();
    drop((lock, locks));
    scene.end().await;
}

/// The same in one task, with a release that runs late.
#[tokio::test]
async fn a_release_that_runs_late_does_not_end_a_reentry_beside_it() {
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
        released.expect("it was held");
        proxy.set(Faults::default());
        throughout(200 * MS, async || {
            let is_held = scene.server.run::<bool>(&["EXISTS", "a"]);
            assert!(is_held && !second.is_lost(), "a live guard, and a free lock");
        })
        .await;
        second.unlock().await.expect("it was held");
        locks.shutdown().await.unwrap();
        proxy.cut();
    }
    drop(proxy);
    scene.end().await;
}

/// Two guards of a hold that is gone are both told so, also when they are given back together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_is_gone_is_never_released_with_success() {
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

/// A release that the server refused has not released anything.
#[tokio::test]
async fn a_release_that_was_refused_is_not_taken_for_one_that_ran() {
    let scene = Scene::start();
    scene.server.run::<()>(&["CONFIG", "SET", "busy-reply-threshold", "10"]);
    let locks = scene.client().await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let mut connection = scene.server.connect().unwrap();
    connection.set_read_timeout(None).unwrap();
    let running = std::thread::spawn(move || {
        let script = "local function now() local t = redis.call('time') return t[1] * 1000 + t[2] / 1000 end \
                      local start = now() repeat until now() > start + 4000 return redis.call('del', 'a')";
        redis::cmd("EVAL").arg(script).arg(0).query::<u32>(&mut connection).unwrap()
    });
    let is_busy = || {
        scene.server.try_run::<redis::Value>(&["GET", "x"]).is_err_and(|error| error.code() == Some("BUSY"))
    };
    eventually("it is busy", is_busy, |&busy| busy).await;
    let (released, took) = timed(guard.unlock()).await;
    assert_eq!(running.join().unwrap(), 1, "somebody else removed it");
    assert!(took > 100 * MS, "it was not refused: {took:?}");
    assert!(matches!(released, Err(Error::NotHeld { .. })), "{released:?}");
    drop(locks);
    scene.end().await;
}

/// What is over does not count: the last hold that can be relied on frees the lock.
#[tokio::test]
async fn holds_that_are_over_do_not_keep_the_lock() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(5 * SECOND)).await;
    let mut lock = locks.rlock("leaked");
    let (leaked, kept) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let over = leaked.lost();
    leaked.leak();
    soon(over).await;
    assert_eq!((lock.hold_count(), kept.holds()), (1, 1));
    kept.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());

    let mut owner = locks.owner();
    let fixed = owner.rlock("fixed").lease(300 * MS).unwrap().lock().await.unwrap();
    let kept = owner.rlock("fixed").lock().await.unwrap();
    soon(fixed.lost()).await;
    kept.unlock().await.unwrap();
    assert!(!locks.rlock("fixed").is_locked().await.unwrap());
    assert!(matches!(fixed.unlock().await, Err(Error::NotHeld { .. })));
    drop((lock, owner, locks));
    scene.end().await;
}

/// A watched hold that ended while the owner held the lock by another does not keep the next from being renewed.
#[tokio::test]
async fn a_hold_is_renewed_after_another_of_its_owner_was_lost() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(4 * SECOND)).await;
    let mut owner = locks.owner();
    let fixed = owner.rlock("a").lease(60 * SECOND).unwrap().lock().await.unwrap();
    // Longer than a lease, or the watchdog has nothing to do.
    let bounded = owner.rlock("a").max_hold(4_500 * MS).unwrap().lock().await.unwrap();
    soon(bounded.lost()).await;
    sleep(1_500 * MS).await; // the watchdog came by, and had nothing to renew any more
    let watched = owner.rlock("a").lock().await.unwrap();
    renewed(&watched).await;
    assert!(!watched.is_lost() && !fixed.is_lost());
    watched.unlock().await.unwrap();
    fixed.unlock().await.unwrap();
    drop((bounded, owner, locks));
    scene.end().await;
}

/// Somebody's future that waits for a connection, and is not polled any more, keeps nobody else from one.
#[tokio::test]
async fn a_future_that_is_left_while_it_connects_keeps_nobody_waiting() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().connections(1).watchdog_lease(6 * SECOND);
    let locks = connect(proxy.url(), config).await;
    let held = locks.rlock("held").lock().await.unwrap();
    proxy.set(Faults::black_hole());
    proxy.cut();
    let mut left = locks.rlock("left");
    let mut waiting = Box::pin(left.lock());
    assert!(timeout(300 * MS, &mut waiting).await.is_err());
    proxy.set(Faults::default());

    soon(locks.rlock("b").lock()).await.unwrap().unlock().await.unwrap();
    throughout(6 * SECOND, async || assert!(!held.is_lost(), "nor the watchdog")).await;
    held.unlock().await.unwrap();
    drop(waiting);
    locks.shutdown().await.unwrap();
    drop((left, locks, proxy));
    scene.end().await;
}

/// Somebody's future in front of the line that is not polled any more: those behind it look for themselves.
#[tokio::test]
async fn a_future_that_is_left_in_front_of_the_line_keeps_nobody_waiting() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().safety_poll(200 * MS)).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let mut left = locks.rlock("a");
    let mut waiting = Box::pin(left.lock());
    assert!(timeout(100 * MS, &mut waiting).await.is_err());
    guard.unlock().await.unwrap();
    for _ in 0..3 {
        let guard = locks.rlock("a").try_lock_for(10 * SECOND).await;
        guard.unwrap().expect("it is free").unlock().await.unwrap();
    }
    soon(waiting).await.unwrap().unlock().await.unwrap();
    drop((left, locks));
    scene.end().await;
}

/// A time limit holds also when this owner's last release is stuck.
#[tokio::test]
async fn an_old_release_that_is_stuck_does_not_stretch_a_time_limit() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), LockConfig::builder().command_timeout(500 * MS)).await;
    let mut lock = locks.rlock("a");
    let guard = lock.lock().await.unwrap();
    proxy.set(Faults::black_hole());
    drop(guard);
    sleep(5 * MS).await; // its release is under way, of which nothing arrives anywhere
    // On a busy machine all timers are late, so this one is the judge, and no clock.
    let got = timeout(700 * MS, lock.try_lock_for(100 * MS)).await.expect("up to the time of one command");
    assert!(got.is_err());
    proxy.set(Faults::default());
    locks.shutdown().await.unwrap();
    drop((lock, locks, proxy));
    scene.end().await;
}

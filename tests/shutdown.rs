//! Shutting a client down: what `shutdown` waits for, and what is left on the server when every call has ended.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use lockkeeper::leader::Candidate;
use lockkeeper::{Error, LockConfig, LockGuard};

use crate::support::fixture::{Fixture, for_each_lock};
use crate::support::{
    Faults, LIMIT, MS, SECOND, Scene, calls_of, connect, eventually, fixed, patient, poll_until, soon,
    throughout, timed,
};
use tokio::task::JoinSet;
use tokio::time::sleep;

const TASKS: usize = 64;

/// Guarantee 11. Acquires in flight when the client shuts down end with `Closed`. When `shutdown` and all calls have
/// returned, the server holds nothing of them.
async fn shutdown_leaves_no_lock_of_an_acquire_in_flight<F: Fixture>() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let mut total = 0;
    for round in 0..10_u32 {
        proxy.set(Faults::default());
        let locks = connect(proxy.url(), patient()).await;
        // Network latency: at any moment some commands are in flight.
        proxy.set(Faults { delay: 5 * MS, ..Faults::default() });
        let mut calls = JoinSet::new();
        for task in 0..TASKS {
            let (locks, name) = (locks.clone(), format!("<{task}>"));
            calls.spawn(async move { (F::lock(&locks, &name).lock().await, name) });
        }
        sleep(2 * MS * round).await; // at a different moment in each round
        soon(locks.shutdown()).await.unwrap();
        let (held, closed): (Vec<_>, Vec<_>) =
            soon(calls.join_all()).await.into_iter().partition(|(got, _)| got.is_ok());
        // A release after this point is too late: a real process would have ended.
        let is_left =
            |key: &String| !key.contains("token") && closed.iter().any(|(_, name)| key.contains(name));
        let left: Vec<String> = scene.server.keys().into_iter().filter(is_left).collect();
        assert_eq!(left, [""; 0], "round {round}");
        total += closed.len();
        for (guard, _) in held {
            soon(guard.unwrap().unlock()).await.unwrap();
        }
        scene.server.run::<()>(&["FLUSHALL"]); // token counters never expire
        drop(locks);
    }
    assert!(total > TASKS, "only {total} acquires were in flight");
    drop(proxy);
    scene.end().await;
}

/// Guarantee 11. The queue entry of a fair waiter on the server is removed by `shutdown`.
#[tokio::test]
async fn shutdown_leaves_no_queue_entry() {
    const WAITERS: usize = 50;
    let scene = Scene::start();
    let beside = scene.client().await;
    for round in 0..5 {
        let guard = beside.fair_lock("a").lock().await.unwrap();
        let locks = scene.client().await;
        let mut calls = JoinSet::new();
        for _ in 0..WAITERS {
            let locks = locks.clone();
            calls.spawn(async move { locks.fair_lock("a").lock().await.map(drop) });
        }
        let queued = || scene.server.run::<usize>(&["LLEN", "redisson_lock_queue:{a}"]);
        eventually("some are in the queue", queued, |&len| len > WAITERS / 2).await;
        soon(locks.shutdown()).await.unwrap();
        for result in soon(calls.join_all()).await {
            assert!(matches!(result, Err(Error::Closed)), "{result:?}");
        }
        assert_eq!(queued(), 0, "round {round}");
        guard.unlock().await.unwrap();
    }
    drop(beside);
    scene.end().await;
}

/// Guarantee 11. A waiter that is not polled cannot end its call. `shutdown` removes its queue entry all the same.
#[tokio::test]
async fn shutdown_removes_the_queue_entry_of_an_unpolled_future() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let guard = beside.fair_lock("a").lock().await.unwrap();
    let mut lock = locks.fair_lock("a");
    let mut waiting = Box::pin(lock.lock());
    poll_until(&mut waiting, || !scene.server.channels().is_empty()).await;
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(scene.server.run::<usize>(&["LLEN", "redisson_lock_queue:{a}"]), 0);
    assert!(matches!(soon(waiting).await, Err(Error::Closed)));
    guard.unlock().await.unwrap();
    drop((lock, locks, beside));
    scene.end().await;
}

/// `shutdown` does not wait for holders: a guard stays valid until its lease ends.
#[tokio::test]
async fn shutdown_does_not_wait_for_guards() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.rlock("a").lock().await.map(drop) }
    });
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    soon(locks.shutdown()).await.unwrap();
    assert!(matches!(soon(waiting).await.unwrap(), Err(Error::Closed)));
    assert!(!guard.is_lost());
    guard.unlock().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// A server that does not answer delays `shutdown` for `retry_timeout` at most.
#[tokio::test]
async fn shutdown_is_bounded_when_the_server_is_silent() {
    let scene = Scene::start();
    let config = LockConfig::builder().command_timeout(200 * MS).retry_timeout(SECOND);
    let locks = connect(scene.server.url(), config).await;
    let mut calls = JoinSet::new();
    scene.server.freeze();
    for task in 0..TASKS {
        let locks = locks.clone();
        calls.spawn(async move { locks.rlock(format!("{task}")).lock().await.map(drop) });
    }
    tokio::task::yield_now().await;
    let (closed, took) = timed(locks.shutdown()).await;
    assert!(closed.is_err(), "`shutdown` reports what it could not release");
    assert!(took < 8 * SECOND, "{took:?}");
    scene.server.thaw();
    soon(calls.join_all()).await;
    drop(locks);
    scene.end().await;
}

/// Guarantees 7 and 12. Guards that end together do not fill the connection: what waits there for longer than `command_timeout` would be
/// taken for a silent server, and renewals would wait behind it.
#[tokio::test]
async fn releases_of_many_guards_are_sent_a_thousand_at_a_time() {
    // By the background, and by the futures of callers.
    const MOST: usize = 2 * 1_000;
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient()).await;
    let acquiring = (0..2 * MOST).map(|number| {
        let mut lock = locks.rlock(format!("{number}"));
        async move { lock.lock().await.unwrap() }
    });
    let mut dropped: Vec<_> = stream::iter(acquiring).buffer_unordered(64).collect().await;
    let unlocked = dropped.split_off(MOST);
    let is_release = calls_of("rlock/release.lua");
    let most_together = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most_together);
    proxy.answer(move |words| {
        if is_release(words) {
            seen.fetch_max(words[2].parse().unwrap(), Ordering::SeqCst);
        }
        None
    });
    proxy.set(Faults::replies_held());
    let before = proxy.commands();
    drop(dropped);
    let unlocking = tokio::spawn(join_all(unlocked.into_iter().map(LockGuard::unlock)));
    let sent = || proxy.commands() - before;
    eventually("the first ones are under way", sent, |&sent| sent >= 4).await;
    let most = MOST / 64 + 10;
    throughout(300 * MS, async || assert!(sent() <= most, "{} commands are under way", sent())).await;
    proxy.set(Faults::default());
    for result in soon(unlocking).await.unwrap() {
        result.unwrap();
    }
    assert_eq!(most_together.load(Ordering::SeqCst), 64, "releases in one command");
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(scene.server.keys(), [""; 0]);
    drop((locks, proxy));
    scene.end().await;
}

/// A shutdown goes on while the server answers releases, and gives up this long after the last answer. Then it names a lock that is left.
#[tokio::test]
async fn a_shutdown_goes_on_while_releases_are_answered_and_names_a_lock_that_is_left() {
    const LOCKS: usize = 7;
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().command_timeout(SECOND).retry_timeout(2 * SECOND);
    let locks = connect(proxy.url(), config).await;
    let mut guards = Vec::new();
    for _ in 0..2 {
        // At first, several releases go out with the text of the script. The proxy knows only those with its hash.
        guards.clear();
        scene.quiet().await;
        for number in 0..LOCKS {
            guards.push(locks.rlock(format!("{number}")).lock().await.unwrap());
        }
    }
    let is_release = calls_of("rlock/release.lua");
    let released = Arc::new(AtomicUsize::new(0));
    let most = Arc::clone(&released);
    proxy.answer(move |words| {
        let is_early = || words[3].parse::<usize>().unwrap() >= most.load(Ordering::SeqCst);
        match is_release(words) {
            // Each release by itself.
            true if words[2] != "1" => Some("-TRYAGAIN one by one\r\n".to_owned()),
            true if is_early() => Some("-LOADING Redis is loading the dataset\r\n".to_owned()),
            _ => None,
        }
    });
    drop(guards);
    let shutdown = tokio::spawn({
        let locks = locks.clone();
        async move { timed(locks.shutdown()).await }
    });
    for number in 1..LOCKS {
        sleep(600 * MS).await; // less than `retry_timeout`, and all together more
        released.store(number, Ordering::SeqCst);
    }
    let (ended, took) = soon(shutdown).await.unwrap();
    let error = ended.unwrap_err();
    assert_eq!(scene.server.keys(), [(LOCKS - 1).to_string()], "the others were released, {error}");
    assert_eq!(error.lock().unwrap().name, (LOCKS - 1).to_string(), "{error}");
    assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
    assert!(took > 4 * SECOND && took < LIMIT / 2, "{took:?}");
    released.store(LOCKS, Ordering::SeqCst);
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(scene.server.keys(), [""; 0]);
    drop((locks, proxy));
    scene.end().await;
}

/// No lock depends on what is announced. Its answer is missing, and the lock is released.
#[tokio::test]
async fn a_shutdown_reports_no_fault_of_an_announcement() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), LockConfig::builder().command_timeout(SECOND)).await;
    let mut candidate = Candidate::new(&locks, "a").announce("here").unwrap();
    let mut leading = Box::pin(candidate.run(|_| pending::<()>()));
    let is_announced = || scene.server.keys().iter().any(|key| key.starts_with("lockkeeper_announcement"));
    poll_until(&mut leading, is_announced).await;
    proxy.swallow(0, false, calls_of("announcements/remove.lua"));
    drop(leading);
    drop(candidate);
    eventually("the lock is released", || scene.server.keys(), |keys| !keys.contains(&"a".to_owned())).await;
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(proxy.swallowed(), 1);
    drop((locks, proxy));
    scene.server.run::<()>(&["FLUSHALL"]);
    scene.end().await;
}

for_each_lock! { shutdown_leaves_no_lock_of_an_acquire_in_flight }

/// Guarantee 11. Nobody polls the acquire, and the server has granted it.
#[tokio::test]
async fn shutdown_undoes_an_unpolled_acquire() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient().retry_timeout(SECOND)).await;
    proxy.set(Faults { delay: 20 * MS, ..Faults::default() });
    let mut lock = locks.rlock("a");
    let mut waiting = Box::pin(lock.lock());
    poll_until(&mut waiting, || !scene.server.keys().is_empty()).await;
    let shut = soon(locks.shutdown()).await;
    let left = scene.server.run::<i64>(&["PTTL", "a"]);
    assert_eq!(scene.server.keys(), [""; 0], "after {shut:?}, lease {left} ms");
    drop(waiting);
    soon(locks.shutdown()).await.unwrap(); // undoes what the future left, while the server can be reached
    drop((lock, locks, proxy));
    scene.end().await;
}

/// Guarantee 11. The server was away when the lock was released, and until the lease had ended: nothing is left of the lock.
#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_lease_that_has_ended() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let lease = 3 * SECOND;
    let locks = connect(proxy.url(), patient().retry_timeout(SECOND / 2)).await;
    let guard = locks.rlock("a").with(&fixed(lease)).lock().await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    guard.unlock().await.unwrap_err();
    eventually("the lease ends", || scene.server.run::<bool>(&["EXISTS", "a"]), |is_held| !is_held).await;
    soon(locks.shutdown()).await.expect("nothing is left that has to be released");
    proxy.refuse(false);
    drop((locks, proxy));
    scene.end().await;
}

/// Guarantee 11. Nobody polls the acquire, and the server has refused it: there is nothing to undo.
#[tokio::test]
async fn shutdown_succeeds_beside_an_attempt_whose_answer_nobody_reads() {
    let scene = Scene::start();
    let config = patient().command_timeout(SECOND).retry_timeout(6 * SECOND);
    let (locks, beside) = (scene.client_with(config).await, scene.client().await);
    let held = beside.rlock("a").lock().await.unwrap();
    let mut lock = locks.rlock("a");
    let mut waiting = Box::pin(lock.lock());
    let before = scene.server.calls("evalsha");
    poll_until(&mut waiting, || scene.server.calls("evalsha") > before).await;
    soon(locks.shutdown()).await.unwrap();
    drop(waiting);
    held.unlock().await.unwrap();
    drop((lock, locks, beside));
    scene.end().await;
}

/// Guarantee 11. Nobody polls the waiter, and its heartbeat is in flight.
#[tokio::test]
async fn shutdown_leaves_the_queue_for_an_unpolled_waiter() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient().fair_allowance(3 * SECOND).retry_timeout(SECOND)).await;
    let beside = scene.client_with(patient().fair_allowance(3 * SECOND)).await;
    let guard = beside.fair_lock("a").lock().await.unwrap();
    let mut lock = locks.fair_lock("a");
    let mut waiting = Box::pin(lock.lock());
    poll_until(&mut waiting, || !scene.server.channels().is_empty()).await;
    proxy.set(Faults { delay: 150 * MS, ..Faults::default() });
    let record = || scene.server.run::<Vec<String>>(&["HVALS", "lockkeeper_fair:{a}"]);
    let before = record();
    eventually("a heartbeat", record, |now| *now != before).await;
    let sent = proxy.commands();
    eventually("the next heartbeat is in flight", || proxy.commands(), |&now| now > sent).await;
    let shut = soon(locks.shutdown()).await;
    let places = scene.server.run::<usize>(&["LLEN", "redisson_lock_queue:{a}"]);
    guard.unlock().await.unwrap();
    let (guard, waited) = timed(beside.fair_lock("a").lock()).await;
    assert_eq!(places, 0, "after {shut:?}; another waited {waited:?} for a free lock");
    guard.unwrap().unlock().await.unwrap();
    drop(waiting);
    soon(locks.shutdown()).await.unwrap(); // as above
    drop((lock, locks, beside, proxy));
    scene.end().await;
}

/// With `retry_timeout` zero ("do not retry") a healthy server gets no time to answer.
#[tokio::test]
async fn shutdown_without_retries_still_waits_for_an_answer() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().retry_timeout(Duration::ZERO)).await;
    drop(locks.rlock("a").lock().await.unwrap());
    let shut = locks.shutdown().await;
    let keys = scene.server.keys();
    assert!(shut.is_ok() && keys.is_empty(), "{shut:?}, left {keys:?}");
    drop(locks);
    scene.end().await;
}

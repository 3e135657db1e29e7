//! What a read-write lock promises beyond what all locks do: readers together, a writer alone, and the dead in nobody's
//! way.
//!
//! Of Redisson's tests, `testExpireRead` unlocks a read hold that had expired, and expects no error. Here it is told, as
//! for any lock. The rest has a counterpart, here or in `tests/conformance`.

#[path = "support/mod.rs"]
mod support;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockkeeper::{Error, LockClient, LockConfig, LockGuard, ReadLock, WriteLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Child, Faults, LIMIT, MS, SECOND, Scene, child, eventually, soon, timed};
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

fn reader(locks: &LockClient) -> ReadLock {
    locks.read_write_lock("a").into_read()
}

fn writer(locks: &LockClient) -> WriteLock {
    locks.read_write_lock("a").into_write()
}

async fn can_read(locks: &LockClient) -> bool {
    let got = reader(locks).try_lock().await.unwrap();
    is_had(got).await
}

async fn can_write(locks: &LockClient) -> bool {
    let got = writer(locks).try_lock().await.unwrap();
    is_had(got).await
}

async fn is_had(got: Option<LockGuard>) -> bool {
    let is_had = got.is_some();
    if let Some(guard) = got {
        guard.unlock().await.unwrap();
    }
    is_had
}

/// The keys of read holds that are there.
fn holds(scene: &Scene) -> Vec<String> {
    let mut keys: Vec<String> = scene.server.run(&["KEYS", "{a}:*:rwlock_timeout:*"]);
    keys.sort();
    keys
}

/// Wants to write, and listens when this returns. Ends with when it did, and gave it back.
async fn wants_to_write(scene: &Scene, locks: &LockClient) -> JoinHandle<Instant> {
    let locks = locks.clone();
    let before = scene.server.channels().len();
    let waiting = tokio::spawn(async move {
        let guard = writer(&locks).lock().await.unwrap();
        let at = Instant::now();
        guard.unlock().await.unwrap();
        at
    });
    eventually("it listens", || scene.server.channels().len(), |&now| now > 0 && now >= before).await;
    waiting
}

/// The second process. In a normal run there is nothing to do here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some((role, url)) = child::role() else { return };
    let (what, count) = role.split_once(' ').unwrap();
    let count: usize = count.parse().unwrap();
    let config = LockConfig::default().watchdog_lease(SECOND);
    let locks = LockClient::new(url, config).await.unwrap();
    match what {
        // All are in together, or nobody gets on.
        "read" => {
            let inside = Arc::new(Barrier::new(count));
            let mut reading = JoinSet::new();
            for _ in 0..count {
                let (locks, inside) = (locks.clone(), Arc::clone(&inside));
                reading.spawn(async move {
                    let guard = reader(&locks).lock().await.unwrap();
                    inside.wait().await;
                    guard.unlock().await.unwrap();
                });
            }
            reading.join_all().await;
            println!("end");
        }
        "hold" => {
            let mut guards = Vec::new();
            for _ in 0..count {
                let mut lock = reader(&locks);
                for _ in 0..3 {
                    guards.push(lock.lock().await.unwrap());
                }
            }
            println!("ready");
            sleep(10 * LIMIT).await;
        }
        _ => {
            let _guard = writer(&locks).lock().await.unwrap();
            println!("ready");
            sleep(10 * LIMIT).await;
        }
    }
}

async fn ready(mut child: Child) -> Child {
    tokio::task::spawn_blocking(move || {
        child.read_until("ready");
        child
    })
    .await
    .unwrap()
}

/// Redisson: testMultiRead, testWriteLock, testReadLockIsLocked.
#[tokio::test]
async fn readers_together_and_a_writer_alone() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client().await, scene.client().await);
    assert!(!reader(&ours).force_unlock().await.unwrap());
    let first = reader(&ours).lock().await.unwrap();
    let second = reader(&theirs).lock().await.unwrap();
    assert!(reader(&ours).is_locked().await.unwrap() && !writer(&ours).is_locked().await.unwrap());
    assert_eq!(holds(&scene).len(), 2);
    assert!(!can_write(&ours).await && can_read(&ours).await);
    first.unlock().await.unwrap();
    assert!(!can_write(&theirs).await && can_read(&theirs).await);
    second.unlock().await.unwrap();
    assert!(holds(&scene).is_empty());

    let guard = writer(&ours).lock().await.unwrap();
    assert!(!reader(&ours).is_locked().await.unwrap() && writer(&theirs).is_locked().await.unwrap());
    assert!(!can_read(&ours).await && !can_read(&theirs).await && !can_write(&theirs).await);
    guard.unlock().await.unwrap();
    assert!(can_write(&theirs).await && can_read(&ours).await);
    drop((ours, theirs));
    scene.end().await;
}

/// Redisson: testWR, testWriteReadReentrancy, testWriteLock, testHoldCount.
#[tokio::test]
async fn an_owner_that_writes_may_read_and_go_on_reading() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client().await, scene.client().await);
    let mut lock = ours.read_write_lock("a");
    let outer = lock.write().lock().await.unwrap();
    let inner = lock.write().lock().await.unwrap();
    assert_eq!((lock.write().hold_count(), lock.read().hold_count()), (2, 0));
    inner.unlock().await.unwrap();
    // In any number and order, given back or dropped.
    for _ in 0..20 {
        let first = lock.read().lock().await.unwrap();
        let second = lock.read().lock().await.unwrap();
        assert_eq!((lock.write().hold_count(), lock.read().hold_count()), (1, 2));
        assert_eq!(holds(&scene).len(), 2);
        first.unlock().await.unwrap();
        drop(second);
        assert!(!can_read(&theirs).await);
    }
    let reading = lock.read().lock().await.unwrap();
    assert!(lock.read().is_locked().await.unwrap() && lock.write().is_locked().await.unwrap());
    outer.unlock().await.unwrap();
    assert!(lock.read().is_locked().await.unwrap() && !lock.write().is_locked().await.unwrap());
    assert!(can_read(&theirs).await && !can_write(&theirs).await);
    reading.unlock().await.unwrap();
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    reading.unlock().await.unwrap();
    assert!(lock.write().is_locked().await.unwrap());
    writing.unlock().await.unwrap();
    assert!(can_write(&theirs).await);
    drop((lock, ours, theirs));
    scene.end().await;
}

#[tokio::test]
async fn an_upgrade_is_an_error_at_once_and_changes_nothing() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let is_upgrade = |error: Error| {
        assert!(matches!(&error, Error::Upgrade { name, .. } if name == "a"), "{error:?}");
        assert!(!error.is_transient() && !error.outcome_unknown());
    };
    let mut lock = locks.read_write_lock("a");
    let guard = lock.read().lock().await.unwrap();
    let before = scene.server.calls("evalsha");
    is_upgrade(soon(lock.write().lock()).await.unwrap_err());
    is_upgrade(soon(lock.write().try_lock()).await.unwrap_err());
    is_upgrade(soon(lock.write().try_lock_for(10 * SECOND)).await.unwrap_err());
    assert_eq!(scene.server.calls("evalsha"), before, "nothing was asked");
    guard.unlock().await.unwrap();
    lock.write().lock().await.unwrap().unlock().await.unwrap();

    // The same through an owner, and for what was a downgrade.
    let mut me = locks.owner();
    let writing = me.read_write_lock("a").write().lock().await.unwrap();
    let reading = me.read_write_lock("a").read().lock().await.unwrap();
    let again = me.read_write_lock("a").write().lock().await.expect("it writes");
    again.unlock().await.unwrap();
    writing.unlock().await.unwrap();
    is_upgrade(me.read_write_lock("a").write().lock().await.unwrap_err());
    reading.unlock().await.unwrap();

    // Dropped, and not yet given back: in nobody's way.
    for _ in 0..50 {
        drop(lock.read().lock().await.unwrap());
        drop(lock.write().try_lock().await.unwrap().expect("its own hold is not in its way"));
    }
    let other = me.rlock("b").lock().await.unwrap();
    assert!(matches!(me.read_write_lock("b").read().lock().await, Err(Error::WrongKind { .. })));
    assert!(matches!(me.read_write_lock("b").write().lock().await, Err(Error::WrongKind { .. })));
    other.unlock().await.unwrap();
    drop((me, lock, locks));
    scene.end().await;
}

/// Redisson: testWriteRead. Two hundred readers of four processes wait for a writer, and are in together.
#[tokio::test]
async fn when_a_writer_leaves_all_readers_enter_together() {
    const PROCESSES: usize = 4;
    const EACH: usize = 50;
    let scene = Scene::start();
    let locks = scene.client().await;
    let guard = writer(&locks).lock().await.unwrap();
    let start = |_| Child::start(&format!("read {EACH}"), &scene.server.url());
    let mut children: Vec<_> = (0..PROCESSES).map(start).collect();
    let heard = || scene.server.run::<(String, usize)>(&["PUBSUB", "NUMSUB", "redisson_rwlock:{a}"]).1;
    eventually("all processes listen", heard, |&count| count == PROCESSES).await;
    let attempts = scene.server.calls("evalsha");
    let start = Instant::now();
    guard.unlock().await.unwrap();
    for child in &mut children {
        eventually("its readers were in together", || child.has_ended(), |&ended| ended).await;
    }
    let asked = scene.server.calls("evalsha") - attempts;
    println!("{asked} scripts in {:?}", start.elapsed());
    assert!(asked <= (3 * PROCESSES * EACH) as u64, "{asked}: one attempt each, and a release");
    drop(locks);
    scene.end().await;
}

/// Redisson wakes nobody by this: who could read sleeps on.
#[tokio::test]
async fn a_downgrade_lets_waiting_readers_in_at_once() {
    let scene = Scene::start();
    let config = LockConfig::default().safety_poll(60 * SECOND);
    let (ours, theirs) = (scene.client().await, scene.client_with(config).await);
    let mut lock = ours.read_write_lock("a");
    let writing = lock.write().lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let theirs = theirs.clone();
        waiting.spawn(async move { reader(&theirs).lock().await.unwrap() });
    }
    eventually("they listen", || scene.server.channels(), |channels| channels.len() == 1).await;
    let reading = lock.read().lock().await.unwrap();
    writing.unlock().await.unwrap();
    let (guards, took) = timed(waiting.join_all()).await;
    assert!(took < SECOND, "{took:?}");
    drop((guards, reading, lock));
    drop((ours, theirs));
    scene.end().await;
}

/// Nor do those of its own process come in its way, who wait in line for what it has.
#[tokio::test]
async fn a_writer_reads_past_the_readers_of_its_process() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut lock = locks.read_write_lock("a");
    let writing = lock.write().lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let locks = locks.clone();
        waiting.spawn(async move { reader(&locks).lock().await.unwrap() });
    }
    eventually("they listen", || scene.server.channels(), |channels| channels.len() == 1).await;
    let (reading, took) = timed(lock.read().lock()).await;
    assert!(took < SECOND, "{took:?}");
    writing.unlock().await.unwrap();
    let (guards, took) = timed(waiting.join_all()).await;
    assert!(took < SECOND, "{took:?}");
    drop((guards, reading, lock));
    locks.shutdown().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// The one in front is a future that nobody polls any more, and the writer is gone without a message.
#[tokio::test]
async fn a_reader_that_is_left_in_front_holds_no_other_up_for_long() {
    let scene = Scene::start();
    let locks = scene.client_with(LockConfig::default().safety_poll(300 * MS)).await;
    writer(&locks).lease(500 * MS).lock().await.unwrap().leak();
    let mut in_front = reader(&locks);
    let mut left = Box::pin(in_front.lock());
    while scene.server.channels().is_empty() {
        assert!((&mut left).now_or_never().is_none());
        sleep(MS).await;
    }
    let mut waiting = JoinSet::new();
    for _ in 0..6 {
        let locks = locks.clone();
        waiting.spawn(async move { reader(&locks).lock().await.unwrap() });
    }
    let (guards, took) = timed(waiting.join_all()).await;
    assert!(took < 3 * SECOND, "{took:?}");
    let (later, took) = timed(async { reader(&locks).lock().await.unwrap() }).await;
    assert!(took < 200 * MS, "others read: {took:?}");
    drop((guards, later));
    soon(left).await.unwrap().unlock().await.unwrap();
    drop((in_front, locks));
    scene.end().await;
}

/// One connection's worth of attempts for a message that lets nobody of them in.
#[tokio::test]
async fn a_message_that_is_not_for_readers_costs_one_attempt() {
    const READERS: usize = 100;
    const WRITERS: usize = 20;
    let scene = Scene::start();
    let locks = scene.client().await;
    let guard = writer(&locks).lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for number in 0..READERS + WRITERS {
        let locks = locks.clone();
        waiting.spawn(async move {
            match number < WRITERS {
                true => writer(&locks).lock().await.unwrap().unlock().await.unwrap(),
                false => reader(&locks).lock().await.unwrap().unlock().await.unwrap(),
            }
        });
    }
    eventually("they listen", || scene.server.channels(), |channels| channels.len() == 1).await;
    let before = scene.server.calls("evalsha");
    guard.unlock().await.unwrap();
    soon(waiting.join_all()).await;
    let asked = scene.server.calls("evalsha") - before;
    println!("{asked} scripts");
    assert!(asked < 4 * (READERS + WRITERS) as u64, "{asked} scripts");
    drop(locks);
    scene.end().await;
}

/// Without the message they look for themselves; the first that gets in calls the others.
#[tokio::test]
async fn a_lost_message_costs_a_safety_poll() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    proxy.set(Faults { lose_messages: true, ..Faults::default() });
    let config = LockConfig::default().safety_poll(600 * MS);
    let (ours, theirs) = (LockClient::new(proxy.url(), config).await.unwrap(), scene.client().await);
    let guard = writer(&theirs).lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let ours = ours.clone();
        waiting.spawn(async move { reader(&ours).lock().await.unwrap() });
    }
    eventually("they listen", || scene.server.channels(), |channels| channels.len() == 1).await;
    guard.unlock().await.unwrap();
    let (guards, took) = timed(waiting.join_all()).await;
    assert!(proxy.lost_messages() > 0);
    assert!(took < 2 * SECOND, "{took:?}");
    drop(guards);
    ours.shutdown().await.unwrap();
    drop((ours, theirs, proxy));
    scene.end().await;
}

/// Redisson: testMultiInstanceReadLockZombieCleanup, testMultiInstanceZombieReadLockPerformance. Readers that died count
/// until their own keys end, although others read all the time.
#[tokio::test]
async fn dead_readers_hold_a_writer_up_for_their_lease_and_no_longer() {
    let scene = Scene::start();
    let config = LockConfig::default().safety_poll(500 * MS);
    let (ours, theirs) = (scene.client_with(config.clone()).await, scene.client_with(config).await);
    let mut dead = ready(Child::start("hold 20", &scene.server.url())).await;
    assert_eq!(holds(&scene).len(), 60);
    // Somebody always reads, and raises the lease of the lock.
    let reading = tokio::spawn({
        let theirs = theirs.clone();
        async move {
            let start = Instant::now();
            while start.elapsed() < 3 * SECOND {
                let guard = reader(&theirs).lock().await.unwrap();
                sleep(50 * MS).await;
                let next = reader(&theirs).lock().await.unwrap();
                guard.unlock().await.unwrap();
                next.unlock().await.unwrap();
            }
        }
    });
    dead.kill();
    let killed = Instant::now();
    let waiting = wants_to_write(&scene, &ours).await;
    eventually("their keys end", || holds(&scene).len(), |&left| left < 3).await;
    assert!(killed.elapsed() < 2 * SECOND);
    soon(reading).await.unwrap();
    let took = soon(waiting).await.unwrap() - killed;
    assert!(took < 5 * SECOND, "{took:?}");
    drop((ours, theirs));
    scene.end().await;
}

/// Nobody else reads: the writer need not wait for the lease of the hash, which another reader made long.
#[tokio::test]
async fn a_long_lease_that_was_given_back_holds_nobody_up() {
    let scene = Scene::start();
    let config = LockConfig::default().safety_poll(500 * MS);
    let locks = scene.client_with(config).await;
    let mut dead = ready(Child::start("hold 1", &scene.server.url())).await;
    let long = reader(&locks).lease(3_600 * SECOND).lock().await.unwrap();
    dead.kill();
    let killed = Instant::now();
    let waiting = wants_to_write(&scene, &locks).await;
    long.unlock().await.unwrap();
    let left: i64 = scene.server.run(&["PTTL", "a"]);
    assert!(left < 60_000, "Java's writers wait for that: {left} ms");
    let took = soon(waiting).await.unwrap() - killed;
    assert!(took < 2 * SECOND, "{took:?}");
    drop(locks);
    scene.end().await;
}

#[tokio::test]
async fn a_writer_that_was_killed_is_followed_when_its_lease_ends() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut dead = ready(Child::start("write 1", &scene.server.url())).await;
    dead.kill();
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let locks = locks.clone();
        waiting.spawn(async move { reader(&locks).lock().await.unwrap() });
    }
    let (guards, took) = timed(waiting.join_all()).await;
    assert!(took < 2 * SECOND, "{took:?}");
    drop(guards);
    drop(locks);
    scene.end().await;
}

/// Java's watchdog sets the lease of the lock to its own, whoever else reads for longer; before 4.4.0 those of all readers
/// as well. Ours raises them again, fixed leases to what is left of them.
#[tokio::test]
async fn a_lease_that_somebody_else_made_shorter_is_raised_again() {
    let scene = Scene::start();
    let locks = scene.client_with(LockConfig::default().java_watchdog(900 * MS)).await;
    for lease in [4 * SECOND, 30 * SECOND] {
        let mut lock = reader(&locks);
        if lease < 30 * SECOND {
            lock = lock.lease(lease);
        }
        let guard = lock.lock().await.unwrap();
        let key = holds(&scene).remove(0);
        for both in [false, true, false, true] {
            scene.server.run::<()>(&["PEXPIRE", "a", "900"]);
            if both {
                scene.server.run::<()>(&["PEXPIRE", &key, "900"]);
            }
            let left = || ["a", &key].map(|key| scene.server.run::<i64>(&["PTTL", key]));
            let is_raised = |left: &[i64; 2]| left.iter().all(|&ms| ms > 1_000);
            let raised = eventually("they are raised", left, is_raised).await;
            assert!(raised.iter().all(|&ms| ms <= i64::try_from(lease.as_millis()).unwrap()), "{raised:?}");
            assert!(!can_write(&locks).await && !guard.is_lost());
        }
        if lease < 30 * SECOND {
            assert!(guard.remaining() < lease - SECOND / 4, "its own lease is what it was");
        }
        guard.unlock().await.unwrap();
    }
    drop(locks);
    scene.end().await;
}

/// Promise 7, and Redisson: testReadWriteTTL, testReadLockExpirationRenewal, testName.
#[tokio::test]
async fn both_holds_of_an_owner_are_renewed_side_by_side() {
    let scene = Scene::start();
    let lease = 900 * MS;
    let locks = scene.client_with(LockConfig::default().watchdog_lease(lease)).await;
    let mut lock = locks.read_write_lock("{test}:abc:key");
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    let mut outlives = Vec::new();
    for number in 0..20 {
        outlives.push(locks.read_write_lock(format!("{number}")).read().lock().await.unwrap());
    }
    let left = async |lock: &ReadLock| lock.remaining_lease().await.unwrap().expect("it is held");
    let start = Instant::now();
    while start.elapsed() < 2 * lease {
        assert!(left(lock.read()).await > lease / 3);
        sleep(lease / 6).await;
    }
    // A read hold that ends must not take the renewal of the write hold with it.
    reading.unlock().await.unwrap();
    let start = Instant::now();
    while start.elapsed() < 2 * lease {
        assert!(lock.write().remaining_lease().await.unwrap().is_some_and(|left| left > lease / 3));
        sleep(lease / 6).await;
    }
    let reading = lock.read().lock().await.unwrap();
    writing.unlock().await.unwrap();
    sleep(2 * lease).await;
    assert!(left(lock.read()).await > lease / 3 && !reading.is_lost());
    reading.unlock().await.unwrap();
    for guard in outlives {
        guard.unlock().await.unwrap();
    }
    drop((lock, locks));
    scene.end().await;
}

/// Redisson: testReadLockExpiration, testReadLockLeaseTimeoutDiffThreadsRRW and …WRR, testReadLockLeaseTimeout.
#[tokio::test]
async fn each_read_hold_ends_with_its_own_lease() {
    let scene = Scene::start();
    let locks = scene.client_with(LockConfig::default().safety_poll(300 * MS)).await;
    // The one that lasts longest is what a writer waits for, whoever leaves before.
    let long = reader(&locks).lease(1_500 * MS).lock().await.unwrap();
    let start = Instant::now();
    let short = reader(&locks).lease(500 * MS).lock().await.unwrap();
    let waiting = wants_to_write(&scene, &locks).await;
    short.unlock().await.unwrap();
    let took = soon(waiting).await.unwrap() - start;
    assert!(took > 1_400 * MS && took < 2_500 * MS, "{took:?}");
    assert!(matches!(long.unlock().await, Err(Error::NotHeld { .. })));

    // A later reader that left does not make it longer.
    reader(&locks).lease(SECOND).lock().await.unwrap().leak();
    let start = Instant::now();
    sleep(500 * MS).await;
    reader(&locks).lease(10 * SECOND).lock().await.unwrap().unlock().await.unwrap();
    let got = soon(writer(&locks).try_lock_for(3 * SECOND)).await.unwrap().expect("in that time");
    assert!(start.elapsed() < 2 * SECOND, "{:?}", start.elapsed());
    got.unlock().await.unwrap();

    // Readers follow a writer whose lease ended.
    writer(&locks).lease(500 * MS).lock().await.unwrap().leak();
    let (guards, took) = timed(join_all([(); 2].map(async |()| reader(&locks).lock().await.unwrap()))).await;
    assert!(took < 1_500 * MS, "{took:?}");
    drop(guards);

    // An inner hold that was given back does not keep the outer one.
    let mut lock = locks.read_write_lock("a").lease(400 * MS);
    let outer = lock.read().lock().await.unwrap();
    sleep(300 * MS).await;
    lock.read().lock().await.unwrap().unlock().await.unwrap();
    soon(outer.lost()).await;
    lock.write().try_lock().await.unwrap().expect("nobody reads any more").unlock().await.unwrap();
    drop((outer, lock, locks));
    scene.end().await;
}

/// Redisson: testForceUnlock.
#[tokio::test]
async fn force_unlock_ends_the_holds_of_its_side() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client().await, scene.client().await);
    let readers = [reader(&ours).lock().await.unwrap(), reader(&theirs).lock().await.unwrap()];
    assert!(!writer(&ours).force_unlock().await.unwrap());
    assert!(!can_write(&ours).await);
    assert!(reader(&ours).force_unlock().await.unwrap());
    assert!(holds(&scene).is_empty() && can_write(&ours).await);
    for guard in readers {
        assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    }
    let mut lock = ours.read_write_lock("a");
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    assert!(writer(&theirs).force_unlock().await.unwrap());
    assert!(can_read(&theirs).await && !can_write(&theirs).await, "its read hold is left");
    assert!(writing.unlock().await.is_err());
    reading.unlock().await.unwrap();
    drop((lock, ours, theirs));
    scene.end().await;
}

/// What an admin's command costs: the hold that it removed, which is told, and no other.
#[tokio::test]
async fn what_somebody_removes_is_told_and_costs_nobody_else() {
    let scene = Scene::start();
    let locks = scene.client_with(LockConfig::default().watchdog_lease(600 * MS)).await;
    let first = reader(&locks).lock().await.unwrap();
    let key = holds(&scene).remove(0);
    let second = reader(&locks).lock().await.unwrap();
    scene.server.run::<()>(&["DEL", &key]);
    soon(first.lost()).await;
    assert!(!second.is_lost() && !can_write(&locks).await);
    assert!(matches!(first.unlock().await, Err(Error::NotHeld { .. })));
    second.unlock().await.expect("it was held all the time");

    let mut lock = locks.read_write_lock("a");
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "a"]);
    soon(writing.lost()).await;
    soon(reading.lost()).await;
    drop((writing, reading));
    eventually("nothing is left of it", || holds(&scene), Vec::is_empty).await;
    drop((lock, locks));
    scene.end().await;
}

/// A share of a section, until it is dropped.
struct Inside<'a>(&'a AtomicUsize, usize);

impl<'a> Inside<'a> {
    const ALL: usize = 1_000;

    fn enter(inside: &'a AtomicUsize, share: usize) -> Self {
        let before = inside.fetch_add(share, Ordering::SeqCst);
        assert!(before + share <= Self::ALL, "{before} are inside");
        Self(inside, share)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

/// A key that somebody replaced or made endless is told to its owner at most, and costs nobody else a renewal or release.
#[tokio::test]
async fn a_key_of_another_type_costs_nobody_else() {
    let scene = Scene::start();
    let locks = scene.client_with(LockConfig::default().watchdog_lease(600 * MS)).await;
    let mut guards = Vec::new();
    for number in 0..10 {
        guards.push(locks.read_write_lock(format!("{number}")).read().lock().await.unwrap());
    }
    let broken: Vec<String> = scene.server.run(&["KEYS", "{3}:*"]);
    scene.server.run::<()>(&["DEL", &broken[0]]);
    scene.server.run::<()>(&["RPUSH", &broken[0], "a list"]);
    eventually("its guard is told", || guards.iter().filter(|guard| guard.is_lost()).count(), |&n| n == 1)
        .await;
    sleep(SECOND).await;
    for guard in guards {
        let is_broken = guard.name() == "3";
        assert_eq!(guard.unlock().await.is_err(), is_broken);
    }
    scene.server.run::<()>(&["DEL", "3", &broken[0]]);

    // Of another reader of the same lock.
    let fixed = reader(&locks).lease(60 * SECOND).lock().await.unwrap();
    let key = holds(&scene).remove(0);
    scene.server.run::<()>(&["PERSIST", &key]);
    sleep(SECOND).await;
    assert!(!fixed.is_lost() && !can_write(&locks).await);
    let other = reader(&locks).lock().await.unwrap();
    scene.server.run::<()>(&["DEL", &key]);
    scene.server.run::<()>(&["RPUSH", &key, "a list"]);
    other.unlock().await.expect("it was held");
    assert!(!can_write(&locks).await, "nobody knows what that is");
    drop(fixed);
    scene.server.run::<()>(&["DEL", &key]);
    drop(locks);
    scene.end().await;
}

/// Left to its lease: nothing renews or ends it, and it keeps no client.
#[tokio::test]
async fn a_read_hold_that_is_leaked_lasts_for_its_lease() {
    let scene = Scene::start();
    let locks = scene.client().await;
    reader(&locks).lease(1_500 * MS).lock().await.unwrap().leak();
    let start = Instant::now();
    drop(locks);
    eventually("the client is gone", || scene.server.clients(), Vec::is_empty).await;
    assert!(start.elapsed() < SECOND);
    eventually("it ends", || holds(&scene), Vec::is_empty).await;
    assert!(start.elapsed() > 1_450 * MS, "{:?}", start.elapsed());
    scene.end().await;
}

/// One owner, one name, two kinds: refused, whichever is first.
#[tokio::test]
async fn an_owner_has_one_kind_of_lock_of_a_name() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let is_wrong = |error: Error| assert!(matches!(error, Error::WrongKind { .. }), "{error:?}");
    let mut me = locks.owner();
    let reading = me.read_write_lock("a").read().lock().await.unwrap();
    is_wrong(me.rlock("a").lock().await.unwrap_err());
    is_wrong(me.fair_lock("a").try_lock().await.unwrap_err());
    reading.unlock().await.unwrap();

    let plain = me.rlock("a").lock().await.unwrap();
    is_wrong(me.fair_lock("a").lock().await.unwrap_err());
    is_wrong(me.fenced_lock("a").lock().await.unwrap_err()); // it would have no token
    is_wrong(me.read_write_lock("a").read().lock().await.unwrap_err());
    scene.server.run::<()>(&["DEL", "a"]);
    is_wrong(me.read_write_lock("a").read().lock().await.unwrap_err());
    let theirs = reader(&beside).lock().await.unwrap();
    assert!(matches!(plain.unlock().await, Err(Error::NotHeld { .. })));
    assert!(!can_write(&beside).await, "it took nothing from another");
    theirs.unlock().await.unwrap();
    drop((me, locks, beside));
    scene.end().await;
}

/// Each side answers for itself.
#[tokio::test]
async fn each_side_tells_its_own_lease() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut me = locks.owner();
    let writing = me.read_write_lock("a").lease(600 * SECOND).write().lock().await.unwrap();
    let reading = me.read_write_lock("a").lease(5 * SECOND).read().lock().await.unwrap();
    let left = reader(&locks).remaining_lease().await.unwrap().expect("it is held");
    assert!(left <= 5 * SECOND, "{left:?}");
    let left = writer(&locks).remaining_lease().await.unwrap().expect("it is held");
    assert!(left > 590 * SECOND, "{left:?}");
    reading.unlock().await.unwrap();
    assert_eq!(reader(&locks).remaining_lease().await.unwrap(), None);
    writing.unlock().await.unwrap();
    drop((me, locks));
    scene.end().await;
}

/// Readers and writers of several clients, whose leases end now and then while they are at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_never_meet_although_leases_end() {
    let scene = Scene::start();
    let inside = Arc::new(AtomicUsize::new(0));
    let mut working = JoinSet::new();
    for task in 0..12_usize {
        let (locks, inside) = (scene.client().await, Arc::clone(&inside));
        working.spawn(async move {
            for round in 0..60_usize {
                let mut lock = locks.read_write_lock("a").lease(80 * MS);
                let writes = (task + round) % 4 == 0;
                let guard = match writes {
                    true => lock.write().lock().await.unwrap(),
                    false => lock.read().lock().await.unwrap(),
                };
                let share = if writes { Inside::ALL } else { 1 };
                let _ = guard
                    .run(async {
                        let _inside = Inside::enter(&inside, share);
                        sleep(MS * u32::try_from(round % 3).unwrap()).await;
                    })
                    .await;
                if round % 7 == 0 {
                    guard.leak(); // it dies, and its lease ends
                } else {
                    drop(guard);
                }
            }
            locks.shutdown().await.unwrap();
        });
    }
    tokio::time::timeout(3 * LIMIT, working.join_all()).await.expect("nobody is left waiting");
    drop(inside);
    eventually("the last lease ends", || scene.server.run::<usize>(&["DBSIZE"]), |&keys| keys == 0).await;
    scene.end().await;
}

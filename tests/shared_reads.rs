//! Guarantees 1, 2, 3 and 8 where the readers of one client share one read hold of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{MS, SECOND, Scene, at_most, eventually, fixed, patient, soon, throughout, timed};
use futures_util::future::join_all;
use lockkeeper::{Error, LockClient, LockConfigBuilder, ReadLock, WriteLock};
use tokio::time::{sleep, timeout};

/// Readers join for long enough that no test reaches the end of it.
fn shares() -> LockConfigBuilder {
    patient().sharing(SECOND)
}

fn reader(locks: &LockClient) -> ReadLock<'static> {
    locks.read_write_lock("a").into_read()
}

fn writer(locks: &LockClient) -> WriteLock<'static> {
    locks.read_write_lock("a").into_write()
}

/// The number of readers that the server knows.
fn known(scene: &Scene) -> i64 {
    (scene.server.run::<i64>(&["HLEN", "a"]) - 1).max(0)
}

async fn can_write(locks: &LockClient) -> bool {
    let guard = writer(locks).try_lock().await.unwrap();
    let can = guard.is_some();
    if let Some(guard) = guard {
        guard.unlock().await.unwrap();
    }
    can
}

/// The server sees one reader, and the last one that leaves releases the lock, whoever acquired it.
#[tokio::test]
async fn readers_join_without_a_command_and_the_last_one_releases() {
    let scene = Scene::start();
    let (locks, other) = (scene.client_with(shares()).await, scene.client().await);
    let (mut one, mut two, mut three) = (reader(&locks), reader(&locks), reader(&locks));
    let first = one.lock().await.unwrap();
    let before = scene.server.calls("evalsha");
    let second = two.lock().await.unwrap();
    let third = three.try_lock().await.unwrap().expect("nobody writes");
    assert_eq!((scene.server.calls("evalsha"), known(&scene)), (before, 1));
    assert_eq!((first.owner_id(), second.owner_id()), (second.owner_id(), third.owner_id()));
    for (lock, guard) in [(&one, &first), (&two, &second), (&three, &third)] {
        assert_eq!((lock.hold_count(), guard.hold_count()), (1, 1), "each owner counts its own holds");
    }
    first.unlock().await.unwrap();
    drop(second);
    assert_eq!((scene.server.calls("evalsha"), one.hold_count(), two.hold_count()), (before, 0, 0));
    assert!(!can_write(&other).await);
    third.unlock().await.unwrap();
    assert!(can_write(&other).await);
    drop((one, two, three, locks, other));
    scene.end().await;
}

/// With `sharing` zero, each reader asks.
#[tokio::test]
async fn without_sharing_each_reader_has_a_hold_of_its_own() {
    let scene = Scene::start();
    let locks = scene.client_with(shares().sharing(Duration::ZERO)).await;
    let first = reader(&locks).lock().await.unwrap();
    let second = reader(&locks).lock().await.unwrap();
    assert_ne!(first.owner_id(), second.owner_id());
    assert_eq!(known(&scene), 2);
    drop((first, second, locks));
    scene.end().await;
}

/// A reader that comes later than `sharing` after the grant asks the server.
#[tokio::test]
async fn a_hold_that_is_too_old_is_not_joined() {
    let scene = Scene::start();
    let locks = scene.client_with(shares().sharing(20 * MS)).await;
    let first = reader(&locks).lock().await.unwrap();
    sleep(25 * MS).await; // the time itself is what is tested
    let second = reader(&locks).lock().await.unwrap();
    assert_ne!(first.owner_id(), second.owner_id());
    drop((first, second, locks));
    scene.end().await;
}

/// Leases of their own are not shared: such a hold must end when its lease does.
#[tokio::test]
async fn readers_with_a_lease_of_their_own_share_nothing() {
    let scene = Scene::start();
    let locks = scene.client_with(shares()).await;
    let renewed = reader(&locks).lock().await.unwrap();
    let leased = reader(&locks).with(&fixed(20 * SECOND)).lock().await.unwrap();
    let bounded = reader(&locks).with(&at_most(20 * SECOND)).lock().await.unwrap();
    assert_eq!(known(&scene), 3);
    drop((renewed, leased, bounded));
    scene.quiet().await;
    let leased = reader(&locks).with(&fixed(20 * SECOND)).lock().await.unwrap();
    let renewed = reader(&locks).lock().await.unwrap();
    assert_eq!(known(&scene), 2);
    drop((renewed, leased, locks));
    scene.end().await;
}

/// Re-entries of one owner neither end nor lengthen what the others have.
#[tokio::test]
async fn an_owner_that_shares_can_reenter() {
    let scene = Scene::start();
    let (locks, other) = (scene.client_with(shares()).await, scene.client().await);
    let (mut one, mut two) = (reader(&locks), reader(&locks));
    let (first, second) = (one.lock().await.unwrap(), two.lock().await.unwrap());
    let (inner, deeper) = (one.lock().await.unwrap(), two.lock().await.unwrap());
    assert_eq!((one.hold_count(), two.hold_count()), (2, 2));
    inner.unlock().await.unwrap();
    first.unlock().await.unwrap();
    assert_eq!((one.hold_count(), two.hold_count()), (0, 2));
    assert!(!can_write(&other).await && !second.is_lost() && !deeper.is_lost());
    second.unlock().await.unwrap();
    assert!(!can_write(&other).await);
    deeper.unlock().await.unwrap();
    assert!(can_write(&other).await);
    drop((one, two, locks, other));
    scene.end().await;
}

/// An owner that reads cannot write, also if the hold is not its own. Another owner waits for all that share.
#[tokio::test]
async fn who_shares_cannot_write() {
    let scene = Scene::start();
    let locks = scene.client_with(shares()).await;
    let first = reader(&locks).lock().await.unwrap();
    let mut me = locks.read_write_lock("a");
    let second = me.read().lock().await.unwrap();
    assert!(matches!(me.write().lock().await, Err(Error::UpgradeWouldDeadlock { .. })));
    first.unlock().await.unwrap();
    assert!(!can_write(&locks).await);
    second.unlock().await.unwrap();
    me.write().lock().await.unwrap().unlock().await.unwrap();
    drop((me, locks));
    scene.end().await;
}

/// A reader within a write uses the writer's hold. Nobody joins that.
#[tokio::test]
async fn nobody_joins_a_reader_that_also_writes() {
    let scene = Scene::start();
    let locks = scene.client_with(shares()).await;
    let mut me = locks.read_write_lock("a");
    let write = me.write().lock().await.unwrap();
    let read = me.read().lock().await.unwrap();
    assert!(reader(&locks).try_lock().await.unwrap().is_none());
    write.unlock().await.unwrap();
    let other = reader(&locks).lock().await.unwrap();
    assert_eq!(known(&scene), 2);
    assert_ne!(other.owner_id(), read.owner_id());
    drop((read, other, me, locks));
    scene.end().await;
}

/// While a writer of this client waits, readers do not pass it by joining.
#[tokio::test]
async fn nobody_joins_while_a_writer_of_the_client_waits() {
    let scene = Scene::start();
    let locks = scene.client_with(shares()).await;
    let first = reader(&locks).lock().await.unwrap();
    let mut waiting = tokio::spawn({
        let locks = locks.clone();
        async move { writer(&locks).lock().await.unwrap() }
    });
    eventually(
        "it stops readers",
        || scene.server.keys(),
        |keys| keys.iter().any(|key| key.contains("intent")),
    )
    .await;
    assert!(reader(&locks).try_lock().await.unwrap().is_none());
    first.unlock().await.unwrap();
    soon(&mut waiting).await.unwrap().unlock().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// The hold is renewed for the one that is left, for longer than its lease.
#[tokio::test]
async fn the_watchdog_renews_for_those_who_joined() {
    let scene = Scene::start();
    let (locks, other) = (scene.client_with(shares().watchdog_lease(2 * SECOND)).await, scene.client().await);
    let first = reader(&locks).lock().await.unwrap();
    let second = reader(&locks).lock().await.unwrap();
    first.unlock().await.unwrap();
    throughout(5 * SECOND, async || {
        assert!(!second.is_lost() && !can_write(&other).await);
        sleep(20 * MS).await;
    })
    .await;
    second.unlock().await.unwrap();
    assert!(can_write(&other).await);
    drop((locks, other));
    scene.end().await;
}

/// Guarantee 7. For the server, readers that share have one hold. So the watchdog has one row for them, however many they are: five
/// hundred rows would be five commands in each period.
#[tokio::test]
async fn five_hundred_readers_that_share_are_one_renewal() {
    let scene = Scene::start();
    let period = SECOND;
    let locks = scene.client_with(shares().watchdog_lease(3 * period)).await;
    let mut guards = Vec::new();
    for _ in 0..500 {
        guards.push(reader(&locks).lock().await.unwrap());
    }
    let scripts = || scene.server.calls("evalsha");
    let before = scripts();
    eventually("the first renewal", scripts, |&scripts| scripts > before).await;
    // The hold is recorded soon after it.
    eventually("the record", || scene.server.records(), |records| records.len() == 1).await;
    let (before, start) = (scripts(), Instant::now());
    eventually("two more", scripts, |&scripts| scripts >= before + 2).await;
    // A renewal can come a part of the period early. Five commands for each period would come together.
    assert!(start.elapsed() > period / 2, "{:?} for two renewals", start.elapsed());
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    drop((guards, locks));
    scene.end().await;
}

/// All who share learn that the server has lost the hold. Nobody joins it any more.
#[tokio::test]
async fn all_who_share_lose_together() {
    let scene = Scene::start();
    let locks = scene.client_with(shares().watchdog_lease(2 * SECOND)).await;
    let first = reader(&locks).lock().await.unwrap();
    let second = reader(&locks).lock().await.unwrap();
    let keys = scene.server.keys();
    keys.iter().for_each(|key| scene.server.run::<()>(&["DEL", key]));
    soon(first.ended()).await.unwrap_err();
    soon(second.ended()).await.unwrap_err();
    let third = reader(&locks).lock().await.unwrap();
    assert_ne!(third.owner_id(), first.owner_id());
    assert!(matches!(first.unlock().await, Err(Error::NotHeld { .. })));
    assert!(matches!(second.unlock().await, Err(Error::NotHeld { .. })));
    third.unlock().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// A hold that is kept for a reader that waits is not joined any more once it is lost.
#[tokio::test]
async fn a_lost_hold_that_is_kept_is_not_joined() {
    let scene = Scene::start();
    let (locks, other) = (scene.client_with(shares()).await, scene.client().await);
    let write = writer(&other).lock().await.unwrap();
    let (mut one, mut two) = (reader(&locks), reader(&locks));
    let (mut first, mut second) = (Box::pin(one.lock()), Box::pin(two.lock()));
    for waits in [&mut first, &mut second] {
        assert!(timeout(50 * MS, waits).await.is_err(), "a writer has the lock");
    }
    write.unlock().await.unwrap();
    let first = first.await.unwrap();
    // For 10 ms, the hold is kept for the second reader, which nobody polls.
    scene.server.keys().iter().for_each(|key| scene.server.run::<()>(&["DEL", key]));
    assert!(matches!(first.extend(30 * SECOND).await, Err(Error::Lost { .. })));
    let third = reader(&locks).lock().await.unwrap();
    assert_ne!(third.owner_id(), first.owner_id());
    third.unlock().await.unwrap();
    second.await.unwrap().unlock().await.unwrap();
    drop((first, one, two, locks, other));
    scene.end().await;
}

/// A reader that leaves while others stay is told what this client knows.
#[tokio::test]
async fn who_leaves_a_lost_share_learns_it() {
    let scene = Scene::start();
    let locks = scene.client_with(shares()).await;
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(reader(&locks).lock().await.unwrap());
    }
    let [first, second, third] = <[_; 3]>::try_from(guards).unwrap();
    scene.server.keys().iter().for_each(|key| scene.server.run::<()>(&["DEL", key]));
    assert!(matches!(first.extend(30 * SECOND).await, Err(Error::Lost { .. })));
    assert!(matches!(second.unlock().await, Err(Error::NotHeld { .. })));
    assert!(matches!(third.unlock().await, Err(Error::NotHeld { .. })));
    drop((first, locks));
    scene.end().await;
}

/// A writer of this client was granted the lock, so the readers before it are gone, whatever their guards believe.
#[tokio::test]
async fn nobody_joins_readers_that_a_writer_of_the_client_followed() {
    let scene = Scene::start();
    let locks = scene.client_with(shares()).await;
    let first = reader(&locks).lock().await.unwrap();
    scene.server.keys().iter().for_each(|key| scene.server.run::<()>(&["DEL", key]));
    let write = writer(&locks).try_lock().await.unwrap().expect("the server has no reader");
    assert!(reader(&locks).try_lock().await.unwrap().is_none());
    write.unlock().await.unwrap();
    drop((first, locks));
    scene.end().await;
}

/// The end of a hold that is left to itself is the end of its share, too.
#[tokio::test]
async fn a_leaked_hold_ends_its_share() {
    let scene = Scene::start();
    let (locks, other) = (scene.client_with(shares().watchdog_lease(2 * SECOND)).await, scene.client().await);
    let first = reader(&locks).lock().await.unwrap();
    let second = reader(&locks).lock().await.unwrap();
    first.leak();
    second.unlock().await.unwrap();
    assert!(!can_write(&other).await, "the leaked hold counts until its lease ends");
    let (_, took) = timed(async {
        while !can_write(&other).await {
            sleep(10 * MS).await;
        }
    })
    .await;
    assert!(took < 5 * SECOND, "{took:?}");

    // Its lease ends while another reader renews the hold. The release of that one is the last then.
    let first = reader(&locks).lock().await.unwrap();
    let second = reader(&locks).lock().await.unwrap();
    let left = first.remaining();
    first.leak();
    throughout(left + 200 * MS, async || {
        assert!(!second.is_lost() && !can_write(&other).await);
        sleep(20 * MS).await;
    })
    .await;
    second.unlock().await.unwrap();
    assert!(can_write(&other).await);
    drop((locks, other));
    scene.end().await;
}

/// Readers of two clients and a writer, at random: nobody reads while somebody writes, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_share_exclude_writers() {
    let scene = Scene::start();
    let clients = [scene.client().await, scene.client_with(shares()).await];
    // The number of readers inside; -1: a writer.
    let inside = Arc::new(AtomicI64::new(0));
    let (reads, writes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let is_over = Arc::new(AtomicBool::new(false));
    let reading = (0..8_u64).map(|number| {
        let mut lock = reader(&clients[(number % 2) as usize]);
        let (inside, reads, is_over) = (Arc::clone(&inside), Arc::clone(&reads), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut round = number;
            while !is_over.load(Ordering::SeqCst) {
                round += 1;
                let patience = Duration::from_micros(round * 131 % 3_000);
                let guard = match round % 4 {
                    0 => timeout(patience, lock.lock()).await.ok().transpose().unwrap(),
                    1 => lock.try_lock_for(patience).await.unwrap(),
                    2 => lock.try_lock().await.unwrap(),
                    _ => Some(lock.lock().await.unwrap()),
                };
                let Some(guard) = guard else { continue };
                assert!(inside.fetch_add(1, Ordering::SeqCst) >= 0, "a reader beside a writer");
                if round % 3 == 0 {
                    sleep(Duration::from_micros(round * 17 % 2_000)).await;
                }
                inside.fetch_sub(1, Ordering::SeqCst);
                reads.fetch_add(1, Ordering::SeqCst);
                if round % 2 == 0 {
                    drop(guard);
                } else {
                    guard.unlock().await.unwrap();
                }
            }
        })
    });
    let reading: Vec<_> = reading.collect();
    let writing = clients.clone().map(|locks| {
        let (inside, writes, is_over) = (Arc::clone(&inside), Arc::clone(&writes), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut lock = writer(&locks);
            while !is_over.load(Ordering::SeqCst) {
                let guard = lock.lock().await.unwrap();
                assert_eq!(inside.swap(-1, Ordering::SeqCst), 0, "a writer beside others");
                sleep(MS).await;
                assert_eq!(inside.swap(0, Ordering::SeqCst), -1);
                guard.unlock().await.unwrap();
                writes.fetch_add(1, Ordering::SeqCst);
                sleep(5 * MS).await;
            }
        })
    });
    let count = || (reads.load(Ordering::SeqCst), writes.load(Ordering::SeqCst));
    eventually("both get turns", count, |&(reads, writes)| reads > 500 && writes > 40).await;
    is_over.store(true, Ordering::SeqCst);
    soon(join_all(reading)).await.into_iter().for_each(Result::unwrap);
    soon(join_all(writing)).await.into_iter().for_each(Result::unwrap);
    drop(clients);
    scene.end().await;
}

/// Readers of one client that never pause need few commands, and a writer elsewhere gets its turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_without_pauses_need_few_commands_and_starve_nobody() {
    let scene = Scene::start();
    let (locks, other) = (scene.client().await, scene.client().await);
    let (reads, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let before = scene.server.calls("evalsha");
    let reading: Vec<_> = (0..16)
        .map(|_| {
            let (mut lock, reads, is_over) = (reader(&locks), Arc::clone(&reads), Arc::clone(&is_over));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    lock.lock().await.unwrap().unlock().await.unwrap();
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    eventually("they read", || reads.load(Ordering::Relaxed), |&reads| reads > 20_000).await;
    let scripts = scene.server.calls("evalsha") - before;
    let reads = reads.load(Ordering::Relaxed);
    assert!(scripts * 10 < reads, "{scripts} scripts for {reads} sections");
    for _ in 0..5 {
        let (guard, took) = timed(writer(&other).lock()).await;
        assert!(took < 10 * SECOND, "{took:?}");
        guard.unwrap().unlock().await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    soon(join_all(reading)).await.into_iter().for_each(Result::unwrap);
    drop((locks, other));
    scene.end().await;
}

/// A client that shuts down releases what its readers share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_releases_what_is_shared() {
    let scene = Scene::start();
    for _ in 0..20 {
        let locks = scene.client().await;
        let reads = Arc::new(AtomicU64::new(0));
        let reading: Vec<_> = (0..8)
            .map(|_| {
                let (mut lock, reads) = (reader(&locks), Arc::clone(&reads));
                tokio::spawn(async move {
                    while let Ok(guard) = lock.lock().await {
                        reads.fetch_add(1, Ordering::Relaxed);
                        drop(guard);
                    }
                })
            })
            .collect();
        eventually("they read", || reads.load(Ordering::Relaxed), |&reads| reads > 20).await;
        locks.shutdown().await.unwrap();
        soon(join_all(reading)).await.into_iter().for_each(Result::unwrap);
        // A guard can outlive the shutdown, and its drop is not awaited. The lease is longer than the limit.
        eventually("all is released", || scene.server.keys(), Vec::is_empty).await;
        drop(locks);
    }
    scene.end().await;
}

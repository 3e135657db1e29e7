//! Many clients compete: votes are split, and waiters sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockkeeper::RedLock;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::red::{Three, both, red};
use crate::support::{MS, SECOND, eventually, fixed, patient, quiet, soon, timed};

/// Guarantees 1 and 8. Five clients and three servers: votes are split, and all clients make progress.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_votes_do_not_last() {
    const CLIENTS: u32 = 5;
    const ROUNDS: u32 = 40;
    let three = Three::start().await;
    let inside = Arc::new(AtomicU32::new(0));
    let mut all = Vec::new();
    let mut working = JoinSet::new();
    let start = Instant::now();
    for _ in 0..CLIENTS {
        let clients = three.clients(patient()).await;
        all.extend(clients.iter().cloned());
        let inside = Arc::clone(&inside);
        working.spawn(async move {
            let (mut lock, mut longest) = (red(&clients), Duration::ZERO);
            for _ in 0..ROUNDS {
                let (guard, waited) = timed(lock.lock()).await;
                let guard = guard.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.unlock().await.unwrap();
                longest = longest.max(waited);
            }
            longest
        });
    }
    let longest =
        tokio::time::timeout(60 * SECOND, working.join_all()).await.expect("all clients make progress");
    println!("{} sections in {:?}, longest waits {longest:?}", CLIENTS * ROUNDS, start.elapsed());
    three.end(all).await;
}

/// A client that won too few members pauses before its next round. The pauses grow, and are random.
#[tokio::test]
async fn a_split_vote_is_followed_by_a_random_pause() {
    const ROUNDS: usize = 30;
    /// After this many rounds the pauses no longer grow.
    const LONGEST: usize = 8;
    let three = Three::start().await;
    let (ours, theirs) = (three.clients(patient()).await, three.clients(patient()).await);
    let mut foreign: Vec<_> = theirs.iter().map(|locks| locks.rlock("a")).collect();
    let mut guards = Vec::new();
    for lock in &mut foreign {
        guards.push(Some(lock.lock().await.unwrap()));
    }
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { red(&ours).lock().await.unwrap().unlock().await }
    });
    let servers = three.servers();
    // The waiter listens to the first server, in the order of all clients, that refused it.
    let listens =
        |before| (0..3).find(|&server| before != Some(server) && !servers[server].channels().is_empty());
    let mut awaited = eventually("the waiter subscribes", || listens(None), Option::is_some).await.unwrap();
    let mut pauses = Vec::new();
    for _ in 0..ROUNDS {
        let acquired = || servers[awaited].calls("hset");
        let before = acquired();
        guards[awaited].take().unwrap().unlock().await.unwrap();
        eventually("the waiter acquires one server, and begins a round", acquired, |&now| now > before).await;
        let start = Instant::now();
        guards[awaited] = Some(foreign[awaited].lock().await.unwrap());
        let next = || listens(Some(awaited));
        awaited = eventually("the waiter waits again", next, Option::is_some).await.unwrap();
        pauses.push(start.elapsed());
    }
    let long = &pauses[LONGEST..];
    assert!(long.iter().sum::<Duration>() > SECOND, "{pauses:?}");
    assert!(*long.iter().min().unwrap() < *long.iter().max().unwrap() / 2, "{pauses:?}");
    for guard in guards.into_iter().flatten() {
        guard.unlock().await.unwrap();
    }
    soon(waiting).await.unwrap().unwrap();
    drop(foreign);
    three.end(both(ours, theirs)).await;
}

/// Guarantee 9. A waiter sleeps. It does not poll in a loop.
#[tokio::test]
async fn a_waiter_for_a_majority_sleeps() {
    let three = Three::start().await;
    let (ours, theirs) =
        (three.clients(patient().safety_poll(60 * SECOND)).await, three.clients(patient()).await);
    // With a lease that is not renewed.
    let guard = three.held_by_all(&mut red(&theirs).with(&fixed(60 * SECOND))).await;
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { red(&ours).lock().await.unwrap().unlock().await }
    });
    eventually("the waiter subscribes", || three.heard(), |&count| count == 1).await;
    let asked = || three.servers().iter().map(|server| server.calls("evalsha")).sum::<u64>();
    let before = quiet(asked).await;
    sleep(2 * SECOND).await; // nothing may happen in this time
    // The holder looks once at each of its holds, so that the servers tell of changes.
    assert!(asked() - before <= 9, "{} commands in two seconds", asked() - before);
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    three.end(both(ours, theirs)).await;
}

/// One member was not acquired at first. In the wait queues of the others are waiters for this holder, which must not
/// block it.
#[tokio::test]
async fn a_holder_reenters_past_its_waiters() {
    let three = Three::start().await;
    let (ours, theirs) = (three.clients(patient()).await, three.clients(patient()).await);
    for (blocked, locks) in theirs.iter().enumerate() {
        let foreign = locks.rlock("a").lock().await.unwrap();
        let mut lock = red(&ours);
        let outer = lock.lock().await.unwrap();
        foreign.unlock().await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..6 {
            let ours = ours.clone();
            waiting.spawn(async move { red(&ours).lock().await.unwrap().unlock().await.unwrap() });
        }
        eventually("the waiters subscribe", || three.heard(), |&count| count > 0).await;
        let (inner, took) = timed(lock.lock()).await;
        assert!(took < 4 * SECOND, "{blocked}: {took:?}");
        inner.unwrap().unlock().await.unwrap();
        outer.unlock().await.unwrap();
        soon(waiting.join_all()).await;
    }
    three.end(both(ours, theirs)).await;
}

/// Guarantee 8. Each waiter has a queue entry on one server, while the majority may become free on the other two.
#[tokio::test]
async fn fair_members_do_not_sleep_on() {
    const CLIENTS: usize = 5;
    let three = Three::start().await;
    let (mut all, mut working) = (Vec::new(), JoinSet::new());
    for _ in 0..CLIENTS {
        let clients = three.clients(patient().safety_poll(300 * MS)).await;
        all.extend(clients.iter().cloned());
        working.spawn(async move {
            for _ in 0..15 {
                let mut lock = RedLock::new(clients.iter().map(|locks| locks.fair_lock("a"))).unwrap();
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        });
    }
    tokio::time::timeout(60 * SECOND, working.join_all()).await.expect("all clients make progress");
    for server in three.servers() {
        server.run::<()>(&["DEL", "redisson_lock_timeout:{a}", "lockkeeper_fair:{a}"]); // no waiter is in them
    }
    three.end(all).await;
}

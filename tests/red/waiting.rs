//! Many clients compete: votes are split, and waiters sleep.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::red::{Three, both, red};
use crate::support::{SECOND, eventually, fixed, patient, quiet, soon};

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

//! Servers that fail or are slow: a minority delays no call, and without a majority each call still ends.

use std::time::Duration;

use lockkeeper::{Error, LockConfig};
use tokio::time::timeout;

use crate::red::{COMMAND, Three, both, impatient, lasting, red};
use crate::support::{
    Faults, LIMIT, MS, SECOND, eventually, fixed, patient, renewed, soon, throughout, timed,
};

/// A call that waits for the silent server takes longer than this.
const NO_WAIT: Duration = COMMAND.saturating_sub(Duration::from_millis(500));

/// Guarantee 17. Redisson: testConnectionFailed. One server is silent in either direction. The other two continue at
/// their own pace.
#[tokio::test]
async fn one_server_of_three_that_fails_delays_nobody() {
    for (how, faults) in [("black hole", Faults::black_hole()), ("mute", Faults::replies_held())] {
        let three = Three::start().await;
        let clients = three.clients(lasting()).await;
        let mut lock = red(&clients);
        let held = three.held_by_all(&mut lock).await;
        three.proxies[1].set(faults);
        // The other two renew it.
        throughout(6 * SECOND, async || assert!(!held.is_lost(), "{how}")).await;
        let (released, took) = timed(held.unlock()).await;
        released.unwrap();
        assert!(took < NO_WAIT, "{how}: released in {took:?}");
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            let (guard, acquired) = timed(lock.lock()).await;
            let (released, done) = timed(guard.unwrap().unlock()).await;
            released.unwrap();
            slowest = slowest.max(acquired).max(done);
        }
        println!("{how}: the slowest of 20 took {slowest:?}");
        assert!(slowest < NO_WAIT, "{how}: {slowest:?}");
        let (is_locked, took) = timed(lock.is_locked()).await;
        assert!(!is_locked.unwrap() && took < NO_WAIT, "{how}: {took:?}");
        three.proxies[1].set(Faults::default());
        drop(lock);
        three.end(clients).await;
    }
}

/// Two servers refuse and the third is silent. After two refusals no majority is possible, so the round ends.
#[tokio::test]
async fn a_round_that_cannot_succeed_does_not_wait_for_the_last_server() {
    let three = Three::start().await;
    let (ours, theirs) = (three.clients(patient()).await, three.clients(patient()).await);
    for silent in 0..3 {
        let mut foreign = Vec::new();
        for other in (0..3).filter(|&other| other != silent) {
            foreign.push(theirs[other].rlock("a").lock().await.unwrap());
        }
        three.proxies[silent].set_existing(Faults::replies_held());
        let (got, took) = timed(red(&ours).try_lock()).await;
        assert!(got.unwrap().is_none() && took < 9 * SECOND, "{silent}: {took:?}");
        three.proxies[silent].set(Faults::default());
        for guard in foreign {
            guard.unlock().await.unwrap();
        }
        eventually("what was acquired too late is released", || three.held(), |&held| held == 0).await;
    }
    three.end(both(ours, theirs)).await;
}

/// Guarantee 17.
#[tokio::test]
async fn one_server_of_three_that_is_stopped_or_dead_delays_nobody() {
    let mut three = Three::start().await;
    let clients = three.clients(lasting()).await;
    let mut lock = red(&clients);
    for round in 0..2 {
        if round == 0 {
            three.others[0].freeze();
        } else {
            three.others[0].kill();
        }
        for _ in 0..5 {
            let (guard, acquired) = timed(lock.lock()).await;
            let (released, done) = timed(guard.unwrap().unlock()).await;
            released.unwrap();
            assert!(acquired.max(done) < NO_WAIT, "round {round}: {acquired:?} and {done:?}");
        }
        if round == 0 {
            three.others[0].thaw();
        } else {
            three.others[0].start_again();
        }
    }
    drop(lock);
    three.end(clients).await;
}

/// Guarantee 6. Two of three servers stop answering while the lock is held.
#[tokio::test]
async fn without_a_majority_holds_are_lost_and_waits_fail() {
    let three = Three::start().await;
    let clients = three.clients(impatient()).await;
    let mut lock = red(&clients);
    let guard = lock.lock().await.unwrap();
    renewed(&guard).await;
    three.proxies[0].set(Faults::black_hole());
    three.proxies[2].set(Faults::black_hole());
    let left = guard.remaining() + 500 * MS; // a renewal may be in flight
    // On a busy machine all timers fire late. So this timer decides, not a clock.
    timeout(left, guard.ended()).await.expect("`ended()` came after the deadline").unwrap_err();
    assert!(guard.is_lost());

    let mut other = red(&clients);
    let (got, took) = timed(other.try_lock_for(600 * MS)).await;
    assert!(!matches!(got, Ok(Some(_))) && took < LIMIT / 2, "{got:?} after {took:?}");
    let (error, took) = timed(other.lock()).await;
    let error = error.unwrap_err();
    assert!(error.is_transient() && took < LIMIT / 2, "{error:?} after {took:?}");
    assert!(matches!(other.is_locked().await, Err(error) if error.is_transient()));
    assert!(matches!(soon(guard.unlock()).await, Err(Error::NotHeld { .. })));
    // Another owner holds the lock on the remaining server. That is still a fault and not contention.
    let foreign = clients[1].rlock("a").with(&fixed(60 * SECOND)).lock().await.unwrap();
    let (error, took) = timed(other.lock()).await;
    assert!(error.unwrap_err().is_transient() && took < LIMIT / 2, "after {took:?}");
    foreign.unlock().await.unwrap();
    for proxy in &three.proxies {
        proxy.set(Faults::default());
    }
    soon(other.lock()).await.unwrap().unlock().await.unwrap();
    drop((lock, other));
    three.end(clients).await;
}

/// Guarantee 3. A command without a reply is undone, because the server may have run it.
#[tokio::test]
async fn an_acquire_that_arrives_late_is_undone() {
    let three = Three::start().await;
    // With a lease of 30 s.
    let config = LockConfig::builder().command_timeout(400 * MS);
    let (ours, theirs) = (three.clients(config).await, three.clients(patient()).await);
    three.others[0].freeze();
    let mut lock = red(&ours);
    let guard = soon(lock.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    three.others[0].thaw();
    let (guard, took) = timed(async { theirs[1].rlock("a").lock().await }).await;
    assert!(took < 12 * SECOND, "an orphan lived for {took:?}");
    guard.unwrap().unlock().await.unwrap();
    drop(lock);
    three.end(both(ours, theirs)).await;
}

/// Guarantee 17. One server is dead and another slow, and another owner holds the lock. The calls report contention,
/// not an error.
#[tokio::test]
async fn contention_beside_a_dead_and_a_slow_server_is_not_an_error() {
    let three = Three::start().await;
    let theirs = three.clients(patient()).await;
    let guard = three.held_by_all(&mut red(&theirs)).await;
    let ours = three.clients(patient().retry_timeout(SECOND)).await;
    three.proxies[0].refuse(true);
    three.proxies[0].cut();
    three.proxies[2].set(Faults { delay: 20 * MS, ..Faults::default() });
    let mut lock = red(&ours);
    let (got, took) = timed(lock.try_lock()).await;
    assert!(got.unwrap().is_none() && took < LIMIT / 2, "{took:?}");
    assert!(lock.try_lock_for(500 * MS).await.unwrap().is_none());
    let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
    // Longer than `retry_timeout`, after which it may not give up.
    throughout(3 * SECOND, async || assert!(!waiting.is_finished())).await;
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().expect("the waiter acquires after the release");
    three.proxies[0].refuse(false);
    three.proxies[2].set(Faults::default());
    three.end(both(ours, theirs)).await;
}

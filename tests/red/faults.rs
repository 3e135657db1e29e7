//! Servers that fail or are slow: a minority delays no call, and without a majority each call still ends.

use std::time::Duration;

use lockkeeper::Error;
use tokio::time::timeout;

use crate::red::{COMMAND, Three, impatient, lasting, red};
use crate::support::{Faults, LIMIT, MS, SECOND, fixed, renewed, soon, throughout, timed};

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

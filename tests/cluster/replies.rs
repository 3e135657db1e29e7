//! Replies and messages while the server ends subscriptions by itself, because their slot moved away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lockkeeper::{LockClient, RemainingLease};
use lockkeeper_testkit::Cluster;

use crate::cluster::{clients, end};
use crate::support::{SECOND, eventually, fixed, listens, soon, waiter, woken_by_message};

const CALLERS: u32 = 64;
const WAITERS: usize = 8;

fn name(number: u32) -> String {
    format!("{{tag}}:{number}")
}

/// Each caller has an answer of its own: the lease of its lock.
fn lease(number: u32) -> Duration {
    (number + 1) * 100 * SECOND
}

/// Asks until it is told to stop, and checks each reply.
async fn ask(locks: LockClient, number: u32, stop: Arc<AtomicBool>, calls: Arc<AtomicU32>) {
    let mut held = locks.rlock(name(number));
    let mut free = locks.rlock(format!("{}:free", name(number)));
    while !stop.load(Ordering::Relaxed) {
        let left = match held.remaining_lease().await.unwrap() {
            Some(RemainingLease::For(left)) => left,
            other => panic!("{}: {other:?}", name(number)),
        };
        let expected = lease(number) - 100 * SECOND..=lease(number);
        assert!(expected.contains(&left), "{} has {left:?}, and not {expected:?}", name(number));
        assert!(held.try_lock().await.unwrap().is_none(), "{} is held", name(number));
        let guard = free.try_lock().await.unwrap().expect("nobody else locks it");
        guard.unlock().await.unwrap();
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Contract: test 3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reply_reaches_its_caller_while_a_slot_with_subscribers_moves_away() {
    let group = Cluster::start(3, 0);
    let [ours, theirs] = clients(&group).await;
    let mut guards = Vec::new();
    for number in 0..CALLERS {
        guards.push(ours.rlock(name(number)).with(&fixed(lease(number))).lock().await.unwrap());
    }
    let waiting: Vec<_> =
        (0..CALLERS).take(WAITERS).map(|number| waiter(theirs.rlock(name(number)))).collect();
    let slot = group.slot_of("tag");
    let mut from = group.master_of(slot);
    let subscribed = |server: usize| group.servers[server].channels().len();
    eventually("all are subscribed", || subscribed(from), |count| *count >= WAITERS).await;

    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let call = |number| tokio::spawn(ask(theirs.clone(), number, Arc::clone(&stop), Arc::clone(&calls)));
    let callers: Vec<_> = (0..CALLERS).map(call).collect();
    for _ in 0..6 {
        let before = calls.load(Ordering::Relaxed);
        let go_on = |calls: &u32| *calls > before + 2 * CALLERS;
        eventually("the callers work", || calls.load(Ordering::Relaxed), go_on).await;
        let to = (from + 1) % 3;
        group.move_slot(slot, to);
        eventually("the old master ended the subscriptions", || subscribed(from), |count| *count == 0).await;
        eventually("all are subscribed again", || subscribed(to), |count| *count >= WAITERS).await;
        from = to;
    }
    assert!(group.errors("MOVED") > 0, "calls met the moves");
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        soon(caller).await.unwrap();
    }

    listens(&group.servers[from]).await;
    for (guard, waiting) in guards.drain(..WAITERS).zip(waiting) {
        guard.unlock().await.unwrap();
        woken_by_message(waiting).await.unlock().await.unwrap();
    }
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    end(&group, [&ours, &theirs]).await;
}

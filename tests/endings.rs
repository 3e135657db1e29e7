//! How holds end: on time, also beside other holds of the same owner, and with exactly one event if they are lost.

use std::fmt::Debug;
use std::future::Future;
use std::time::Instant;

use crate::support::events::Events;
use crate::support::fixture::{Fixture, Lending, RLocks, for_each_lock};
use crate::support::{
    Faults, MS, Proxy, SECOND, Scene, Server, at_least, at_most, connect, eventually, fixed, patient,
    poll_until, soon, throughout, timed, waiter,
};
use lockkeeper::{LockClient, LockConfig, LossCause, MultiLock, Source};
use lockkeeper_memory::MemoryServer;
use tokio::time::sleep;

/// `max_hold` ends a write hold while a read hold of the same owner is renewed. The guards stay alive, as in work that
/// hangs.
#[tokio::test]
async fn a_bounded_write_ends_beside_a_renewed_read_of_its_owner() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let mut owner = locks.owner();
    let writing = owner.read_write_lock("a").with(&at_most(SECOND)).write().lock().await.unwrap();
    let reading = owner.read_write_lock("a").read().lock().await.unwrap();
    let (other, took) = timed(beside.read_write_lock("a").read().lock()).await;
    other.unwrap().unlock().await.unwrap();
    assert!(writing.is_lost() && !reading.is_lost());
    assert!(took > 500 * MS && took < 15 * SECOND, "{took:?}");
    reading.unlock().await.unwrap();
    drop((writing, owner, locks, beside));
    scene.end().await;
}

/// The same with a fixed lease.
#[tokio::test]
async fn a_leased_write_ends_beside_a_renewed_read_of_its_owner() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let mut owner = locks.owner();
    let writing = owner.read_write_lock("a").with(&fixed(SECOND)).write().lock().await.unwrap();
    let reading = owner.read_write_lock("a").read().lock().await.unwrap();
    soon(beside.read_write_lock("a").read().lock()).await.unwrap().unlock().await.unwrap();
    assert!(writing.is_lost() && !reading.is_lost());
    reading.unlock().await.unwrap();
    drop((writing, owner, locks, beside));
    scene.end().await;
}

/// A short inner lease ends on time, although an outer hold, released before, had a longer lease.
async fn a_short_lease_ends_after_a_longer_one_was_released<F: Lending>() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let mut owner = locks.owner();
    let outer = F::lent_leased(&mut owner, "a", 600 * SECOND).lock().await.unwrap();
    let inner = F::lent_leased(&mut owner, "a", SECOND).lock().await.unwrap();
    outer.unlock().await.unwrap();
    let (other, took) = timed(F::rival(&beside, "a").lock()).await;
    other.unwrap().unlock().await.unwrap();
    assert!(inner.is_lost() && took < 15 * SECOND, "{took:?}");
    drop((inner, owner, locks, beside));
    scene.end().await;
}

/// A leaked hold with a short fixed lease ends on time, although a renewed hold, since released, had extended the
/// lease.
async fn a_leaked_lease_ends_beside_a_renewed_one<F: Lending>() {
    let scene = Scene::start();
    let (locks, beside) =
        (scene.client_with(patient().watchdog_lease(20 * SECOND)).await, scene.client().await);
    let mut owner = locks.owner();
    F::lent_leased(&mut owner, "a", SECOND).lock().await.unwrap().leak();
    let outer = F::lent(&mut owner, "a").lock().await.unwrap();
    outer.unlock().await.unwrap();
    let (other, took) = timed(F::rival(&beside, "a").lock()).await;
    other.unwrap().unlock().await.unwrap();
    assert!(took < 12 * SECOND, "{took:?}");
    drop((owner, locks, beside));
    scene.end().await;
}

/// Another hold of the owner made the server's lease longer. The end of this one comes while the runtime does nothing.
#[tokio::test]
async fn a_hold_that_is_leaked_after_its_end_is_released() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client_with(patient()).await, scene.client().await);
    let mut lock = locks.rlock("a").with(&fixed(SECOND));
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    inner.extend(60 * SECOND).await.unwrap();
    inner.unlock().await.unwrap();
    std::thread::sleep(outer.remaining());
    outer.leak();
    soon(beside.rlock("a").lock()).await.unwrap().unlock().await.unwrap();
    drop((lock, locks, beside));
    scene.end().await;
}

/// Leaked holds do not slow down later acquires, and are forgotten when they end.
#[tokio::test]
async fn leaked_holds_do_not_pile_up() {
    const LEAKED: usize = 3_000;
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut lock = locks.rlock("a").with(&fixed(3 * SECOND));
    let mut owner = locks.owner();
    let outer = owner.rlock("a").lock().await.unwrap();
    for _ in 0..LEAKED {
        owner.rlock("a").with(&fixed(2 * SECOND)).lock().await.unwrap().leak();
    }
    assert!(outer.hold_count() > 1);
    eventually("the leaked holds ended", || outer.hold_count(), |&holds| holds == 1).await;
    outer.unlock().await.unwrap();
    assert!(soon(lock.try_lock()).await.unwrap().is_some(), "no leaked hold keeps the lock");
    drop((lock, owner, locks));
    scene.end().await;
}

/// Guarantee 18. A loss is one event, whether the guard, `lost()`, `run`, the watchdog, a release or a re-entry notices it first.
#[tokio::test]
async fn each_lost_hold_is_reported_once() {
    let events = Events::default();
    let _collecting = events.collect();
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(3 * SECOND).name_prefix("shop:")).await;
    let removed = "the server no longer has it";

    let guard = locks.rlock("looked").with(&fixed(100 * MS)).lock().await.unwrap();
    eventually("the lease ended", || guard.is_lost(), |&lost| lost).await;
    let lost = soon(guard.run(async {})).await.unwrap_err();
    drop(guard);
    events.tell_lost("looked", &lost.cause.to_string()).await;
    assert_eq!(lost.cause, LossCause::LeaseEnded);

    let guard = locks.rlock("awaited").with(&at_most(100 * MS)).lock().await.unwrap();
    let lost = soon(guard.ended()).await.unwrap_err();
    assert_eq!(guard.unlock().await.unwrap_err().loss_cause(), Some(LossCause::MaxHold));
    events.tell_lost("awaited", &lost.cause.to_string()).await;
    assert_eq!(lost.cause, LossCause::MaxHold);

    let guard = locks.rlock("renewed").lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "shop:renewed"]);
    let lost = soon(guard.run(std::future::pending::<()>())).await.unwrap_err();
    assert_eq!(lost.cause, LossCause::Removed);
    drop(guard);
    events.tell_lost("renewed", removed).await;

    let guard = locks.rlock("unlocked").lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "shop:unlocked"]);
    assert!(guard.unlock().await.is_err());
    events.tell_lost("unlocked", removed).await;

    let guard = locks.rlock("dropped").lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "shop:dropped"]);
    drop(guard);
    events.tell_lost("dropped", removed).await;

    let mut lock = locks.rlock("entered");
    let guard = lock.lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "shop:entered"]);
    let again = lock.lock().await.unwrap();
    drop(guard);
    events.tell_lost("entered", removed).await;

    let line = events.lost("entered").remove(0);
    let server = format!("server=\"127.0.0.1:{}\"", scene.server.port());
    assert!(line.contains("key=\"shop:entered\"") && line.contains(&server), "{line}");

    // A released hold is not lost, whatever happens to its lease.
    let ended = again.ended();
    again.unlock().await.unwrap();
    soon(ended).await.unwrap();
    let longer_than_the_lease = 4 * SECOND;
    throughout(longer_than_the_lease, async || assert_eq!(events.lost("entered").len(), 1)).await;
    drop((lock, locks));
    scene.end().await;
}

/// Guarantee 18. An outage is reported, but not with every retry.
#[tokio::test]
async fn an_outage_is_reported_with_few_events() {
    let events = Events::default();
    let _collecting = events.collect();
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient().command_timeout(100 * MS).watchdog_lease(2 * SECOND)).await;
    let mut guards = Vec::new();
    for number in 0..300 {
        guards.push(locks.rlock(format!("{number}")).lock().await.unwrap());
    }
    proxy.set(Faults::black_hole());
    events.tell("leases were not renewed").await;
    soon(guards[0].ended()).await.unwrap_err();
    // On a busy machine, a renewal may have been late before. What was reported then is not reported again, so it counts, too.
    let text = events.text();
    let others: Vec<_> = text.lines().filter(|line| !line.contains("a lock was lost")).collect();
    assert!(others.len() <= 4, "{others:?}");
    proxy.set(Faults::default());
    drop(guards);
    soon(locks.shutdown()).await.unwrap();
    drop((locks, proxy));
    scene.end().await;
}

/// Guarantee 18. The task that holds the lock waits for the waiter. Only the log can report this deadlock.
#[tokio::test]
async fn waiting_for_a_lock_of_the_same_client_is_warned_about_once() {
    let events = Events::default();
    let _collecting = events.collect();
    let scene = Scene::start();
    let config = patient().watchdog_lease(2 * SECOND).safety_poll(200 * MS);
    let (locks, beside) = (scene.client_with(config.clone()).await, scene.client_with(config).await);
    let guard = locks.rlock("a").lock().await.unwrap();
    let held_at = line!() - 1;
    let (mut ours, mut theirs) = (locks.rlock("a"), beside.rlock("a"));
    let waits_at = line!() + 1;
    let (here, there) = tokio::join!(ours.try_lock_for(5 * SECOND), theirs.try_lock_for(5 * SECOND));
    assert!(here.unwrap().is_none() && there.unwrap().is_none());
    let text = events.text();
    let warned: Vec<&str> = text.lines().filter(|line| line.contains("neither continues")).collect();
    assert_eq!(warned.len(), 1, "{warned:?}");
    for place in [format!("endings.rs:{held_at}"), format!("endings.rs:{waits_at}")] {
        assert!(warned[0].contains(&place), "{place} in {}", warned[0]);
    }
    guard.unlock().await.unwrap();
    drop((ours, theirs, locks, beside));
    scene.end().await;
}

/// Guarantee 18. A call that waits in vain says so once, wherever it stands in its queue.
async fn a_call_that_has_waited_for_a_lease_is_reported_once<F: Fixture>() {
    let events = Events::default();
    let _collecting = events.collect();
    let scene = Scene::start();
    let beside = scene.client_with(patient()).await;
    let locks = scene.client_with(patient().watchdog_lease(SECOND)).await;
    let guard = F::rival(&beside, "a").lock().await.unwrap();
    let waiting = waiter(F::lock(&locks, "a"));
    events.tell("a call has waited for a lease").await;
    sleep(3 * SECOND).await;
    let text = events.text();
    let reported: Vec<&str> = text.lines().filter(|line| line.contains("has waited for a lease")).collect();
    assert!(reported.len() == 1 && reported[0].contains("tests/support/waiter.rs"), "{reported:?}");
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    drop((locks, beside));
    scene.end().await;
}

/// The hold of this lease was lost. The server frees the lock soon, and not after a longer lease that was asked for.
async fn is_freed<F: Fixture>(scene: &Scene, beside: &LockClient, after: impl Debug) {
    let got = F::rival(beside, "a").try_lock_for(10 * SECOND).await.unwrap();
    let left = scene.server.run::<i64>(&["PTTL", "a"]);
    assert!(got.is_some(), "after {after:?} its lease on the server is {left} ms");
}

/// Polls a call that makes the lease longer until the server did so. Its reply is held, and the call is dropped.
async fn cancel_on_the_way_back(scene: &Scene, proxy: &Proxy, call: impl Future) {
    proxy.set(Faults::replies_held());
    let is_longer = || scene.server.run::<i64>(&["PTTL", "a"]) > 300_000;
    poll_until(&mut Box::pin(call), is_longer).await;
    proxy.set(Faults::default());
}

/// Guarantee 11. An `extend` of a lease of one second is cancelled. When the hold is lost, the server frees the lock.
#[tokio::test]
async fn a_lost_hold_ends_on_the_server_after_a_cancelled_extend() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let (locks, beside) = (connect(proxy.url(), patient()).await, scene.client().await);
    let guard = locks.rlock("a").with(&fixed(SECOND)).lock().await.unwrap();
    cancel_on_the_way_back(&scene, &proxy, guard.extend(600 * SECOND)).await;
    soon(guard.ended()).await.unwrap_err();
    is_freed::<RLocks>(&scene, &beside, "a cancelled `extend`").await;
    drop(guard);
    soon(locks.shutdown()).await.unwrap();
    drop((locks, beside, proxy));
    scene.end().await;
}

/// An `extend` of two members, of which one server does not answer.
#[tokio::test]
async fn a_lost_hold_ends_on_the_server_after_an_extend_of_one_member() {
    let (scene, other) = (Scene::start(), Server::start());
    let config = patient().command_timeout(200 * MS).retry_timeout(500 * MS);
    let (one, two) = (scene.client_with(config.clone()).await, connect(other.url(), config).await);
    let beside = scene.client().await;
    let mut both = MultiLock::new([one.rlock("a"), two.rlock("a")]).unwrap().with(&fixed(3 * SECOND));
    let guard = both.lock().await.unwrap();
    other.freeze();
    assert!(guard.extend(600 * SECOND).await.is_err());
    other.thaw();
    soon(guard.ended()).await.unwrap_err();
    drop(guard);
    is_freed::<RLocks>(&scene, &beside, "an `extend` of one member").await;
    drop((both, one, two, beside));
    scene.end().await;
}

/// Guarantee 11. A re-entry with a longer lease is cancelled. The lock is free when the first hold ends.
async fn a_cancelled_reentry_keeps_no_lock<F: Lending>() {
    a_cancelled_reentry::<F>(false).await;
}

/// Guarantee 11. The same when the guard of the first hold was leaked.
async fn a_cancelled_reentry_keeps_no_lock_of_a_leaked_hold<F: Lending>() {
    a_cancelled_reentry::<F>(true).await;
}

async fn a_cancelled_reentry<F: Lending>(leaks: bool) {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let (locks, beside) = (connect(proxy.url(), patient()).await, scene.client().await);
    let mut owner = locks.owner();
    let mut guard = Some(F::lent_leased(&mut owner, "a", 2 * SECOND).lock().await.unwrap());
    if leaks {
        guard.take().unwrap().leak();
    }
    cancel_on_the_way_back(&scene, &proxy, F::lent_leased(&mut owner, "a", 600 * SECOND).lock()).await;
    is_freed::<F>(&scene, &beside, "a cancelled re-entry").await;
    assert!(guard.is_none_or(|guard| guard.is_lost()));
    drop(owner);
    soon(locks.shutdown()).await.unwrap();
    drop((locks, beside, proxy));
    scene.end().await;
}

/// Five nested holds were dropped, and the outer hold is lost. The log has one loss.
#[tokio::test]
async fn dropped_nested_holds_and_their_outer_hold_report_one_loss() {
    let events = Events::default();
    let _collecting = events.collect();
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut owner = locks.owner();
    let outer = owner.rlock("a").lock().await.unwrap();
    for _ in 0..5 {
        drop(owner.rlock("a").lock().await.unwrap());
    }
    scene.server.run::<()>(&["DEL", "a"]);
    assert!(outer.unlock().await.is_err());
    assert_eq!(events.lost("a").len(), 1);
    drop((owner, locks));
    scene.end().await;
}

/// The lease covers the least time, so a process that dies leaves the lock held for so long.
#[tokio::test]
async fn the_first_lease_covers_the_least_time() {
    let scene = Scene::start();
    let locks = scene.client().await;
    for (least, from, to) in [(90 * SECOND, 80_000, 90_000), (5 * SECOND, 20_000, 30_000)] {
        let guard = locks.rlock("a").with(&at_least(least)).lock().await.unwrap();
        let left = scene.server.run::<u64>(&["PTTL", "a"]);
        assert!((from..=to).contains(&left), "{left}");
        guard.leak();
        scene.server.run::<()>(&["DEL", "a"]);
    }
    drop(locks);
    scene.end().await;
}

/// A shutdown waits for a least time that ends soon, and leaves the lock to its lease if the time is long.
#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_long_least_time() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let start = Instant::now();
    for (name, least) in [("soon", SECOND), ("late", 600 * SECOND)] {
        locks.rlock(name).with(&at_least(least)).lock().await.unwrap().unlock().await.unwrap();
    }
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(scene.server.keys(), ["late"]);
    assert!(start.elapsed() >= SECOND, "the least time was not over: {:?}", start.elapsed());
    scene.server.run::<()>(&["DEL", "late"]);
    drop(locks);
    scene.end().await;
}

/// A guard that ends after the shutdown keeps the lock for its least time, and not for its lease.
#[tokio::test]
async fn a_guard_that_ends_after_the_shutdown_keeps_the_lock_for_its_least_time() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let guard = locks.rlock("a").with(&at_least(2 * SECOND)).lock().await.unwrap();
    locks.shutdown().await.unwrap();
    drop(guard);
    assert!(scene.server.run::<bool>(&["EXISTS", "a"]), "released early");
    eventually("the least time is over", || scene.server.run::<bool>(&["EXISTS", "a"]), |held| !held).await;
    drop(locks);
    scene.end().await;
}

/// A guard whose lock stays held has nothing to release, so it needs no server.
#[tokio::test]
async fn an_unlock_within_the_least_time_needs_no_server() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient()).await;
    let guard = locks.rlock("a").with(&at_least(2 * SECOND)).lock().await.unwrap();
    proxy.set(Faults::black_hole());
    proxy.cut();
    let (released, took) = timed(guard.unlock()).await;
    released.unwrap();
    assert!(took < SECOND, "{took:?}");
    proxy.set(Faults::default());
    eventually("the least time is over", || scene.server.run::<bool>(&["EXISTS", "a"]), |held| !held).await;
    locks.shutdown().await.unwrap();
    drop((locks, proxy));
    scene.end().await;
}

/// An owner that still has an outer hold can re-enter, although an inner hold is kept.
#[tokio::test]
async fn an_inner_hold_that_is_kept_does_not_lock_its_owner_out() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut owner = locks.owner();
    let outer = owner.rlock("a").lock().await.unwrap();
    let inner = owner.rlock("a").with(&at_least(SECOND)).lock().await.unwrap();
    inner.unlock().await.unwrap();
    let again = owner.rlock("a").try_lock().await.unwrap().expect("it has the outer hold");
    again.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert!(locks.rlock("a").is_locked().await.unwrap(), "the inner hold is kept");
    soon(locks.rlock("a").lock()).await.unwrap().unlock().await.unwrap();
    drop((owner, locks));
    scene.end().await;
}

for_each_lock! {
    fair: FairLocks, fenced: FencedLocks, read: ReadLocks, rlock: RLocks, write: WriteLocks => {
        a_cancelled_reentry_keeps_no_lock
        a_cancelled_reentry_keeps_no_lock_of_a_leaked_hold
        a_call_that_has_waited_for_a_lease_is_reported_once
        a_leaked_lease_ends_beside_a_renewed_one
        a_short_lease_ends_after_a_longer_one_was_released
    }
}

/// Guarantee 20. An owner that gave back all its holds is refused, also while several of them are kept.
#[tokio::test]
async fn an_owner_whose_holds_are_all_kept_is_refused() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut owner = locks.owner();
    let outer = owner.rlock("a").lock().await.unwrap();
    for _ in 0..2 {
        owner.rlock("a").with(&at_least(SECOND)).lock().await.unwrap().unlock().await.unwrap();
    }
    outer.unlock().await.unwrap();
    assert!(owner.rlock("a").try_lock().await.unwrap().is_none());
    soon(owner.rlock("a").lock()).await.unwrap().unlock().await.unwrap();
    drop(owner);
    locks.shutdown().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// As after a SIGSTOP that lasts for longer than a lease: all timers are due at once, and the call that waits gets the lock.
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_with_a_stop_of_the_process_is_not_reported() {
    let (events, server) = (Events::default(), MemoryServer::new());
    let _collecting = events.collect();
    let config = || LockConfig::builder().watchdog_lease(4 * SECOND).build().unwrap();
    let connect =
        async || LockClient::connect_with(Source::stream(server.connector()), config()).await.unwrap();
    let (locks, beside) = (connect().await, connect().await);
    beside.rlock("a").with(&fixed(4 * SECOND)).lock().await.unwrap().leak();
    let waiting = waiter(locks.rlock("a"));
    sleep(2 * SECOND).await;
    tokio::time::advance(10 * SECOND).await;
    let guard = waiting.await.unwrap();
    sleep(3 * SECOND).await; // a report would have come by now
    assert!(!events.text().contains("has waited for a lease"), "{}", events.text());
    // A stopped process is the exception.
    let waiting = waiter(beside.rlock("a"));
    sleep(6 * SECOND).await;
    assert!(events.text().contains("has waited for a lease"), "{}", events.text());
    guard.unlock().await.unwrap();
    waiting.await.unwrap().unlock().await.unwrap();
}

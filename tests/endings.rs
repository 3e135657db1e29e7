//! How holds end: on time, also beside other holds of the same owner, and with exactly one event if they are lost.

use std::time::Instant;

use crate::support::events::Events;
use crate::support::fixture::{Fixture, for_each_lock};
use crate::support::{
    Faults, MS, SECOND, Scene, at_least, at_most, connect, eventually, fixed, patient, soon, throughout,
    timed, waiter,
};
use lockkeeper::LossCause;
use tokio::time::sleep;

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
    scene.end((lock, locks)).await;
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
    events.tell_lost("0", "its lease was not renewed in time").await;
    // On a busy machine, a renewal may have been late before. What was reported then is not reported again, so it counts, too.
    let text = events.text();
    let others: Vec<_> = text.lines().filter(|line| !line.contains("a lock was lost")).collect();
    assert!(others.len() <= 4, "{others:?}");
    proxy.set(Faults::default());
    drop(guards);
    soon(locks.shutdown()).await.unwrap();
    scene.end((locks, proxy)).await;
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
    scene.end((ours, theirs, locks, beside)).await;
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
    scene.end((locks, beside)).await;
}

/// A shutdown waits for a least time that ends soon, and leaves the lock to its lease if the time is long.
#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_long_least_time() {
    let (scene, locks) = Scene::with_client().await;
    let start = Instant::now();
    for (name, least) in [("soon", SECOND), ("late", 600 * SECOND)] {
        locks.rlock(name).with(&at_least(least)).lock().await.unwrap().unlock().await.unwrap();
    }
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(scene.server.keys(), ["late"]);
    assert!(start.elapsed() >= SECOND, "the least time was not over: {:?}", start.elapsed());
    scene.server.run::<()>(&["DEL", "late"]);
    scene.end(locks).await;
}

/// A guard whose lock stays held has nothing to release, so it needs no server.
#[tokio::test]
async fn an_unlock_within_the_least_time_needs_no_server() {
    let (scene, proxy, locks) = Scene::behind_proxy(patient()).await;
    let guard = locks.rlock("a").with(&at_least(2 * SECOND)).lock().await.unwrap();
    proxy.set(Faults::black_hole());
    proxy.cut();
    let (released, took) = timed(guard.unlock()).await;
    released.unwrap();
    assert!(took < SECOND, "{took:?}");
    proxy.set(Faults::default());
    eventually("the least time is over", || scene.server.run::<bool>(&["EXISTS", "a"]), |held| !held).await;
    locks.shutdown().await.unwrap();
    scene.end((locks, proxy)).await;
}

for_each_lock! {
    fair: FairLocks, fenced: FencedLocks, read: ReadLocks, rlock: RLocks, write: WriteLocks => {
        a_call_that_has_waited_for_a_lease_is_reported_once
    }
}

//! Promise 5 and 6: whoever holds a lock is told in time that it can not be relied on any more.

#[path = "support/mod.rs"]
mod support;

use lockkeeper::{BaseLock, Error, LockConfig, Lost};
use support::fixture::{Fixture, for_each_lock};
use support::{Faults, MS, SECOND, Scene, connect, patient, renewed, soon, throughout, timed};
use tokio::time::{Instant, sleep, sleep_until};

/// With the connection silent, the guard is told no later than its deadline, and before anybody else can get in.
async fn a_holder_is_told_before_another_gets_in_when_the_network_is_silent<F: Fixture>() {
    for faults in [Faults::black_hole(), Faults::replies_held()] {
        let scene = Scene::start();
        let proxy = scene.proxy().await;
        let lease = 1_500 * MS;
        let ours = connect(proxy.url(), LockConfig::builder().watchdog_lease(lease)).await;
        let theirs = scene.client().await;
        let guard = F::lock(&ours, "a").lock().await.unwrap();
        renewed(&guard).await;
        proxy.set(faults);
        let mut deadline = Instant::now() + guard.remaining();

        let rival = tokio::spawn({
            let theirs = theirs.clone();
            async move {
                let guard = F::rival(&theirs, "a").lock().await.unwrap();
                let at = Instant::now();
                guard.unlock().await.unwrap();
                at
            }
        });
        let lost = guard.lost();
        tokio::pin!(lost);
        let told = loop {
            tokio::select! {
                biased;
                () = &mut lost => break Instant::now(),
                // On a busy machine all timers are late, so this is the judge, and no clock.
                () = sleep_until(deadline + 2 * MS) => panic!("a timer for the deadline was earlier, {faults:?}"),
                // An answer that was under way already may still have moved the deadline.
                () = sleep(5 * MS) => deadline = deadline.max(Instant::now() + guard.remaining()),
            }
        };
        assert!(guard.is_lost());
        let taken = soon(rival).await.unwrap();
        assert!(told < taken, "the other was in {:?} before, {faults:?}", told - taken);
        assert!(matches!(guard.run(async {}).await, Err(Lost { .. })));

        proxy.set(Faults::default());
        assert!(guard.is_lost(), "lost is final");
        assert!(matches!(soon(guard.unlock()).await, Err(Error::NotHeld { .. })));
        ours.shutdown().await.unwrap();
        drop((ours, theirs, proxy));
        scene.end().await;
    }
}

/// However long an answer takes, the guard never relies on the lease for longer than the server keeps it.
async fn the_deadline_counts_from_before_the_command_was_sent<F: Fixture>() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient().watchdog_lease(6 * SECOND)).await;
    let beside = scene.client().await;
    F::lock(&locks, "a").is_locked().await.unwrap(); // so that the connection is there, and the command goes out at once
    proxy.set(Faults::replies_held());
    let locking = tokio::spawn({
        let locks = locks.clone();
        async move { F::lock(&locks, "a").lock().await.unwrap() }
    });
    sleep(400 * MS).await; // so late is the answer
    proxy.set(Faults::default());
    let guard = soon(locking).await.unwrap();
    let relies_on_less = async || {
        let relied_on = guard.remaining();
        let (kept, asked) = timed(async { F::lock(&beside, "a").remaining_lease().await }).await;
        let kept = kept.unwrap().expect("it is held").duration().unwrap();
        assert!(relied_on < kept + asked + MS, "{relied_on:?} of {kept:?}");
    };
    throughout(300 * MS, relies_on_less).await;
    // The same when it is renewed, and when it is made longer.
    proxy.set(Faults { delay: 150 * MS, ..Faults::default() });
    throughout(2_500 * MS, relies_on_less).await;
    guard.extend(60 * SECOND).await.unwrap();
    throughout(100 * MS, relies_on_less).await;
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    drop((locks, beside, proxy));
    scene.end().await;
}

/// The hold is gone and so is the connection. That nothing could be sent on it must not be taken for a release that
/// was done and not answered.
async fn a_release_that_was_never_sent_does_not_hide_a_loss<F: Fixture>() {
    let mut scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    for restart in [false, true] {
        let guard = F::lock(&locks, "a").lock().await.unwrap();
        if restart {
            scene.server.restart();
        } else {
            scene.server.run::<u32>(&["CLIENT", "KILL", "TYPE", "NORMAL"]);
            scene.server.run::<()>(&["DEL", "a"]);
        }
        let rival = soon(F::rival(&beside, "a").lock()).await.unwrap();
        it_is_noticed().await;
        assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })), "restarted: {restart}");
        assert!(!rival.is_lost());
        rival.unlock().await.unwrap();

        // Nor are there undos of what was never sent.
        let idle = F::lock(&locks, "a").lock().await.unwrap();
        idle.unlock().await.unwrap();
        scene.server.run::<u32>(&["CLIENT", "KILL", "TYPE", "NORMAL"]);
        it_is_noticed().await;
        let before = scene.server.calls("evalsha");
        F::lock(&locks, "a").lock().await.unwrap().unlock().await.unwrap();
        sleep(500 * MS).await; // in which several undos would come
        assert_eq!(scene.server.calls("evalsha") - before, 2);
    }
    drop((locks, beside));
    scene.end().await;
}

/// A client notices that its connection ended, of which there is nothing to be seen. In several steps: in one, no time
/// might be left for that on a busy machine.
async fn it_is_noticed() {
    for _ in 0..10 {
        sleep(10 * MS).await;
    }
}

/// A connection that does not come about is given up while there is time for another.
async fn a_connection_that_hangs_does_not_cost_the_lease<F: Fixture>() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let lease = 6 * SECOND;
    let config = LockConfig::builder().connections(1).watchdog_lease(lease).command_timeout(lease);
    let locks = connect(proxy.url(), config).await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    let before = proxy.accepted();
    proxy.set(Faults::black_hole());
    support::eventually("it connects anew", || proxy.accepted(), |&accepted| accepted > before).await;
    // From here on new connections are good; those there are stay silent.
    proxy.set(Faults::default());
    proxy.set_existing(Faults::black_hole());
    throughout(lease + SECOND, async || assert!(!guard.is_lost())).await;
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    drop((locks, proxy));
    scene.end().await;
}

/// The longest hold ends while a renewal is under way, which makes the lease longer once more.
async fn a_longest_hold_that_ends_during_a_renewal_is_released<F: Fixture>() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let lease = 6 * SECOND;
    let locks = connect(proxy.url(), patient().watchdog_lease(lease)).await;
    let guard = F::bounded(&locks, "a", lease + 500 * MS).lock().await.unwrap();
    proxy.set(Faults { delay: 75 * MS, ..Faults::default() }); // there and back longer than a tick
    soon(guard.lost()).await;
    let free = || !scene.server.run::<bool>(&["EXISTS", "a"]);
    support::within(4 * SECOND, "it is released", free, |&free| free).await; // and not when the lease ends
    drop(guard);
    locks.shutdown().await.unwrap();
    drop((locks, proxy));
    scene.end().await;
}

/// The renewal arrives and its answer comes late: the server has extended the lease, the hold stays lost.
async fn a_late_successful_renewal_does_not_revive_a_lost_hold<F: Fixture>() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient().watchdog_lease(5 * SECOND)).await;
    let beside = scene.client().await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    let before = scene.server.calls("evalsha");
    proxy.set(Faults::replies_held());
    soon(guard.lost()).await;
    assert!(scene.server.calls("evalsha") > before, "a renewal arrived, or this test shows nothing");
    proxy.set(Faults::default());
    throughout(250 * MS, async || assert!(guard.is_lost() && guard.remaining().is_zero())).await;
    // Nothing renews a lost hold.
    soon(F::rival(&beside, "a").lock()).await.unwrap().unlock().await.unwrap();
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    locks.shutdown().await.unwrap();
    drop((locks, beside, proxy));
    scene.end().await;
}

async fn a_silent_command_connection_is_replaced_within_seconds<F: Fixture>() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), LockConfig::builder()).await;
    for name in ["a", "b", "c", "d", "e"] {
        F::lock(&locks, name).lock().await.unwrap().unlock().await.unwrap(); // all connections are there
    }
    for faults in [Faults::black_hole(), Faults::replies_held()] {
        let before = proxy.accepted();
        proxy.set_existing(faults);
        let (guard, took) = timed(async { F::lock(&locks, "a").lock().await }).await;
        assert!(took < 5 * SECOND && took > 500 * MS, "{took:?}, {faults:?}");
        assert!(proxy.accepted() > before);
        guard.unwrap().unlock().await.unwrap();
    }
    locks.shutdown().await.unwrap();
    drop((locks, proxy));
    scene.end().await;
}

/// Nobody but the watchdog is there to notice.
async fn the_watchdog_replaces_a_silent_connection_and_keeps_the_lock<F: Fixture>() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().watchdog_lease(6 * SECOND).command_timeout(500 * MS);
    let locks = connect(proxy.url(), config).await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    let before = proxy.accepted();
    proxy.set_existing(Faults::black_hole());
    throughout(7 * SECOND, async || assert!(!guard.is_lost())).await;
    assert!(proxy.accepted() > before);
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    drop((locks, proxy));
    scene.end().await;
}

/// A lease not much longer than a command may take.
async fn one_silent_connection_costs_no_short_lease<F: Fixture>() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    for _ in 0..2 {
        let lease = 4 * SECOND;
        let config = LockConfig::builder().connections(1).watchdog_lease(lease);
        let locks = connect(proxy.url(), config.command_timeout(lease * 3 / 4)).await;
        let guard = F::lock(&locks, "a").lock().await.unwrap();
        renewed(&guard).await;
        let before = proxy.accepted();
        proxy.set_existing(Faults::black_hole());
        throughout(lease + 500 * MS, async || assert!(!guard.is_lost())).await;
        assert!(proxy.accepted() > before);
        guard.unlock().await.unwrap();
        locks.shutdown().await.unwrap();
    }
    drop(proxy);
    scene.end().await;
}

/// A connection that is cut is no loss by itself.
async fn a_broken_connection_is_not_a_loss<F: Fixture>() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient().watchdog_lease(5 * SECOND)).await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    for _ in 0..10 {
        proxy.cut();
        throughout(150 * MS, async || assert!(!guard.is_lost())).await;
    }
    renewed(&guard).await;
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    drop((locks, proxy));
    scene.end().await;
}

for_each_lock! {
    a_holder_is_told_before_another_gets_in_when_the_network_is_silent
    the_deadline_counts_from_before_the_command_was_sent
    a_release_that_was_never_sent_does_not_hide_a_loss
    a_connection_that_hangs_does_not_cost_the_lease
    a_longest_hold_that_ends_during_a_renewal_is_released
    a_late_successful_renewal_does_not_revive_a_lost_hold
    a_silent_command_connection_is_replaced_within_seconds
    the_watchdog_replaces_a_silent_connection_and_keeps_the_lock
    one_silent_connection_costs_no_short_lease
    a_broken_connection_is_not_a_loss
}

//! Promise 6: one watchdog per client renews many locks with few commands, spread over time.

#[path = "support/mod.rs"]
mod support;

use lockkeeper::{LockClient, LockConfig, LockGuard};
use support::{Faults, MS, SECOND, Scene, connect, eventually, only_this_is_lost, patient, soon, timed};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

async fn hold_many(locks: &LockClient, count: usize) -> Vec<LockGuard> {
    let mut acquiring = JoinSet::new();
    for number in 0..count {
        let locks = locks.clone();
        acquiring.spawn(async move { locks.rlock(format!("{number}")).lock().await.unwrap() });
    }
    soon(acquiring.join_all()).await
}

async fn release_all(guards: Vec<LockGuard>) {
    let mut releasing = JoinSet::new();
    for guard in guards {
        releasing.spawn(guard.unlock());
    }
    for result in soon(releasing.join_all()).await {
        result.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_are_renewed_by_one_command_per_hundred() {
    const LOCKS: usize = 10_000;
    let scene = Scene::start();
    let lease = 15 * SECOND;
    let period = lease / 3;
    let locks = scene.client_with(patient().watchdog_lease(lease)).await;
    let guards = hold_many(&locks, LOCKS).await;
    sleep(period).await; // the first round, in which each is renewed early, by a part drawn at random
    // On a busy machine it may all take longer, so what is counted is set against that, and with none that is late.
    let renewed = || guards.iter().filter(|guard| guard.remaining() > lease - period - SECOND).count();
    let none_is_late = async || eventually("none is late", renewed, |&count| count == LOCKS).await;
    none_is_late().await;

    let thirds = |start: Instant| start.elapsed().div_duration_f64(period);
    let is_one_per_hundred = |renewals: u64, thirds: f64| renewals >= 75 && renewals as f64 <= 130.0 * thirds;
    let start = Instant::now();
    let mut samples = vec![scene.server.calls("evalsha")];
    for _ in 0..10 {
        sleep(period / 10).await;
        samples.push(scene.server.calls("evalsha"));
    }
    none_is_late().await;
    let (renewals, took) = (scene.server.calls("evalsha") - samples[0], thirds(start));
    let tenths = samples.windows(2).filter(|pair| pair[1] - pair[0] > 3).count();
    println!("{renewals} renewals in {took:.2} thirds of a lease, in {tenths} of ten parts of that");
    assert!(is_one_per_hundred(renewals, took), "{renewals} renewals in {took} thirds of a lease");
    // After it stood still for most of the first round, what was late then is due together for good.
    assert!(tenths >= 3, "in {tenths} tenths only: they are not spread");

    // Beside normal traffic, the same.
    let before = scene.server.calls("evalsha");
    let (start, mut pairs, mut slow) = (Instant::now(), 0, 0);
    let mut pace = interval(5 * MS);
    while start.elapsed() < period {
        pace.tick().await;
        let pair = async { locks.rlock("traffic").lock().await.unwrap().unlock().await.unwrap() };
        slow += u64::from(timed(pair).await.1 > 200 * MS);
        pairs += 1;
    }
    none_is_late().await;
    let (renewals, took) = (scene.server.calls("evalsha") - before - 2 * pairs, thirds(start));
    println!("{renewals} renewals in {took:.2} thirds of a lease beside {pairs} pairs, {slow} of them slow");
    assert!(is_one_per_hundred(renewals, took), "{renewals} renewals in {took} thirds beside {pairs} pairs");
    assert!(slow <= 5, "{slow} of {pairs} pairs are slow");
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert!(scene.server.run::<usize>(&["DBSIZE"]) >= LOCKS);
    release_all(guards).await;
    drop(locks);
    scene.end().await;
}

/// Released, a lock is off the watchdog's list at once. What stood on it would keep the client until it is due.
#[tokio::test]
async fn locks_that_come_and_go_are_not_renewed() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(3_600 * SECOND)).await;
    let before = scene.server.calls("evalsha");
    for _ in 0..500 {
        locks.rlock("a").lock().await.unwrap().unlock().await.unwrap();
    }
    let commands = scene.server.calls("evalsha") - before;
    assert!(commands <= 1_000 + 5, "{commands}");
    drop(locks);
    scene.end().await;
}

/// A lock that is released while its renewal is under way is no lost lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_beside_renewals_are_no_losses() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    proxy.set(Faults { delay: 3 * MS, ..Faults::default() });
    let locks = connect(proxy.url(), patient().watchdog_lease(5 * SECOND)).await;
    let mut working = JoinSet::new();
    for task in 0..20_u32 {
        let locks = locks.clone();
        working.spawn(async move {
            for round in 0..15_u32 {
                let guard = locks.rlock(format!("{task}")).lock().await.unwrap();
                sleep(MS * (20 + (task * 31 + round * 17) % 400)).await; // each for another time
                guard.unlock().await.expect("it was held");
            }
        });
    }
    soon(working.join_all()).await;
    drop((locks, proxy));
    scene.end().await;
}

/// Renewals fail for a while, and are tried again inside of the lease.
#[tokio::test]
async fn an_outage_shorter_than_the_lease_costs_no_lock() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().watchdog_lease(6 * SECOND).command_timeout(200 * MS);
    let locks = connect(proxy.url(), config).await;
    let guards = hold_many(&locks, 300).await;
    for faults in [Faults::black_hole(), Faults::replies_held()] {
        proxy.set(faults);
        proxy.refuse(true);
        sleep(1_200 * MS).await; // the outage
        proxy.set(Faults::default());
        proxy.refuse(false);
        let renewed = || guards.iter().filter(|guard| guard.remaining() > 3_900 * MS).count();
        eventually("all are renewed", renewed, |&count| count == guards.len()).await;
    }
    release_all(guards).await;
    locks.shutdown().await.unwrap();
    drop((locks, proxy));
    scene.end().await;
}

/// One key of a batch was replaced by a value of another type: the others are renewed.
#[tokio::test]
async fn one_broken_key_costs_the_others_nothing() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(5 * SECOND)).await;
    let guards = hold_many(&locks, 10).await;
    scene.server.run::<()>(&["SET", "3", "a string"]);
    only_this_is_lost(guards, "3").await;
    assert_eq!(scene.server.run::<String>(&["GET", "3"]), "a string", "it is not ours to remove");
    scene.server.run::<()>(&["DEL", "3"]);
    drop(locks);
    scene.end().await;
}

/// Only somebody else's command takes it away. Then nobody would ever get the lock of a client that dies.
#[tokio::test]
async fn a_lock_that_lost_its_expiry_gets_one_again() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(5 * SECOND)).await;
    let lasts = |name| scene.server.run::<i64>(&["PTTL", name]);
    let renewed = locks.rlock("a").lock().await.unwrap();
    scene.server.run::<()>(&["PERSIST", "a"]);
    eventually("it has one", || lasts("a"), |&ms| ms > 0).await;

    let mut lock = locks.rlock("b").lease(60 * SECOND).unwrap(); // which nothing renews
    let outer = lock.lock().await.unwrap();
    scene.server.run::<()>(&["PERSIST", "b"]);
    let inner = lock.lock().await.unwrap();
    assert!((1..=60_000).contains(&lasts("b")));
    for guard in [inner, outer, renewed] {
        guard.unlock().await.unwrap();
    }
    drop((lock, locks));
    scene.end().await;
}

/// What the server refuses for good is asked for as often as what it grants, and not more.
#[tokio::test]
async fn a_renewal_that_is_refused_is_not_asked_for_in_a_loop() {
    let scene = Scene::start();
    scene.server.run::<()>(&["ACL", "SETUSER", "u", "on", ">s", "~*", "&*", "+@all"]);
    let url = format!("redis://u:s@127.0.0.1:{}/", scene.server.port());
    let lease = 5 * SECOND;
    let locks = connect(url, patient().watchdog_lease(lease)).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    scene.server.run::<()>(&["ACL", "SETUSER", "u", "-pexpire"]);
    let before = scene.server.calls("evalsha");
    soon(guard.lost()).await;
    let asked = scene.server.calls("evalsha") - before;
    assert!((1..=10).contains(&asked), "{asked} renewals in a lease"); // in a loop, dozens
    drop((guard, locks));
    scene.end().await;
}

//! Guarantee 7: one watchdog per client renews many locks with few commands, spread over time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{
    MS, SECOND, Scene, at_least, calls_of, connect, eventually, fixed, only_this_is_lost, patient, renewing,
    soon, timed,
};
use lockkeeper::{Error, LockClient, LockGuard, Source};
use lockkeeper_memory::{MemoryServer, Network};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

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

/// Guarantee 7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_are_renewed_by_one_command_per_hundred() {
    const LOCKS: usize = 10_000;
    let scene = Scene::start();
    let lease = 15 * SECOND;
    let period = lease / 3;
    let locks = scene.client_with(patient().watchdog_lease(lease)).await;
    let guards = hold_many(&locks, LOCKS).await;
    // In the first round, each lock is renewed early by a random part of the period.
    let ends = || guards.iter().map(|guard| Instant::now() + guard.remaining()).collect::<Vec<_>>();
    let first = ends();
    let renewed = || ends().iter().zip(&first).filter(|(now, first)| **now > **first + MS).count();
    eventually("each was renewed once", renewed, |&count| count == LOCKS).await;
    // A busy machine takes longer. So the count is divided by the elapsed time, and taken when no renewal is late.
    let renewed = || guards.iter().filter(|guard| guard.remaining() > lease - period - SECOND).count();
    let none_is_late = async || eventually("no renewal is late", renewed, |&count| count == LOCKS).await;
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
    // If the machine stalled for most of the first round, the late renewals stay due together.
    assert!(tenths >= 3, "renewals in only {tenths} tenths: they are not spread");

    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert!(scene.server.run::<usize>(&["DBSIZE"]) >= LOCKS);
    release_all(guards).await;
    scene.end(locks).await;
}

/// A client of a server that has the scripts already, so that each acquire is sent once.
async fn in_memory(server: &MemoryServer, lease: Duration) -> LockClient {
    let config = patient().watchdog_lease(lease).build().unwrap();
    let locks = LockClient::connect_with(Source::stream(server.connector()), config).await.unwrap();
    release_all(hold_many(&locks, 1).await).await;
    locks
}

/// Guarantee 7. The watchdog waits for holds that are renewed each ten seconds, and then comes one with a lease of a moment.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_much_shorter_than_the_others_is_renewed_from_its_first_period_on() {
    let (server, lease) = (MemoryServer::new(), 150 * MS);
    let locks = in_memory(&server, 30 * SECOND).await;
    let mut guards = hold_many(&locks, 5).await;
    sleep(SECOND).await; // the watchdog waits
    guards.push(locks.rlock("short").with(&renewing(lease)).lock().await.unwrap());
    for _ in 0..10 {
        sleep(lease / 2).await;
        assert!(guards.iter().all(|guard| !guard.is_lost()));
    }
    release_all(guards).await;
    locks.shutdown().await.unwrap();
}

/// Guarantee 7. The watchdog looks at a short lease often, and renews others no more often for that.
#[tokio::test(start_paused = true)]
async fn a_short_lease_costs_the_others_no_renewals() {
    let server = MemoryServer::new();
    let locks = in_memory(&server, 30 * SECOND).await;
    let other = locks.rlock("other").with(&renewing(1_500 * MS)).lock().await.unwrap();
    let short = locks.rlock("short").with(&renewing(100 * MS)).lock().await.unwrap();
    let names = ["short", "other"];
    let left = || {
        names.map(|name| {
            let reply = String::from_utf8(server.execute(&["PTTL", name])).unwrap();
            reply.trim_start_matches(':').trim_end().parse::<i64>().unwrap()
        })
    };
    let (mut renewals, mut before) = ([0, 0], left());
    for _ in 0..600 {
        sleep(5 * MS).await;
        let now = left();
        for (index, count) in renewals.iter_mut().enumerate() {
            *count += u32::from(now[index] > before[index]);
        }
        before = now;
    }
    assert!(renewals[0] > 80 && (5..=9).contains(&renewals[1]), "{renewals:?} in 3 s, of {names:?}");
    release_all(vec![short, other]).await;
    locks.shutdown().await.unwrap();
}

/// Guarantee 7. Most of a lease is over when the reply to the acquire comes.
#[tokio::test(start_paused = true)]
async fn a_hold_whose_grant_came_late_is_renewed_in_time() {
    let (server, lease) = (MemoryServer::new(), SECOND);
    let locks = in_memory(&server, lease).await;
    server.hold(true);
    let (guards, ()) = tokio::join!(hold_many(&locks, 20), async {
        sleep(lease * 5 / 6).await;
        server.hold(false);
    });
    sleep(2 * lease).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    release_all(guards).await;
    locks.shutdown().await.unwrap();
}

/// Guarantee 20. The reply to the acquire comes late, and no renewal is answered before the hold has ended for its client. The server
/// still has it.
#[tokio::test(start_paused = true)]
async fn a_lock_stays_for_its_minimum_hold_time_although_its_lease_ended_for_the_client() {
    for is_released in [true, false] {
        let (server, lease) = (MemoryServer::new(), SECOND);
        let locks = in_memory(&server, lease).await;
        let mut lock = locks.rlock("a").with(&at_least(lease));
        server.hold(true);
        let (guard, ()) = tokio::join!(lock.lock(), async {
            sleep(lease * 5 / 6).await;
            server.hold(false);
        });
        let (mut guard, start) = (Some(guard.unwrap()), Instant::now());
        if is_released {
            guard.take().unwrap().unlock().await.unwrap();
        }
        server.hold(true);
        sleep(lease / 3).await;
        server.hold(false);
        if let Some(guard) = guard {
            assert!(guard.is_lost());
            assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
        }
        let is_kept = || server.execute(&["EXISTS", "a"]) == b":1\r\n";
        while start.elapsed() < lease - 10 * MS {
            assert!(is_kept(), "released after {:?}", start.elapsed());
            sleep(10 * MS).await;
        }
        let (_, took) = timed(eventually("it is released", is_kept, |is_kept| !is_kept)).await;
        assert!(took < lease / 5, "only after {took:?}");
        locks.shutdown().await.unwrap();
    }
}

/// Guarantee 6. The server has run the first looks at two holds, and loses its locks before the client has an answer. What it tells of that
/// comes right after the answers.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_gone_right_after_the_first_look_is_told_at_once() {
    let server = MemoryServer::new();
    let locks = in_memory(&server, 300 * SECOND).await;
    let hold = async |name: &str| {
        let reads = locks.read_write_lock(format!("{name} read")).into_read().lock().await.unwrap();
        (locks.rlock(name).lock().await.unwrap(), reads)
    };
    let before = hold("before").await;
    sleep(2 * SECOND).await; // the connection for renewals is open, and the server knows the scripts
    let (one, two) = hold("after").await;
    server.set_network(Network { holds_replies: true, ..Network::default() });
    sleep(2 * SECOND).await; // it looks
    server.execute(&["FLUSHALL"]);
    server.set_network(Network::default());
    for told in [timeout(SECOND, one.ended()).await, timeout(SECOND, two.ended()).await] {
        told.expect("it is told").unwrap_err();
    }
    drop((before, one, two));
    locks.shutdown().await.unwrap();
}

/// Guarantee 6. The connection that tells of deleted locks breaks, and a lock is deleted. One command looks at a hundred holds, and the
/// last command leaves soon.
#[tokio::test(start_paused = true)]
async fn after_a_broken_connection_a_client_soon_looks_at_all_its_holds() {
    let server = MemoryServer::new();
    let locks = in_memory(&server, 30 * SECOND).await;
    let mut guards = hold_many(&locks, 1_000).await;
    sleep(30 * SECOND).await; // all were renewed, so the server tells of each
    let looks = Arc::new(AtomicUsize::new(0));
    let (is_look, sent) = (calls_of("rlock/renew.lua"), Arc::clone(&looks));
    server.observe(move |_, words, _, _| {
        let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        sent.fetch_add(usize::from(is_look(&words)), Ordering::Relaxed);
    });
    server.cut();
    server.execute(&["DEL", "999"]); // the last one in the order of the looks
    let last = guards.iter().position(|guard| guard.name() == "999").unwrap();
    let lost = guards.swap_remove(last);
    timeout(SECOND, lost.ended()).await.expect("it is looked at").unwrap_err();
    sleep(SECOND).await;
    let looks = looks.load(Ordering::Relaxed);
    assert!((10..=20).contains(&looks), "{looks} looks and renewals");
    release_all(guards).await;
    locks.shutdown().await.unwrap();
}

/// Guarantee 7. One key of a batch was replaced by a value of another type. The others are renewed.
#[tokio::test]
async fn one_broken_key_does_not_stop_the_other_renewals() {
    let (scene, locks) = Scene::with_client_of(patient().watchdog_lease(5 * SECOND)).await;
    let guards = hold_many(&locks, 10).await;
    scene.server.run::<()>(&["SET", "3", "a string"]);
    only_this_is_lost(guards, "3").await;
    assert_eq!(scene.server.run::<String>(&["GET", "3"]), "a string", "the foreign value must stay");
    scene.server.run::<()>(&["DEL", "3"]);
    scene.end(locks).await;
}

/// Guarantee 7. Only a foreign command can remove the expiry. Without a new one, the lock of a client that dies would
/// stay held for ever.
#[tokio::test]
async fn a_lock_that_lost_its_expiry_gets_one_again() {
    let (scene, locks) = Scene::with_client_of(patient().watchdog_lease(5 * SECOND)).await;
    let lasts = |name| scene.server.run::<i64>(&["PTTL", name]);
    let renewed = locks.rlock("a").lock().await.unwrap();
    scene.server.run::<()>(&["PERSIST", "a"]);
    eventually("the key has an expiry", || lasts("a"), |&ms| ms > 0).await;

    let mut lock = locks.rlock("b").with(&fixed(60 * SECOND)); // the watchdog does not renew a fixed lease
    let outer = lock.lock().await.unwrap();
    scene.server.run::<()>(&["PERSIST", "b"]);
    let inner = lock.lock().await.unwrap();
    assert!((1..=60_000).contains(&lasts("b")));
    for guard in [inner, outer, renewed] {
        guard.unlock().await.unwrap();
    }
    scene.end((lock, locks)).await;
}

/// Guarantee 7. A renewal that the server refuses for good is retried as rarely as a successful one.
#[tokio::test]
async fn a_refused_renewal_is_not_retried_in_a_loop() {
    let scene = Scene::start();
    let url = scene.user("~* &* +@all");
    let lease = 5 * SECOND;
    let locks = connect(url, patient().watchdog_lease(lease)).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    scene.user("-pexpire");
    let before = scene.server.calls("evalsha");
    soon(guard.ended()).await.unwrap_err();
    let asked = scene.server.calls("evalsha") - before;
    assert!((1..=10).contains(&asked), "{asked} renewals in a lease"); // in a loop, dozens
    scene.end((guard, locks)).await;
}

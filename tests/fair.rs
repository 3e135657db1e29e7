//! What a fair lock promises beyond what all locks do: the order of asking, whoever dies or gives up.
//!
//! Of Redisson's tests, those of how scores drift (`…TimeoutDrift_Descrete`) have no counterpart: scores are refreshed
//! here, and nobody waits by them.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use futures_util::FutureExt;
use lockkeeper::{LockClient, LockConfig};
use support::{Child, Faults, LIMIT, MS, SECOND, Scene, child, eventually, soon, timed, within};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

const ALLOWANCE: Duration = Duration::from_millis(1_500);

fn config() -> LockConfig {
    LockConfig::default().fair_allowance(ALLOWANCE)
}

fn queue(scene: &Scene) -> Vec<String> {
    scene.server.run(&["LRANGE", "redisson_lock_queue:{a}", "0", "-1"])
}

async fn queued(scene: &Scene, count: usize) {
    eventually("they stand in the queue", || queue(scene), |queue| queue.len() == count).await;
}

/// Stands in the queue behind `before` others when this returns. Ends with when it had the lock.
async fn waits(scene: &Scene, locks: &LockClient, before: usize) -> JoinHandle<Instant> {
    let locks = locks.clone();
    let waiting = tokio::spawn(async move {
        let guard = locks.fair_lock("a").lock().await.unwrap();
        let at = Instant::now();
        sleep(5 * MS).await;
        guard.unlock().await.unwrap();
        at
    });
    queued(scene, before + 1).await;
    waiting
}

/// Waits until there is a number in the list.
fn told(server: &redis::Client, list: &str) -> String {
    let mut connection = server.get_connection().unwrap();
    let (_, number): (String, String) = redis::cmd("BLPOP").arg(list).arg(0).query(&mut connection).unwrap();
    number
}

/// The second process. In a normal run there is nothing to do here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some((role, url)) = child::role() else { return };
    let locks = LockClient::new(url.clone(), config()).await.unwrap();
    let server = redis::Client::open(url).unwrap();
    let (waiters, list) = role.split_once(' ').unwrap_or((&role, ""));
    let mut waiting = JoinSet::new();
    for _ in 0..waiters.parse().unwrap() {
        let number = (!list.is_empty()).then(|| tokio::task::block_in_place(|| told(&server, list)));
        let (locks, server) = (locks.clone(), server.clone());
        waiting.spawn(async move {
            let guard = locks.fair_lock("a").lock().await.unwrap();
            if let Some(number) = number {
                let mut connection = server.get_connection().unwrap();
                redis::cmd("RPUSH").arg("served").arg(number).exec(&mut connection).unwrap();
            }
            println!("got it");
            guard.unlock().await.unwrap();
        });
        tokio::task::yield_now().await;
    }
    waiting.join_all().await;
    println!("end");
}

/// Fifty waiters of five processes, told to queue one after the other.
#[tokio::test]
async fn the_order_is_that_of_arrival() {
    const PROCESSES: usize = 5;
    const WAITERS: usize = 50;
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let each = (WAITERS / PROCESSES).to_string();
    let start = |process| Child::start(&format!("{each} told by {process}"), &scene.server.url());
    let mut children: Vec<_> = (0..PROCESSES).map(start).collect();
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let mut expected = Vec::new();
    for number in 0..WAITERS {
        let process = number * 7 % PROCESSES;
        scene.server.run::<()>(&["RPUSH", &format!("told by {process}"), &number.to_string()]);
        queued(&scene, number + 1).await;
        expected.push(number.to_string());
    }
    guard.unlock().await.unwrap();
    let served = || scene.server.run::<Vec<String>>(&["LRANGE", "served", "0", "-1"]);
    assert_eq!(eventually("all are served", served, |served| served.len() == WAITERS).await, expected);
    for child in &mut children {
        eventually("it ends", || child.has_ended(), |&ended| ended).await;
    }
    scene.server.run::<()>(&["DEL", "served"]);
    drop(locks);
    scene.end().await;
}

#[tokio::test]
async fn re_entry_does_not_queue_and_a_try_does_not_overtake() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let mut lock = locks.fair_lock("a");
    let outer = lock.lock().await.unwrap();
    let waiting = waits(&scene, &locks, 0).await;
    let inner = soon(lock.lock()).await.unwrap();
    assert!(locks.fair_lock("a").try_lock().await.unwrap().is_none());
    inner.unlock().await.unwrap();
    assert_eq!(queue(&scene).len(), 1, "neither of them stands in the queue");
    // Free for the first in the queue alone, which is not told.
    scene.server.run::<()>(&["DEL", "a"]);
    assert!(locks.fair_lock("a").try_lock().await.unwrap().is_none(), "it is the turn of another");
    soon(waiting).await.unwrap();
    assert!(outer.unlock().await.is_err());
    drop((lock, locks));
    scene.end().await;
}

/// Timed out or dropped, also while it is woken: the next is woken at once.
#[tokio::test]
async fn whoever_gives_up_leaves_the_queue_at_once() {
    let scene = Scene::start();
    let config = config().fair_allowance(30 * SECOND); // no heartbeat comes to help
    let (locks, beside) = (scene.client_with(config.clone()).await, scene.client_with(config).await);
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let mut first = locks.fair_lock("a");
    let (got, _) = tokio::join!(first.try_lock_for(100 * MS), queued(&scene, 1));
    assert!(got.unwrap().is_none());
    assert!(queue(&scene).is_empty(), "it left before it said so");
    guard.unlock().await.unwrap();

    for round in 0..100_u64 {
        let guard = locks.fair_lock("a").lock().await.unwrap();
        let first = waits(&scene, &locks, 0).await;
        let second = waits(&scene, &beside, 1).await;
        guard.unlock().await.unwrap();
        sleep(Duration::from_micros(round * 13 % 1_500)).await;
        first.abort();
        let (woken, took) = timed(second).await;
        woken.unwrap();
        assert!(took < SECOND, "round {round}: {took:?}");
        let _ = first.await;
    }
    drop((first, locks, beside));
    scene.end().await;
}

/// A process that waits is killed, or stopped, and its place passed over; the first while the lock is free, too.
#[tokio::test]
async fn a_dead_process_holds_nobody_up_for_long() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    for (signal, waiters) in [("KILL", 1), ("STOP", 1), ("KILL", 20)] {
        let guard = locks.fair_lock("a").lock().await.unwrap();
        let dead = Child::start(&waiters.to_string(), &scene.server.url());
        queued(&scene, waiters).await;
        let waiting = waits(&scene, &locks, waiters).await;
        dead.signal(signal);
        guard.unlock().await.unwrap();
        let (woken, took) = timed(waiting).await;
        woken.unwrap();
        assert!(took < 2 * ALLOWANCE, "{signal}, {waiters} of them: {took:?}");
        drop(dead);
    }
    scene.server.run::<()>(&["FLUSHALL"]);
    drop(locks);
    scene.end().await;
}

/// Many allowances long, and through a connection that breaks.
#[tokio::test]
async fn a_live_waiter_keeps_its_place() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let allowance = 600 * MS;
    let config = LockConfig::default().fair_allowance(allowance);
    let ours = LockClient::new(proxy.url(), config.clone()).await.unwrap();
    let theirs = scene.client_with(config).await;
    let guard = theirs.fair_lock("a").lock().await.unwrap();
    let first = waits(&scene, &ours, 0).await;
    let second = waits(&scene, &theirs, 1).await;
    let third = waits(&scene, &ours, 2).await;
    let order = queue(&scene);
    let start = Instant::now();
    while start.elapsed() < 8 * allowance {
        sleep(allowance * 3 / 2).await;
        assert_eq!(queue(&scene), order);
        proxy.cut();
    }
    guard.unlock().await.unwrap();
    let times = [soon(first).await.unwrap(), soon(second).await.unwrap(), soon(third).await.unwrap()];
    assert!(times.is_sorted());
    drop((ours, theirs, proxy));
    scene.end().await;
}

/// A process that was stopped for too long has lost its place, and queues again.
#[tokio::test]
async fn whoever_was_away_too_long_stands_at_the_end() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let mut away = Child::start("1", &scene.server.url());
    queued(&scene, 1).await;
    let waiting = waits(&scene, &locks, 1).await;
    away.signal("STOP");
    queued(&scene, 1).await; // passed over
    away.signal("CONT");
    queued(&scene, 2).await; // and back
    guard.unlock().await.unwrap();
    let got_it = soon(waiting).await.unwrap();
    assert!(tokio::task::spawn_blocking(move || away.read_until("end")).await.unwrap().len() >= 2);
    assert!(got_it.elapsed() < ALLOWANCE);
    drop(locks);
    scene.end().await;
}

/// A future that nobody polls any more is first in the queue. Its process is alive, and still it holds nobody up.
#[tokio::test]
async fn a_future_that_is_left_in_front_loses_its_place() {
    let scene = Scene::start();
    let config = config().safety_poll(200 * MS);
    let locks = scene.client_with(config).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let mut lock = locks.fair_lock("a");
    let mut left = Box::pin(lock.lock());
    // Until it knows that it is queued, and listens.
    while scene.server.channels().is_empty() {
        assert!((&mut left).now_or_never().is_none());
        sleep(MS).await;
    }
    let waiting = waits(&scene, &locks, 1).await;
    guard.unlock().await.unwrap();
    let (woken, took) = timed(waiting).await;
    woken.unwrap();
    assert!(took < 3 * ALLOWANCE, "{took:?}");
    soon(left).await.unwrap().unlock().await.unwrap();
    drop((lock, locks));
    scene.end().await;
}

/// One that nobody polls either, but whose turn has not come: it was not called, so it keeps its place.
#[tokio::test]
async fn a_future_that_is_left_behind_others_keeps_its_place() {
    let scene = Scene::start();
    let locks = scene.client_with(config().safety_poll(200 * MS)).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let mut lock = locks.fair_lock("a");
    let mut left = Box::pin(lock.lock());
    while scene.server.channels().is_empty() {
        assert!((&mut left).now_or_never().is_none());
        sleep(MS).await;
    }
    let order = queue(&scene);
    let start = Instant::now();
    while start.elapsed() < 3 * ALLOWANCE {
        assert_eq!(queue(&scene), order);
        sleep(50 * MS).await;
    }
    guard.unlock().await.unwrap();
    soon(left).await.unwrap().unlock().await.unwrap();
    drop((lock, locks));
    scene.end().await;
}

/// Without a single message, the first is told by what keeps its place.
#[tokio::test]
async fn lost_messages_cost_a_beat() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    proxy.set(Faults { lose_messages: true, ..Faults::default() });
    let ours = LockClient::new(proxy.url(), config()).await.unwrap();
    let theirs = scene.client_with(config()).await;
    let guard = theirs.fair_lock("a").lock().await.unwrap();
    let waiting = waits(&scene, &ours, 0).await;
    eventually("it listens", || scene.server.channels(), |channels| channels.len() == 1).await;
    let before = scene.server.calls("evalsha");
    guard.unlock().await.unwrap();
    let (woken, took) = timed(waiting).await;
    woken.unwrap();
    assert!(took < ALLOWANCE, "{took:?}");
    assert!(proxy.lost_messages() > 0);
    let asked = scene.server.calls("evalsha") - before;
    assert!(asked <= 10, "{asked} commands meanwhile");
    drop((ours, theirs, proxy));
    scene.end().await;
}

/// A Java client with a wrong clock drops a live waiter, which attempts before its next heartbeat.
#[tokio::test]
async fn a_waiter_that_was_dropped_goes_back_with_its_next_attempt() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let first = waits(&scene, &locks, 0).await;
    let second = waits(&scene, &locks, 1).await;
    let order = queue(&scene);
    for round in 0..20 {
        for owner in &order {
            scene.server.run::<()>(&["LREM", "redisson_lock_queue:{a}", "1", owner]);
            scene.server.run::<()>(&["ZREM", "redisson_lock_timeout:{a}", owner]);
        }
        for owner in order.iter().rev() {
            scene.server.run::<()>(&["PUBLISH", &format!("redisson_lock__channel:{{a}}:{owner}"), "0"]);
        }
        eventually("they are back in order", || queue(&scene), |found| *found == order).await;
        assert_eq!(scene.server.run::<usize>(&["ZCARD", "redisson_lock_timeout:{a}"]), 2, "round {round}");
    }
    guard.unlock().await.unwrap();
    assert!(soon(first).await.unwrap() < soon(second).await.unwrap());
    drop(locks);
    scene.end().await;
}

/// Its record is gone, as after a long outage. What is left of it goes with the one who gives up.
#[tokio::test]
async fn whoever_gives_up_leaves_no_ghost() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let waiting = waits(&scene, &locks, 0).await;
    scene.server.run::<()>(&["DEL", "lockkeeper_fair:{a}"]);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    queued(&scene, 0).await;
    guard.unlock().await.unwrap();

    // Nor when the name is found to be in use as another kind.
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let waiting = waits(&scene, &locks, 0).await;
    scene.server.run::<()>(&["HSET", "a", "mode", "read"]);
    let owner = queue(&scene).remove(0);
    scene.server.run::<()>(&["PUBLISH", &format!("redisson_lock__channel:{{a}}:{owner}"), "0"]);
    assert!(soon(waiting).await.is_err(), "refused");
    queued(&scene, 0).await;
    drop(guard);
    drop(locks);
    scene.end().await;
}

/// Who is left is woken by a release, and not before. Its record ends by itself, should nobody ever remove it.
#[tokio::test]
async fn whoever_gives_up_while_it_is_held_wakes_nobody() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client_with(config()).await, scene.client_with(config()).await);
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let first = waits(&scene, &locks, 0).await;
    let lasts_ms = scene.server.run::<i64>(&["PTTL", "lockkeeper_fair:{a}"]);
    assert!(lasts_ms > 0, "{lasts_ms}");
    let second = waits(&scene, &beside, 1).await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    queued(&scene, 1).await;
    assert_eq!(scene.server.calls("publish"), 0);
    guard.unlock().await.unwrap();
    soon(first).await.unwrap();
    drop((locks, beside));
    scene.end().await;
}

/// Ten thousand who wait, in one process, for a hundred locks: one connection that hears, a message and two scripts for
/// each hand-off, and a heartbeat for each lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_cost_two_scripts_each() {
    const LOCKS: usize = 100;
    const EACH: usize = 100;
    let scene = Scene::start();
    let allowance = 15 * SECOND;
    // No command is sent twice because the machine is busy: ten thousand are under way at once.
    let config = LockConfig::default()
        .fair_allowance(allowance)
        .watchdog_lease(180 * SECOND)
        .command_timeout(30 * SECOND);
    let (ours, theirs) = (scene.client_with(config.clone()).await, scene.client_with(config).await);
    let name = |lock: usize| format!("{lock}");
    let mut guards = Vec::new();
    for lock in 0..LOCKS {
        guards.push(theirs.fair_lock(name(lock)).lock().await.unwrap());
    }
    let mut waiting = JoinSet::new();
    for waiter in 0..LOCKS * EACH {
        let ours = ours.clone();
        waiting.spawn(async move {
            ours.fair_lock(name(waiter % LOCKS)).lock().await.unwrap().unlock().await.unwrap();
        });
    }
    let limit = 3 * LIMIT;
    within(limit, "all listen", || scene.server.channels().len(), |&len| len == LOCKS * EACH).await;
    let list: String = scene.server.run(&["CLIENT", "LIST", "TYPE", "PUBSUB"]);
    assert_eq!(list.lines().count(), 1);

    // Each attempts once more when it listens. From then on there are heartbeats only.
    let mut last = 0;
    let grown = || {
        std::thread::sleep(200 * MS);
        let before = std::mem::replace(&mut last, scene.server.calls("evalsha"));
        last - before
    };
    within(limit, "all have attempted again", grown, |&calls| calls < LOCKS as u64 / 5).await;
    let (evalsha, usec) = (scene.server.calls("evalsha"), scene.server.micros("evalsha"));
    sleep(allowance / 3).await;
    let beats = scene.server.calls("evalsha") - evalsha;
    let each = (scene.server.micros("evalsha") - usec) / beats;
    println!("{beats} heartbeats in a third of the allowance, of {each} µs server time");
    assert!((LOCKS as u64 / 2..=2 * LOCKS as u64).contains(&beats), "{beats} heartbeats");

    let (evalsha, publish) = (scene.server.calls("evalsha"), scene.server.calls("publish"));
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    timeout(limit, waiting.join_all()).await.expect("all had their turn");
    let turns = (LOCKS * EACH) as f64;
    let scripts = (scene.server.calls("evalsha") - evalsha) as f64 / turns;
    let messages = (scene.server.calls("publish") - publish) as f64 / turns;
    println!("{scripts:.2} scripts and {messages:.2} messages for each hand-off");
    assert!(scripts < 2.4 && messages < 1.2, "{scripts} scripts, {messages} messages"); // with heartbeats meanwhile
    // On a busy machine a command may have got no answer in time; what it left is undone until then.
    soon(ours.shutdown()).await.unwrap();
    soon(theirs.shutdown()).await.unwrap();
    drop((ours, theirs));
    scene.end().await;
}

/// Redisson: testLeaseTimeout. Nobody gives back, so each lease has to end.
#[tokio::test]
async fn leases_that_end_are_followed_in_order() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let mut waiting = Vec::new();
    for number in 0..6_usize {
        let locks = locks.clone();
        waiting.push(tokio::spawn(async move {
            let mut lock = locks.fair_lock("a").lease(300 * MS);
            lock.try_lock_for(10 * SECOND).await.unwrap().expect("in that time").leak();
            Instant::now()
        }));
        queued(&scene, number).await;
        eventually("it holds or waits", || scene.server.run::<bool>(&["EXISTS", "a"]), |&held| held).await;
    }
    let mut times = Vec::new();
    for waiter in waiting {
        times.push(soon(waiter).await.unwrap());
    }
    assert!(times.is_sorted_by(|a, b| *b - *a > 250 * MS), "{times:?}");
    drop(locks);
    scene.end().await;
}

/// Redisson: testTryLockNonDelayed, testWaitTimeoutDrift. Who gave up is in nobody's way, and no score drifts.
#[tokio::test]
async fn waits_in_vain_leave_nothing_behind() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let waiting = waits(&scene, &locks, 0).await;
    for _ in 0..30 {
        assert!(locks.fair_lock("a").try_lock_for(10 * MS).await.unwrap().is_none());
    }
    let scores: Vec<String> =
        scene.server.run(&["ZRANGE", "redisson_lock_timeout:{a}", "0", "-1", "WITHSCORES"]);
    let time: Vec<f64> =
        scene.server.run::<Vec<String>>(&["TIME"]).iter().map(|part| part.parse().unwrap()).collect();
    let ahead = scores[1].parse::<f64>().unwrap() / 1e3 - time[0];
    assert!(scores.len() == 2 && ahead < 60.0 + ALLOWANCE.as_secs_f64() + 1.0, "{ahead} s ahead");
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    let (guard, took) = timed(async { locks.fair_lock("a").try_lock().await }).await;
    guard.unwrap().expect("it is free").unlock().await.unwrap();
    assert!(took < 200 * MS, "{took:?}");
    drop(locks);
    scene.end().await;
}

/// Redisson: testAcquireFailedNotCalledOnRedisTimeout. The wait ends while the server does nothing.
#[tokio::test]
async fn a_wait_that_ends_in_an_outage_leaves_nothing_behind() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client_with(config()).await, scene.client_with(config()).await);
    let guard = theirs.fair_lock("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { ours.fair_lock("a").try_lock_for(600 * MS).await.map(drop) }
    });
    queued(&scene, 1).await;
    scene.server.freeze();
    let _ = soon(waiting).await.unwrap();
    scene.server.thaw();
    queued(&scene, 0).await;
    guard.unlock().await.unwrap();
    ours.shutdown().await.unwrap();
    drop((ours, theirs));
    scene.end().await;
}

#[tokio::test]
async fn force_unlock_wakes_the_first() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let first = waits(&scene, &locks, 0).await;
    let second = waits(&scene, &locks, 1).await;
    assert!(locks.fair_lock("a").force_unlock().await.unwrap());
    assert!(timed(first).await.0.unwrap() < soon(second).await.unwrap());
    assert!(guard.unlock().await.is_err());
    drop(locks);
    scene.end().await;
}

/// Whatever happens, nobody asks again and again.
#[tokio::test]
async fn nothing_is_asked_in_a_loop() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    // A first that is Java's, dead, and will be taken for alive for a minute.
    let now: Vec<String> = scene.server.run(&["TIME"]);
    let score = (now[0].parse::<u64>().unwrap() + 60) * 1_000;
    scene.server.run::<()>(&["RPUSH", "redisson_lock_queue:{a}", "dead:1"]);
    scene.server.run::<()>(&["ZADD", "redisson_lock_timeout:{a}", &score.to_string(), "dead:1"]);
    let mut waiting = Vec::new();
    for number in 0..10 {
        waiting.push(waits(&scene, &locks, number + 1).await);
    }
    sleep(500 * MS).await;
    let before = scene.server.calls("evalsha");
    sleep(2 * SECOND).await;
    let asked = scene.server.calls("evalsha") - before;
    assert!(asked <= 40, "{asked} commands of 10 waiters in two seconds");
    // Nor while the server does nothing: what was sent meanwhile is counted when it goes on.
    let before = scene.server.calls("evalsha");
    scene.server.freeze();
    sleep(SECOND).await;
    scene.server.thaw();
    let asked = scene.server.calls("evalsha") - before;
    assert!(asked <= 40, "{asked} commands of 10 waiters in a pause of a second");
    scene.server.run::<()>(&["LPOP", "redisson_lock_queue:{a}"]);
    for waiter in waiting {
        soon(waiter).await.unwrap();
    }
    scene.server.run::<()>(&["FLUSHALL"]);
    drop(locks);
    scene.end().await;
}

//! What waiting costs the server.

use lockkeeper::LockConfig;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{Faults, LIMIT, SECOND, Scene, connect, eventually, patient, soon, timed, within};
use crate::{config, waits};

/// Without a single message, the first is told by what keeps its place.
#[tokio::test]
async fn lost_messages_cost_a_beat() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    proxy.set(Faults { lose_messages: true, ..Faults::default() });
    let allowance = 6 * SECOND;
    let ours = connect(proxy.url(), patient().fair_allowance(allowance)).await;
    let theirs = scene.client().await;
    let guard = theirs.fair_lock("a").lock().await.unwrap();
    let waiting = waits(&scene, &ours, 0).await;
    eventually("it listens", || scene.server.channels(), |channels| channels.len() == 1).await;
    let before = scene.server.calls("evalsha");
    guard.unlock().await.unwrap();
    let (woken, took) = timed(waiting).await;
    woken.unwrap();
    assert!(took < allowance, "{took:?}");
    assert!(proxy.lost_messages() > 0);
    let asked = scene.server.calls("evalsha") - before;
    assert!(asked <= 10, "{asked} commands meanwhile");
    drop((ours, theirs, proxy));
    scene.end().await;
}

/// Ten thousand who wait, in one process, for a hundred locks: one connection that hears, a message and two scripts for
/// each hand-off, and a heartbeat for each lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_cost_two_scripts_each() {
    const LOCKS: usize = 100;
    const EACH: usize = 100;
    /// So often an attempt that is refused calls it, and no other script does.
    const HEXISTS: u64 = 1;
    let scene = Scene::start();
    let allowance = 15 * SECOND;
    // No command is sent twice because the machine is busy: ten thousand are under way at once.
    let config = LockConfig::builder()
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
    let attempts = || scene.server.calls("hexists") / HEXISTS;
    within(limit, "all have attempted again", attempts, |&made| made >= (2 * LOCKS * EACH) as u64).await;
    let (evalsha, usec) = (scene.server.calls("evalsha"), scene.server.micros("evalsha"));
    sleep(allowance / 3).await; // in which each lock has one heartbeat
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
    eventually("all listen", || scene.server.channels().len(), |&len| len == waiting.len()).await;
    let before = scene.server.calls("evalsha");
    sleep(2 * SECOND).await; // nothing happens in this time but heartbeats
    let asked = scene.server.calls("evalsha") - before;
    assert!(asked <= 40, "{asked} commands of 10 waiters in two seconds");
    // Nor while the server does nothing: what was sent meanwhile is counted when it goes on.
    let before = scene.server.calls("evalsha");
    scene.server.freeze();
    sleep(SECOND).await; // the pause
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

//! The cost of one operation on the server does not grow with the number of waiters.
//!
//! The waiters are written into the queue by hand, as other processes would have written them. The test counts the
//! commands that the scripts run, including commands that look at many waiters at once.

use crate::fair::{KEYS, PLACES, QUEUE, SCORES, TICKETS, config, java_queues, waits};
use crate::support::{MS, SECOND, Scene, patient, soon};

const MANY: usize = 10_000;

/// Queues waiters of another process, with a heartbeat valid until then and with so many Java clients before them.
fn queue_many(scene: &Scene, count: usize, alive_until_ms: u64, java_before: usize) -> Vec<String> {
    let waiters: Vec<String> =
        (1..=count).map(|n| format!("00000000-0000-0000-0000-000000000000:{n}")).collect();
    let pairs = |value: &dyn Fn(usize) -> [String; 2]| (0..count).map(value).collect::<Vec<_>>();
    let far = (scene.server.now_ms() + 600_000).to_string();
    let record = format!("{alive_until_ms} {java_before}");
    let server = &scene.server;
    server.run_many(&["RPUSH", QUEUE], &pairs(&|n| [waiters[n].clone(), String::new()]));
    server.run_many(&["ZADD", SCORES], &pairs(&|n| [far.clone(), waiters[n].clone()]));
    server.run_many(&["ZADD", TICKETS], &pairs(&|n| [(n + 1).to_string(), waiters[n].clone()]));
    server.run_many(&["HSET", PLACES], &pairs(&|n| [waiters[n].clone(), record.clone()]));
    waiters
}

/// With ten thousand waiters, each script runs as many commands as with ten, and none scans the queue.
#[tokio::test]
async fn the_cost_of_an_operation_does_not_grow_with_the_queue() {
    let mut found = Vec::new();
    for (waiters, java) in [(10, false), (MANY, false), (10, true), (MANY, true)] {
        let scene = Scene::start();
        let later = scene.server.now_ms() + 3_600_000;
        scene.server.script("fair/acquire.lua", &KEYS, &["0-0-0-0-0:1", "60000", "6000"]);
        if java {
            java_queues(&scene);
        }
        queue_many(&scene, waiters, later, usize::from(java));
        let mut last = scene.server.calls_in_scripts();
        let steps = [
            ("queues", "fair/acquire.lua", &["waiter:1", "60000", "6000"][..]),
            ("attempts again", "fair/acquire.lua", &["waiter:1", "60000", "6000"]),
            ("heartbeat", "fair/heartbeat.lua", &["6000", "waiter:1"]),
            ("leaves", "fair/release.lua", &["waiter:1"]),
            ("leaves from the middle", "fair/release.lua", &["00000000-0000-0000-0000-000000000000:5"]),
            ("releases", "fair/release.lua", &["0-0-0-0-0:1"]),
        ];
        let costs: Vec<(&str, u64)> = steps
            .iter()
            .map(|(what, file, args)| {
                scene.server.script(file, &KEYS, args);
                let now = scene.server.calls_in_scripts();
                (*what, now - std::mem::replace(&mut last, now))
            })
            .collect();
        println!("{waiters} waiters, with Java {java}: {costs:?}");
        found.push(costs);
        scene.server.run::<()>(&["FLUSHALL"]);
        scene.end(()).await;
    }
    assert_eq!(found[0], found[1]);
    assert_eq!(found[2], found[3], "with Java");
}

/// Guarantee 11. If every waiting process dies, no key of the queue stays for ever.
#[tokio::test]
async fn every_key_of_the_queue_expires() {
    let (scene, locks) = Scene::with_client_of(config()).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let waiting = waits(&scene, &locks, 0).await;
    let second = waits(&scene, &locks, 1).await;
    for (key, least) in
        [QUEUE, SCORES, PLACES, TICKETS].into_iter().zip([3_600_000, 3_600_000, 60_000, 60_000])
    {
        let left = scene.server.run::<i64>(&["PTTL", key]);
        assert!((least..2 * 86_400_000).contains(&left), "{key}: {left}");
    }
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    soon(second).await.unwrap();
    scene.end(locks).await;
}

/// A server that cannot keep up does not get more attempts for that.
#[tokio::test]
async fn attempts_that_time_out_back_off() {
    const WAITERS: u64 = 50;
    let scene = Scene::start();
    let locks = scene.client_with(patient().command_timeout(100 * MS).fair_allowance(60 * SECOND)).await;
    let beside = scene.client().await;
    let guard = beside.fair_lock("a").lock().await.unwrap();
    scene.server.freeze();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let locks = locks.clone();
        waiting.spawn(async move { locks.fair_lock("a").lock().await?.unlock().await });
    }
    // A stopped server does not count. So the time is fixed, and what was sent in it is counted afterwards.
    tokio::time::sleep(4 * SECOND).await;
    scene.server.thaw();
    let sent = crate::support::quiet(|| scene.server.calls("evalsha")).await;
    assert!(sent < 8 * WAITERS, "{sent} commands of {WAITERS} waiters in four seconds");
    guard.unlock().await.unwrap();
    soon(waiting.join_all()).await;
    soon(locks.shutdown()).await.unwrap();
    scene.end((locks, beside)).await;
}

/// A script reads the queue in parts of 100 waiters. The model (`tests/model/`) has shorter queues.
#[tokio::test]
async fn a_waiter_counts_all_java_clients_in_front() {
    let scene = Scene::start();
    let server = &scene.server;
    let acquire = |who| server.script("fair/acquire.lua", &KEYS, &[who, "30000", "30000"]);
    for (count, is_behind_ours) in
        [(99, false), (100, true), (101, false), (101, true), (250, false), (250, true)]
    {
        server.run::<()>(&["FLUSHALL"]);
        if is_behind_ours {
            acquire("0-0-0-0-0:1");
            acquire("0-0-0-0-0:2");
        }
        let until = (server.now_ms() + 300_000).to_string();
        for number in 0..count {
            let java = format!("java:{number}");
            server.run::<()>(&["RPUSH", QUEUE, &java]);
            server.run::<()>(&["ZADD", SCORES, &until, &java]);
        }
        acquire("0-0-0-0-0:3");
        let record: String = server.run(&["HGET", PLACES, "0-0-0-0-0:3"]);
        assert!(record.ends_with(&format!(" {count}")), "{record}, behind {count}");

        server.script("fair/heartbeat.lua", &KEYS, &["30000", "0-0-0-0-0:3"]);
        let score: u64 = server.run(&["ZSCORE", SCORES, "0-0-0-0-0:3"]);
        // From the time of the script on: one wait for each Java client, and one for the score of the first.
        let waits_ms = if is_behind_ours { 90_000 + 300_000 * count } else { 300_000 * (count + 1) };
        let expected = server.now_ms() + waits_ms;
        assert!(score <= expected && expected < score + 20_000, "{score}, not {expected}, behind {count}");
    }
    server.run::<()>(&["FLUSHALL"]);
    scene.end(()).await;
}

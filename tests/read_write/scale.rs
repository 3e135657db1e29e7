//! The cost of one reader on the server does not grow with the number of other readers.
//!
//! The other readers are written by hand, as other processes would have written them. The test counts the commands
//! that the scripts run.

use crate::read_write::{reader, writer};
use crate::support::{SECOND, Scene, fixed};

const MANY: usize = 10_000;

/// Readers of another process, all renewed just now.
fn read_by(scene: &Scene, count: usize) {
    let owner = |n| format!("00000000-0000-0000-0000-000000000000:{n}");
    let fields: Vec<[String; 2]> = (1..=count).map(|n| [owner(n), "1".to_owned()]).collect();
    scene.server.run::<()>(&["HSET", "a", "mode", "read"]);
    scene.server.run_many(&["HSET", "a"], &fields);
    scene.server.run::<()>(&["PEXPIRE", "a", "30000"]);
    let script = "for i = 1, tonumber(ARGV[1]) do
        redis.call('set', '{a}:00000000-0000-0000-0000-000000000000:' .. i .. ':rwlock_timeout:1', '1', 'px', 29000)
    end";
    scene.server.run::<()>(&["EVAL", script, "0", &count.to_string()]);
}

/// With a watchdog lease, and with a long fixed lease that is released early.
#[tokio::test]
async fn the_cost_of_reading_does_not_grow_with_the_readers() {
    let mut found: Vec<Vec<u64>> = Vec::new();
    for readers in [1, MANY] {
        let (scene, locks) = Scene::with_client().await;
        read_by(&scene, readers);
        let mut costs = Vec::new();
        let mut last = scene.server.calls_in_scripts();
        let mut cost = || {
            let now = scene.server.calls_in_scripts();
            now - std::mem::replace(&mut last, now)
        };
        for lease in [None, Some(600 * SECOND)] {
            let mut lock = reader(&locks);
            if let Some(lease) = lease {
                lock = lock.with(&fixed(lease));
            }
            let guard = lock.lock().await.unwrap();
            costs.push(cost());
            guard.unlock().await.unwrap();
            costs.push(cost());
        }
        assert!(reader(&locks).is_locked().await.unwrap());
        costs.push(cost());
        assert!(!writer(&locks).is_locked().await.unwrap());
        costs.push(cost());
        assert!(writer(&locks).try_lock().await.unwrap().is_none());
        costs.push(cost());
        let list = locks.inspect("a").await.unwrap().expect("the lock is held");
        assert_eq!(list.holders.len(), readers);
        println!("{readers} readers: {costs:?}");
        found.push(costs);
        scene.server.run::<()>(&["FLUSHALL"]);
        scene.end(locks).await;
    }
    for (few, many) in found[0].iter().zip(&found[1]) {
        assert!(*many <= few + 6, "{found:?}"); // a script looks at a few of the other readers
    }
}

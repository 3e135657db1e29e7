//! Dead readers and writers block nobody for longer than their own lease.

use redis::Value;

use crate::support::{Scene, lua};

/// Guarantee 8. A reader that leaves many looks at one of them. If that one is dead, it looks at others.
#[tokio::test]
async fn the_last_living_reader_among_many_frees_the_lock() {
    let scene = Scene::start();
    let release = lua::source("read/release.lua");
    let owner = |n| format!("00000000-0000-0000-0000-000000000000:{n}");
    let live = |n| {
        scene.server.run::<()>(&["SET", &format!("{{a}}:{}:rwlock_timeout:1", owner(n)), "1", "PX", "60000"])
    };
    for round in 0..60 {
        let is_alone = round % 2 == 0;
        scene.server.run::<()>(&["HSET", "a", "mode", "read"]);
        for n in 0..5 {
            scene.server.run::<()>(&["HSET", "a", &owner(n), "1"]);
        }
        live(0);
        if !is_alone {
            live(1);
        }
        let args = ["EVAL", &release, "2", "a", "redisson_rwlock:{a}", &owner(0), "1", "30000"];
        assert_eq!(scene.server.run::<i64>(&args), 0);
        assert_eq!(scene.server.run::<bool>(&["HEXISTS", "a", &owner(1)]), !is_alone, "round {round}");
        assert!(!scene.server.run::<bool>(&["HEXISTS", "a", &owner(0)]), "round {round}");
        scene.server.run::<()>(&["FLUSHALL"]);
    }
    scene.end(()).await;
}

/// Guarantee 1. The script looks at a few readers first, and perhaps all of these are dead.
#[tokio::test]
async fn a_living_reader_is_found_among_many_dead_ones() {
    let scene = Scene::start();
    let owner = |number| format!("00000000-0000-0000-0000-000000000000:{number}");
    let readers: Vec<_> = (0..20).map(|number| [owner(number), "1".to_owned()]).collect();
    scene.server.run_many(&["HSET", "a", "mode", "read"], &readers);
    scene.server.run::<()>(&["SET", &format!("{{a}}:{}:rwlock_timeout:1", owner(7)), "1", "PX", "60000"]);
    for round in 0..50 {
        let Value::Int(left) = scene.server.script("read/state.lua", &["a", "channel"], &[]) else {
            panic!()
        };
        assert!(left > 0, "round {round}: {left}");
    }
    scene.server.run::<()>(&["FLUSHALL"]);
    scene.end(()).await;
}

//! Mutual exclusion under load.

use std::time::{Duration, Instant};

use lockkeeper::LockClient;
use tokio::task::JoinSet;

use crate::support::fixture::Subject;
use crate::support::{Child, Scene, child, connection};
use crate::{Java, Row, actor, rival};

const THREADS: usize = 4;
const READERS: usize = 2;
const PROCESSES: usize = 2;
const TASKS: usize = 4;
const TIME: Duration = Duration::from_secs(20);

/// The key that only the lock protects.
const COUNTER: &str = "counter";

/// Guarantee 1. Four Java threads, and four Rust tasks in each of two processes, change a key with GET and SET. A
/// shared lock does not protect that: there its rival does, and each holder of the shared lock checks that nothing
/// changes.
pub async fn no_update_is_lost<R: Row>() {
    let scene = Scene::start();
    let java = Java::start(&scene).await;
    let role = format!("{} count", R::NAME);
    let mut children: Vec<_> =
        (0..PROCESSES).map(|_| Child::start("child", &role, &scene.server.url())).collect();
    let mut counting = JoinSet::new();
    for thread in 0..THREADS {
        let actor = rival::<R>(&java, &format!("{thread}"));
        counting.spawn(async move { actor.count("a", TIME, COUNTER).await.unwrap() });
    }
    let mut looking = JoinSet::new();
    for reader in 0..if R::Rust::IS_SHARED { READERS } else { 0 } {
        let actor = actor::<R>(&java, &format!("reader-{reader}"));
        looking.spawn(async move { actor.look("a", TIME, COUNTER).await.unwrap() });
    }
    let by_java: Vec<u64> = counting.join_all().await;
    let looked: Vec<u64> = looking.join_all().await;
    assert!(looked.iter().all(|&looks| looks > 10), "{looked:?}");
    let lines = tokio::task::spawn_blocking(move || {
        children.iter_mut().flat_map(|child| child.read_until("end")).collect::<Vec<_>>()
    });
    let lines = lines.await.unwrap();
    let by_rust: Vec<u64> =
        lines.iter().filter_map(|line| line.strip_prefix("counted ")?.parse().ok()).collect();
    println!("counted by Java's threads {by_java:?}, by Rust's processes {by_rust:?}");
    assert_eq!(by_rust.len(), PROCESSES);

    let counted = by_java.iter().sum::<u64>() + by_rust.iter().sum::<u64>();
    assert_eq!(scene.server.run::<u64>(&["GET", COUNTER]), counted, "updates were lost");
    for share in [by_java.iter().sum::<u64>(), by_rust.iter().sum()] {
        assert!(share > counted / 50, "{share} of {counted}");
    }
    scene.server.run::<()>(&["DEL", COUNTER]);
    java.end(&scene).await;
    scene.end(()).await;
}

/// The part of one Rust process. Returns how often it counted.
pub async fn count<R: Row>(locks: &LockClient) -> u64 {
    let counter = connection(&child::role().unwrap().1).await;
    let mut counting = JoinSet::new();
    for _ in 0..TASKS {
        let (locks, mut counter) = (locks.clone(), counter.clone());
        counting.spawn(async move {
            let mut counted = 0;
            let (mut shared, mut lock) = (R::Rust::lock(&locks, "a"), R::Rust::rival(&locks, "a"));
            let end = Instant::now() + TIME;
            while Instant::now() < end {
                if R::Rust::IS_SHARED {
                    let guard = shared.lock().await.unwrap();
                    assert_eq!(
                        get(&mut counter).await,
                        get(&mut counter).await,
                        "the key changed while a reader held the lock"
                    );
                    guard.unlock().await.unwrap();
                }
                let guard = lock.lock().await.unwrap();
                let after = get(&mut counter).await + 1;
                let _: () =
                    redis::cmd("SET").arg(COUNTER).arg(after).query_async(&mut counter).await.unwrap();
                guard.unlock().await.unwrap();
                counted += 1;
            }
            counted
        });
    }
    counting.join_all().await.into_iter().sum()
}

async fn get(counter: &mut redis::aio::MultiplexedConnection) -> u64 {
    let value: Option<u64> = redis::cmd("GET").arg(COUNTER).query_async(counter).await.unwrap();
    value.unwrap_or(0)
}

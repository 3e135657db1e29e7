//! The locks of all masters.

use lockkeeper::LockInfo;
use lockkeeper_testkit::Cluster;

use super::{client, clients};
use crate::support::{LIMIT, MS, nothing_is_left, soon, waiter};
use tokio::time::{Instant, sleep};

/// Also with waiters, which listen at the master of their slot.
#[tokio::test]
async fn the_locks_of_all_masters_are_listed_once() {
    let group = Cluster::start(3, 0);
    let [locks, beside] = clients(&group).await;
    let mut names: Vec<String> =
        (0..3).flat_map(|master| ["one", "other"].map(|text| group.name_on(master, text))).collect();
    names.sort();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(locks.rlock(name).lock().await.unwrap());
    }
    let waiting: Vec<_> = names.iter().map(|name| waiter(beside.rlock(name))).collect();
    let mut semaphores: Vec<String> = (0..3).map(|master| group.name_on(master, "semaphore")).collect();
    semaphores.sort();
    let (mut permits, mut waiting_for_permits) = (Vec::new(), Vec::new());
    for name in &semaphores {
        permits.push(locks.semaphore(name, 1).acquire().await.unwrap());
        let semaphore = beside.semaphore(name, 1);
        waiting_for_permits.push(tokio::spawn(async move { semaphore.acquire().await.unwrap() }));
    }
    // A cluster has the permits of such a name in another slot.
    for server in &group.servers {
        let _ = server.try_run::<()>(&["SET", "a}b", "1"]);
        let _ = server.try_run::<()>(&["ZADD", "{a}b}:timeout", "922337203685477", "of Java: 16 byte"]);
    }
    names.extend(semaphores.clone());
    let fresh = client(&group).await;
    let start = Instant::now();
    let all: Vec<LockInfo> = loop {
        let all = soon(fresh.list("*")).await.unwrap().locks;
        if all.iter().all(|lock| lock.listeners == Some(1)) {
            break all;
        }
        assert!(start.elapsed() < LIMIT, "{all:#?}");
        sleep(10 * MS).await;
    };
    assert_eq!(all.iter().map(|lock| &lock.name).collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    for task in waiting {
        soon(task).await.unwrap().unlock().await.unwrap();
    }
    for permit in permits {
        permit.unlock().await.unwrap();
    }
    for task in waiting_for_permits {
        soon(task).await.unwrap().unlock().await.unwrap();
    }
    for name in &semaphores {
        locks.semaphore(name, 1).delete().await.unwrap();
    }
    for server in &group.servers {
        let _ = server.try_run::<()>(&["DEL", "a}b"]);
        let _ = server.try_run::<()>(&["DEL", "{a}b}:timeout"]);
    }
    drop((locks, beside, fresh));
    nothing_is_left(|| group.keys(), || group.channels()).await;
}

//! A failover that loses the last writes of the old master.

use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{Error, LockClient, LockGuard};
use lockkeeper_testkit::Sentinels;
use tokio::time::Instant;

use crate::sentinel::{client, end};
use crate::support::{SECOND, at_most, fixed, replicated, within};

/// How long after the new master is writable every holder is told. The bar is 500 ms; a busy machine takes longer. The lease is
/// 30 s, so without the renewals of the switch most holders would be told after several seconds.
const TOLD: Duration = Duration::from_secs(2);

async fn hold_one_of_each(locks: &LockClient) -> Vec<LockGuard> {
    vec![
        locks.rlock("watched").lock().await.unwrap(),
        locks.rlock("leased").with(&fixed(300 * SECOND)).lock().await.unwrap(),
        locks.rlock("bounded").with(&at_most(20 * SECOND)).lock().await.unwrap(),
        locks.fair_lock("fair").lock().await.unwrap(),
        locks.read_write_lock("read").into_read().lock().await.unwrap(),
        locks.read_write_lock("leased read").into_read().with(&fixed(300 * SECOND)).lock().await.unwrap(),
        locks.read_write_lock("write").into_write().lock().await.unwrap(),
    ]
}

/// Guarantee 6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_that_the_new_master_lacks_are_told_at_once() {
    let mut group = Sentinels::start(SECOND);
    let locks = client(&group).await;
    let kept = locks.rlock("kept").with(&fixed(300 * SECOND)).lock().await.unwrap();
    let master = group.master();
    replicated(&group.servers[master], 2).await;
    group.cut_replicas();
    let guards = hold_one_of_each(&locks).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    let before = group.lose_master();

    let others: Vec<usize> = (0..3).filter(|index| *index != before).collect();
    let writable = || others.iter().any(|index| group.is_master(*index));
    within(120 * SECOND, "a replica is promoted", writable, |is_writable| *is_writable).await;
    let start = Instant::now();
    let told = join_all(guards.iter().map(|guard| async { (guard.ended().await, start.elapsed()).1 })).await;
    assert!(told.iter().all(|after| *after < TOLD), "{told:?}");
    assert!(!kept.is_lost(), "the new master has this one");

    let after = group.switched(before);
    for guard in guards {
        let name = guard.name().to_owned();
        assert!(matches!(guard.unlock().await, Err(Error::NotHeld(_))), "{name}");
    }
    kept.unlock().await.unwrap();
    end(&group.servers[after], [&locks]).await;
}

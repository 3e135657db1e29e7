//! Failovers with and without a warning: callers get no error, and the old master gets no command.

use lockkeeper::LockClient;
use lockkeeper_testkit::Sentinels;

use crate::sentinel::{client, end};
use crate::support::load::Load;
use crate::support::{LIMIT, MS, SECOND, throughout, within, works};

/// A client that works with locks.
async fn loaded(group: &Sentinels) -> (LockClient, Load) {
    let locks = client(group).await;
    let load = Load::start(&locks);
    works(&group.servers[group.master()]).await;
    (locks, load)
}

/// Checks that this server gets no script for a while.
async fn gets_no_command(group: &Sentinels, server: usize) {
    let before = group.servers[server].scripts();
    throughout(2 * SECOND, async || assert_eq!(group.servers[server].scripts(), before)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_after_the_master_was_killed_and_when_it_is_back() {
    let mut group = Sentinels::start(SECOND);
    let (locks, load) = loaded(&group).await;
    let before = group.lose_master();
    let after = group.switched(before);
    works(&group.servers[after]).await;
    group.servers[before].start_again();
    gets_no_command(&group, before).await;
    within(3 * LIMIT, "it becomes a replica", || group.is_master(before), |is_master| !is_master).await;
    let work = load.end().await;
    // Without the fault there is no such gap. And it is shorter than `retry_timeout`.
    assert!((700 * MS..50 * SECOND).contains(&work.gap), "{work:?}");
    end(&group.servers[after], [&locks]).await;
}

//! Failovers with and without a warning: callers get no error, and the old master gets no command.

use lockkeeper::{Error, LockClient};
use lockkeeper_testkit::Sentinels;
use tokio::time::{sleep, timeout};

use crate::sentinel::{client, client_with, end};
use crate::support::load::Load;
use crate::support::{LIMIT, MS, SECOND, patient, soon, throughout, timed, within, works};

/// How long after the switch the old master can get commands.
const LATEST: std::time::Duration = std::time::Duration::from_millis(1_500);

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_interrupts_nothing_and_the_old_master_gets_no_command() {
    let mut group = Sentinels::start(SECOND);
    let (locks, load) = loaded(&group).await;
    // Those who are left are enough to agree.
    group.sentinels[0].kill();
    let before = group.master();
    group.fail_over();
    let after = group.switched(before);
    sleep(LATEST).await;
    assert!(group.servers[before].scripts() > 50 && group.servers[after].scripts() > 50);
    gets_no_command(&group, before).await;
    let work = load.end().await;
    assert!(work.gap < 5 * SECOND, "{work:?}");
    end(&group.servers[after], [&locks]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_a_master_fails_when_its_time_is_up() {
    let mut group = Sentinels::start(60 * SECOND);
    let locks = client_with(&group, patient().retry_timeout(SECOND)).await;
    group.lose_master();
    let (result, took) = timed(locks.rlock("a").lock()).await;
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert!(took < LIMIT / 2, "{took:?}");
    let tried = timeout(LIMIT, locks.rlock("a").try_lock_for(300 * MS)).await.unwrap();
    assert!(tried.is_err(), "nobody answered");
    soon(async { drop(locks) }).await;
}

//! Many holds in many slots, whose renewals are sent together.

use futures_util::future::{join_all, try_join_all};
use lockkeeper::LockGuard;
use lockkeeper_testkit::Cluster;

use crate::cluster::{client_with, end};
use crate::support::{SECOND, patient, renewed};

const HOLDS: usize = 300;

/// Guarantees 7 and 17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_that_are_sent_together_follow_redirects_and_load_their_scripts() {
    let group = Cluster::start(3, 0);
    let locks = client_with(&group, patient().watchdog_lease(15 * SECOND)).await;
    let names: Vec<_> = (0..HOLDS).map(|number| format!("held:{number}")).collect();
    let mut handles: Vec<_> = names.iter().map(|name| locks.rlock(name)).collect();
    let guards = try_join_all(handles.iter_mut().map(|lock| lock.lock())).await.unwrap();
    all_renewed(&guards).await;
    group.flush_scripts();
    all_renewed(&guards).await;
    let before = group.errors("MOVED");
    // The client also asks where the slots are. So not every move is noticed by a renewal.
    let mut moves = names.iter().map(|name| group.slot_of(name));
    while group.errors("MOVED") == before {
        let slot = moves.next().expect("a renewal meets one of the moves");
        group.move_slot(slot, (group.master_of(slot) + 1) % 3);
    }
    all_renewed(&guards).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    try_join_all(guards.into_iter().map(LockGuard::unlock)).await.unwrap();
    end(&group, [&locks]).await;
}

async fn all_renewed(guards: &[LockGuard]) {
    join_all(guards.iter().map(renewed)).await;
}

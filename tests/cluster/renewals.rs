//! Many holds in many slots, whose renewals are sent together.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use lockkeeper::LockGuard;
use lockkeeper_testkit::{Cluster, Proxy, Server};
use tokio::time::Instant;

use crate::cluster::{client_with, end};
use crate::support::{SECOND, connect, eventually, nothing_is_left, patient, renewed};

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

/// Guarantee 7. Such a proxy looks like a single server, and is in front of several.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_refuses_several_slots_is_asked_about_one_at_a_time_from_then_on() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = Server::cluster_of_one();
    let proxy = Proxy::to(server.port()).await;
    proxy.doctor("$7\r\ncluster\r\n", "$10\r\nstandalone\r\n");
    let locks = connect(proxy.url(), patient().watchdog_lease(LEASE)).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(locks.rlock(format!("{number}")).lock().await.unwrap());
    }
    let refused = || server.errors("CROSSSLOT");
    for times in 1..=2 {
        eventually("a batch is refused", refused, |&now| now == times).await;
        let start = Instant::now();
        while start.elapsed() < 2 * LEASE {
            all_renewed(&guards).await;
        }
        assert_eq!(refused(), times, "batches are refused again and again");
        // With the next connections, perhaps there is another server.
        proxy.cut();
    }
    for guard in guards {
        assert!(!guard.is_lost());
        guard.unlock().await.unwrap();
    }
    drop(locks);
    nothing_is_left(|| server.keys(), || server.channels()).await;
}

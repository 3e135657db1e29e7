//! A cluster whose nodes speak TLS, with each other too.

use lockkeeper::{LockClient, Source};
use lockkeeper_testkit::{Certificates, Cluster};

use crate::support::fixture::RLocks;
use crate::support::{each_is_handed_over, eventually, is_handed_over};
use crate::tls::{certificates, certified, connect, refuses_all_others};

/// A client that was given only the first node.
async fn client(group: &Cluster, right: &Certificates) -> LockClient {
    let source = Source::cluster([group.servers[0].url()]);
    connect(certified(source, right, Some(right))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_follow_slots_and_masters_to_nodes_that_were_not_named() {
    let right = certificates();
    let group = Cluster::secured(3, 1, &right);
    refuses_all_others(Source::cluster(group.urls()), &right).await;
    let (ours, theirs) = (client(&group, &right).await, client(&group, &right).await);
    let clients = [&ours, &theirs];
    for index in 0..3 {
        let name = |text: &str| group.name_on(index, text);
        each_is_handed_over(clients, name, || group.servers[index].channels()).await;
    }

    // To nodes that were not named. A client that has just asked for the map meets no redirect.
    let name = group.name_on(0, "moving");
    let mut targets = [1, 2].into_iter().cycle().take(100);
    while group.errors("MOVED") == 0 {
        let to = targets.next().expect("calls meet a move");
        let guard = ours.rlock(&name).lock().await.unwrap();
        group.move_slot(group.slot_of(&name), to);
        guard.unlock().await.unwrap();
    }
    let at = group.master_of_key(&name);
    is_handed_over::<RLocks>(clients, &name, || group.servers[at].channels()).await;

    let after = group.fail_over(group.slot_of(&name));
    assert!(after >= 3, "it was a replica, and nobody named it");
    is_handed_over::<RLocks>(clients, &name, || group.servers[after].channels()).await;
    for locks in clients {
        locks.shutdown().await.unwrap();
    }
    eventually("no key is left", || group.keys(), Vec::is_empty).await;
}

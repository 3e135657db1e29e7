//! Redis Cluster: masters that fail and slots that move cost no lock, no message and no order of replies.

#![allow(unreachable_pub, reason = "a test")]

mod atomic_moves;
mod connections;
mod databases;
mod failover;
mod half_moved;
mod identity;
mod late_copies;
mod messages;
mod reshard;
mod rights;
mod sources;

use crate::support::load::Load;
use crate::support::{SECOND, nothing_is_left, patient};
use lockkeeper::{LockClient, LockConfigBuilder, Source};
use lockkeeper_testkit::Cluster;

/// A client that knows all servers of the cluster.
async fn client(group: &Cluster) -> LockClient {
    // On a busy machine, a replica can need several tries to become a master.
    client_with(group, patient().retry_timeout(60 * SECOND)).await
}

async fn client_with(group: &Cluster, config: LockConfigBuilder) -> LockClient {
    LockClient::connect_with(Source::cluster(group.urls()), config.build().unwrap()).await.unwrap()
}

async fn clients(group: &Cluster) -> [LockClient; 2] {
    [client(group).await, client(group).await]
}

/// Two clients that work with locks of all types.
async fn loaded(group: &Cluster) -> ([LockClient; 2], Load) {
    let clients = clients(group).await;
    let load = Load::of_all_types(&clients.each_ref());
    (clients, load)
}

/// Shuts the clients down, and waits until no lock and no waiter is left.
async fn end(group: &Cluster, clients: impl IntoIterator<Item = &LockClient>) {
    for locks in clients {
        locks.shutdown().await.unwrap();
    }
    nothing_is_left(|| group.keys(), || group.channels()).await;
}

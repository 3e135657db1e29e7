//! Sentinel: the client follows the master, and what a failover costs.

#![allow(unreachable_pub, reason = "a test")]

mod failover;
mod identity;
mod lost_writes;
mod sources;
mod stale;

use crate::support::{Commands, SECOND, nothing_is_left, patient};
use lockkeeper::{LockClient, LockConfigBuilder, Source};
use lockkeeper_testkit::{MASTER, Sentinels};

fn source(group: &Sentinels) -> Source {
    Source::sentinel(MASTER, group.urls(), "redis://servers/")
}

async fn client(group: &Sentinels) -> LockClient {
    // On a busy machine, sentinels can need several tries.
    client_with(group, patient().retry_timeout(120 * SECOND)).await
}

async fn client_with(group: &Sentinels, config: LockConfigBuilder) -> LockClient {
    LockClient::connect_with(source(group), config.build().unwrap()).await.unwrap()
}

/// Shuts the clients down, and waits until no lock and no waiter is left on the master.
async fn end(master: &Commands, clients: impl IntoIterator<Item = &LockClient>) {
    for locks in clients {
        locks.shutdown().await.unwrap();
    }
    nothing_is_left(|| master.keys(), || master.channels()).await;
}

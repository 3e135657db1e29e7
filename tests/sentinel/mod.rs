//! Sources with several servers: the client follows the master, and what a failover costs.

#![allow(unreachable_pub, reason = "a test")]

mod failover;
mod identity;
mod lost_writes;
mod sources;
mod stale;

use crate::support::{Commands, SECOND, eventually, nothing_is_left, patient};
use lockkeeper::{LockClient, LockConfigBuilder, Source};
use lockkeeper_testkit::{MASTER, Sentinels, Server};

fn source(group: &Sentinels) -> Source {
    Source::sentinel(MASTER, group.urls(), "redis://servers/")
}

/// A master, its replica, and a client that names both.
async fn pair() -> (Server, Server, LockClient) {
    let old = Server::start();
    let port = old.port().to_string();
    let new = Server::with(&["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"]);
    let info = || new.run::<String>(&["INFO", "replication"]);
    eventually("it copied the master", info, |info| info.contains("master_link_status:up")).await;
    let source = Source::replicated([new.url(), old.url()]);
    let locks = LockClient::connect_with(source, patient().build().unwrap()).await.unwrap();
    (old, new, locks)
}

/// Waits until the client asks this server for its role.
async fn is_asked(server: &Server) {
    let before = server.calls("role");
    eventually("the server is asked", || server.calls("role"), |calls| *calls > before + 2).await;
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

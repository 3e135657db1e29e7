//! A master and its replica without sentinels.

use lockkeeper::Source;
use lockkeeper_testkit::Server;

use crate::support::eventually;
use crate::support::fixture::RLocks;
use crate::tls::{certificates, client_side, connect, is_handed_over, refuses_all_others};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replicated_source_with_certificates_follows_the_master() {
    let right = certificates();
    let mut old = Server::secured(&right, true, &[]);
    let port = old.public_port().to_string();
    let new = Server::secured(
        &right,
        true,
        &["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"],
    );
    let info = || new.run::<String>(&["INFO", "replication"]);
    eventually("it copied the master", info, |info| info.contains("master_link_status:up")).await;

    let source = Source::replicated([new.url(), old.url()]);
    refuses_all_others(source.clone(), &right).await;
    let locks = connect(source.with_certificates(client_side(&right, Some(&right)))).await.unwrap();
    is_handed_over::<RLocks>([&locks, &locks], "before", || old.channels()).await;
    new.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    old.kill();
    is_handed_over::<RLocks>([&locks, &locks], "after", || new.channels()).await;
    assert!(new.scripts() > 0);
    locks.shutdown().await.unwrap();
    assert!(new.keys().is_empty());
}

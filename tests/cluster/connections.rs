//! The connections for commands, which the masters share.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use lockkeeper::LockConfigBuilder;
use lockkeeper_testkit::{Cluster, Server};

use crate::cluster::{client_with, end};
use crate::support::{SECOND, eventually, patient};

fn config(connections: usize) -> LockConfigBuilder {
    patient().retry_timeout(60 * SECOND).connections(connections)
}

/// The ids of the connections on which scripts run.
fn connections(server: &Server) -> BTreeSet<String> {
    let runs_scripts = |line: &String| line.contains("cmd=eval");
    let id = |line: String| line.split(' ').next().expect("the id").to_owned();
    server.clients().into_iter().filter(runs_scripts).map(id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_share_the_connections_for_commands() {
    for masters in [1, 3] {
        let group = Cluster::start(masters, 0);
        for of_client in [2, 6] {
            let locks = client_with(&group, config(of_client)).await;
            // So many names select every connection of every master.
            let names = (0..300).map(|number| format!("{of_client}:{number}"));
            let sections = names.map(async |name| locks.rlock(name).lock().await.unwrap().unlock().await);
            assert!(join_all(sections).await.iter().all(Result::is_ok));
            let of_each = (of_client / masters).max(1);
            for server in &group.servers {
                assert_eq!(connections(server).len(), of_each, "{of_client} for {masters} masters");
            }
            end(&group, [&locks]).await;
            drop(locks);
            for server in &group.servers {
                eventually("they are closed", || connections(server), BTreeSet::is_empty).await;
            }
        }
    }
}

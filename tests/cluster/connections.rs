//! The connections for commands, which the masters share.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use lockkeeper::LockConfigBuilder;
use lockkeeper_testkit::{Cluster, Server};

use crate::cluster::{client_with, end};
use crate::support::load::{Load, names};
use crate::support::{SECOND, eventually, patient, works};

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

/// A master that is added has fewer connections than the others, which keep theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_added_and_removed_under_load_costs_no_lock_and_no_connection_of_others() {
    let mut group = Cluster::start(2, 0);
    let clients = [client_with(&group, config(4)).await, client_with(&group, config(4)).await];
    let load = Load::of_all_types(&clients.each_ref());
    let of_others = |group: &Cluster| group.servers[..2].iter().map(connections).collect::<Vec<_>>();
    let have_all = |all: &Vec<BTreeSet<String>>| all.iter().all(|one| one.len() == 4);
    let before = eventually("the first two have all", || of_others(&group), have_all).await;
    let added = group.add_master();
    let slots: BTreeSet<u16> = names().map(|name| group.slot_of(&name)).collect();
    for slot in &slots {
        group.move_slot(*slot, added);
    }
    works(&group.servers[added]).await;
    // One of each client, or two of a client that was sent there by an `ASK` before it knew of a third master.
    let are_few = |ids: &BTreeSet<String>| (2..=4).contains(&ids.len());
    eventually("it has few of each client", || connections(&group.servers[added]), are_few).await;
    for slot in &slots {
        group.move_slot(*slot, usize::from(slot % 2));
    }
    eventually("it has none", || connections(&group.servers[added]), BTreeSet::is_empty).await;
    works(&group.servers[0]).await;
    works(&group.servers[1]).await;
    assert!(group.errors("MOVED") > 0 && group.errors("ASK") > 0, "clients met the moves");
    // On a busy machine, a command that times out can cost a connection. If adding a master did, none of them would be left.
    for (before, now) in before.iter().zip(of_others(&group)) {
        assert!(before.intersection(&now).count() >= 2, "they are the same connections: {before:?}, {now:?}");
    }
    let work = load.end().await;
    assert!(work.gap < 10 * SECOND && work.lost == 0, "{work:?}");
    end(&group, &clients).await;
}

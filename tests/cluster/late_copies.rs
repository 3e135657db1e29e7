//! Guarantee 3: a first acquire that one node sent on to another, and that runs there late.

use lockkeeper::LockConfig;
use lockkeeper_testkit::{Cluster, Proxy};

use crate::cluster::client_with;
use crate::support::fixture::{Fixture, RLocks};
use crate::support::late::{ORPHAN_LIMIT, calls, deliver, log_all_commands, stuck};
use crate::support::{LIMIT, MS, eventually, nothing_is_left, soon, within};

/// Lets all nodes announce a proxy in place of this one.
pub(super) async fn announce_proxy(group: &Cluster, node: usize) -> Proxy {
    let proxy = Proxy::to(group.servers[node].port()).await;
    let port = proxy.port().to_string();
    group.servers[node].run::<()>(&["CONFIG", "SET", "cluster-announce-port", &port]);
    let announced = format!("127.0.0.1:{port}@");
    let nodes = || group.servers.iter().map(|server| server.run::<String>(&["CLUSTER", "NODES"]));
    let is_announced = || nodes().all(|nodes| nodes.contains(&announced));
    eventually("all announce the proxy", is_announced, |is_announced| *is_announced).await;
    proxy
}

/// Guarantee 3. The undos go to the node to which the acquire was sent on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_first_acquire_that_was_sent_on_leaves_an_orphan_for_seconds_not_for_a_lease() {
    let group = Cluster::start(3, 0);
    let slot = group.slot_of("a");
    let from = group.master_of(slot);
    let to = (from + 1) % 3;
    let target = &group.servers[to];
    log_all_commands(target);
    let proxy = announce_proxy(&group, to).await;
    let config = LockConfig::builder().command_timeout(500 * MS).connections(1).start_timeout(LIMIT);
    let locks = client_with(&group, config).await;
    // The client connects to the target.
    soon(locks.rlock(group.name_on(to, "b")).lock()).await.unwrap().unlock().await.unwrap();

    group.open_slot(slot, to);
    stuck(&proxy);
    let released = calls(target, RLocks::RELEASE);
    let guard = soon(locks.rlock("a").lock()).await.unwrap();
    assert!(group.servers[from].errors("ASK") > 0, "the acquire was sent on");
    assert_eq!(group.keys_in(to, slot), ["a"], "it was sent again on another connection");
    soon(guard.unlock()).await.unwrap();
    // The first undo would release a copy that comes before it, wherever the client thinks that it was sent.
    let releases = || calls(target, RLocks::RELEASE) - released;
    eventually("both attempts are released", releases, |releases| *releases >= 2).await;
    deliver(target, &proxy, RLocks::ACQUIRE, 1).await;
    within(ORPHAN_LIMIT, "the orphan is released", || group.keys_in(to, slot), Vec::is_empty).await;
    locks.shutdown().await.unwrap();
    // Redis 8 ends no subscription in an open slot, except with the connection.
    drop(locks);
    nothing_is_left(|| group.keys(), || group.channels()).await;
    drop(proxy);
}

//! Messages that stay in their slots, and those that do not: `sharded_messages`.

use lockkeeper::{LockClient, LockConfig, LockConfigBuilder};
use lockkeeper_testkit::Cluster;

use crate::cluster::{client_with, end};
use crate::support::fixture::RLocks;
use crate::support::{SECOND, each_is_handed_over, eventually, is_handed_over, listens, patient, waiter};

/// A message wakes a waiter, or it sleeps on.
fn config(is_sharded: bool) -> LockConfigBuilder {
    patient().retry_timeout(60 * SECOND).safety_poll(3_600 * SECOND).sharded_messages(is_sharded)
}

/// Two clients with plain messages.
async fn plain_clients(group: &Cluster) -> [LockClient; 2] {
    let client = async || client_with(group, config(false)).await;
    [client().await, client().await]
}

fn calls(group: &Cluster, command: &str) -> u64 {
    group.servers.iter().map(|server| server.calls(command)).sum()
}

/// Guarantee 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_messages_wake_the_waiters_of_every_master() {
    let group = Cluster::start(3, 0);
    for server in &group.servers {
        server.run::<()>(&["ACL", "SETUSER", "default", "-spublish", "-ssubscribe", "-sunsubscribe"]);
    }
    let clients = plain_clients(&group).await;
    for index in 0..3 {
        let name = |text: &str| group.name_on(index, text);
        each_is_handed_over(clients.each_ref(), name, || group.channels()).await;
    }
    assert!(calls(&group, "publish") >= 15 && calls(&group, "subscribe") >= 15);
    assert_eq!((calls(&group, "spublish"), calls(&group, "ssubscribe")), (0, 0));
    end(&group, &clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_plain_if_the_servers_lack_sharded_messages() {
    let group = Cluster::with(1, 0, 60 * SECOND, &["--rename-command", "SPUBLISH", ""]);
    let clients = [client_with(&group, config(true)).await, client_with(&group, config(false)).await];
    is_handed_over::<RLocks>(clients.each_ref(), "a", || group.channels()).await;
    assert_eq!(calls(&group, "ssubscribe"), 0);
    end(&group, &clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_sharded_by_default() {
    let group = Cluster::start(1, 0);
    let plain = LockConfig::default().to_builder().retry_timeout(60 * SECOND);
    let clients = [client_with(&group, config(true)).await, client_with(&group, plain).await];
    is_handed_over::<RLocks>(clients.each_ref(), "a", || group.channels()).await;
    assert!(calls(&group, "spublish") > 0 && calls(&group, "ssubscribe") > 0);
    assert_eq!((calls(&group, "publish"), calls(&group, "subscribe")), (0, 0));
    end(&group, &clients).await;
}

/// Redis 8 refuses to end a subscription while its slot is under way, or while the cluster has no majority. Here, the user has no right
/// to end it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_whose_end_is_refused_ends_later() {
    let group = Cluster::start(1, 0);
    let locks = client_with(&group, config(true)).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let waiting = waiter(locks.rlock("a"));
    let server = &group.servers[0];
    listens(server).await;
    server.run::<()>(&["ACL", "SETUSER", "default", "-sunsubscribe"]);
    waiting.abort();
    eventually("the server refuses", || group.errors("NOPERM"), |&count| count > 0).await;
    assert_eq!(server.channels().len(), 1, "it keeps the subscription");
    server.run::<()>(&["ACL", "SETUSER", "default", "+sunsubscribe"]);
    eventually("the subscription ends", || server.channels(), Vec::is_empty).await;
    guard.unlock().await.unwrap();
    end(&group, [&locks]).await;
}

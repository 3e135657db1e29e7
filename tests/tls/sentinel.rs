//! Sentinels, and the servers that they name.

use lockkeeper::Source;
use lockkeeper_testkit::{MASTER, Sentinels, Server};

use crate::support::fixture::{FairLocks, RLocks};
use crate::support::{SECOND, eventually, is_handed_over, soon, waiter};
use crate::tls::{certificates, certified, connect, refuses_all_others};

/// A sentinel has a connection on which it sends messages to the client.
fn has_listener(sentinel: &Server) -> bool {
    sentinel.clients().iter().any(|client| client.contains(" sub=2 "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_survive_a_failover_of_servers_with_certificates() {
    let right = certificates();
    let mut group = Sentinels::secured(SECOND, &right);
    let source = Source::sentinel(MASTER, group.urls(), "rediss://servers/");
    refuses_all_others(source.clone(), &right).await;

    let source = certified(source, &right, Some(&right));
    let (ours, theirs) = (connect(source.clone()).await.unwrap(), connect(source).await.unwrap());
    let clients = [&ours, &theirs];
    let listening = || group.sentinels.iter().all(has_listener);
    eventually("all sentinels send messages", listening, |all| *all).await;
    let master = group.master();
    is_handed_over::<RLocks>(clients, "rlock", || group.servers[master].channels()).await;

    let guard = ours.rlock("a").lock().await.unwrap();
    let waiting = waiter(theirs.rlock("a"));
    eventually("the waiter subscribes", || group.servers[master].channels(), |found| !found.is_empty()).await;
    assert_eq!(group.servers[master].run::<u32>(&["WAIT", "2", "5000"]), 2, "the replicas have the lock");
    let before = group.lose_master();
    let after = group.switched(before);
    let channels = || group.servers[after].channels();
    eventually("the waiter subscribes again", channels, |found| !found.is_empty()).await;
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    is_handed_over::<FairLocks>(clients, "fair", channels).await;
    for locks in clients {
        locks.shutdown().await.unwrap();
    }
    assert!(group.servers[after].keys().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_without_tls_can_name_servers_with_tls() {
    let right = certificates();
    let group = Sentinels::secured(SECOND, &right);
    let plain = group.sentinels.iter().map(|sentinel| format!("redis://127.0.0.1:{}/", sentinel.port()));
    let source = Source::sentinel(MASTER, plain, "rediss://servers/");
    refuses_all_others(source.clone(), &right).await;
    let locks = connect(certified(source, &right, Some(&right))).await.unwrap();
    let master = &group.servers[group.master()];
    is_handed_over::<RLocks>([&locks, &locks], "a", || master.channels()).await;
    locks.shutdown().await.unwrap();
}

//! Servers and sentinels that have not heard of the last switch.

use lockkeeper::{LockClient, Source};
use lockkeeper_testkit::{Faults, MASTER, Proxy, Sentinels, Server};
use tokio::time::sleep;

use crate::sentinel::{client, client_with};
use crate::support::{LIMIT, MS, SECOND, eventually, patient, replicated, throughout, timed, within};

/// Another program's owner can use its id again, as a Java thread does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_does_not_end_a_later_hold_of_the_same_java_thread() {
    const JAVA: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
    let mut group = Sentinels::start(SECOND);
    let locks = client(&group).await;
    let old = &group.servers[group.master()];
    let java_locks = || {
        old.run::<()>(&["HSET", "a", JAVA, "1"]);
        old.run::<()>(&["PEXPIRE", "a", "120000"]);
    };
    java_locks();
    assert!(locks.rlock("a").force_unlock().await.unwrap());
    java_locks();
    replicated(old, 2).await;
    let before = group.lose_master();
    let new = &group.servers[group.switched(before)];
    let guard = locks.rlock("b").lock().await.unwrap();
    assert!(new.run::<bool>(&["EXISTS", "b"]), "the client follows");
    let is_held = async || assert!(new.run::<bool>(&["EXISTS", "a"]), "the Java thread holds it");
    throughout(SECOND, is_held).await;
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
}

/// One sentinel that was cut off with the old master has not heard of the failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_missed_the_failover_does_not_outvote_those_that_are_silent() {
    let mut group = Sentinels::start(SECOND);
    let locks = client(&group).await;
    let old = group.master();
    // A part of the network with the first sentinel and the master is cut off.
    group.sentinels[0].kill();
    group.servers[old].freeze();
    let others: Vec<usize> = (0..3).filter(|index| *index != old).collect();
    let promoted = || others.iter().find(|index| group.is_master(**index)).copied();
    within(120 * SECOND, "a replica is promoted", promoted, Option::is_some).await;
    let new = promoted().unwrap();
    let guard = locks.rlock("a").lock().await.unwrap();
    assert!(group.servers[new].run::<bool>(&["EXISTS", "a"]));
    sleep(12 * SECOND).await; // until the client takes earlier news again
    // The network changes: this client reaches the part that was cut off, and the other sentinels no more.
    group.sentinels[1].freeze();
    group.sentinels[2].freeze();
    group.servers[old].thaw();
    group.sentinels[0].start_again();
    let clients = || group.sentinels[0].run::<String>(&["CLIENT", "LIST"]);
    let is_asked = |clients: &String| clients.contains("cmd=sentinel|master");
    eventually("the client asks this sentinel alone", clients, is_asked).await;
    throughout(2 * SECOND, async || {
        let beside = locks.rlock("a").try_lock().await.unwrap();
        assert!(beside.is_none(), "granted by the old master, while the new one has the hold");
    })
    .await;
    assert!(group.is_master(old) && group.is_master(new), "nobody told the old master");
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
}

/// A call that makes a connection to a silent master does not wait for it any longer when another server is the master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_connects_to_a_silent_master_goes_on_at_the_switch() {
    let group = Sentinels::start(120 * SECOND); // no failover by itself
    let locks = client_with(&group, patient().command_timeout(60 * SECOND)).await;
    let old = &group.servers[group.master()];
    old.run::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
    old.freeze();
    let locking = tokio::spawn({
        let locks = locks.clone();
        async move { locks.rlock("a").lock().await }
    });
    sleep(300 * MS).await; // it connects meanwhile: a stopped server cannot tell
    group.fail_over();
    let (guard, took) = timed(locking).await;
    assert!(took < LIMIT, "{took:?}");
    guard.unwrap().unwrap().unlock().await.unwrap();
    locks.shutdown().await.unwrap();
}

/// On one thread: the proxy must not let anything pass between two settings.
#[tokio::test]
async fn a_client_listens_to_a_sentinel_again_whose_connection_fell_silent() {
    let server = Server::start();
    let sentinel =
        Server::sentinel(&format!("sentinel monitor {MASTER} 127.0.0.1 {} 1\n", server.public_port()));
    let proxy = Proxy::to(sentinel.port()).await;
    proxy.record();
    let source = Source::sentinel(MASTER, [proxy.url()], "redis://servers/");
    let config = patient().command_timeout(SECOND).build().unwrap();
    let locks = LockClient::connect_with(source, config).await.unwrap();
    let subscriptions = || proxy.recorded().iter().filter(|command| command[0] == "SUBSCRIBE").count();
    let before = eventually("it listens", subscriptions, |&count| count > 0).await;
    proxy.set_existing(Faults::black_hole());
    eventually("it listens on another connection", subscriptions, |&count| count > before).await;

    proxy.set(Faults::black_hole());
    proxy.cut();
    sleep(3 * SECOND).await; // by now, it has a connection that is silent from the beginning
    let before = subscriptions();
    proxy.set(Faults::default());
    proxy.set_existing(Faults::black_hole());
    eventually("it gave that one up, too", subscriptions, |&count| count > before).await;
    locks.shutdown().await.unwrap();
}

/// It answers later than the others, which agree without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_is_slower_than_the_others_keeps_its_connection() {
    let group = Sentinels::start(SECOND);
    let proxy = Proxy::to(group.sentinels[0].port()).await;
    let mut sentinels = group.urls();
    sentinels[0] = proxy.url();
    let source = Source::sentinel(MASTER, sentinels, "redis://servers/");
    let locks = LockClient::connect_with(source, patient().build().unwrap()).await.unwrap();
    let before = eventually("it asks and listens", || proxy.accepted(), |&accepted| accepted >= 2).await;
    proxy.record();
    proxy.set(Faults { delay: 80 * MS, ..Faults::default() });
    let questions = || proxy.recorded().iter().filter(|command| command[0] == "SENTINEL").count();
    eventually("it is asked again and again", questions, |&count| count >= 8).await;
    let made = proxy.accepted() - before;
    assert!(made < 3, "{made}");
    locks.shutdown().await.unwrap();
}

//! Servers and sentinels that have not heard of the last switch.

use lockkeeper::{LockClient, Source};
use lockkeeper_testkit::{Faults, MASTER, Proxy, Sentinels, Server};
use tokio::time::sleep;

use crate::sentinel::client;
use crate::support::events::Events;
use crate::support::{SECOND, eventually, patient, replicated, throughout};

/// Another program's owner can use its id again, as a Java thread does.
#[tokio::test]
async fn a_forced_release_does_not_end_a_later_hold_of_the_same_java_thread() {
    const JAVA: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
    let (mut group, events) = (Sentinels::start(SECOND), Events::default());
    let _collecting = events.collect();
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
    let (to, from) = (new.public_port(), group.servers[before].public_port());
    events.tell(&format!("is the master server=127.0.0.1:{to} before=127.0.0.1:{from}")).await;
    assert!(new.run::<bool>(&["EXISTS", "b"]), "the client follows");
    let is_held = async || assert!(new.run::<bool>(&["EXISTS", "a"]), "the Java thread holds it");
    throughout(SECOND, is_held).await;
    guard.unlock().await.unwrap();
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

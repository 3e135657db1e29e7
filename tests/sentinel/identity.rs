//! A group of servers is one server to a `RedLock`, whichever of its servers is the master.

use lockkeeper_testkit::{Sentinels, Server};

use crate::sentinel::client;
use crate::support::{SECOND, are_apart, connect, eventually, patient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_recognized_after_it_became_the_master() {
    let mut group = Sentinels::start(SECOND);
    let locks = client(&group).await;
    let (other, third) = (Server::start(), Server::start());
    let other = connect(other.url(), patient()).await;
    let third = connect(third.url(), patient()).await;
    let alone = connect(group.servers[group.master()].url(), patient()).await;
    assert!(are_apart([&locks, &other, &third]));
    assert!(!are_apart([&locks, &alone, &third]));

    let before = group.lose_master();
    let after = group.switched(before);
    locks.rlock("a").lock().await.unwrap().unlock().await.unwrap();
    let alone = connect(group.servers[after].url(), patient()).await;
    eventually("it is recognized", || are_apart([&locks, &alone, &third]), |are_apart| !are_apart).await;
    assert!(are_apart([&locks, &other, &third]));
}

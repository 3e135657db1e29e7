//! A group of servers is one server to a `RedLock`, whichever of its servers is the master.

use lockkeeper_testkit::Server;

use crate::sentinel::pair;
use crate::support::{are_apart, connect, eventually, patient};

#[tokio::test]
async fn a_server_is_recognized_after_it_became_the_master() {
    let (mut old, new, group) = pair().await;
    let (other, third) = (Server::start(), Server::start());
    let other = connect(other.url(), patient()).await;
    let third = connect(third.url(), patient()).await;
    let alone = connect(old.url(), patient()).await;
    assert!(are_apart([&group, &other, &third]));
    assert!(!are_apart([&group, &alone, &third]));

    old.kill();
    new.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    group.rlock("a").lock().await.unwrap().unlock().await.unwrap();
    let alone = connect(new.url(), patient()).await;
    eventually("it is recognized", || are_apart([&group, &alone, &third]), |are_apart| !are_apart).await;
    assert!(are_apart([&group, &other, &third]));
}

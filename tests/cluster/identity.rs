//! A cluster is one server to a `RedLock`, whichever of its servers a client was given.

use lockkeeper::{LockClient, Source};
use lockkeeper_testkit::{Cluster, Server};

use crate::support::{are_apart, patient};

async fn connect(url: String) -> LockClient {
    LockClient::connect_with(Source::cluster([url]), patient().build().unwrap()).await.unwrap()
}

#[tokio::test]
async fn two_servers_of_a_cluster_are_not_two_members() {
    let group = Cluster::start(3, 0);
    let (other, third) = (Server::cluster_of_one(), Server::cluster_of_one());
    let one = connect(group.servers[0].url()).await;
    let same = connect(group.servers[1].url()).await;
    let (other, third) = (connect(other.url()).await, connect(third.url()).await);
    assert!(are_apart([&one, &other, &third]));
    assert!(!are_apart([&one, &same, &other]));
}

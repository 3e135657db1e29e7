//! Sources and names that a cluster cannot use, and seeds that are enough.

use lockkeeper::{Error, LockClient, Source};
use lockkeeper_testkit::{Cluster, Server};

use crate::cluster::{client, end};
use crate::support::fixture::{
    FairLocks, FencedLocks, Fixture, MultiLocks, RLocks, ReadLocks, SingleRedLocks, Subject, WriteLocks,
};
use crate::support::{LIMIT, ReservedPort, eventually, patient, soon};

async fn refusal(source: Source) -> (&'static str, String) {
    match LockClient::connect(source).await {
        Err(Error::Config(wrong)) => (wrong.field(), wrong.problem().to_owned()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_source_that_does_not_fit_the_server_names_the_right_one() {
    let (node, single) = (Server::cluster_of_one(), Server::start());
    let (_, problem) = refusal(Source::url(node.url())).await;
    assert!(problem.contains("Source::cluster"), "{problem}");
    let (_, problem) = refusal(Source::cluster([single.url()])).await;
    assert!(problem.contains("Source::url"), "{problem}");
}

#[tokio::test]
async fn addresses_that_cannot_be_used_are_invalid() {
    let none: [&str; 0] = [];
    let url = "redis://127.0.0.1/";
    for source in [
        Source::cluster(none),
        Source::cluster(["nonsense"]),
        Source::cluster([url, "redis://127.0.0.1/1"]), // two databases
    ] {
        let (field, problem) = refusal(source).await;
        assert_eq!(field, "urls", "{problem}");
    }
    for (file, field) in [
        ("kind = \"cluster\"\nurls = []", "urls"),
        ("kind = \"cluster\"\nurls = [\"redis://127.0.0.1/1\", \"redis://127.0.0.1/2\"]", "urls"),
        ("kind = \"cluster\"\nurls = [\"redis://127.0.0.1/\"]\nmaster = \"a\"", "master"),
    ] {
        let error = toml::from_str::<Source>(file).unwrap_err().to_string();
        assert!(error.contains(&format!("`{field}`")), "{file}: {error}");
    }
}

/// A cluster that lost a master is down until the master is back, and is no server that is too old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_is_an_outage() {
    let mut group = Cluster::start(3, 0);
    group.kill(0);
    let is_down = || group.servers[1].run::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:fail");
    eventually("the cluster is down", is_down, |&is_down| is_down).await;
    let source = || Source::cluster([group.servers[1].url(), group.servers[2].url()]);
    let error = LockClient::connect_with(source(), patient().build().unwrap()).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let config = patient().start_timeout(LIMIT).build().unwrap();
    let connecting = tokio::spawn(LockClient::connect_with(source(), config));
    group.servers[0].start_again();
    let locks = soon(connecting).await.unwrap().unwrap();
    end(&group, [&locks]).await;
}

/// The other servers are found, also if the only seed that answers is a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_seed_is_enough() {
    let group = Cluster::start(3, 1);
    let nobody = ReservedPort::new();
    let seeds = [format!("redis://127.0.0.1:{}/", nobody.number()), group.servers[5].url()];
    assert!(!group.is_master(5));
    let file = format!("kind = \"cluster\"\nurls = {seeds:?}");
    let locks =
        LockClient::connect_with(toml::from_str::<Source>(&file).unwrap(), patient().build().unwrap())
            .await
            .unwrap();
    for index in 0..3 {
        let guard = locks.rlock(group.name_on(index, "a")).lock().await.unwrap();
        assert_eq!(group.servers[index].keys(), [guard.name()]);
        guard.unlock().await.unwrap();
    }
    end(&group, [&locks]).await;
}

async fn is_refused<F: Fixture>(locks: &LockClient, name: &str) {
    match F::lock(locks, name).try_lock().await {
        Err(Error::InvalidName { name: found, .. }) => assert!(found.contains(name), "{found}"),
        other => panic!("{name}: {other:?}"),
    }
}

/// The key and the channel of such a name have different slots.
#[tokio::test]
async fn names_with_a_channel_in_another_slot_are_invalid() {
    let server = Server::cluster_of_one();
    let connect = async |prefix: &str| {
        let config = patient().name_prefix(prefix).build().unwrap();
        LockClient::connect_with(Source::cluster([server.url()]), config).await.unwrap()
    };
    let locks = connect("").await;
    let scripts = server.scripts();
    for name in ["a{b", "a}b", "a{}b", "{}x", "}{"] {
        is_refused::<FairLocks>(&locks, name).await;
        is_refused::<FencedLocks>(&locks, name).await;
        is_refused::<MultiLocks>(&locks, name).await;
        is_refused::<ReadLocks>(&locks, name).await;
        is_refused::<RLocks>(&locks, name).await;
        is_refused::<SingleRedLocks>(&locks, name).await;
        is_refused::<WriteLocks>(&locks, name).await;
    }
    assert_eq!(server.scripts(), scripts, "nothing was sent");
    let prefixed = connect("a{").await;
    is_refused::<RLocks>(&prefixed, "b").await;
    for (locks, name) in [(&locks, "{a}b"), (&locks, "a{b}c"), (&locks, "a{b}{c"), (&prefixed, "b}c")] {
        RLocks::lock(locks, name).lock().await.unwrap().unlock().await.unwrap();
    }
}

/// A lock's keys and channels are in one slot, whatever its type is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_with_a_tag_of_its_own_is_locked_where_the_tag_says() {
    let group = Cluster::start(3, 0);
    let locks = client(&group).await;
    let master = group.master_of_key("tag");
    let guard = locks.rlock("a{tag}b").lock().await.unwrap();
    assert_eq!(group.servers[master].keys(), ["a{tag}b"]);
    guard.unlock().await.unwrap();
    end(&group, [&locks]).await;
}

/// With such a prefix, the two keys of the self-test have different slots. That is no service that restricts scripts.
#[tokio::test]
async fn a_prefix_whose_braces_are_no_tag_does_not_look_like_a_service_that_restricts_scripts() {
    let server = Server::cluster_of_one();
    let config = patient().name_prefix("{}").build().unwrap();
    let locks = LockClient::connect_with(Source::cluster([server.url()]), config).await.unwrap();
    assert_eq!(locks.list("*").await.unwrap().locks, []);
    locks.shutdown().await.unwrap();
}

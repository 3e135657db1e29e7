//! Claims: a call acquires the first free one of many names, and its guard is like any other.

mod faults;
mod input;

use lockkeeper::{Claims, Error, FencingToken, LockGuard, Source};
use lockkeeper_testkit::Cluster;
use tokio::time::Instant;

use crate::support::{LIMIT, Scene, eventually, fixed, patient, soon, waiter};

const JOBS: [&str; 3] = ["1", "2", "3"];
const COUNTER: &str = "lockkeeper_claims:{jobs}";

/// Claims one of the three jobs.
async fn claim(jobs: &Claims) -> Option<LockGuard<FencingToken>> {
    soon(jobs.claim(JOBS)).await.unwrap()
}

/// The claimed name.
async fn name(jobs: &Claims) -> String {
    claim(jobs).await.expect("one is free").name().to_owned()
}

/// On the server, a claim is an `RLock`.
#[tokio::test]
async fn a_claimed_name_is_an_rlock_with_a_token() {
    let (scene, locks) = Scene::with_client().await;
    let jobs = locks.claims("jobs");
    let rlock = locks.rlock("{jobs}:1").lock().await.unwrap();
    let claim = claim(&jobs).await.unwrap();
    assert_eq!((claim.name(), jobs.name()), ("2", "jobs"));
    let hash: Vec<String> = scene.server.run(&["HGETALL", "{jobs}:2"]);
    assert_eq!(hash, [claim.owner_id(), "1".to_owned()]);
    assert!(scene.server.run::<i64>(&["PTTL", "{jobs}:2"]) > 20_000);
    assert_eq!(scene.server.run::<i64>(&["PTTL", COUNTER]), -1);
    assert_eq!(scene.server.run::<u64>(&["GET", COUNTER]), claim.token().get());
    assert!(
        !scene.server.run::<bool>(&["EXISTS", "redisson_lock_token:{jobs}:2"]),
        "Java would count on from it"
    );

    assert!(locks.rlock("{jobs}:2").try_lock().await.unwrap().is_none());
    let info = locks.inspect("{jobs}:2").await.unwrap().unwrap();
    assert_eq!((info.holders[0].owner.clone(), info.holders[0].holds), (claim.owner_id(), 1));
    assert_ne!(info.holders[0].is_connected, Some(false));
    let listed = locks.list("*").await.unwrap();
    let listed: Vec<&str> = listed.locks.iter().map(|lock| &*lock.name).collect();
    assert_eq!(listed, ["{jobs}:1", "{jobs}:2"], "the counter is no lock");
    let why = locks.why("{jobs}:2").await.unwrap();
    assert_eq!(why[0].links[0].holder.owner, claim.owner_id());

    // A waiter for the `RLock` is woken when the claim is released.
    let waiting = waiter(locks.rlock("{jobs}:2"));
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    claim.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    rlock.unlock().await.unwrap();
    scene.end((jobs, locks)).await;
}

/// Guarantee 14. A claim is one command, however many names are in use, and so is each release.
#[tokio::test]
async fn a_claim_is_one_command() {
    let scene = Scene::start();
    // A fixed lease is not renewed. But a claim that is older than a second is looked at, together with others.
    let jobs = scene.client().await.claims("jobs").with(&fixed(60 * LIMIT));
    let names: Vec<u32> = (0..100).collect();
    drop(jobs.claim(&names).await.unwrap()); // the script is loaded
    scene.quiet().await;
    let (start, before) = (Instant::now(), scene.server.scripts());
    let sent = |commands: u64| {
        let looks = scene.server.scripts() - before - commands;
        let most = 5 * start.elapsed().as_secs();
        assert!(looks <= most, "{looks} commands more than {commands}, and {most} looks at the most");
    };
    let mut claims = Vec::new();
    for _ in 0..100 {
        claims.extend(jobs.claim(&names).await.unwrap());
    }
    assert_eq!(claims.len(), 100);
    sent(100);
    assert!(jobs.claim(&names).await.unwrap().is_none());
    sent(101);
    for claim in claims {
        claim.unlock().await.unwrap();
    }
    sent(201);
    scene.end(jobs).await;
}

/// A group has one slot. Groups are on all masters.
#[tokio::test]
async fn a_cluster_keeps_a_group_in_one_slot() {
    let cluster = Cluster::start(2, 0);
    let config = patient().name_prefix("shop:").build().unwrap();
    let locks = lockkeeper::LockClient::connect_with(Source::cluster(cluster.urls()), config).await.unwrap();
    for group in ["jobs", "mails", "a", "b:c", "ключ"] {
        let jobs = locks.claims(group);
        let claims = [claim(&jobs).await.unwrap(), claim(&jobs).await.unwrap()];
        assert_eq!([claims[0].name(), claims[1].name()], ["1", "2"], "{group}");
        let braces = jobs.claim(["a}b{c", "{}", "}{"]).await.unwrap().unwrap();
        assert_eq!(braces.name(), "a}b{c");
        for claim in claims.into_iter().chain([braces]) {
            claim.unlock().await.unwrap();
        }
    }
    let masters: Vec<usize> = cluster
        .servers
        .iter()
        .map(|server| server.run::<Vec<String>>(&["KEYS", "lockkeeper_claims:*"]).len())
        .collect();
    assert!(masters.iter().all(|groups| *groups > 0), "{masters:?}");
    // This tag is empty, so each key has a slot of its own.
    let config = patient().name_prefix("{}").build().unwrap();
    let other = lockkeeper::LockClient::connect_with(Source::cluster(cluster.urls()), config).await.unwrap();
    let error = other.claims("jobs").claim(JOBS).await.unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
    other.shutdown().await.unwrap();
    locks.shutdown().await.unwrap();
    assert_eq!(cluster.keys(), [""; 0]);
}

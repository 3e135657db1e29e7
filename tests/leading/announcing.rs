//! What a leader announces: followers learn it with the leader's identity, by a message, and never from an earlier leader.

use lockkeeper::leader::{Candidate, Leader, LeaderWatch};
use lockkeeper::{LockClient, Source};
use lockkeeper_memory::MemoryServer;
use tokio::time::{Instant, sleep};

use super::{forget_counter, run};
use crate::support::events::Events;
use crate::support::{MS, SECOND, Scene, connect, eventually, listens, patient, soon};

/// The key, and the channel with the same name.
const KEY: &str = "lockkeeper_announcement:{a}";

/// Waits until followers learn of such a leader.
async fn leader(watch: &mut LeaderWatch, is_it: impl Fn(&Leader) -> bool + Send + Sync) -> Leader {
    let found = async {
        loop {
            if let Some(leader) = watch.changed().await.unwrap().filter(&is_it) {
                return leader;
            }
        }
    };
    soon(found).await
}

async fn nobody(watch: &mut LeaderWatch) {
    soon(async { while watch.changed().await.unwrap().is_some() {} }).await;
}

fn announces(leader: &Leader, said: &[u8]) -> bool {
    leader.announcement.as_deref() == Some(said)
}

fn candidate(locks: &LockClient, said: &[u8]) -> Candidate {
    Candidate::new(locks, "a").announce(said).unwrap()
}

#[tokio::test]
async fn followers_learn_who_leads_and_what_it_announces() {
    let (scene, locks) = Scene::with_client_of(patient().identity("billing-7")).await;
    let beside = scene.client().await;
    let mut watch = LeaderWatch::new(&beside, "a");
    let mut first = run(candidate(&locks, b"10.0.0.7:9000"));
    first.begins().await;
    let found = leader(&mut watch, |leader| announces(leader, b"10.0.0.7:9000")).await;
    assert_eq!(found.holder.identity.as_deref(), Some("billing-7"));
    assert_eq!(found.holder.client, Some(locks.id()));
    first.end().await;
    nobody(&mut watch).await;

    // Any bytes, and as many as there can be.
    let bytes: Vec<u8> = (0..4_096_u32).map(|number| number.to_le_bytes()[0]).collect();
    let mut second = run(candidate(&locks, &bytes));
    second.begins().await;
    let after = leader(&mut watch, |leader| announces(leader, &bytes)).await;
    assert_ne!(after.holder.owner, found.holder.owner);
    second.end().await;
    nobody(&mut watch).await;

    let mut silent = run(Candidate::new(&locks, "a"));
    silent.begins().await;
    assert_eq!(leader(&mut watch, |_| true).await.announcement, None);
    silent.end().await;
    drop((watch, locks, beside));
    forget_counter(&scene);
    scene.end(()).await; // nothing is left
}

#[tokio::test]
async fn an_announcement_that_is_too_long_is_refused() {
    let (scene, locks) = Scene::with_client().await;
    let said = vec![b'a'; 4_097];
    let wrong = Candidate::new(&locks, "a").announce(said).unwrap_err();
    assert_eq!((wrong.field(), wrong.problem()), ("announcement", "must be at most 4096 bytes long"));
    scene.end(locks).await;
}

/// If one reply is lost, there is time for another try. Each announcement lasts for what was left of the lease, at least two thirds of it.
#[tokio::test(start_paused = true)]
async fn an_announcement_is_repeated_at_half_its_time() {
    let (server, lease) = (MemoryServer::new(), 6 * SECOND);
    let config = patient().watchdog_lease(lease).build().unwrap();
    let locks = LockClient::connect_with(Source::stream(server.connector()), config).await.unwrap();
    let mut running = run(candidate(&locks, b"here"));
    running.begins().await;
    let left = || {
        let reply = String::from_utf8(server.execute(&["PTTL", KEY])).unwrap();
        reply.trim_start_matches(':').trim().parse::<i64>().unwrap()
    };
    eventually("it announces", left, |&left| left > 0).await;
    let start = Instant::now();
    while start.elapsed() < 5 * lease {
        assert!(left() >= 1_900, "{} ms are left", left());
        sleep(10 * MS).await;
    }
    running.end().await;
    locks.shutdown().await.unwrap();
}

#[tokio::test]
async fn without_the_right_to_announce_a_leader_leads_and_says_so_once() {
    let scene = Scene::start();
    let url = scene.user("~a ~redisson_lock_token:* ~lockkeeper_client:* &* +@all");
    let events = Events::default();
    let collecting = events.collect();
    let locks = connect(url, patient()).await;
    let mut running = run(candidate(&locks, b"here"));
    running.begins().await;
    events.tell("a leader cannot announce itself").await;
    let mut watch = LeaderWatch::new(&locks, "a");
    let found = leader(&mut watch, |_| true).await;
    assert_eq!((found.holder.client, found.announcement), (Some(locks.id()), None));
    running.end().await;
    nobody(&mut watch).await;
    drop(collecting);
    assert_eq!(events.text().matches("a leader cannot announce itself").count(), 1);
    drop((watch, locks));
    forget_counter(&scene);
    scene.end(()).await;
}

/// A watch that ends unsubscribes, and one beside it goes on.
#[tokio::test]
async fn the_last_watch_of_a_client_ends_the_subscription() {
    let (scene, locks, beside) = Scene::with_two_clients().await;
    let (mut one, mut other) = (LeaderWatch::new(&beside, "a"), LeaderWatch::new(&beside, "a"));
    nobody(&mut one).await;
    nobody(&mut other).await;
    listens(&scene.server).await;
    drop(one);
    let mut running = run(candidate(&locks, b"here"));
    running.begins().await;
    let start = Instant::now();
    leader(&mut other, |leader| announces(leader, b"here")).await;
    assert!(start.elapsed() < 5 * SECOND, "{:?}", start.elapsed());
    drop(other);
    eventually("nobody listens", || scene.server.channels(), Vec::is_empty).await;
    running.end().await;
    drop((locks, beside));
    forget_counter(&scene);
    scene.end(()).await;
}

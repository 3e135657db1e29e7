//! Followers learn who leads.

use lockkeeper::Error;
use lockkeeper::leader::{Candidate, Leader, LeaderWatch};
use tokio::time::{Instant, timeout};

use super::{forget_counter, run};
use crate::support::{Faults, LIMIT, MS, SECOND, Scene, connect, patient, poll_until, soon};

async fn change(watch: &mut LeaderWatch) -> Option<Leader> {
    soon(watch.changed()).await.unwrap()
}

#[tokio::test]
async fn followers_learn_who_leads() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let mut watch = LeaderWatch::new(&beside, "a");
    assert_eq!(change(&mut watch).await, None);
    let mut running = run(Candidate::new(&locks, "a"));
    running.begins().await;
    let leader = change(&mut watch).await.unwrap();
    assert_eq!((leader.holder.client(), leader.announcement), (Some(locks.id()), None));
    running.end().await;
    assert_eq!(change(&mut watch).await, None);
    // Nothing changes: the call waits, and asks seldom.
    let calls = scene.server.calls("evalsha");
    let mut waiting = Box::pin(watch.changed());
    let start = Instant::now();
    poll_until(&mut waiting, || start.elapsed() > SECOND).await;
    let (asked, took) = (scene.server.calls("evalsha") - calls, start.elapsed());
    assert!(u128::from(asked) <= 1 + took.as_millis() / 800, "it asked {asked} times in {took:?}");
    drop(waiting);
    drop((watch, locks, beside));
    forget_counter(&scene);
    scene.end().await;
}

/// The server is slower than the loop that asks.
#[tokio::test]
async fn a_watch_whose_calls_are_dropped_still_learns_who_leads() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let (locks, beside) = (scene.client().await, connect(proxy.url(), patient()).await);
    let guard = locks.fenced_lock("a").lock().await.unwrap();
    let mut watch = LeaderWatch::new(&beside, "a");
    proxy.set(Faults { delay: 20 * MS, ..Faults::default() });
    let start = Instant::now();
    let leader = loop {
        if let Ok(leader) = timeout(5 * MS, watch.changed()).await {
            break leader.unwrap();
        }
        assert!(start.elapsed() < LIMIT, "it learns nothing");
    };
    assert_eq!(leader.map(|leader| leader.holder.owner), Some(guard.owner_id()));
    guard.unlock().await.unwrap();
    drop((watch, locks, beside, proxy));
    forget_counter(&scene);
    scene.end().await;
}

#[tokio::test]
async fn a_shutdown_ends_a_watch() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut watch = LeaderWatch::new(&locks, "a");
    assert_eq!(change(&mut watch).await, None);
    let waiting = tokio::spawn(async move { watch.changed().await });
    locks.shutdown().await.unwrap();
    let result = soon(waiting).await.unwrap();
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    drop(locks);
    scene.end().await;
}

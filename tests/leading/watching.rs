//! Followers learn who leads.

use lockkeeper::Error;
use lockkeeper::leader::{Candidate, Leader, LeaderWatch};
use tokio::runtime::Builder;

use super::{forget_counter, run};
use crate::support::{SECOND, Scene, connect, eventually, listens, patient, soon, timed};

async fn change(watch: &mut LeaderWatch) -> Option<Leader> {
    soon(watch.changed()).await.unwrap()
}

/// A list of all connections is long, and a fleet has many who watch. They learn the leader's identity from what it announces.
#[tokio::test]
async fn twenty_watches_ask_for_no_list_of_connections() {
    let scene = Scene::start();
    let (first, next) = (scene.client_with(patient().identity("first")).await, scene.client().await);
    let beside = scene.client().await;
    let mut leading = run(Candidate::new(&first, "a"));
    leading.begins().await;
    let mut watches: Vec<_> = (0..20).map(|_| LeaderWatch::new(&beside, "a")).collect();
    for watch in &mut watches {
        let leader = change(watch).await.unwrap();
        assert_eq!(leader.holder.identity.as_deref(), Some("first"));
    }
    let watching = watches.into_iter().map(|mut watch| {
        tokio::spawn(async move {
            let next = watch.changed().await.unwrap().unwrap();
            (watch, next)
        })
    });
    let watching: Vec<_> = watching.collect();
    // A message makes each of them ask, and nothing has changed.
    for _ in 0..3 {
        let before = scene.server.calls("hscan");
        let _: u64 = scene.server.run(&["PUBLISH", "lockkeeper_announcement:{a}", ""]);
        eventually("all ask", || scene.server.calls("hscan"), |&asked| asked >= before + 20).await;
    }
    // Another candidate leads.
    let mut following = run(Candidate::new(&next, "a"));
    listens(&scene.server).await;
    assert!(next.rlock("a").force_unlock().await.unwrap());
    following.begins().await;
    for watch in watching {
        let (watch, leader) = soon(watch).await.unwrap();
        assert!(leader.holder.client == Some(next.id()) && leader.holder.identity.is_some(), "{leader:?}");
        drop(watch);
    }
    assert_eq!(scene.server.calls("client|list"), 0);
    leading.end().await;
    following.end().await;
    drop((first, next, beside));
    forget_counter(&scene);
    scene.end(()).await;
}

/// Without the announcement of a candidate, the list tells who holds the lock, and is asked for once.
#[tokio::test]
async fn a_leader_that_announces_nothing_is_looked_up_once() {
    let (scene, locks) = Scene::with_client_of(patient().identity("silent")).await;
    let guard = locks.fenced_lock("a").lock().await.unwrap();
    let mut watch = LeaderWatch::new(&locks, "a");
    let leader = change(&mut watch).await.unwrap();
    assert_eq!((leader.holder.owner, leader.announcement), (guard.owner_id(), None));
    assert_eq!(leader.holder.identity.as_deref(), Some("silent"));
    let watching = tokio::spawn(async move { watch.changed().await });
    for _ in 0..3 {
        let before = scene.server.calls("hscan");
        let _: u64 = scene.server.run(&["PUBLISH", "lockkeeper_announcement:{a}", ""]);
        eventually("it asks", || scene.server.calls("hscan"), |&asked| asked > before).await;
    }
    guard.unlock().await.unwrap();
    let _: u64 = scene.server.run(&["PUBLISH", "lockkeeper_announcement:{a}", ""]);
    assert_eq!(soon(watching).await.unwrap().unwrap(), None);
    assert_eq!(scene.server.calls("client|list"), 1);
    drop(locks);
    forget_counter(&scene);
    scene.end(()).await;
}

/// The watch is on one runtime, and that of its client ends.
#[tokio::test]
async fn a_watch_learns_at_once_that_the_runtime_of_its_client_ended() {
    let scene = Scene::start();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let url = scene.server.url();
    let locks = runtime.spawn(async move { connect(url, patient()).await }).await.unwrap();
    let mut watch = LeaderWatch::new(&locks, "a");
    assert_eq!(change(&mut watch).await, None);
    let waiting = tokio::spawn(async move { watch.changed().await });
    listens(&scene.server).await;
    runtime.shutdown_background();
    let (result, took) = timed(waiting).await;
    let result = result.unwrap();
    assert!(matches!(result, Err(Error::RuntimeGone)) && took < 5 * SECOND, "{result:?} after {took:?}");
    scene.end(locks).await;
}

/// A watch can outlive its client.
#[tokio::test]
async fn a_watch_listens_no_longer_after_a_shutdown() {
    let (scene, locks) = Scene::with_client().await;
    let (mut watch, mut unused) = (LeaderWatch::new(&locks, "a"), LeaderWatch::new(&locks, "b"));
    assert_eq!(change(&mut watch).await, None);
    listens(&scene.server).await;
    let (ended, closed) = tokio::join!(soon(watch.changed()), locks.shutdown());
    assert!(matches!(ended, Err(Error::Closed)) && closed.is_ok(), "{ended:?}");
    eventually("no subscription is left", || scene.server.channels(), Vec::is_empty).await;
    for watch in [&mut watch, &mut unused] {
        assert!(matches!(soon(watch.changed()).await, Err(Error::Closed)));
    }
    assert!(scene.server.channels().is_empty());
    scene.end((watch, unused, locks)).await;
}

//! Names with a prefix, and names with special characters.

use lockkeeper::LockConfig;
use tokio::time::timeout;

use crate::roles::{HAND_OFF, hand_over};
use crate::support::fixture::{Fixture, Subject};
use crate::support::{Scene, eventually, soon};
use crate::{Java, Row, Stage, actor, rival, waiting};

/// Guarantee 13. A `NameMapper` that adds a prefix, and `name_prefix`.
pub async fn a_name_mapper_is_a_name_prefix<R: Row>() {
    let scene = Scene::start();
    let java = Java::with(&scene, &["prefix=app:"]).await;
    // Before 3.20.1 the name of a read-write lock was mapped twice (redisson/redisson#4925).
    if R::Rust::IS_READ_WRITE && !java.is_at_least(3, 21) {
        java.end(&scene).await;
        return scene.end(()).await;
    }
    let locks = scene.client_with(LockConfig::builder().name_prefix("app:")).await;
    let guard = R::Rust::lock(&locks, "a").lock().await.unwrap();
    let keys: Vec<String> = scene.server.run(&["KEYS", "*"]);
    assert!(keys.contains(&"app:a".to_owned()) && keys.iter().all(|key| key.contains("app:a")), "{keys:?}");
    hand_over(&scene.server, guard, &rival::<R>(&java, "waiter"), "a").await;

    let holder = actor::<R>(&java, "holder");
    holder.lock("a").await.unwrap();
    assert!(R::Rust::rival(&locks, "a").try_lock().await.unwrap().is_none());
    holder.unlock("a").await.unwrap();
    java.end(&scene).await;
    scene.end(locks).await;
}

/// Guarantee 13.
pub async fn names_with_braces_mean_the_same_lock<R: Row>() {
    let stage = Stage::start().await;
    for name in ["{grp}:a", "a}b", "a{b", "ü:ß", "锁"] {
        let guard = R::Rust::lock(&stage.locks, name).lock().await.unwrap();
        hand_over(&stage.scene.server, guard, &rival::<R>(&stage.java, "waiter"), name).await;

        let holder = actor::<R>(&stage.java, "holder");
        holder.lock(name).await.unwrap();
        let mut waiter = R::Rust::rival(&stage.locks, name);
        let woken =
            waiting::<R, _>(&stage.scene.server, async move { waiter.lock().await.unwrap().unlock().await })
                .await;
        holder.unlock(name).await.unwrap();
        timeout(HAND_OFF, woken).await.expect("a message wakes the waiter").unwrap().unwrap();
        eventually("no subscription is left", || stage.scene.server.channels(), Vec::is_empty).await;
    }
    stage.end().await;
}

/// Guarantee 13. Redisson encodes values, but not the owners and counts of locks.
pub async fn the_codec_does_not_matter<R: Row>() {
    let (scene, locks) = Scene::with_client().await;
    let (kryo, text) = (Java::start(&scene).await, Java::with(&scene, &["text"]).await);
    for java in [&kryo, &text] {
        let holder = actor::<R>(java, "holder");
        holder.lock("a").await.unwrap();
        assert_eq!(locks.inspect("a").await.unwrap().expect("the lock is held").holders[0].holds, 1);
        assert!(R::Rust::rival(&locks, "a").try_lock().await.unwrap().is_none());
        holder.unlock("a").await.unwrap();
        soon(R::Rust::rival(&locks, "a").lock()).await.unwrap().unlock().await.unwrap();
    }
    kryo.end(&scene).await;
    text.end(&scene).await;
    scene.end(locks).await;
}

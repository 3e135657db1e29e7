//! Tokens of fenced locks: both languages count with one key.

use lockkeeper::LockClient;

use crate::Stage;
use crate::java::Actor;
use crate::support::{Scene, soon};

const COUNTER: &str = "redisson_lock_token:{a}";
async fn by_java(actor: &Actor) -> u64 {
    let token = actor.lock_token("a").await.unwrap();
    actor.unlock("a").await.unwrap();
    token
}

async fn by_rust(locks: &LockClient) -> u64 {
    let guard = soon(locks.fenced_lock("a").lock()).await.unwrap();
    let token = guard.token().get();
    guard.unlock().await.unwrap();
    token
}

/// The server's clock in microseconds.
fn now(scene: &Scene) -> u64 {
    let (seconds, micros): (u64, u64) = scene.server.run(&["TIME"]);
    seconds * 1_000_000 + micros
}

/// The last token. Checks that the counter never expires.
fn counted(scene: &Scene) -> u64 {
    assert_eq!(scene.server.run::<i64>(&["TTL", COUNTER]), -1);
    scene.server.run(&["GET", COUNTER])
}

fn grows(tokens: &[u64]) -> bool {
    tokens.windows(2).all(|pair| pair[0] < pair[1])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_counts_from_the_server_clock_and_java_continues() {
    let stage = Stage::start().await;
    let java = stage.java.actor("one", "fenced");
    for token in 1..=3 {
        assert_eq!(by_java(&java).await, token);
    }
    let before = now(&stage.scene);
    let first = by_rust(&stage.locks).await;
    assert!((before..=now(&stage.scene)).contains(&first), "{before} {first}");
    assert_eq!([by_java(&java).await, by_java(&java).await], [first + 1, first + 2]);
    let next = by_rust(&stage.locks).await;
    assert!(next > first + 2 && next <= now(&stage.scene));
    assert_eq!(counted(&stage.scene), next);
    // A multi lock of Java with a lease does this.
    assert_eq!(stage.scene.server.run::<i64>(&["EXPIRE", COUNTER, "60"]), 1);
    let next = by_rust(&stage.locks).await;
    assert_eq!(counted(&stage.scene), next);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_grows_on_re_entry_in_java_and_not_in_rust() {
    let stage = Stage::start().await;
    let java = stage.java.actor("one", "fenced");
    for _ in 0..2 {
        let outer = java.lock_token("a").await.unwrap();
        let inner = java.lock_token("a").await.unwrap();
        assert_eq!(inner, outer + 1);
        java.lock("a").await.unwrap(); // counts also when the token is not asked for
        let last = outer + 2;
        assert_eq!(counted(&stage.scene), last);
        for _ in 0..3 {
            java.unlock("a").await.unwrap();
        }

        let mut lock = stage.locks.fenced_lock("a");
        let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
        let token = outer.token().get();
        assert!(token > last && inner.token().get() == token);
        assert!(!java.try_lock("a").await.unwrap());
        assert_eq!(counted(&stage.scene), token, "a refused acquire does not count");
        inner.unlock().await.unwrap();
        outer.unlock().await.unwrap();
        assert_eq!(by_java(&java).await, token + 1);
        assert!(by_rust(&stage.locks).await > token + 1);
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_counter_is_lost_rust_does_not_repeat_and_java_begins_at_one() {
    let stage = Stage::start().await;
    let java = stage.java.actor("one", "fenced");
    let mut last = by_java(&java).await.max(by_rust(&stage.locks).await);
    for loss in ["DEL", "FLUSHALL"] {
        let lose = || match loss {
            "DEL" => assert_eq!(stage.scene.server.run::<i64>(&["DEL", COUNTER]), 1),
            _ => stage.scene.server.run(&[loss]),
        };
        lose();
        let tokens = [by_rust(&stage.locks).await, by_java(&java).await, by_rust(&stage.locks).await];
        assert!(tokens[0] > last && tokens[1] == tokens[0] + 1 && grows(&tokens), "{last} {tokens:?}");
        last = tokens[2];

        lose();
        assert_eq!(by_java(&java).await, 1, "Java starts at 1 when the server lost the counter");
        let next = by_rust(&stage.locks).await;
        assert!(next > last, "{last} {next}");
        assert_eq!(by_java(&java).await, next + 1);
        last = next + 1;
    }
    stage.end().await;
}

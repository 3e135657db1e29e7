//! What a fenced lock guarantees beyond every other lock: a token that grows with each new holder, and only then.

use std::future::pending;

use crate::support::{MS, Scene, eventually, fixed, patient, soon};
use lockkeeper::{Error, LockClient};
use tokio::time::{Instant, sleep};

const COUNTER: &str = "redisson_lock_token:{a}";

/// Acquires, releases, and returns the token of the hold.
async fn token(locks: &LockClient) -> u64 {
    let guard = soon(locks.fenced_lock("a").lock()).await.unwrap();
    let token = guard.token().get();
    guard.unlock().await.unwrap();
    token
}

#[tokio::test]
async fn a_work_that_runs_with_a_token_has_that_of_its_hold_and_stops_when_it_is_lost() {
    let (scene, locks) = Scene::with_client().await;
    let first = token(&locks).await;
    let mut lock = locks.fenced_lock("a");
    let second = soon(lock.run_with_token(async |token| token.get())).await.unwrap();
    assert!(second > first && token(&locks).await > second);
    let mut leased = locks.fenced_lock("a").with(&fixed(300 * MS));
    let lost = soon(leased.run_with_token(|_| pending::<()>())).await;
    assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
    scene.end((lock, leased, locks)).await;
}

/// Guarantee 16. Tokens follow the server's clock. Sampled for a whole second: `TIME` returns microseconds without
/// leading zeros.
#[tokio::test]
async fn a_token_is_not_behind_the_servers_clock() {
    let (scene, locks) = Scene::with_client().await;
    let start = Instant::now();
    while start.elapsed() < 1_100 * MS {
        let [seconds, micros] = scene.server.run::<[u64; 2]>(&["TIME"]);
        let (now, token) = (seconds * 1_000_000 + micros, token(&locks).await);
        assert!((now..now + 60_000_000).contains(&token), "{token} at {now}");
        sleep(20 * MS).await;
    }
    scene.end(locks).await;
}

/// Both exclude each other, but what one is granted has no token for the other.
#[tokio::test]
async fn a_call_that_waits_behind_an_rlock_of_its_client_gets_a_token() {
    let scene = Scene::start();
    let (other, locks) = (scene.client().await, scene.client_with(patient()).await);
    let guard = soon(other.rlock("a").lock()).await.unwrap();
    let mut rlock = locks.rlock("a");
    let first = tokio::spawn(async move { rlock.lock().await.unwrap().unlock().await.unwrap() });
    eventually("it waits", || scene.server.channels().len(), |channels| *channels == 1).await;
    let mut fenced = locks.fenced_lock("a");
    let waiting = async { fenced.lock().await.unwrap().token().get() };
    let holder = async {
        eventually("both were refused", || scene.server.calls("pttl"), |calls| *calls >= 3).await;
        guard.unlock().await.unwrap();
        first.await.unwrap();
    };
    let (token, ()) = soon(async { tokio::join!(waiting, holder) }).await;
    assert!(token > 0);
    scene.end((fenced, locks, other)).await;
}

/// Without a token, no lock is granted.
#[tokio::test]
async fn a_counter_that_cannot_count_grants_nothing() {
    let (scene, locks) = Scene::with_client().await;
    let full = i64::MAX.to_string();
    let broken: [&[&str]; 3] =
        [&["SET", COUNTER, "a word"], &["SET", COUNTER, &full], &["RPUSH", COUNTER, "1"]];
    for broken in broken {
        scene.server.run::<()>(&["DEL", COUNTER]);
        scene.server.run::<()>(broken);
        let value = if broken[0] == "SET" { ["GET", COUNTER] } else { ["LLEN", COUNTER] };
        let before = scene.server.run::<String>(&value);
        for _ in 0..2 {
            let error = soon(locks.fenced_lock("a").try_lock()).await.unwrap_err();
            assert!(
                matches!(&error, Error::WrongKind { lock, .. } if lock.key == COUNTER && lock.name == "a"),
                "{broken:?}: {error:?}"
            );
        }
        assert_eq!(scene.server.keys(), [""; 0], "{broken:?}");
        assert_eq!(scene.server.run::<String>(&value), before, "{broken:?}");
    }
    scene.server.run::<()>(&["DEL", COUNTER]);
    token(&locks).await;
    scene.end(locks).await;
}

/// The server, or a proxy before it, answers as no server should: granted, and no token.
#[tokio::test]
async fn a_grant_without_a_token_is_an_error() {
    let (scene, proxy, locks) = Scene::behind_proxy(patient()).await;
    scene.server.run::<()>(&["SET", COUNTER, "9000000000000000"]);
    proxy.doctor("$16\r\n9000000000000001\r\n", "$-1\r\n");
    let error = soon(locks.fenced_lock("a").try_lock()).await.unwrap_err();
    assert!(matches!(&error, Error::Server(_)) && error.outcome_unknown(), "{error:?}");
    assert!(error.to_string().contains("unexpected reply"), "{error}");
    eventually("the hold is released", || scene.server.keys(), Vec::is_empty).await;
    let guard = locks.fenced_lock("a").lock().await.unwrap();
    assert_eq!(guard.token().get(), 9_000_000_000_000_002);
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    scene.end((locks, proxy)).await;
}

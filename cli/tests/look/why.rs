//! `lockkeeper why`.

use std::sync::Arc;

use lockkeeper::{LockClient, LockConfig};
use lockkeeper_testkit::Server;
use tokio::sync::Barrier;

use super::support::{at, json, run, shown, wait_until, waiter};

async fn client(server: &Server, identity: &str) -> LockClient {
    let config = LockConfig::builder().identity(identity).build().expect("settings");
    LockClient::connect_with(server.url(), config).await.expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_is_shown_with_both_sides() {
    let server = Server::start();
    assert_eq!(shown(&mut at(&server.url(), &["why", "a"])), "a: free\n");
    let nothing = "no holder waits for another lock (nothing waits)\n";
    assert_eq!(shown(&mut at(&server.url(), &["why"])), nothing);
    assert_eq!(shown(&mut at(&server.url(), &["why", "--json"])), "[]\n");
    let has_one = Arc::new(Barrier::new(2));
    let both = |locks: LockClient, first: &'static str, second: &'static str| {
        let has_one = Arc::clone(&has_one);
        tokio::spawn(async move {
            let mut me = locks.owner();
            let _outer = me.rlock(first).lock().await.expect("the lock");
            has_one.wait().await;
            let _ = me.rlock(second).lock().await;
        })
    };
    let tasks = [both(client(&server, "one").await, "a", "b"), both(client(&server, "two").await, "b", "a")];
    let chains = || json(&shown(&mut at(&server.url(), &["why", "--json"])));
    wait_until("the deadlock is known", || chains()[0]["is_deadlock"] == true);
    let all = chains();
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    assert_eq!(all[0]["links"].as_array().map(Vec::len), Some(2), "{all}");
    let text = shown(&mut at(&server.url(), &["why", "a"]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("a: held by one (") && lines[0].contains("which has waited for b for "),
        "{text}"
    );
    assert!(
        lines[1].starts_with("b: held by two (") && lines[1].contains("which has waited for a for "),
        "{text}"
    );
    assert!(lines[..2].iter().all(|line| line.contains(", at ") && line.contains("why.rs:")), "{text}");
    assert!(all[0]["links"][0]["waits_for"]["at"].as_str().is_some_and(|at| at.contains("why.rs:")), "{all}");
    assert_eq!(lines[2..], ["a deadlock: these owners wait for each other"], "{text}");
    tasks.iter().for_each(|task| task.abort());
}

/// With two handles, nobody knows whether the holder of one lock is the waiter for the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_perhaps_waits_is_shown_with_the_waits_of_its_client() {
    let server = Server::start();
    let (one, two) = (client(&server, "one").await, client(&server, "two").await);
    let held =
        [one.rlock("a").lock().await.expect("the lock"), two.rlock("b").lock().await.expect("the lock")];
    let waiting = waiter(one.rlock("b"));
    let explained = || json(&shown(&mut at(&server.url(), &["why", "a", "--json"])));
    wait_until("the wait is recorded", || explained()[0]["links"][0]["client_waits"][0]["lock"] == "b");
    let all = explained();
    assert_eq!((&all[0]["is_deadlock"], all[0]["links"].as_array().map(Vec::len)), (&false.into(), Some(1)));
    let text = shown(&mut at(&server.url(), &["why", "a"]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 1 && lines[0].starts_with("a: held by one ("), "{text}");
    let hint = "; perhaps it waits: a call of its client has waited for b for ";
    assert!(lines[0].contains(hint) && lines[0].contains(" s, at ") && lines[0].contains(".rs:"), "{text}");
    let text = shown(&mut at(&server.url(), &["why", "b"]));
    assert_eq!(text.lines().count(), 1, "the other client waits for nothing: {text}");
    drop(held);
    drop(waiting.await.expect("a waiter"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_without_a_chain_are_counted_by_lock() {
    let server = Server::start();
    let (holding, other) = (client(&server, "one").await, client(&server, "two").await);
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for (name, says) in [
        ("a", "calls wait for 1 lock: see `lockkeeper ls`"),
        ("b", "calls wait for 2 locks: see `lockkeeper ls`"),
    ] {
        held.push(holding.fair_lock(name).lock().await.expect("the lock"));
        waiting.push(waiter(other.fair_lock(name)));
        let says = format!("no holder waits for another lock ({says})\n");
        wait_until("the wait is seen", || shown(&mut at(&server.url(), &["why"])) == says);
    }
    drop(held);
    for waiter in waiting {
        drop(waiter.await.expect("a waiter"));
    }
}

#[test]
fn other_data_is_no_free_lock() {
    let server = Server::start();
    let _: u64 = server.run(&["HSET", "hash", "title", "1"]);
    let _: () = server.run(&["SET", "text", "text"]);
    for name in ["hash", "text"] {
        let [why, show] = ["why", "show"].map(|command| run(&mut at(&server.url(), &[command, name])));
        assert_eq!((why.code, &*why.printed), (Some(64), ""), "{why:?}");
        assert_eq!((why.said, why.code), (show.said, show.code));
    }
}

//! How connections are named, what lists say about the client of a holder, and since when it holds a lock.

use std::time::{Duration, Instant};

use crate::support::events::Events;
use crate::support::options::fixed;
use crate::support::{LIMIT, MS, SECOND, Scene, connect, eventually, listens, patient, soon, waiter};
use lockkeeper::{Holder, LockClient, LockConfig, LockInfo, Source};
use lockkeeper_testkit::{Cluster, Commands};

/// Whether the client of the only holder of a lock is connected, and its identity. `list` and `inspect` agree about it.
async fn client(locks: &LockClient, name: &str) -> (Option<bool>, Option<String>) {
    let inspected = soon(locks.inspect(name)).await.unwrap().expect("it is held");
    let listed = soon(locks.list(name)).await.unwrap();
    let seen = |lock: &LockInfo| (lock.holders[0].is_connected, lock.holders[0].identity.clone());
    assert_eq!(seen(&listed.locks[0]), seen(&inspected));
    assert_eq!(inspected.holders.len(), 1);
    seen(&inspected)
}

const NOT_CONNECTED: (Option<bool>, Option<String>) = (Some(false), None);
const UNKNOWN: (Option<bool>, Option<String>) = (None, None);

fn connected(identity: &str) -> (Option<bool>, Option<String>) {
    (Some(true), Some(identity.to_owned()))
}

/// The lines of the connections with this name.
fn named(server: &Commands, name: &str) -> Vec<String> {
    let list: String = server.run(&["CLIENT", "LIST"]);
    list.lines().filter(|line| line.contains(&format!(" name={name} "))).map(str::to_owned).collect()
}

/// Acquires a lock in a process that ends without a release.
fn abandon(source: Source, config: LockConfig, name: &str) {
    end_without_release(source, config, async |locks| locks.rlock(name).lock().await.unwrap());
}

fn end_without_release<T>(
    source: Source,
    config: LockConfig,
    acquire: impl AsyncFnOnce(LockClient) -> T + Send,
) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let locks = runtime.block_on(LockClient::connect_with(source, config)).unwrap();
            std::mem::forget(runtime.block_on(acquire(locks)));
            runtime.shutdown_timeout(LIMIT);
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_are_connected_or_not_connected_or_unknown() {
    let scene = Scene::start();
    let looking = scene.client().await;
    let billing = scene.client_with(patient().identity("billing-7")).await;
    let guard = billing.rlock("billing").lock().await.unwrap();
    let own = looking.rlock("own").lock().await.unwrap();
    let _: u64 = scene.server.run(&["HSET", "java", "8743c9c0-0795-4907-87fd-6c719a6b4586:77", "1"]);
    let _: u64 = scene.server.run(&["PEXPIRE", "java", "30000"]);
    abandon(scene.server.url().into(), patient().build().unwrap(), "abandoned");

    assert_eq!(client(&looking, "billing").await, connected("billing-7"));
    assert_eq!(client(&looking, "java").await, UNKNOWN);
    let (found, process) = (client(&looking, "own").await, format!(":{}", std::process::id()));
    assert!(found.1.as_ref().is_some_and(|own| own.contains('@') && own.ends_with(&process)), "{found:?}");
    let start = Instant::now();
    while client(&looking, "abandoned").await != NOT_CONNECTED {
        assert!(start.elapsed() < LIMIT, "the server notices that the connections ended");
    }

    let before = scene.server.calls("client|list");
    assert!(
        looking.list("*").await.unwrap().locks.len() == 4
            && looking.list("none").await.unwrap().locks.is_empty()
    );
    assert_eq!(looking.inspect("none").await.unwrap(), None);
    assert_eq!(scene.server.calls("client|list"), before + 1, "once a call, and only if there are holders");

    guard.unlock().await.unwrap();
    own.unlock().await.unwrap();
    let _: u64 = scene.server.run(&["DEL", "java", "abandoned"]);
    scene.end((looking, billing)).await;
}

#[tokio::test]
async fn a_client_that_may_not_say_its_name_says_so_once_and_is_unknown() {
    let scene = Scene::start();
    let url = scene.user("~* &* +@all -client|setname -client|list");
    let events = Events::default();
    let collecting = events.collect();
    let (nameless, named) = (connect(url, patient()).await, scene.client().await);
    let mut guards = Vec::new();
    for name in 0..10 {
        guards.push(nameless.rlock(name.to_string()).lock().await.unwrap()); // over several connections
    }
    let said = "the server refuses to name the connections of this client";
    assert_eq!(events.text().matches(said).count(), 1, "{}", events.text());
    drop(collecting);
    assert_eq!(client(&named, "1").await, UNKNOWN, "it has connections without a name");
    guards.push(named.rlock("other").lock().await.unwrap());
    assert_eq!(client(&nameless, "other").await, UNKNOWN, "it may not ask");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    scene.end((nameless, named)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_looked_for_at_all_masters_of_a_cluster() {
    let group = Cluster::start(3, 0);
    let config = || patient().identity("billing-7").build().unwrap();
    let source = || Source::cluster(group.urls());
    let (ours, theirs) = (
        LockClient::connect_with(source(), config()).await.unwrap(),
        LockClient::connect_with(source(), config()).await.unwrap(),
    );
    let [here, there] = [0, 1].map(|index| group.name_on(index, "lock"));
    let guard = ours.rlock(&here).lock().await.unwrap();
    let waiting = waiter(theirs.rlock(&here));
    listens(&group.servers[0]).await;
    for id in [ours.id(), theirs.id()] {
        let connections = named(&group.servers[0], &format!("lockkeeper:{id}:billing-7"));
        let expected = if id == theirs.id() { "cmd=ssubscribe" } else { "cmd=evalsha" };
        assert!(connections.iter().any(|line| line.contains(expected)), "{connections:?}");
    }
    assert_eq!(client(&theirs, &here).await, connected("billing-7"));
    abandon(source(), config(), &there);
    let start = Instant::now();
    while client(&ours, &there).await != NOT_CONNECTED {
        assert!(start.elapsed() < LIMIT, "the servers notice that the connections ended");
    }
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
}

/// The holders of a lock.
async fn holders(locks: &LockClient, name: &str) -> Vec<Holder> {
    soon(locks.inspect(name)).await.unwrap().expect("it is held").holders
}

/// Waits until the only holder of a lock is recorded.
async fn recorded(locks: &LockClient, name: &str) -> Duration {
    let start = Instant::now();
    loop {
        if let Some(age) = holders(locks, name).await[0].held_for {
            return age;
        }
        assert!(start.elapsed() < LIMIT, "{name} is not recorded");
        tokio::time::sleep(5 * MS).await;
    }
}

#[tokio::test]
async fn a_hold_is_told_after_a_second_until_it_ends() {
    let (scene, locks, looking) = Scene::with_two_clients().await;
    let key = format!("lockkeeper_client:{}", locks.id());
    let told = || {
        scene.server.run::<Option<String>>(&["GET", &key]).map_or(0, |told| told.matches("\"kind\"").count())
    };
    let fixed = locks.rlock("fixed").with(&fixed(60 * SECOND)).lock().await.unwrap();
    for _ in 0..100 {
        locks.rlock("short").lock().await.unwrap().unlock().await.unwrap();
    }
    let before = Instant::now();
    let guard = locks.rlock("a b").lock().await.unwrap();
    let after = Instant::now();
    let age = recorded(&looking, "a b").await;
    assert!(age >= SECOND && age <= before.elapsed() + 10 * MS, "{age:?}");
    tokio::time::sleep(SECOND).await;
    let elapsed = after.elapsed();
    assert!(holders(&looking, "a b").await[0].held_for.unwrap() >= elapsed - 200 * MS);
    assert!(scene.server.calls("set") <= 2);

    let mut both = locks.read_write_lock("both");
    let writing = both.write().lock().await.unwrap();
    let reading = both.read().lock().await.unwrap();
    eventually("each side is told", told, |&told| told == 4).await;
    assert!(holders(&looking, "both").await.iter().all(|holder| holder.held_for.is_some()));
    assert!(holders(&looking, "fixed").await[0].held_for.is_some());

    guard.unlock().await.unwrap();
    reading.unlock().await.unwrap();
    eventually("what was released is no longer told", told, |&told| told == 2).await;
    let _: u64 = scene.server.run(&["DEL", "both"]);
    soon(writing.ended()).await.unwrap_err();
    eventually("what was lost is no longer told", told, |&told| told == 1).await;
    drop((writing, both));
    let leaked = locks.rlock("leaked").lock().await.unwrap();
    recorded(&looking, "leaked").await;
    leaked.leak();
    eventually("what was leaked is no longer told", told, |&told| told == 1).await;
    let _: u64 = scene.server.run(&["DEL", "leaked"]);
    fixed.unlock().await.unwrap();
    scene.end((locks, looking)).await;
}

#[tokio::test]
async fn without_the_right_to_record_one_event_says_so_and_locks_are_renewed() {
    let scene = Scene::start();
    let url = scene.user("%RW~lock:* &* +@all");
    let events = Events::default();
    let _collecting = events.collect();
    let locks = connect(url, patient().watchdog_lease(SECOND).name_prefix("lock:")).await;
    let guards = [locks.rlock("a").lock().await.unwrap(), locks.rlock("b").lock().await.unwrap()];
    let said = "the server refuses a record of this client";
    events.tell(said).await;
    for _ in 0..3 {
        scene.raised("lock:a").await;
    }
    assert_eq!(events.text().matches(said).count(), 1, "{}", events.text());
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert_eq!(holders(&locks, "a").await[0].held_for, None);
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    scene.end(locks).await;
}

#[tokio::test]
async fn a_call_that_has_waited_for_a_lease_says_who_holds_the_lock() {
    let scene = Scene::start();
    let config = || patient().watchdog_lease(2 * SECOND);
    let holding = scene.client_with(config().identity("billing-7")).await;
    let (first, second) = (scene.client().await, scene.client_with(config()).await);
    let guard = holding.fair_lock("a").lock().await.unwrap();
    let events = Events::default();
    let _collecting = events.collect();
    let queued = || scene.server.run::<usize>(&["LLEN", "redisson_lock_queue:{a}"]);
    let mut waiting = vec![waiter(first.fair_lock("a"))];
    eventually("it waits", queued, |&len| len == 1).await;
    waiting.push(waiter(second.fair_lock("a")));
    events.tell("a call has waited for a lease").await;
    let text = events.text();
    let line = text.lines().find(|line| line.contains("a call has waited")).unwrap();
    assert!(line.contains(" WARN ") && line.contains(r#"place="2""#), "{line}");
    let holder = format!("holder=\"billing-7 ({})\"", guard.owner_id());
    assert!(line.contains(&holder), "{line}");
    let owner = guard.owner_id();
    let held_for = |age: &str| line.contains(&format!("held_for=\"{age}\""));
    assert!(["2s", "3s", "4s"].into_iter().any(held_for), "{line}");
    guard.unlock().await.unwrap();
    for waiting in waiting {
        soon(waiting).await.unwrap().unlock().await.unwrap();
    }
    let seen = || second.recent_waits().into_iter().flat_map(|wait| wait.holders_seen).collect::<Vec<_>>();
    let holder = format!("billing-7 ({owner})");
    eventually("the holder is kept", seen, |seen| *seen == [holder.clone()]).await;
    scene.end((holding, first, second)).await;
}

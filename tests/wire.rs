//! Guarantees 13 and 14: what Redis sees, byte for byte.

use std::collections::BTreeMap;

use crate::support::{MS, SECOND, Scene, eventually, patient, soon, waiter};
use lockkeeper::LockClient;

fn hash(scene: &Scene, key: &str) -> BTreeMap<String, String> {
    scene.server.run(&["HGETALL", key])
}

/// Guarantee 13.
#[tokio::test]
async fn keys_fields_and_expiry_are_redissons() {
    let (scene, locks) = Scene::with_client().await;
    for name in ["myLock", "{grp}:a", "a b", "ключ"] {
        let mut lock = locks.rlock(name);
        let guards = [lock.lock().await.unwrap(), lock.lock().await.unwrap()];
        assert_eq!(
            scene.server.run::<Vec<String>>(&["KEYS", "*"]),
            [name],
            "the only key is the name of the lock"
        );
        let fields = hash(&scene, name);
        let (owner, count) = fields.first_key_value().expect("one owner");
        assert_eq!((fields.len(), count.as_str()), (1, "2"));
        let (client, thread) = owner.split_once(':').expect("Redisson's UUID:threadId");
        assert_eq!((client.len(), client.matches('-').count()), (36, 4), "{owner}");
        assert_eq!(client, client.to_lowercase());
        assert!(thread.parse::<i64>().is_ok_and(|thread| thread > 0), "{owner}");
        let left: u64 = scene.server.run(&["PTTL", name]);
        assert!((20_000..=30_000).contains(&left), "{left}");
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    }
    scene.end(locks).await;
}

/// Guarantee 13.
#[tokio::test]
async fn the_release_publishes_a_zero_and_nothing_else_does() {
    let (scene, locks) = Scene::with_client().await;
    let mut connection = scene.server.connect().unwrap();
    let mut hearing = connection.as_pubsub();
    hearing.psubscribe("*").unwrap();
    for (name, channel) in
        [("myLock", "redisson_lock__channel:{myLock}"), ("{grp}:a", "redisson_lock__channel:{grp}:a")]
    {
        let mut lock = locks.rlock(name);
        let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
        outer.extend(60 * SECOND).await.unwrap();
        assert!(locks.rlock(name).try_lock().await.unwrap().is_none());
        inner.unlock().await.unwrap();
        hearing.set_read_timeout(Some(300 * MS)).unwrap();
        assert!(hearing.get_message().is_err(), "nothing is published before the release");
        hearing.set_read_timeout(None).unwrap();
        outer.unlock().await.unwrap();
        let message = hearing.get_message().unwrap();
        assert_eq!((message.get_channel_name(), message.get_payload_bytes()), (channel, &b"0"[..]));
        let _held = lock.lock().await.unwrap();
        assert!(lock.force_unlock().await.unwrap());
        let message = hearing.get_message().unwrap();
        assert_eq!((message.get_channel_name(), message.get_payload_bytes()), (channel, &b"0"[..]));
    }
    drop(hearing);
    scene.end((connection, locks)).await;
}

/// Guarantee 13. A client that knows only Redisson's rules: its locks make ours wait, and ours make it wait.
#[tokio::test]
async fn a_client_that_follows_redissons_rules_interoperates() {
    const CHANNEL: &str = "redisson_lock__channel:{a}";
    let (scene, locks) = Scene::with_client().await;
    let other_owner = "11111111-2222-3333-4444-555555555555:77";

    scene.server.run::<()>(&["HINCRBY", "a", other_owner, "1"]);
    scene.server.run::<()>(&["PEXPIRE", "a", "60000"]);
    assert!(locks.rlock("a").try_lock().await.unwrap().is_none());
    assert_eq!(locks.inspect("a").await.unwrap().unwrap().holders[0].owner, other_owner);
    let waiting = waiter(locks.rlock("a"));
    eventually("the waiter subscribes", || scene.server.channels(), |channels| *channels == [CHANNEL]).await;
    scene.server.run::<()>(&["DEL", "a"]);
    scene.server.run::<()>(&["PUBLISH", CHANNEL, "0"]);
    let guard = soon(waiting).await.unwrap();

    let left: i64 = scene.server.run(&["PTTL", "a"]);
    assert!(left > 0, "the other client reads from it how long to wait");
    let mut connection = scene.server.connect().unwrap();
    let mut hearing = connection.as_pubsub();
    hearing.subscribe(CHANNEL).unwrap();
    guard.unlock().await.unwrap();
    assert_eq!(hearing.get_message().unwrap().get_payload_bytes(), b"0");
    assert_eq!(scene.server.run::<u32>(&["EXISTS", "a"]), 0);
    drop(hearing);
    scene.end((connection, locks)).await;
}

/// Guarantee 13. Redisson: testNameMapper.
#[tokio::test]
async fn a_name_prefix_is_part_of_all_names() {
    let (scene, locks) = Scene::with_client_of(patient().name_prefix("test::")).await;
    let mut lock = locks.rlock("lock");
    let guard = lock.lock().await.unwrap();
    assert_eq!((guard.name(), lock.name()), ("lock", "lock"), "the API returns the name without the prefix");
    assert_eq!(scene.server.run::<Vec<String>>(&["KEYS", "*"]), ["test::lock"]);
    assert!(locks.inspect("lock").await.unwrap().is_some());
    let waiting = waiter(locks.rlock("lock"));
    let channel = "redisson_lock__channel:{test::lock}";
    eventually("the waiter subscribes", || scene.server.channels(), |channels| *channels == [channel]).await;
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    scene.end((lock, locks)).await;
}

/// Guarantee 14. Nothing else is sent before or between.
#[tokio::test]
async fn acquire_and_release_are_one_round_trip_each() {
    const PAIRS: u64 = 50;
    let scene = Scene::start();
    // By default, connections of this pool have a response time-out of half a second.
    let connections =
        redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let manager = deadpool_redis::Manager::new_with_config(scene.server.url(), connections).unwrap();
    let pool = deadpool_redis::Pool::builder(manager).build().unwrap();
    let config = patient().watchdog_lease(3_600 * SECOND); // no renewal in between
    for locks in [
        scene.client_with(config.clone()).await,
        LockClient::connect_with(pool, config.clone().build().unwrap()).await.unwrap(),
    ] {
        let mut lock = locks.rlock("a");
        lock.lock().await.unwrap().unlock().await.unwrap();
        scene.server.run::<()>(&["CONFIG", "RESETSTAT"]);
        for _ in 0..PAIRS {
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        assert_eq!(scene.server.calls("evalsha"), 2 * PAIRS);
        let stats: String = scene.server.run(&["INFO", "commandstats"]);
        assert_eq!(scene.server.calls("time"), PAIRS, "only in the script that acquires");
        let inside = [
            "evalsha",
            "time",
            "pttl",
            "hset",
            "pexpire",
            "hdel",
            "exists",
            "publish",
            "config|resetstat",
            "info",
        ];
        let others: Vec<_> = stats
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next())
            .filter(|command| !inside.contains(command) && !command.starts_with("client"))
            .collect();
        assert!(others.is_empty(), "{others:?}");
    }
    scene.end(()).await;
}

/// Commands about one lock stay in order, whichever handle sends them.
#[tokio::test]
async fn the_name_of_a_lock_picks_its_connection() {
    let (scene, locks) = Scene::with_client().await;
    let used = || {
        let list: String = scene.server.run(&["CLIENT", "LIST", "TYPE", "NORMAL"]);
        list.lines().filter(|client| client.contains("cmd=evalsha")).count()
    };
    for _ in 0..20 {
        locks.rlock("a").lock().await.unwrap().unlock().await.unwrap();
    }
    assert_eq!(used(), 1);
    for name in 0..20 {
        locks.rlock(name.to_string()).lock().await.unwrap().unlock().await.unwrap();
    }
    assert_eq!(used(), 2);
    scene.end(locks).await;
}

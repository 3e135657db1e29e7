//! What `LockClient::list` finds, and what `LockClient::servers` tells.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::support::{SECOND, Scene, address, connect, patient, soon, waiter};
use lockkeeper::{Error, LockClient, LockConfig, LockInfo, LockKind, LockList, RemainingLease};

async fn list(locks: &LockClient, pattern: &str) -> BTreeMap<String, LockInfo> {
    let all = soon(locks.list(pattern)).await.unwrap();
    assert_eq!(all.skipped, [""; 0]);
    let listed = all.locks;
    assert!(listed.is_sorted_by_key(|lock| lock.name.clone()));
    listed.into_iter().map(|lock| (lock.name.clone(), lock)).collect()
}

#[tokio::test]
async fn locks_of_all_types_are_listed_with_their_holders_and_waiters() {
    let (scene, locks, beside) = Scene::with_two_clients().await;
    let mut reentrant = locks.rlock("reentrant");
    let (outer, inner) = (reentrant.lock().await.unwrap(), reentrant.lock().await.unwrap());
    let fair = locks.fair_lock("{shop}:fair").lock().await.unwrap();
    let fenced = locks.fenced_lock("fenced").lock().await.unwrap();
    let mut reading = locks.read_write_lock("reading").into_read();
    let (one, other) =
        (reading.lock().await.unwrap(), locks.read_write_lock("reading").read().lock().await.unwrap());
    let writing = locks.read_write_lock("writing").write().lock().await.unwrap();
    // As Java's: its threads have the number of the owner.
    let java = "8743c9c0-0795-4907-87fd-6c719a6b4586:77";
    let _: u64 = scene.server.run(&["HSET", "java", java, "3"]);
    let _: u64 = scene.server.run(&["PEXPIRE", "java", "30000"]);

    let waiting: Vec<_> = ["reentrant", "fenced"].map(|name| waiter(beside.rlock(name))).into();
    let queued = waiter(beside.fair_lock("{shop}:fair"));
    let reader = waiter(beside.read_write_lock("writing").into_read());
    let all = eventually_listed(&locks, "*", |all| {
        ["reentrant", "fenced", "writing"].iter().all(|name| all[*name].listeners == Some(1))
            && all["{shop}:fair"].queued == Some(1)
    })
    .await;

    let kinds: Vec<_> = all.values().map(|lock| (&*lock.name, lock.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("fenced", LockKind::Fenced),
            ("java", LockKind::Reentrant),
            ("reading", LockKind::Read),
            ("reentrant", LockKind::Reentrant),
            ("writing", LockKind::Write),
            ("{shop}:fair", LockKind::Fair),
        ]
    );
    for lock in all.values() {
        let owners = |info: &LockInfo| -> Vec<(String, u64)> {
            info.holders.iter().map(|holder| (holder.owner.clone(), holder.holds)).collect()
        };
        let inspected = locks.inspect(&lock.name).await.unwrap().expect("it is held");
        assert_eq!(owners(lock), owners(&inspected));
        let left = lock.remaining_lease.duration().unwrap();
        assert!(left > SECOND && left <= 30 * SECOND, "{left:?}");
    }
    let holds = |name: &str| -> Vec<u64> { all[name].holders.iter().map(|holder| holder.holds).collect() };
    assert_eq!(holds("reentrant"), [2]);
    assert_eq!(holds("java"), [3]);
    assert_eq!(all["java"].holders[0].owner, java);
    assert_eq!((all["java"].queued, all["java"].listeners), (Some(0), Some(0)));
    assert_eq!(all["{shop}:fair"].listeners, Some(0), "its waiters have channels of their own");

    for task in waiting.into_iter().chain([queued, reader]) {
        task.abort();
        let _ = task.await;
    }
    for guard in [outer, inner, fair, fenced.into_plain(), one, other, writing] {
        guard.unlock().await.unwrap();
    }
    let _: u64 = scene.server.run(&["DEL", "java", "redisson_lock_token:{fenced}"]);
    scene.end((reentrant, reading, locks, beside)).await;
}

async fn eventually_listed(
    locks: &LockClient,
    pattern: &str,
    is_right: impl Fn(&BTreeMap<String, LockInfo>) -> bool,
) -> BTreeMap<String, LockInfo> {
    let start = tokio::time::Instant::now();
    loop {
        let all = list(locks, pattern).await;
        if is_right(&all) {
            return all;
        }
        assert!(start.elapsed() < crate::support::LIMIT, "{all:#?}");
        tokio::time::sleep(10 * crate::support::MS).await;
    }
}

/// A semaphore stays on the server when no permit is in use, and counters of other programs look like one.
#[tokio::test]
async fn semaphores_are_listed_while_permits_are_in_use() {
    let (scene, locks, beside) = Scene::with_two_clients().await;
    let names = ["plain", "{shop}:sem"];
    let mut permits = Vec::new();
    for name in names {
        permits.push(locks.semaphore(name, 3).acquire_many(2).await.unwrap());
        permits.push(beside.semaphore(name, 3).acquire().await.unwrap());
    }
    for command in [
        // Java's ids are 16 random bytes, and its permits can be without an end.
        &["SET", "java", "1"][..],
        &["ZADD", "{java}:timeout", "922337203685477", "of Java: 16 byte"],
        &["SET", "counter", "7"],
        &["SET", "text", "a"],
        &["ZADD", "{text}:timeout", "922337203685477", "of Java: 16 byte"],
        &["SET", "other ids", "1"],
        &["ZADD", "{other ids}:timeout", "922337203685477", "member"],
        &["SET", "other type", "1"],
        &["SET", "{other type}:timeout", "1"],
        &["SET", "ended", "1"],
        &["ZADD", "{ended}:timeout", "1", "of Java: 16 byte"],
    ] {
        let _: redis::Value = scene.server.run(command);
    }
    let of_beside = beside.semaphore("plain", 3);
    let waiting = tokio::spawn(async move { of_beside.acquire().await.unwrap() });
    let all = eventually_listed(&locks, "*", |all| all["plain"].listeners == Some(1)).await;
    assert_eq!(all.keys().collect::<Vec<_>>(), ["java", "plain", "{shop}:sem"]);
    assert!(all.values().all(|lock| lock.kind == LockKind::Semaphore && lock.queued == Some(0)));
    for name in names {
        let info = &all[name];
        assert_eq!((info.permits, info.holders.len()), (Some(3), 3));
        let ids: Vec<String> = info.holders.iter().map(|holder| holder.owner.clone()).collect();
        assert!(ids.is_sorted(), "renewals do not change the order: {ids:?}");
        let own = permits.iter().filter(|permit| permit.name() == name).flat_map(|permit| permit.ids());
        let mut own: Vec<String> = own.map(|id| id.to_string()).collect();
        own.sort();
        assert_eq!(ids, own);
        for holder in &info.holders {
            let client = holder.client.clone().expect("a client in Rust");
            let clients = [&locks, &beside].map(|locks| locks.id().starts_with(&client));
            assert_eq!((client.len(), clients.iter().filter(|is_it| **is_it).count()), (18, 1), "{holder:?}");
            let left = holder.remaining_lease.duration().unwrap();
            assert!(holder.holds == 1 && left > SECOND && left <= 32 * SECOND, "{holder:?}");
        }
        assert_eq!(
            Some(info.remaining_lease),
            info.holders.iter().map(|holder| holder.remaining_lease).max()
        );
        assert_eq!(locks.inspect(name).await.unwrap().unwrap().holders.len(), 3);
    }
    let java = &all["java"];
    assert_eq!((java.permits, java.remaining_lease), (Some(2), RemainingLease::Endless));
    assert_eq!((&java.holders[0].client, java.holders[0].owner.len()), (&None, 32));

    for permit in permits {
        permit.unlock().await.unwrap();
    }
    soon(waiting).await.unwrap().unlock().await.unwrap();
    assert_eq!(list(&locks, "*").await.into_keys().collect::<Vec<_>>(), ["java"]);
    // They exist, so their totals are known.
    for (name, total) in [("plain", 3), ("counter", 7), ("ended", 2)] {
        let info = locks.inspect(name).await.unwrap().expect("a semaphore");
        assert_eq!((info.permits, info.holders.len()), (Some(total), 0));
        assert_eq!(info.remaining_lease.duration(), Some(std::time::Duration::ZERO));
    }
    for name in ["text", "other ids", "other type", "{ended}:timeout"] {
        let found = locks.inspect(name).await;
        assert!(matches!(found, Err(Error::WrongKind { .. })), "{name}: {found:?}");
    }
    // A semaphore is not passed over in silence because something is among its permits, and all say the same of it.
    for id in ["of Java: 16 byte", "member"] {
        let _: u64 = scene.server.run(&["ZADD", "{counter}:timeout", "922337203685477", id]);
    }
    let found = locks.list("*").await.unwrap();
    assert_eq!((found.locks.len(), found.skipped), (1, vec!["counter".to_owned()]));
    let errors = [locks.inspect("counter").await.map(drop), locks.why("counter").await.map(drop)];
    for error in errors {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("in use as a semaphore among whose permits is other data"), "{error}");
    }
    for name in ["java", "text", "other ids", "other type", "ended", "counter", "plain", "{shop}:sem"] {
        let _: u64 = scene.server.run(&["DEL", name, &format!("{{{name}}}:timeout")]);
    }
    scene.end((locks, beside)).await;
}

#[tokio::test]
async fn other_data_and_free_locks_are_not_listed() {
    let (scene, locks) = Scene::with_client().await;
    for command in [
        &["SET", "text", "a:1"][..],
        &["RPUSH", "list", "a:1"],
        &["ZADD", "scores", "1", "a:1"],
        &["HSET", "data", "8743c9c0-0795-4907-87fd-6c719a6b4586:77", "x"],
        &["HSET", "stock", "item:1", "2"],
        &["HSET", "user", "name", "1"],
        &[
            "HSET",
            "two",
            "8743c9c0-0795-4907-87fd-6c719a6b4586:77",
            "1",
            "8743c9c0-0795-4907-87fd-6c719a6b4586:78",
            "1",
        ],
        &["HSET", "mode", "mode", "read"],
        &["HSET", "other mode", "mode", "dark"],
        // A read-write lock of which only a dead reader is left.
        &["HSET", "dead", "mode", "read", "8743c9c0-0795-4907-87fd-6c719a6b4586:77", "1"],
    ] {
        let _: redis::Value = scene.server.run(command);
    }
    locks.fenced_lock("free").lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(soon(locks.list("*")).await.unwrap(), LockList::default());
    // A lock that never ends, as after a PERSIST.
    let _: u64 = scene.server.run(&["HSET", "endless", "8743c9c0-0795-4907-87fd-6c719a6b4586:77", "1"]);
    assert_eq!(list(&locks, "*").await["endless"].remaining_lease, RemainingLease::Endless);
    for key in
        ["text", "list", "scores", "data", "stock", "user", "two", "mode", "other mode", "dead", "endless"]
    {
        let _: u64 = scene.server.run(&["DEL", key]);
    }
    let _: u64 = scene.server.run(&["DEL", "redisson_lock_token:{free}"]);
    scene.end(locks).await;
}

#[tokio::test]
async fn a_pattern_is_about_names_and_the_prefix_stands_for_itself() {
    let scene = Scene::start();
    let plain = scene.client().await;
    let with_prefix = |prefix: &str| connect(scene.server.url(), patient().name_prefix(prefix));
    let (stars, shop) = (with_prefix("a*[b]?\\:").await, with_prefix("shop:").await);
    let mut guards = Vec::new();
    for (locks, name) in [(&stars, "x"), (&stars, "y"), (&shop, "x"), (&plain, "aZ[b]Z\\:z"), (&plain, "x")] {
        guards.push(locks.rlock(name).lock().await.unwrap());
    }
    let names = async |locks: &LockClient, pattern: &str| -> Vec<String> {
        list(locks, pattern).await.into_keys().collect()
    };
    assert_eq!(names(&stars, "*").await, ["x", "y"]);
    assert_eq!(names(&stars, "y").await, ["y"]);
    assert_eq!(names(&shop, "*").await, ["x"]);
    assert_eq!(names(&plain, "shop:?").await, ["shop:x"]);
    assert_eq!(names(&plain, "[xy]").await, ["x"]);
    assert_eq!(names(&plain, "*").await.len(), 5);
    assert!(matches!(plain.list("").await, Err(Error::InvalidName { .. })));
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    scene.end((plain, stars, shop)).await;
}

/// Returns what a future returns, or drops it after so many polls.
async fn after_polls<F: Future>(future: F, most: u32) -> Option<F::Output> {
    let (mut future, mut polls) = (pin!(future), 0);
    poll_fn(|context| {
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polls == most => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// More keys than one command looks at. Each lock is found once.
#[tokio::test]
async fn locks_among_many_other_keys_are_found() {
    let (scene, locks) = Scene::with_client().await;
    let fill = "for i = 1, 20000 do redis.call('set', 'other:' .. i, i) end \
                for i = 1, 1500 do redis.call('hset', 'lock:' .. i, '0-0-0-0-0:1', 1) redis.call('pexpire', 'lock:' .. i, 60000) end";
    let _: Option<String> = scene.server.run(&["EVAL", fill, "0"]);
    let found = list(&locks, "*").await;
    assert_eq!(found.len(), 1_500);
    assert_eq!(list(&locks, "lock:7?").await.len(), 10);
    let (mut parts, mut sizes, mut names) = (locks.list_parts("lock:*"), Vec::new(), BTreeSet::new());
    let before = scene.server.calls("hscan");
    while let Some(part) = soon(parts.next()).await.unwrap() {
        sizes.push(part.locks.len());
        names.extend(part.locks.into_iter().map(|lock| lock.name));
    }
    assert_eq!((sizes.iter().sum::<usize>(), names.len()), (1_500, 1_500));
    assert!(sizes.len() > 10 && sizes.iter().all(|size| *size < 1_000), "{sizes:?}");
    assert_eq!(scene.server.calls("hscan"), before, "no lock is asked for by itself");
    assert!(matches!(locks.list_parts("").next().await, Err(Error::InvalidName { .. })));
    drop(parts);

    // A call that is dropped anywhere loses no lock.
    let (mut parts, mut count, mut polls) = (locks.list_parts("lock:*"), 0, 0);
    loop {
        polls = polls % 200 + 1;
        match soon(after_polls(parts.next(), polls)).await {
            None => {}
            Some(Ok(Some(part))) => count += part.locks.len(),
            Some(end) => break assert_eq!(end.unwrap(), None),
        }
    }
    assert_eq!(count, 1_500);
    drop(parts);
    let empty = "for i = 1, 20000 do redis.call('del', 'other:' .. i, 'lock:' .. i) end";
    let _: Option<String> = scene.server.run(&["EVAL", empty, "0"]);
    scene.end(locks).await;
}

/// The names of other data need not be text.
#[tokio::test]
async fn keys_and_fields_that_are_no_text_disturb_no_listing() {
    let (scene, locks) = Scene::with_client().await;
    let names = [r"'\255{'", r"'}'", r"'{}'", r"''", r"'{'", r"string.rep('long', 100000)"];
    for key in names {
        let fill = format!("return redis.call('hset', {key}, '\\254-0-0-0-0:1', '1', 'mode', 'read')");
        let _: u64 = scene.server.run(&["EVAL", &fill, "0"]);
    }
    let guard = locks.rlock("a").lock().await.unwrap();
    assert_eq!(list(&locks, "*").await.into_keys().collect::<Vec<_>>(), ["a"]);
    guard.unlock().await.unwrap();
    for key in names {
        let _: u64 = scene.server.run(&["EVAL", &format!("return redis.call('del', {key})"), "0"]);
    }
    scene.end(locks).await;
}

/// The user may lock, but not look at other keys.
#[tokio::test]
async fn a_missing_right_is_an_error() {
    let scene = Scene::start();
    let locks = connect(scene.user("~lock:* +@all -scan"), LockConfig::builder()).await;
    let result = soon(locks.list("lock:*")).await;
    assert!(matches!(result, Err(Error::Permission(_))), "{result:?}");
    let guard = locks.rlock("lock:a").lock().await.unwrap();
    // With that right, what this user may not look at is left out.
    scene.user("+scan");
    let _: u64 = scene.server.run(&["HSET", "secret", "8743c9c0-0795-4907-87fd-6c719a6b4586:77", "1"]);
    // Of this lock the user has a right to the main key, and none to the keys of its readers.
    let admin = scene.client().await;
    let reading = admin.read_write_lock("lock:read").read().lock().await.unwrap();
    // The same for a semaphore and its permits.
    let permit = admin.semaphore("lock:semaphore", 1).acquire().await.unwrap();
    let found = list(&locks, "*").await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["lock:a"]);
    // It may look whether there are permits, but not at them.
    scene.user("~{lock:* -zrange");
    assert_eq!(list(&locks, "*").await.keys().collect::<Vec<_>>(), ["lock:a", "lock:read"]);
    scene.user("+zrange");
    assert_eq!(list(&locks, "*").await.keys().collect::<Vec<_>>(), ["lock:a", "lock:read", "lock:semaphore"]);
    permit.unlock().await.unwrap();
    admin.semaphore("lock:semaphore", 1).delete().await.unwrap();
    reading.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    let _: u64 = scene.server.run(&["DEL", "secret"]);
    drop(admin);
    scene.end(locks).await;
}

/// What docs/deploy.md grants is enough to see everything.
#[tokio::test]
async fn the_documented_rights_are_enough() {
    let page = include_str!("../docs/deploy.md");
    let (_, rule) = page.split_once("ACL SETUSER observer").unwrap();
    let rule = rule.split("```").next().unwrap().split_whitespace();
    let scene = Scene::start();
    let words: Vec<&str> = ["ACL", "SETUSER", "observer"].into_iter().chain(rule).collect();
    let _: String = scene.server.run(&words);
    // Older servers do not know it.
    let _ = scene.server.try_run::<()>(&["ACL", "SETUSER", "observer", "+client|setinfo"]);
    let locks = scene.client().await;
    let url = scene.server.url().replace("redis://", "redis://observer:secret@");
    let observer = connect(url, patient()).await;
    let fair = locks.fair_lock("fair").lock().await.unwrap();
    let fenced = locks.fenced_lock("fenced").lock().await.unwrap();
    let reading = locks.read_write_lock("shared").read().lock().await.unwrap();
    let permit = locks.semaphore("semaphore", 2).acquire().await.unwrap();
    let waiting = [waiter(locks.fair_lock("fair")), waiter(locks.read_write_lock("shared").into_write())];
    eventually_listed(&observer, "*", |all| {
        all["fair"].queued == Some(1)
            && all["shared"].listeners == Some(1)
            && all["fenced"].kind == LockKind::Fenced
            && all["semaphore"].permits == Some(2)
    })
    .await;
    permit.unlock().await.unwrap();
    locks.semaphore("semaphore", 2).delete().await.unwrap();
    let refused: Vec<redis::Value> = scene.server.run(&["ACL", "LOG"]);
    assert!(refused.is_empty(), "{refused:?}");
    for guard in [fair, fenced.into_plain(), reading] {
        guard.unlock().await.unwrap();
    }
    for task in waiting {
        soon(task).await.unwrap().unlock().await.unwrap();
    }
    let _: u64 = scene.server.run(&["DEL", "redisson_lock_token:{fenced}"]);
    scene.end((locks, observer)).await;
}

#[tokio::test]
async fn servers_tell_of_themselves() {
    let (scene, locks) = Scene::with_client().await;
    let servers = soon(locks.servers()).await.unwrap();
    assert_eq!(servers.len(), 1);
    let facts = &servers[&address(&scene.server.url())];
    assert_eq!(facts["tcp_port"], scene.server.port().to_string());
    assert_eq!(facts.get("no such fact"), None);
    scene.end(locks).await;
}

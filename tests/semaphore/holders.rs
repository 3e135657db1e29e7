//! Who holds permits, and how many.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::join_all;
use lockkeeper::{Error, PermitId};

use super::{end, is_whole};
use crate::support::events::Events;
use crate::support::{Scene, calls_of, patient, soon};
use redis::Value;

/// The server has many permits: all are listed, part by part.
#[tokio::test]
async fn all_holders_of_a_large_semaphore_are_listed() {
    let (scene, locks) = Scene::with_client().await;
    let semaphore = locks.semaphore("a", 2_000);
    let batches = join_all((0..4).map(|_| semaphore.acquire_many(300))).await;
    let batches: Vec<_> = batches.into_iter().map(Result::unwrap).collect();
    assert_eq!(locks.inspect("a").await.unwrap().unwrap().holders.len(), 1_200);
    assert_eq!(semaphore.available_permits().await.unwrap(), 800);
    for batch in batches {
        batch.unlock().await.unwrap();
    }
    is_whole(&scene, &semaphore, 2_000).await;
    drop(semaphore);
    end(scene, [locks]).await;
}

#[tokio::test]
async fn what_cannot_be_acquired_is_a_typed_error() {
    let (scene, locks) = Scene::with_client().await;
    let semaphore = locks.semaphore("a", 2);
    for found in [semaphore.acquire_many(0).await, locks.semaphore("a", 0).acquire().await] {
        assert!(matches!(found, Err(Error::InvalidPermits { wanted: 0, .. })), "{found:?}");
    }
    for found in [soon(semaphore.acquire_many(3)).await.map(Some), semaphore.try_acquire_many(3).await] {
        let Err(Error::InvalidPermits { lock, wanted: 3, total: 2, .. }) = found else { panic!("{found:?}") };
        assert_eq!(lock.name, "a");
    }
    // Not even sent: the command would have 64 GiB.
    let huge = locks.semaphore("a", u32::MAX).acquire_many(u32::MAX).await.unwrap_err();
    assert!(huge.to_string().contains("at most 10000 permits together"), "{huge}");
    let most = locks.semaphore("most", 10_000);
    most.acquire_many(10_000).await.unwrap().unlock().await.unwrap();
    assert!(most.delete().await.unwrap() && !most.delete().await.unwrap());
    drop(most);
    assert!(matches!(semaphore.resize(0).await, Err(Error::InvalidPermits { .. })));
    assert!("not an id".parse::<PermitId>().is_err() && "0".repeat(31).parse::<PermitId>().is_err());
    assert!(!semaphore.force_unlock("0".repeat(32).parse().unwrap()).await.unwrap());

    // Keys of other types are never changed. The model has more of them.
    for command in [
        &["HSET", "b", "field", "1"] as &[&str],
        &["SET", "b", "text"],
        // More than any client can set.
        &["SET", "b", "4294967296"],
        &["SET", "{b}:timeout", "5"],
    ] {
        scene.server.run::<()>(command);
        let other = locks.semaphore("b", 2);
        let wrong = |found: &Result<u32, Error>| matches!(found, Err(Error::WrongKind { .. }));
        for found in [
            other.try_acquire().await.map(|_| 0),
            soon(other.acquire()).await.map(|_| 0),
            other.available_permits().await,
            other.resize(5).await.map(|()| 0),
            other.delete().await.map(|_| 0),
        ] {
            assert!(wrong(&found), "{command:?}: {found:?}");
        }
        assert_eq!(scene.server.run::<u32>(&["EXISTS", command[1]]), 1);
        scene.server.run::<()>(&["DEL", "b", "{b}:timeout"]);
    }
    // A lock on a key that is a semaphore.
    drop(semaphore.acquire().await.unwrap());
    assert!(matches!(locks.rlock("a").try_lock().await, Err(Error::WrongKind { .. })));
    is_whole(&scene, &semaphore, 2).await;
    drop(semaphore);
    end(scene, [locks]).await;
}

/// Guarantee 22. More than a script removes at once.
#[tokio::test]
async fn three_hundred_permits_of_a_dead_process_come_back_together() {
    let (scene, locks) = Scene::with_client().await;
    let (keys, id) = (["a", "{a}:timeout"], |number| format!("{number:016}"));
    scene.server.run::<()>(&["SET", "a", "0"]);
    let dead: Vec<_> = (0..300).map(|number| ["1".to_owned(), id(number)]).collect();
    scene.server.run_many(&["ZADD", keys[1]], &dead);
    let counts = |reply: Value| redis::from_redis_value::<[u32; 2]>(reply).unwrap();
    assert_eq!(counts(scene.server.script("semaphore/state.lua", &keys, &["300"])), [300, 300]);
    let all: String = (300..600).map(id).collect();
    let arguments = [&all, "300", "60000", "channel"];
    assert_eq!(counts(scene.server.script("semaphore/acquire.lua", &keys, &arguments)), [0, 300]);
    // What another program set stays.
    scene.server.run::<()>(&["PEXPIRE", "a", "60000"]);
    scene.server.script("semaphore/resize.lua", &keys, &["700", "channel"]);
    assert!(scene.server.run::<i64>(&["PTTL", "a"]) > 0);
    end(scene, [locks]).await;
}

/// The number of the server counts, and one event says that the program has another one. Programs make a handle for each call.
#[tokio::test]
async fn another_total_on_the_server_counts_and_is_reported_once() {
    let (scene, events) = (Scene::start(), Events::default());
    let (locks, beside) = (scene.client().await, scene.client().await);
    drop(beside.semaphore("a", 2).acquire().await.unwrap());
    let _collected = events.collect();
    let reports = || events.text().matches("another number of permits").count();
    for _ in 0..3 {
        let semaphore = locks.semaphore("a", 5);
        let two = semaphore.acquire_many(2).await.unwrap();
        assert!(semaphore.try_acquire().await.unwrap().is_none(), "there are two, not five");
        two.unlock().await.unwrap();
        assert_eq!((semaphore.total().await.unwrap(), reports()), (2, 1), "{}", events.text());
    }
    let text = events.text();
    assert!(text.contains("wanted=5") && text.contains("found=2"), "{text}");
    locks.semaphore("a", 5).resize(5).await.unwrap();
    for _ in 0..3 {
        locks.semaphore("a", 5).acquire_many(5).await.unwrap().unlock().await.unwrap();
        assert_eq!(locks.semaphore("a", 5).total().await.unwrap(), 5);
    }
    assert_eq!(reports(), 1);
    // Those who were told the number before learn of this one, once.
    for _ in 0..3 {
        locks.semaphore("a", 2).acquire_many(5).await.unwrap().unlock().await.unwrap();
    }
    assert_eq!(reports(), 2);
    // A handle that resizes knows the number, also when the server lost it.
    let semaphore = locks.semaphore("a", 2);
    semaphore.resize(7).await.unwrap();
    semaphore.acquire().await.unwrap().unlock().await.unwrap();
    scene.server.run::<()>(&["DEL", "a"]);
    semaphore.acquire().await.unwrap().unlock().await.unwrap();
    assert_eq!((semaphore.total().await.unwrap(), reports()), (7, 2));
    drop((semaphore, beside));
    end(scene, [locks]).await;
}

/// A permit comes back between two parts of a list: those behind it move forward.
#[tokio::test]
async fn no_holder_is_missed_while_a_permit_comes_back() {
    let (scene, proxy, locks) = Scene::behind_proxy(patient()).await;
    let id = |number: u64| format!("{number:016}");
    let rows: Vec<_> =
        (0..1_200_u64).map(|number| [(4_000_000_000_000_u64 + number).to_string(), id(number)]).collect();
    scene.server.run::<()>(&["SET", "a", "0"]);
    scene.server.run_many(&["ZADD", "{a}:timeout"], &rows);
    let (server, is_part, parts) =
        (scene.server.on_one_connection(), calls_of("semaphore/holders.lua"), AtomicU32::new(0));
    proxy.answer(move |words| {
        if is_part(words) && parts.fetch_add(1, Ordering::SeqCst) > 0 {
            server.run::<()>(&["ZREM", "{a}:timeout", &id(0)]);
        }
        None
    });
    let info = locks.inspect("a").await.unwrap().unwrap();
    assert_eq!(info.holders.len(), 1_200, "the first one was listed before");
    drop((locks, proxy));
    let beside = scene.client().await;
    end(scene, [beside]).await;
}

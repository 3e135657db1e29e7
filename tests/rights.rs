//! The user that docs/deploy.md makes.

use lockkeeper::LockClient;

use crate::support::{MS, SECOND, Scene, connect, eventually, fixed, patient, renewed, soon};

/// Uses every operation of a read-write lock.
async fn read_and_write(scene: &Scene, locks: &LockClient) {
    let mut lock = locks.read_write_lock("shop:c");
    let writing = lock.write().lock().await.unwrap();
    let reading = [lock.read().lock().await.unwrap(), lock.read().lock().await.unwrap()];
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.read_write_lock("shop:c").read().lock().await.unwrap().unlock().await }
    });
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    writing.unlock().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    let beside =
        locks.read_write_lock("shop:c").with(&fixed(3_600 * SECOND)).into_read().lock().await.unwrap();
    renewed(&reading[0]).await;
    beside.unlock().await.unwrap(); // the longest lease of all readers
    for guard in reading {
        guard.unlock().await.unwrap();
    }
    let _reading = lock.read().lock().await.unwrap();
    assert!(lock.read().force_unlock().await.unwrap());
}

/// Every operation of a semaphore.
async fn use_semaphore(scene: &Scene, locks: &LockClient) {
    let semaphore = locks.semaphore("shop:e", 2);
    semaphore.check().await.unwrap();
    let batch = semaphore.acquire_many(2).await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap().release().await }
    });
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    batch.extend(60 * SECOND).await.unwrap();
    semaphore.resize(3).await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    assert_eq!((semaphore.available().await.unwrap(), semaphore.holders().await.unwrap().len()), (1, 2));
    assert!(semaphore.force_release(batch.id()).await.unwrap());
    assert!(batch.release().await.is_err());
    // Somebody gave the semaphore an expiry.
    scene.server.run::<()>(&["PEXPIRE", "shop:e", "60000"]);
    drop(semaphore.acquire().await.unwrap());
    assert!(semaphore.delete().await.unwrap());
    eventually("nothing is left", || scene.server.keys(), Vec::is_empty).await;
}

/// The permissions that `docs/deploy.md` lists are sufficient for every operation.
#[tokio::test]
async fn the_documented_rights_are_enough() {
    let page = include_str!("../docs/deploy.md");
    let scene = Scene::start();
    let rules: Vec<_> = page.match_indices("ACL SETUSER locker").map(|(start, _)| &page[start..]).collect();
    // `tests/cluster/rights.rs` has the last one.
    assert_eq!(
        rules.len(),
        7,
        "a rule for all locks, one for each type with other keys, one for leaders, and one for clusters"
    );
    for rule in &rules[..6] {
        let words: Vec<&str> = rule.split("```").next().unwrap().split_whitespace().collect();
        scene.server.run::<()>(&words);
    }
    // The README asks for this on newer servers. Older servers do not know it.
    let _ = scene.server.try_run::<()>(&["ACL", "SETUSER", "locker", "+client|setinfo"]);
    scene.server.run::<()>(&["ACL", "SETUSER", "locker", "+info"]);
    let url = format!("redis://locker:secret@127.0.0.1:{}/", scene.server.port());
    let config = patient().watchdog_lease(5 * SECOND).safety_poll(60 * SECOND).fair_allowance(1_500 * MS);
    let locks = connect(url, config).await;
    scene.server.run::<()>(&["SCRIPT", "FLUSH"]);
    let guard = locks.fair_lock("shop:b").lock().await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.fair_lock("shop:b").lock().await.unwrap().unlock().await }
    });
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    // The state after a Java client removed the waiter and queued itself.
    scene.server.run::<()>(&["DEL", "redisson_lock_queue:{shop:b}", "redisson_lock_timeout:{shop:b}"]);
    scene.server.run::<()>(&["RPUSH", "redisson_lock_queue:{shop:b}", "java:1"]);
    let queued = || scene.server.run::<usize>(&["LLEN", "redisson_lock_queue:{shop:b}"]);
    eventually("a heartbeat puts the waiter back", queued, |&len| len == 2).await;
    scene.server.run::<()>(&["LREM", "redisson_lock_queue:{shop:b}", "1", "java:1"]);
    scene.server.run::<()>(&["ZREM", "redisson_lock_timeout:{shop:b}", "java:1"]);
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    eventually("no subscription is left", || scene.server.channels(), Vec::is_empty).await;
    let mut lock = locks.rlock("shop:a");
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.rlock("shop:a").lock().await.unwrap().unlock().await }
    });
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    renewed(&outer).await;
    assert!(lock.is_locked().await.unwrap() && locks.inspect("shop:a").await.unwrap().is_some());
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    let guard = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    drop(guard);
    read_and_write(&scene, &locks).await;
    let fenced = locks.fenced_lock("shop:d").lock().await.unwrap();
    assert!(fenced.token().get() > 0);
    let mut announcements = locks.fenced_lock("shop:d").announcements();
    announcements.changed().await;
    eventually("it listens", || scene.server.channels(), |channels| channels.len() == 1).await;
    fenced.announce("here").await.unwrap();
    soon(announcements.changed()).await;
    assert_eq!(announcements.of(&fenced.owner_id()).await.unwrap(), Some(b"here".to_vec()));
    fenced.unlock().await.unwrap();
    drop(announcements);
    use_semaphore(&scene, &locks).await;
    drop((lock, locks));
    let refused: Vec<redis::Value> = scene.server.run(&["ACL", "LOG"]);
    assert!(refused.is_empty(), "{refused:?}");
    scene.end().await;
}

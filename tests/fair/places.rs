//! When a waiter keeps its place in the queue, and when it loses it.

use crate::fair::{KEYS, config, dead_java_is_first, queued, waits};
use crate::support::{Child, LIMIT, SECOND, Scene, patient, soon, timed, waiter};

/// Guarantee 9. A waiting process is killed or stopped, and its waiters are passed over. Also if the first waiter dies
/// while the lock is free.
#[tokio::test]
async fn a_dead_process_is_passed_over() {
    let (scene, locks) = Scene::with_client_of(config()).await;
    for (signal, waiters) in [("KILL", 1), ("STOP", 1), ("KILL", 20)] {
        let guard = locks.fair_lock("a").lock().await.unwrap();
        let dead = Child::start("fair::child", &waiters.to_string(), &scene.server.url());
        queued(&scene, waiters).await;
        let waiting = waits(&scene, &locks, waiters).await;
        dead.signal(signal);
        guard.unlock().await.unwrap();
        let (woken, took) = timed(waiting).await;
        woken.unwrap();
        assert!(took < LIMIT / 2, "{signal}, {waiters} of them: {took:?}");
        drop(dead);
    }
    scene.server.run::<()>(&["FLUSHALL"]);
    scene.end(locks).await;
}

/// Guarantee 9. A failover lost the list of the waiters and their records. One of them is granted the lock, and leaves no place that blocks
/// the queue.
#[tokio::test]
async fn a_grant_ends_the_place_of_its_owner_although_the_list_was_lost() {
    let (scene, locks) = Scene::with_client().await;
    let attempts = |owner| drop(scene.server.script("fair/acquire.lua", &KEYS, &[owner, "60000", "60000"]));
    attempts("0-0-0-0-0:1");
    attempts("0-0-0-0-0:2");
    queued(&scene, 1).await;
    scene.server.run::<()>(&["DEL", "a", KEYS[1], KEYS[3]]);
    attempts("0-0-0-0-0:2");
    assert_eq!(scene.server.run::<Vec<String>>(&["HKEYS", "a"]), ["0-0-0-0-0:2"]);
    scene.server.run::<()>(&["DEL", "a"]);
    soon(locks.fair_lock("a").lock()).await.unwrap().unlock().await.unwrap();
    scene.end(locks).await;
}

/// Guarantee 9. Nobody overtakes a waiter behind more dead Java clients than one script removes.
#[tokio::test]
async fn any_number_of_dead_java_clients_is_passed_over() {
    // No waiter polls, and a heartbeat comes once in twenty seconds.
    let config = || patient().safety_poll(3_600 * SECOND).fair_allowance(60 * SECOND);
    let (scene, locks) = Scene::with_client_of(config()).await;
    let [second, third] = [scene.client_with(config()).await, scene.client_with(config()).await];
    dead_java_is_first(&scene);
    scene.server.script("fair/acquire.lua", &KEYS, &["0-0-0-0-0:1", "60000", "0"]);
    assert!(!scene.server.run::<bool>(&["EXISTS", "a"]), "it did not see the whole queue");
    let guard = soon(locks.fair_lock("a").lock()).await.unwrap();
    let waiting = waiter(second.fair_lock("a"));
    queued(&scene, 1).await;
    dead_java_is_first(&scene);
    scene.server.run::<()>(&["DEL", "a"]); // it is free, and no message tells that
    assert!(third.fair_lock("a").try_lock().await.unwrap().is_none(), "it is the turn of the waiter");
    soon(waiting).await.unwrap().unlock().await.unwrap();
    assert!(guard.unlock().await.is_err());
    scene.end((locks, second, third)).await;
}

//! Waiters are served in request order.

use crate::fair::{KEYS, QUEUE, SCORES, config, java_queues, queue, waits};
use crate::support::{LIMIT, Scene, soon};

/// Guarantee 9.
#[tokio::test]
async fn re_entry_does_not_queue_and_a_try_does_not_overtake() {
    let (scene, locks) = Scene::with_client_of(config()).await;
    let mut lock = locks.fair_lock("a");
    let outer = lock.lock().await.unwrap();
    let waiting = waits(&scene, &locks, 0).await;
    let inner = soon(lock.lock()).await.unwrap();
    assert!(locks.fair_lock("a").try_lock().await.unwrap().is_none());
    inner.unlock().await.unwrap();
    assert_eq!(queue(&scene).len(), 1, "neither the re-entry nor the try is in the queue");
    // Now the lock is free, but only for the first waiter. No message tells it.
    scene.server.run::<()>(&["DEL", "a"]);
    assert!(locks.fair_lock("a").try_lock().await.unwrap().is_none(), "it is the turn of the first waiter");
    soon(waiting).await.unwrap();
    assert!(outer.unlock().await.is_err());
    scene.end((lock, locks)).await;
}

/// The same for a waiter of Java, which sends no heartbeats.
#[tokio::test]
async fn force_unlock_of_an_rlock_tells_a_waiter_of_java() {
    let (scene, locks) = Scene::with_client().await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    java_queues(&scene);
    let mut connection = scene.server.connect().unwrap();
    connection.set_read_timeout(Some(LIMIT)).unwrap();
    let mut hearing = connection.as_pubsub();
    hearing.subscribe(format!("{}:java:1", KEYS[5])).unwrap();
    assert!(locks.rlock("a").force_unlock().await.unwrap());
    assert_eq!(hearing.get_message().unwrap().get_payload_bytes(), b"0");
    assert!(guard.unlock().await.is_err());
    assert_eq!(queue(&scene), ["java:1"]);
    scene.server.run::<()>(&["DEL", QUEUE, SCORES]);
    drop(hearing);
    scene.end((connection, locks)).await;
}

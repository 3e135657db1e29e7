//! When a waiter keeps its place in the queue, and when it loses it.

use crate::fair::{config, queued, waits};
use crate::support::{Child, LIMIT, Scene, timed};

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

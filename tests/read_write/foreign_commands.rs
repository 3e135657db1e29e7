//! Commands of other clients and of administrators: which holds they end, and that they affect no other hold.

use crate::read_write::holds;
use crate::support::{SECOND, Scene, eventually, fixed, patient};

/// Guarantee 7. Of several holds of one owner, the longest counts.
#[tokio::test]
async fn a_lease_is_raised_to_its_longest_hold() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(5 * SECOND)).await;
    let mut owner = locks.owner();
    let mut guards = Vec::new();
    for lease in [20 * SECOND, 60 * SECOND, 20 * SECOND] {
        guards.push(owner.read_write_lock("a").with(&fixed(lease)).read().lock().await.unwrap());
    }
    let first = holds(&scene).remove(0);
    for key in ["a", &first] {
        scene.server.run::<()>(&["PEXPIRE", key, "5000"]);
    }
    let left = || ["a", &first].map(|key| scene.server.run::<i64>(&["PTTL", key]));
    eventually("the leases are raised", left, |left| left.iter().all(|&ms| ms > 40_000)).await;
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    drop((owner, locks));
    scene.end().await;
}

//! The state that the same operations leave in Redis, run by Java alone and by Rust alone.

mod both;
mod found;
mod steps;

use std::time::Duration;

use lockkeeper::LockConfig;

use crate::roles::LEASE;
use crate::support::fixture::Subject;
use crate::support::{LIMIT, Scene, eventually, renewed};
use crate::{Java, Row, Stage, actor};
use found::{Ear, delete_what_java_leaves, state};
use steps::Step::{
    self, Force, Lock, LockForAMinute, LockForAMinuteAlone, Unlock, UnlockTheOther, Wait, WaitInVain,
};
use steps::{ByJava, ByRust};

#[rustfmt::skip]
const STEPS: [Step; 20] = [
    Lock, Lock, Lock, Unlock, Lock, Unlock, Unlock, Unlock,
    LockForAMinuteAlone, WaitInVain, Unlock,
    Lock, Wait, Unlock, UnlockTheOther,
    Lock, LockForAMinute, Wait, Force, UnlockTheOther,
];

/// The remaining lease after each step in seconds: in Java, and in Rust.
type Leases = [(Step, i64, i64); 6];

const LEASES: Leases = [
    (LockForAMinute, 60, 60),
    (Lock, 30, 60), // re-entry
    (LockForAMinute, 60, 60),
    (Unlock, 30, 60), // partial release
    (Unlock, 30, 60),
    (Unlock, 0, 0),
];

const READ_LEASES: Leases = [
    (Lock, 30, 30),
    (LockForAMinute, 60, 60),
    (Unlock, 30, 60),
    (LockForAMinute, 60, 60),
    (Unlock, 30, 60),
    (Unlock, 0, 0),
];

const WRITE_LEASES: Leases = [
    (LockForAMinute, 60, 60),
    (Lock, 90, 60),
    (LockForAMinute, 150, 60),
    (Unlock, 30, 60),
    (Unlock, 30, 60),
    (Unlock, 0, 0),
];

/// Guarantee 13.
pub async fn the_same_operations_leave_the_same_state<R: Row>() {
    let (java_scene, rust_scene) = (Scene::start(), Scene::start());
    let java = Java::start(&java_scene).await;
    // A writer that stops readers leaves a key, and wakes them when it gives up.
    let config = LockConfig::builder().command_timeout(LIMIT).writer_turn(Duration::ZERO);
    let locks = rust_scene.client_with(config).await;
    let mut by_java = ByJava::new::<R>(&java);
    let mut by_rust = ByRust::<R>::new(&locks);
    let (mut java_ear, mut rust_ear) = (Ear::open(&java_scene).await, Ear::open(&rust_scene).await);
    let mut waits = false;
    for (number, step) in STEPS.into_iter().enumerate() {
        by_java.take(step).await;
        by_rust.take(step).await;
        waits = matches!(step, Wait) || waits && !matches!(step, Force | Unlock);
        if step == Force {
            delete_what_java_leaves(&java_scene);
        }
        let mut by_java = state(&java_scene, &mut java_ear, waits).await;
        let mut by_rust = state(&rust_scene, &mut rust_ear, waits).await;
        if R::JAVA == "write" {
            by_java.forget_the_lease_of_a_reentrant_writer();
            by_rust.forget_the_lease_of_a_reentrant_writer();
        }
        assert_eq!(by_rust, by_java, "after step {number}, {step:?}; left is Rust, right is Java");
    }
    drop((java_ear, rust_ear, by_java, by_rust, locks));
    java.end(&java_scene).await;
    java_scene.end(()).await;
    rust_scene.end(()).await;
}

/// Guarantee 4. The differences in the last table of `lua/README.md`, as far as they are visible.
pub async fn the_differences_are_the_listed_ones<R: Row>() {
    let (java_scene, rust_scene) = (Scene::start(), Scene::start());
    let java = Java::start(&java_scene).await;
    let locks = rust_scene.client_with(LockConfig::builder().command_timeout(LIMIT)).await;
    let mut by_java = ByJava::new::<R>(&java);
    let mut by_rust = ByRust::<R>::new(&locks);
    let seconds = |scene: &Scene| (scene.server.run::<i64>(&["PTTL", "a"]) + 999) / 1_000;
    let leases = || (seconds(&java_scene), seconds(&rust_scene));
    let steps = match R::JAVA {
        "read" => READ_LEASES,
        "write" => WRITE_LEASES,
        _ => LEASES,
    };
    for (step, java_has, rust_has) in steps {
        by_java.take(step).await;
        by_rust.take(step).await;
        let (java_left, rust_left) = leases();
        assert!((java_has - 9..=java_has).contains(&java_left), "{step:?}: {java_left}");
        assert!((rust_has - 9..=rust_has).contains(&rust_left), "{step:?}: {rust_left}");
    }
    // Since 3.24.1, Java sets one latch for each unlock. Otherwise only read holds set a key here.
    let latches = if java.is_at_least(3, 24) { 3 } else { 0 };
    if R::Rust::IS_SHARED {
        assert_eq!(java_scene.server.calls("set"), 3 + latches);
    } else {
        // Rust also sets the token counter, which Java only increments.
        let counted = u64::from(R::JAVA == "fenced");
        assert_eq!((java_scene.server.calls("set"), rust_scene.server.calls("set")), (latches, counted));
    }

    // A Java thread keeps its id. In Rust, each outermost hold has a new one.
    let mut owners = Vec::new();
    for scene in [&java_scene, &java_scene, &rust_scene, &rust_scene] {
        by_java.take(Lock).await;
        by_rust.take(Lock).await;
        owners.push(scene.server.run::<Vec<String>>(&["HKEYS", "a"]));
        by_java.take(Unlock).await;
        by_rust.take(Unlock).await;
    }
    assert!(owners[0] == owners[1] && owners[2] != owners[3], "{owners:?}");
    drop((by_java, by_rust, locks));
    java.end(&java_scene).await;
    java_scene.end(()).await;
    rust_scene.end(()).await;
}

/// Guarantee 4. A renewal finds a lease that is longer than its own.
pub async fn java_renews_to_its_lease_and_rust_to_the_longer<R: Row>() {
    let stage = Stage::with_watchdog(LEASE).await;
    let holder = actor::<R>(&stage.java, "holder");
    holder.lock("b").await.unwrap();
    let guard = stage.lock::<R>().lock().await.unwrap();
    for name in ["a", "b"] {
        stage.scene.server.run::<()>(&["PEXPIRE", name, "60000"]);
    }
    let left = |name: &str| stage.scene.server.run::<u64>(&["PTTL", name]);
    eventually("Java renews", || left("b"), |&left| left <= 6_000).await;
    renewed(&guard).await;
    assert!(left("a") > 50_000);
    guard.unlock().await.unwrap();
    holder.unlock("b").await.unwrap();
    stage.end().await;
}

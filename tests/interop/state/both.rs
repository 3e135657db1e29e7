//! Both locks of a read-write lock, used together by one owner.

use lockkeeper::{LockClient, LockConfig, LockGuard, ReadWriteLock};

use super::found::{Ear, HOLDS, delete_what_java_leaves, state};
use crate::Java;
use crate::java::Actor;
use crate::support::{LIMIT, SECOND, Scene, fixed};

/// A step of an owner that has both locks of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Read,
    Write,
    WriteForAMinute,
    EndRead,
    EndWrite,
}

use Part::{EndRead, EndWrite, Read, Write, WriteForAMinute};

/// The same two owners in both languages: Java threads, and Rust handles.
struct Both {
    java: Vec<[Actor; 2]>,
    rust: Vec<(ReadWriteLock<'static>, Vec<LockGuard>, Vec<LockGuard>)>,
}

impl Both {
    fn new(java: &Java, locks: &LockClient) -> Self {
        let names = ["one", "other"];
        let actors = |name: &str| ["read", "write"].map(|kind| java.actor(name, kind));
        let lock = || (locks.read_write_lock("a"), Vec::new(), Vec::new());
        Self { java: names.map(actors).into(), rust: names.map(|_| lock()).into() }
    }

    async fn take(&mut self, who: usize, part: Part) {
        let [read, write] = &self.java[who];
        let (lock, reads, writes) = &mut self.rust[who];
        match part {
            Read => {
                read.lock("a").await.unwrap();
                reads.push(lock.read().lock().await.unwrap());
            }
            Write => {
                write.lock("a").await.unwrap();
                writes.push(lock.write().lock().await.unwrap());
            }
            WriteForAMinute => {
                write.lock_for("a", 60 * SECOND).await.unwrap();
                let guard = lock.write().lock().await.unwrap();
                guard.extend(60 * SECOND).await.unwrap();
                writes.push(guard);
            }
            EndRead => {
                read.unlock("a").await.unwrap();
                reads.pop().unwrap().unlock().await.unwrap();
            }
            EndWrite => {
                write.unlock("a").await.unwrap();
                writes.pop().unwrap().unlock().await.unwrap();
            }
        }
    }
}

/// Guarantee 13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_beside_writing_leaves_the_same_state() {
    let (java_scene, rust_scene) = (Scene::start(), Scene::start());
    let java = Java::start(&java_scene).await;
    let locks = rust_scene.client_with(LockConfig::builder().command_timeout(LIMIT)).await;
    let mut both = Both::new(&java, &locks);
    let (mut java_ear, mut rust_ear) = (Ear::open(&java_scene).await, Ear::open(&rust_scene).await);
    #[rustfmt::skip]
    let steps = [
        (0, Write), (0, Read), (0, Read), (0, EndRead), (0, EndRead), (0, EndWrite),
        (0, Write), (0, Read), (0, EndWrite), (1, Read), (0, EndRead), (1, EndRead),
        (1, Read), (0, Read), (0, Read), (1, EndRead), (0, EndRead), (0, EndRead),
    ];
    for (number, (who, part)) in steps.into_iter().enumerate() {
        both.take(who, part).await;
        let by_java = state(&java_scene, &mut java_ear, false).await;
        let mut by_rust = state(&rust_scene, &mut rust_ear, false).await;
        if part == EndWrite && !by_rust.keys.is_empty() {
            // Java publishes nothing here.
            assert_eq!(by_rust.messages, [("redisson_rwlock:{a}".to_owned(), "1".to_owned())]);
            by_rust.messages.clear();
        }
        assert_eq!(by_rust, by_java, "after step {number}, {part:?}; left is Rust, right is Java");
    }
    drop((java_ear, rust_ear, both, locks));
    java.end(&java_scene).await;
    java_scene.end(()).await;
    rust_scene.end(()).await;
}

/// Guarantee 4. The differences in the last table of `lua/README.md` that concern a reader's own keys, or both locks
/// of one name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_differences_of_a_read_write_lock_are_the_listed_ones() {
    let (java_scene, rust_scene) = (Scene::start(), Scene::start());
    let java = Java::start(&java_scene).await;
    let locks = rust_scene.client_with(LockConfig::builder().command_timeout(LIMIT)).await;
    let seconds = |scene: &Scene, key: &str| (scene.server.run::<i64>(&["PTTL", key]) + 999) / 1_000;
    let mut both = Both::new(&java, &locks);
    for (part, java_has, rust_has) in [
        (WriteForAMinute, 60, 60),
        (Read, 60, 60), // never lowered
        (Read, 60, 60),
        (EndRead, 30, 60), // set to the remaining lease of the other holds
        (EndRead, 30, 60),
        (EndWrite, 0, 0),
        (WriteForAMinute, 60, 60),
        (Read, 60, 60),
        (EndWrite, 60, 30), // a downgrade
        (EndRead, 0, 0),
    ] {
        both.take(0, part).await;
        let (java_left, rust_left) = (seconds(&java_scene, "a"), seconds(&rust_scene, "a"));
        assert!((java_has - 9..=java_has).contains(&java_left), "{part:?}: {java_left}");
        assert!((rust_has - 9..=rust_has).contains(&rust_left), "{part:?}: {rust_left}");
    }

    // The keys of two holds, the second with a longer lease.
    let reader = java.actor("one", "read");
    reader.lock("a").await.unwrap();
    reader.lock_for("a", 60 * SECOND).await.unwrap();
    let mut owner = locks.owner();
    let outer = owner.read_write_lock("a").read().lock().await.unwrap();
    let inner = owner.read_write_lock("a").with(&fixed(60 * SECOND)).read().lock().await.unwrap();
    let keys = |scene: &Scene| {
        let mut keys: Vec<String> = scene.server.run(&["KEYS", &format!("*{HOLDS}*")]);
        keys.sort_unstable();
        keys
    };
    let of_keys = |scene: &Scene| {
        let keys = keys(scene);
        let values: Vec<String> = keys.iter().map(|key| scene.server.run(&["GET", key])).collect();
        let leases: Vec<i64> = keys.iter().map(|key| (seconds(scene, key) + 9) / 10 * 10).collect();
        (values, leases)
    };
    let ((java_values, java_leases), (rust_values, rust_leases)) =
        (of_keys(&java_scene), of_keys(&rust_scene));
    assert_eq!((java_leases, rust_leases), (vec![30, 60], vec![60]));
    assert_eq!(java_values, ["1", "1"]);
    assert!(rust_values[0].parse::<u64>().is_ok(), "{rust_values:?}");

    // `forceUnlock`.
    assert!(
        reader.force_unlock("a").await.unwrap()
            && locks.read_write_lock("a").read().force_unlock().await.unwrap()
    );
    assert_eq!((keys(&java_scene).len(), keys(&rust_scene).len()), (2, 0));
    delete_what_java_leaves(&java_scene);
    drop((outer, inner, owner, both, locks));
    java.end(&java_scene).await;
    java_scene.end(()).await;
    rust_scene.end(()).await;
}

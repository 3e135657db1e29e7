//! Redisson and lockkeeper on the same locks of one server, or of a cluster.
//!
//! A type of lock takes part through a row at the end of this file.

#![allow(missing_docs, unnameable_types, unreachable_pub, reason = "a test")]

#[path = "../support/mod.rs"]
mod support;

mod deployments;
mod java;
mod jvm;
mod kinds;
mod lingering;
mod load;
mod multi;
mod names;
mod queue;
mod readers;
mod roles;
mod semaphore;
mod state;
mod tokens;

use std::future::Future;
use std::time::Duration;

use java::{Actor, Java};
use lockkeeper::{Lock, LockClient, LockConfig, LockConfigBuilder};
use lockkeeper_testkit::Commands;
use support::fixture::{FairLocks, FencedLocks, Fixture, RLocks, ReadLocks, Subject, WriteLocks};
use support::{SECOND, Scene, child};
use tokio::task::JoinHandle;

/// A type of lock in both languages.
pub trait Row: Send + Sync + 'static {
    type Rust: Fixture;
    const NAME: &'static str;
    /// The names in `Locks.java`: of this lock, and of the lock that excludes it.
    const JAVA: &'static str;
    const RIVAL: &'static str;
}

/// A server with one client of each language. A message wakes their waiters, or they sleep on.
struct Stage {
    scene: Scene,
    java: Java,
    locks: LockClient,
}

impl Stage {
    async fn start() -> Self {
        Self::with_watchdog(Duration::from_secs(30)).await
    }

    async fn with_watchdog(lease: Duration) -> Self {
        Self::with_watchdogs(lease, LockConfig::builder().watchdog_lease(lease)).await
    }

    async fn with_watchdogs(of_java: Duration, config: LockConfigBuilder) -> Self {
        let scene = Scene::start();
        let java = Java::with(&scene, &[&format!("watchdog={}", of_java.as_millis())]).await;
        let locks = scene
            .client_with(config.safety_poll(Duration::from_secs(3_600)).command_timeout(10 * SECOND))
            .await;
        Self { scene, java, locks }
    }

    fn lock<R: Row>(&self) -> Lock<'static, <R::Rust as Fixture>::Kind> {
        R::Rust::lock(&self.locks, "a")
    }

    fn rival<R: Row>(&self) -> Lock<'static, <R::Rust as Fixture>::Opponent> {
        R::Rust::rival(&self.locks, "a")
    }

    async fn end(self) {
        self.java.end(&self.scene).await;
        drop(self.locks);
        self.scene.end(()).await;
    }
}

/// Starts a Rust waiter. Returns when it has attempted, subscribed and attempted again: from here on only a message
/// wakes it.
async fn waiting<R: Row, T: Send + 'static>(
    server: &Commands,
    waiter: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let attempts = || match R::Rust::IS_READ_WRITE {
        // Only the acquire scripts call it.
        false => server.calls("pttl"),
        // No command is specific to acquires. If a renewal was counted, the waiter may still attempt when this returns.
        true => server.scripts(),
    };
    let before = attempts();
    let waiting = tokio::spawn(waiter);
    let looks = || (attempts() - before, server.channels());
    support::eventually("the waiter has attempted twice", looks, |(made, channels)| {
        *made >= 2 && !channels.is_empty()
    })
    .await;
    assert!(!waiting.is_finished());
    waiting
}

/// The same for a Java actor: it sleeps until it is woken.
async fn java_waiting(
    server: &Commands,
    actor: &Actor,
    waiter: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let waiting = tokio::spawn(waiter);
    actor.asleep().await;
    assert!(!waiting.is_finished());
    assert!(!server.channels().is_empty(), "the waiter has subscribed");
    waiting
}

fn actor<R: Row>(java: &Java, name: &str) -> Actor {
    java.actor(name, R::JAVA)
}

fn rival<R: Row>(java: &Java, name: &str) -> Actor {
    java.actor(name, R::RIVAL)
}

/// What the second Rust process does.
async fn second_process<R: Row>(job: &str, locks: LockClient) {
    match job {
        "hold" => {
            let _guard = R::Rust::lock(&locks, "a").lock().await.unwrap();
            println!("held");
            std::future::pending().await
        }
        "count" => {
            println!("counted {}", load::count::<R>(&locks).await);
            locks.shutdown().await.unwrap();
        }
        other => println!("unexpected: {other}"),
    }
}

macro_rules! rows {
    ($($row:ident: $fixture:ty, $java:literal, $rival:literal { $($module:ident: $($test:ident)*;)* })*) => {
        $(mod $row {
            pub struct Row;

            impl crate::Row for Row {
                type Rust = $fixture;
                const NAME: &'static str = stringify!($row);
                const JAVA: &'static str = $java;
                const RIVAL: &'static str = $rival;
            }

            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    crate::$module::$test::<Row>().await;
                }
            )*)*
        })*

        /// The second process. In a normal test run it does nothing.
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn child() {
            let Some((role, url)) = child::role() else { return };
            let (row, job) = role.split_once(' ').unwrap();
            // Only a holder that is killed has a short lease. Under load, a section may stall for longer.
            let config = match job {
                "hold" => LockConfig::builder().watchdog_lease(roles::LEASE),
                _ => LockConfig::builder(),
            };
            let locks = support::connect(url, config).await;
            match row {
                $(stringify!($row) => second_process::<$row::Row>(job, locks).await,)*
                other => println!("unexpected: {other}"),
            }
            println!("end");
        }
    };
    ($($row:ident: $fixture:ty, $java:literal, $rival:literal;)*) => {
        rows! { $($row: $fixture, $java, $rival {
            roles:
                java_waits_for_a_reentrant_rust_holder
                rust_waits_for_a_reentrant_java_holder
                a_java_watchdog_keeps_rust_out
                a_rust_watchdog_keeps_java_out
                rust_gets_the_lock_of_a_killed_jvm
                java_gets_the_lock_of_a_killed_rust_process
                java_gets_the_lock_when_a_rust_lease_ends
                java_force_unlocks_a_rust_holder
                rust_force_unlocks_a_java_holder
                each_side_sees_the_holder;
            state:
                the_same_operations_leave_the_same_state
                the_differences_are_the_listed_ones
                java_renews_to_its_lease_and_rust_to_the_longer;
            load:
                no_update_is_lost;
            names:
                a_name_mapper_is_a_name_prefix
                names_with_braces_mean_the_same_lock
                the_codec_does_not_matter;
        })* }
    };
}

rows! {
    // the lock in Rust; the lock in Java; the lock in Java that excludes it
    fair: crate::FairLocks, "fair", "fair";
    fenced: crate::FencedLocks, "fenced", "fenced";
    read: crate::ReadLocks, "read", "write";
    rlock: crate::RLocks, "rlock", "rlock";
    write: crate::WriteLocks, "write", "write";
}

//! Both languages on the same locks of a cluster, and of a master that sentinels watch.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{LockClient, LockGuard, Source};
use lockkeeper_testkit::{Cluster, Commands, MASTER, Sentinels};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::java::Actor;
use crate::roles::{HAND_OFF, hand_back_on, hand_over, waits};
use crate::support::fixture::Subject;
use crate::support::{MS, SECOND, nothing_is_left, patient, raised, renewed};
use crate::{Java, Row, actor, fair, fenced, read, rival, rlock, waiting, write};

/// All names with this tag have the same slot.
const TAG: &str = "{tag}";

/// After a renewal, at least two thirds of it remain: longer than a hand-off.
const LEASE: Duration = Duration::from_secs(2 * HAND_OFF.as_secs());

/// Calls a generic function for each type of lock, one after the other.
macro_rules! of_each_type {
    ($function:ident($($argument:expr),*)) => {
        [
            $function::<fair::Row>($($argument),*).await,
            $function::<fenced::Row>($($argument),*).await,
            $function::<read::Row>($($argument),*).await,
            $function::<rlock::Row>($($argument),*).await,
            $function::<write::Row>($($argument),*).await,
        ]
    };
}

enum Group {
    /// Of three masters.
    Cluster(Cluster),
    Sentinels(Sentinels),
}

impl Group {
    fn cluster(&self) -> &Cluster {
        let Self::Cluster(cluster) = self else { panic!("no cluster") };
        cluster
    }

    /// The server that has this name.
    fn server(&self, name: &str) -> &Commands {
        match self {
            Self::Cluster(cluster) => &cluster.servers[cluster.master_of_key(name)],
            Self::Sentinels(group) => &group.servers[group.master()],
        }
    }

    fn masters(&self) -> Vec<&Commands> {
        match self {
            Self::Cluster(cluster) => {
                cluster.masters().into_iter().map(|index| &*cluster.servers[index]).collect()
            }
            Self::Sentinels(_) => vec![self.server("")],
        }
    }

    fn source(&self) -> Source {
        match self {
            Self::Cluster(cluster) => Source::cluster(cluster.urls()),
            Self::Sentinels(group) => Source::sentinel(MASTER, group.urls(), "redis://master/"),
        }
    }

    async fn redisson(&self, lease: Duration, settings: &[&str]) -> Java {
        let address = match self {
            Self::Cluster(cluster) => cluster.urls().join(","),
            Self::Sentinels(group) => format!("{MASTER}@{}", group.urls().join(",")),
        };
        let watchdog = format!("watchdog={}", lease.as_millis());
        Java::at(&address, &[&[&*watchdog], settings].concat()).await
    }
}

/// Servers with one client of each language.
struct Ground {
    group: Group,
    java: Java,
    locks: LockClient,
}

impl Ground {
    async fn cluster(replicas_of_each: usize, lease: Duration) -> Self {
        let group = Group::Cluster(Cluster::start(3, replicas_of_each));
        Self::with(group, lease, &[], true).await
    }

    async fn with(group: Group, lease: Duration, settings: &[&str], sharded_messages: bool) -> Self {
        Self::at(group.source(), group, lease, settings, sharded_messages).await
    }

    async fn at(
        source: Source,
        group: Group,
        lease: Duration,
        settings: &[&str],
        sharded_messages: bool,
    ) -> Self {
        let java = group.redisson(lease, settings).await;
        let config = patient()
            .sharded_messages(sharded_messages)
            .watchdog_lease(lease)
            .retry_timeout(60 * SECOND)
            .safety_poll(3_600 * SECOND) // a message wakes a waiter, or it sleeps on
            .build();
        let locks = LockClient::connect_with(source, config.unwrap()).await.unwrap();
        Self { group, java, locks }
    }

    /// A new process takes the place of the Java client.
    async fn restart_java(&mut self, lease: Duration) {
        let java = self.group.redisson(lease, &[]).await;
        mem::replace(&mut self.java, java).end_on(&self.group.masters()).await;
    }

    async fn end(self) {
        self.locks.shutdown().await.unwrap();
        self.java.end_on(&self.group.masters()).await;
        let all = |of: fn(&Commands) -> Vec<String>| self.group.masters().into_iter().flat_map(of).collect();
        nothing_is_left(|| all(Commands::keys), || all(Commands::channels)).await;
    }
}

/// Guarantees 1 and 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_excludes_and_wakes_the_other_on_every_master() {
    let ground = Ground::cluster(0, 30 * SECOND).await;
    for index in 0..3 {
        let tag = format!("{{{}}}", ground.group.cluster().name_on(index, "tag"));
        of_each_type!(excludes_and_wakes(&ground, &tag));
        let server = &ground.group.cluster().servers[index];
        assert!(server.calls("spublish") > 0 && server.calls("publish") == 0);
    }
    ground.end().await;
}

/// Guarantees 1 and 8. Redisson knows databases in a cluster from 4.0 on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "Valkey 9.0 is needed: scripts/nightly databases"]
async fn each_excludes_and_wakes_the_other_in_a_database_of_a_cluster() {
    let group = Cluster::with(3, 0, SECOND, &["--cluster-databases", "16"]);
    let source = Source::cluster(group.urls().into_iter().map(|url| format!("{url}3")));
    let ground = Ground::at(source, Group::Cluster(group), 30 * SECOND, &["database=3"], true).await;
    let guard = ground.locks.rlock("a").lock().await.unwrap();
    let mut connection =
        ground.group.cluster().servers[ground.group.cluster().master_of_key("a")].connect().unwrap();
    redis::cmd("SELECT").arg(3).exec(&mut connection).unwrap();
    assert!(redis::cmd("EXISTS").arg("a").query::<bool>(&mut connection).unwrap());
    guard.unlock().await.unwrap();
    of_each_type!(excludes_and_wakes(&ground, TAG));
    ground.end().await;
}

async fn excludes_and_wakes<R: Row>(ground: &Ground, tag: &str) {
    let Ground { java, locks, .. } = ground;
    let (name, server) = (format!("{}{tag}", R::NAME), ground.group.server(tag));
    let guard = R::Rust::lock(locks, &name).lock().await.unwrap();
    let waiter = rival::<R>(java, "waiter");
    assert!(!waiter.try_lock(&name).await.unwrap());
    hand_over(server, guard, &waiter, &name).await;

    let holder = actor::<R>(java, "holder");
    holder.lock(&name).await.unwrap();
    assert!(R::Rust::rival(locks, &name).try_lock().await.unwrap().is_none());
    hand_back_on::<R>(server, locks, &holder, &name).await;
}

/// Guarantees 1, 7 and 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_and_waiters_of_both_sides_follow_their_slot() {
    let mut ground = Ground::cluster(0, LEASE).await;
    let held = of_each_type!(hold(&ground));
    let cluster = ground.group.cluster();
    let slot = cluster.slot_of(TAG);
    let from = cluster.master_of(slot);
    cluster.move_slot(slot, (from + 1) % 3);
    assert!(cluster.servers[from].keys().is_empty());
    // The server ends the subscriptions in a slot that moves, and Redisson 4.7.0 does not subscribe again. So the Java waiters
    // attempt at the end of the lease that they know of.
    release_all(&ground, held, LEASE + HAND_OFF).await;
    // Redisson waits for the server to end these subscriptions again, and meanwhile a channel that shares one of its 50
    // mutexes with one of them cannot be subscribed to. So another process checks what follows.
    ground.restart_java(LEASE).await;
    goes_on(ground).await;
}

/// Guarantees 1, 7 and 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_and_waiters_of_both_sides_follow_a_failover_of_sentinels() {
    let group = Group::Sentinels(Sentinels::start(SECOND));
    let ground = Ground::with(group, LEASE, &[], true).await;
    let held = of_each_type!(hold(&ground));
    let Group::Sentinels(sentinels) = &ground.group else { unreachable!() };
    let before = sentinels.master();
    sentinels.fail_over();
    sentinels.switched(before);
    release_all(&ground, held, HAND_OFF).await;
    goes_on(ground).await;
}

/// Releases what both sides hold where their slot is now.
async fn release_all(ground: &Ground, held: [Held; 5], java_acquires_within: Duration) {
    join_all(held.into_iter().map(|held| held.release(ground, java_acquires_within))).await;
}

/// Locks once more.
async fn goes_on(ground: Ground) {
    of_each_type!(excludes_and_wakes(&ground, TAG));
    ground.end().await;
}

/// Two locks of one type, one for each language, which holds it. The other language waits for it, and also tries to acquire it
/// all the time.
struct Held {
    ours: String,
    guard: LockGuard,
    java_waiter: Actor,
    java_waits: JoinHandle<()>,

    theirs: String,
    java_holder: Actor,
    rust_waits: JoinHandle<LockGuard>,

    tries: [JoinHandle<()>; 2],
    is_over: Arc<AtomicBool>,
}

async fn hold<R: Row>(ground: &Ground) -> Held {
    let Ground { java, locks, .. } = ground;
    let [ours, theirs] = ["rust", "java"].map(|holder| format!("{}:{holder}{TAG}", R::NAME));
    let [waits_as, holds_as, tries_as] =
        ["waiter", "holder", "other"].map(|role| format!("{}-{role}", R::NAME));
    let server = ground.group.server(TAG);

    let guard = R::Rust::lock(locks, &ours).lock().await.unwrap().into_plain();
    let java_waiter = rival::<R>(java, &waits_as);
    let java_waits = waits(server, &java_waiter, &ours).await;

    let java_holder = actor::<R>(java, &holds_as);
    java_holder.lock(&theirs).await.unwrap();
    let mut waiter = R::Rust::rival(locks, &theirs);
    let rust_waits = waiting::<R, _>(server, async move { waiter.lock().await.unwrap().into_plain() }).await;

    let is_over = Arc::new(AtomicBool::new(false));
    let (other, mut rust) = (rival::<R>(java, &tries_as), R::Rust::rival(locks, &theirs));
    let java_tries = tokio::spawn({
        let (is_over, name) = (Arc::clone(&is_over), ours.clone());
        async move {
            while !is_over.load(Ordering::SeqCst) {
                // While the slot changes hands, some calls of Redisson fail.
                assert_ne!(other.try_lock(&name).await, Ok(true), "Rust holds {name}");
                sleep(20 * MS).await;
            }
        }
    });
    let rust_tries = tokio::spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            while !is_over.load(Ordering::SeqCst) {
                assert!(rust.try_lock().await.unwrap().is_none(), "Java holds {}", rust.name());
                sleep(20 * MS).await;
            }
        }
    });
    let tries = [java_tries, rust_tries];
    Held { ours, guard, java_waiter, java_waits, theirs, java_holder, rust_waits, tries, is_over }
}

impl Held {
    /// Waits until both are renewed where they are now, and releases them.
    async fn release(self, ground: &Ground, java_acquires_within: Duration) {
        renewed(&self.guard).await;
        raised(ground.group.server(TAG), &self.theirs).await;
        assert!(!self.java_waits.is_finished() && !self.rust_waits.is_finished() && !self.guard.is_lost());
        self.is_over.store(true, Ordering::SeqCst);
        for tries in self.tries {
            tries.await.unwrap();
        }
        self.java_holder.unlock(&self.theirs).await.unwrap();
        let guard = timeout(HAND_OFF, self.rust_waits).await.expect("a message wakes Rust").unwrap();
        guard.unlock().await.unwrap();
        self.guard.unlock().await.unwrap();
        timeout(java_acquires_within, self.java_waits).await.expect("Java acquires it").unwrap();
        self.java_waiter.unlock(&self.ours).await.unwrap();
    }
}

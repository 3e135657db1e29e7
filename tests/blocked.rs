//! Programs that block all threads of their runtime keep their locks. A guard learns at once that its lock was deleted.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use lockkeeper::{HoldWatch, LockClient, LockConfig, LockConfigBuilder, LockOptions};
use lockkeeper_testkit::lua;
use tokio::runtime::{Builder, Runtime};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::support::child::is_alone;
use crate::support::events::Events;
use crate::support::{MS, SECOND, Scene, Server, connect, eventually, patient, renewed, soon};

/// A hold of each type, with its key and what watches it. The guard stays in the box.
struct Held {
    key: &'static str,
    watch: HoldWatch,
    _guard: Box<dyn Any + Send>,
}

macro_rules! held {
    ($key:literal, $guard:expr) => {{
        let guard = $guard.await.unwrap();
        Held { key: $key, watch: guard.watch(), _guard: Box::new(guard) }
    }};
}

async fn hold_all(locks: &LockClient) -> Vec<Held> {
    vec![
        held!("r", locks.rlock("r").lock()),
        held!("fair", locks.fair_lock("fair").lock()),
        held!("fenced", locks.fenced_lock("fenced").lock()),
        held!("read", locks.read_write_lock("read").read().lock()),
        held!("write", locks.read_write_lock("write").write().lock()),
        held!("{permits}:timeout", locks.semaphore("permits", 2).acquire()),
    ]
}

/// A runtime with one thread, which a test can block.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Blocks the thread of a runtime for this time, and calls `meanwhile` again and again until then.
fn while_blocked(runtime: &Runtime, time: Duration, spins: bool, mut meanwhile: impl FnMut()) {
    let (begins, begun) = mpsc::channel();
    runtime.spawn(async move {
        let _ = begins.send(());
        let start = Instant::now();
        while spins && start.elapsed() < time {}
        std::thread::sleep(time.saturating_sub(start.elapsed()));
    });
    begun.recv().unwrap();
    let start = Instant::now();
    while start.elapsed() < time {
        meanwhile();
        std::thread::sleep(10 * MS);
    }
}

/// Guarantee 7. Without the thread, the same program loses them all.
#[test]
fn a_blocked_runtime_keeps_locks_of_every_type() {
    for (spins, has_thread) in [(false, true), (true, true), (false, false)] {
        let (server, own) = (Server::start(), runtime());
        let config = LockConfig::builder().watchdog_lease(SECOND).watchdog_thread(has_thread);
        let (locks, held) = own.block_on(async {
            let locks = connect(server.url(), config).await;
            let held = hold_all(&locks).await;
            (locks, held)
        });
        let mut were_gone = false;
        while_blocked(&own, 3 * SECOND, spins, || {
            were_gone |= held.iter().any(|held| !server.run::<bool>(&["EXISTS", held.key]));
        });
        assert_eq!(were_gone, !has_thread, "spins: {spins}");
        let lost: Vec<_> = held.iter().filter(|held| held.watch.is_lost()).map(|held| held.key).collect();
        assert_eq!(lost.is_empty(), has_thread, "{lost:?}");
        own.block_on(async {
            drop(held);
            soon(locks.shutdown()).await.unwrap();
        });
        let left = server.keys();
        assert!(left.iter().all(|key| key.contains("permits")), "{left:?}");
    }
}

/// Guarantee 7. The connection for renewals breaks again and again, and all others with it.
#[test]
fn a_blocked_runtime_keeps_its_locks_while_connections_break() {
    let (server, own) = (Server::start(), runtime());
    let (locks, held) = own.block_on(async {
        let locks = connect(server.url(), LockConfig::builder().watchdog_lease(2 * SECOND)).await;
        let held = hold_all(&locks).await;
        (locks, held)
    });
    let (mut killed, mut kills) = (Instant::now(), 0);
    while_blocked(&own, 4 * SECOND, false, || {
        if killed.elapsed() > 250 * MS {
            server.run::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            (killed, kills) = (Instant::now(), kills + 1);
        }
        for held in &held {
            assert!(server.run::<bool>(&["EXISTS", held.key]), "{} after {kills} kills", held.key);
        }
    });
    assert!(held.iter().all(|held| !held.watch.is_lost()));
    own.block_on(async {
        drop(held);
        soon(locks.shutdown()).await.unwrap();
    });
}

/// Panics at each event that says this.
struct Panics {
    at: &'static str,
    count: Arc<AtomicUsize>,
}

struct Says<'a>(&'a str, bool);

impl Visit for Says<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.1 |= field.name() == "message" && format!("{value:?}").contains(self.0);
    }
}

impl<S: Subscriber> Layer<S> for Panics {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut says = Says(self.at, false);
        event.record(&mut says);
        if says.1 {
            self.count.fetch_add(1, Ordering::Relaxed);
            panic!("the layer panics");
        }
    }
}

#[tokio::test]
async fn a_panic_of_a_layer_ends_no_renewal() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let count = Arc::default();
    let layer = Panics { at: "leases were not renewed", count: Arc::clone(&count) };
    drop(Events::default().collect()); // other threads want the same events
    let subscribed = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let locks = connect(proxy.url(), LockConfig::builder().watchdog_lease(6 * SECOND)).await;
    let guards = [locks.rlock("a").lock().await.unwrap(), locks.rlock("b").lock().await.unwrap()];
    for guard in &guards {
        renewed(guard).await;
    }
    proxy.refuse(true);
    proxy.cut();
    eventually("the layer panics", || count.load(Ordering::Relaxed), |count| *count > 0).await;
    proxy.refuse(false);
    for _ in 0..2 {
        for guard in &guards {
            renewed(guard).await;
        }
    }
    drop(guards);
    soon(locks.shutdown()).await.unwrap();
    scene.end((locks, proxy, subscribed)).await;
}

/// Guarantee 20. The release needs the blocked runtime, so the lease of such a hold ends with it.
#[test]
fn a_blocked_runtime_keeps_no_lock_beyond_its_longest_time() {
    let (server, own) = (Server::start(), runtime());
    let lease = 2 * SECOND;
    let options = LockOptions::builder().max_hold(3 * SECOND).build().unwrap();
    let start = Instant::now();
    let (locks, guard) = own.block_on(async {
        let locks = connect(server.url(), LockConfig::builder().watchdog_lease(lease)).await;
        let guard = locks.rlock("a").with(&options).lock().await.unwrap();
        (locks, guard)
    });
    let granted = start.elapsed();
    let (mut gone_at, watch) = (None, guard.watch());
    while_blocked(&own, 6 * SECOND, false, || {
        if gone_at.is_none() && !server.run::<bool>(&["EXISTS", "a"]) {
            gone_at = Some(start.elapsed());
        }
    });
    let gone_at = gone_at.expect("the key has ended");
    // A machine that is busy sees it later.
    assert!(
        gone_at > granted + 2 * SECOND && gone_at < granted + 3 * SECOND + lease / 16 + 800 * MS,
        "{gone_at:?}"
    );
    assert!(watch.is_lost());
    own.block_on(async {
        drop(guard);
        soon(locks.shutdown()).await.unwrap();
    });
}

/// Nothing else would show it: the locks are renewed.
#[test]
fn a_runtime_that_stands_still_is_an_event() {
    let events = Events::default();
    let _collecting = events.collect();
    let (server, own) = (Server::start(), runtime());
    let (locks, guard) = own.block_on(async {
        let locks = connect(server.url(), LockConfig::builder().watchdog_lease(SECOND)).await;
        let guard = locks.rlock("a").lock().await.unwrap();
        (locks, guard)
    });
    while_blocked(&own, 2 * SECOND, false, || ());
    let text = events.text();
    let told = text.matches("the runtime of this client stands still").count();
    assert!((1..=4).contains(&told), "once for each time that it doubles: {text}");
    own.block_on(async {
        soon(guard.unlock()).await.unwrap();
        soon(locks.shutdown()).await.unwrap();
    });
}

/// A lease so long that no renewal comes while a test waits.
fn long() -> LockConfigBuilder {
    patient().watchdog_lease(300 * SECOND)
}

/// Waits until the server tells of changes of so many keys.
async fn tracked(server: &Server, keys: u64) {
    let count = || {
        let info: String = server.run(&["INFO", "stats"]);
        let count = info.lines().find_map(|line| line.strip_prefix("tracking_total_keys:"));
        count.unwrap().parse::<u64>().unwrap()
    };
    eventually("the keys are tracked", count, |count| *count >= keys).await;
}

/// Guarantee 6. A guard learns of a deleted lock without a renewal, whoever deletes it.
#[tokio::test]
async fn a_deleted_lock_is_told_at_once() {
    let scene = Scene::start();
    type Ends = fn(&Server, &str);
    let ways: [(&str, Ends); 4] = [
        ("DEL", |server, key| server.run(&["DEL", key])),
        ("RENAME", |server, key| server.run(&["RENAME", key, "elsewhere"])),
        ("PEXPIRE", |server, key| server.run(&["PEXPIRE", key, "1"])),
        ("FLUSHALL", |server, _| server.run(&["FLUSHALL"])),
    ];
    for (way, ends) in ways {
        let locks = scene.client_with(long()).await;
        let held = hold_all(&locks).await;
        tracked(&scene.server, held.len() as u64).await;
        for held in &held {
            if held.key == "read" && way != "FLUSHALL" {
                continue; // of a reader, the server tells changes of its own key only
            }
            if held.key.contains("permits") && way == "PEXPIRE" {
                continue; // the expiry is the second change, and only the first one of a semaphore is followed
            }
            ends(&scene.server, held.key);
            let is_lost = || held.watch.is_lost();
            eventually(&format!("{} is lost after {way}", held.key), is_lost, |is_lost| *is_lost).await;
        }
        drop(held);
        locks.shutdown().await.unwrap(); // a look that comes late would be counted as the next one
        scene.server.run::<()>(&["FLUSHALL"]);
    }
    let (locks, other) = (scene.client_with(long()).await, scene.client().await);
    let guard = locks.rlock("forced").lock().await.unwrap();
    tracked(&scene.server, 1).await;
    let info = other.inspect("forced").await.unwrap().unwrap();
    assert!(other.force_unlock(&info).await.unwrap());
    soon(guard.ended()).await.unwrap_err();
    drop(guard);
    // The hold has a lease of its own, so nothing renews it.
    let options = LockOptions::builder().fixed(300 * SECOND).build().unwrap();
    let guard = locks.rlock("fixed").with(&options).lock().await.unwrap();
    tracked(&scene.server, 1).await;
    scene.server.run::<()>(&["DEL", "fixed"]);
    soon(guard.ended()).await.unwrap_err();
    drop((guard, locks, other));
    scene.server.run::<()>(&["FLUSHALL"]);
    scene.end(()).await;
}

/// The connection on which the server tells is gone, and comes again.
#[tokio::test]
async fn a_lost_connection_for_renewals_costs_no_news() {
    let (scene, locks) = Scene::with_client_of(long()).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    tracked(&scene.server, 1).await;
    // The id of the connection that is told of changes, once it has renewed something.
    let telling = || {
        let clients: String = scene.server.run(&["CLIENT", "LIST"]);
        let field =
            |line: &str, name| line.split(' ').find_map(|field| field.strip_prefix(name)).map(str::to_owned);
        let tells = |line: &&str| {
            field(line, "flags=").is_some_and(|flags| flags.contains('t'))
                && field(line, "cmd=").is_some_and(|cmd| cmd.starts_with("eval"))
        };
        clients.lines().find(tells).and_then(|line| field(line, "id="))
    };
    for _ in 0..3 {
        let id = eventually("a connection tells", telling, Option::is_some).await;
        scene.server.run::<()>(&["CLIENT", "KILL", "ID", id.as_deref().unwrap()]);
        eventually("another one tells", telling, |other| other.is_some() && *other != id).await;
    }
    assert!(!guard.is_lost());
    scene.server.run::<()>(&["DEL", "a"]);
    soon(guard.ended()).await.unwrap_err();
    scene.end((guard, locks)).await;
}

/// Without the right to ask for it, everything is as it was, and one event says so.
#[tokio::test]
async fn a_server_that_tells_no_changes_costs_no_renewal() {
    let events = Events::default();
    let _collecting = events.collect();
    let scene = Scene::start();
    let url = scene.user("+@all -client|tracking ~* &*");
    let locks = connect(url, LockConfig::builder().watchdog_lease(SECOND)).await;
    let guards = [locks.rlock("a").lock().await.unwrap(), locks.rlock("b").lock().await.unwrap()];
    let renewals = scene.server.calls("pexpire");
    eventually("they are renewed", || scene.server.calls("pexpire"), |calls| *calls > renewals + 8).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    let text = events.text();
    assert_eq!(text.matches("the server does not tell when a lock is deleted").count(), 1, "{text}");
    scene.end((guards, locks)).await;
}

/// Nothing is renewed, so the look is the first command on the connection for renewals.
#[tokio::test]
async fn a_client_whose_holds_are_fixed_is_told_of_changes() {
    let (scene, locks) = Scene::with_client_of(long()).await;
    let options = LockOptions::builder().fixed(300 * SECOND).build().unwrap();
    let guard = locks.rlock("a").with(&options).lock().await.unwrap();
    tracked(&scene.server, 1).await;
    scene.server.run::<()>(&["DEL", "a"]);
    soon(guard.ended()).await.unwrap_err();
    scene.end((guard, locks)).await;
}

/// A server forgets a key that a script writes, until somebody reads it again. Redis 7.0 tells only of keys that a script declares, so
/// not of those of readers.
#[tokio::test]
async fn a_renewal_reads_what_it_wrote() {
    let server = Server::start();
    for command in [&["HSET", "a", "me", "1"][..], &["ZADD", "permits", "1", &"a".repeat(16)]] {
        server.run::<()>(command);
    }
    for key in ["a", "permits"] {
        server.run::<()>(&["PEXPIRE", key, "10000"]);
    }
    let ids = "a".repeat(16);
    let renewals = [
        ("rlock/renew.lua", &["1", "a", "20000", "me"][..], "a"),
        ("semaphore/renew.lua", &["1", "permits", "20000", &ids, "0"], "permits"),
    ];
    for (file, args, key) in renewals {
        let (pushes, mut pushed) = tokio::sync::mpsc::unbounded_channel();
        let client = redis::Client::open(format!("{}?protocol=resp3", server.url())).unwrap();
        let config = redis::AsyncConnectionConfig::new().set_push_sender(pushes);
        let mut own = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        redis::cmd("CLIENT").arg(&["TRACKING", "ON", "NOLOOP"]).exec_async(&mut own).await.unwrap();
        let mut renews = redis::cmd("EVAL");
        renews.arg(lua::source(file)).arg(args);
        let renewed: Vec<i64> = renews.query_async(&mut own).await.unwrap();
        assert_eq!(renewed, [lua::reply("RENEWED")], "{file}");
        server.run::<()>(&["PEXPIRE", key, "100"]);
        redis::cmd("PING").exec_async(&mut own).await.unwrap();
        let told =
            std::iter::from_fn(|| pushed.try_recv().ok()).any(|push| format!("{push:?}").contains(key));
        assert!(told, "{file}");
        server.run::<()>(&["PEXPIRE", key, "10000"]);
    }
}

/// A thread for each client, while it is connected.
#[test]
fn the_thread_ends_with_its_client() {
    if !is_alone("blocked::the_thread_ends_with_its_client") {
        return; // it ran in a process whose threads are its own
    }
    let threads = || {
        let all = std::fs::read_dir("/proc/self/task").unwrap();
        let names = all.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim() == "lockkeeper").count()
    };
    let (server, own) = (Server::start(), runtime());
    own.block_on(async {
        let none = connect(server.url(), LockConfig::builder().watchdog_thread(false)).await;
        assert_eq!(threads(), 0);
        let first = connect(server.url(), LockConfig::builder()).await;
        let second = connect(server.url(), LockConfig::builder()).await;
        eventually("each has a thread", threads, |count| *count == 2).await;
        first.shutdown().await.unwrap();
        eventually("the thread of the first has ended", threads, |count| *count == 1).await;
        let guard = second.rlock("a").lock().await.unwrap();
        drop(second);
        assert_eq!(threads(), 1, "the guard needs it");
        drop(guard);
        eventually("the last thread has ended", threads, |count| *count == 0).await;
        drop((none, first));
        let refused = LockClient::connect("redis://127.0.0.1:1/").await;
        assert!(refused.is_err());
        eventually("a failed connect leaves none", threads, |count| *count == 0).await;
    });
}

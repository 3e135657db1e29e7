//! Code of the user that lockkeeper runs: a `tracing` layer, and a metrics recorder. It can ask a lock or a guard. The simulated worlds
//! check that lockkeeper has no mutex locked meanwhile (`tests/simulation/unlocked.rs`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use crate::support::{Faults, LIMIT, MS, SECOND, Scene, connect, eventually, patient, soon};
use lockkeeper::{BaseLock, Lock, LockClient, LockConfig, LockGuard, RLock};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tokio::runtime::Builder;
use tokio::time::sleep;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Asks a lock and its guard whenever something is told.
#[derive(Clone, Default)]
struct Curious(Arc<State>);

#[derive(Default)]
struct State {
    asked: Mutex<Option<(RLock<'static>, Arc<LockGuard>)>>,
    /// How often it asked when a counter grew, and how often at an event.
    times: [AtomicUsize; 2],
}

impl Curious {
    fn ask(&self, who: usize) {
        // Not while it asks already: what it asks can tell something, too.
        let Ok(asked) = self.0.asked.try_lock() else { return };
        if let Some((lock, guard)) = &*asked {
            let _ = (lock.is_held(), guard.hold_count(), guard.is_lost(), guard.remaining());
            self.0.times[who].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: Subscriber> Layer<S> for Curious {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        self.ask(1);
    }
}

impl CounterFn for Curious {
    fn increment(&self, _: u64) {
        self.ask(0);
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for Curious {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(self.clone()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// A layer and a recorder that ask the lock whose loss is told, after a `DEL` and after an outage. A mutex that is locked meanwhile would
/// stop their thread for ever.
#[test]
fn a_layer_and_a_recorder_can_ask_the_lock_that_was_lost() {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let curious = Curious::default();
        let _layer = tracing::subscriber::set_default(tracing_subscriber::registry().with(curious.clone()));
        let _recorder = metrics::set_default_local_recorder(&curious);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let scene = Scene::start();
            let proxy = scene.proxy().await;
            let locks = connect(proxy.url(), LockConfig::builder().watchdog_lease(1_500 * MS)).await;
            for is_outage in [false, true] {
                let mut lock = locks.rlock("a");
                let guard = Arc::new(lock.lock().await.unwrap());
                *curious.0.asked.lock().unwrap() = Some((lock, Arc::clone(&guard)));
                if is_outage {
                    proxy.set(Faults::black_hole());
                } else {
                    scene.server.run::<()>(&["DEL", "a"]);
                }
                soon(guard.ended()).await.unwrap_err();
                drop(guard);
                proxy.set(Faults::default());
                let [counts, events] =
                    curious.0.times.each_ref().map(|times| times.swap(0, Ordering::Relaxed));
                assert!(counts > 0 && events > 0, "{counts} and {events} times");
            }
            curious.0.asked.lock().unwrap().take();
            locks.shutdown().await.unwrap();
            scene.end((locks, proxy)).await;
        });
        done.send(()).unwrap();
    });
    is_done.recv_timeout(2 * LIMIT + 5 * SECOND).expect("the thread of the layer stands still, or failed");
}

/// Panics at the events of the module whose path ends so.
struct Panics(&'static str, Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Panics {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().ends_with(self.0) {
            self.1.fetch_add(1, Ordering::Relaxed);
            panic!("a layer of the user");
        }
    }
}

/// The background finds that the hold of a dropped guard is gone.
#[tokio::test]
async fn a_layer_that_panics_in_the_background_ends_nothing_else() {
    let count = Arc::<AtomicUsize>::default();
    let panics = Panics("hold", Arc::clone(&count));
    let _layer = tracing::subscriber::set_default(tracing_subscriber::registry().with(panics));
    let (scene, locks) = Scene::with_client().await;
    let guard = locks.rlock("a").lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "a"]);
    drop(guard);
    eventually("it panics", || count.load(Ordering::Relaxed), |count| *count > 0).await;
    soon(locks.rlock("b").lock()).await.unwrap().unlock().await.unwrap();
    soon(locks.shutdown()).await.unwrap();
    scene.end(locks).await;
}

/// Guarantee 17. The layer panics at the warning that a release was refused. Without a repetition, the lock would stay for its lease.
#[tokio::test]
async fn a_layer_that_panics_at_a_refused_release_does_not_end_it() {
    let count = Arc::<AtomicUsize>::default();
    let panics = Panics("owed", Arc::clone(&count));
    let _layer = tracing::subscriber::set_default(tracing_subscriber::registry().with(panics));
    let scene = Scene::start();
    let locks = connect(scene.user("~* &* +@all"), LockConfig::builder().watchdog_lease(60 * SECOND)).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    scene.user("-evalsha");
    drop(guard);
    eventually("it panics", || count.load(Ordering::Relaxed), |count| *count > 0).await;
    scene.user("+evalsha");
    eventually("it is released", || scene.server.keys(), Vec::is_empty).await;
    soon(locks.shutdown()).await.unwrap();
    scene.end(locks).await;
}

/// A recorder that panics when one of these metrics changes, as often as its number says.
#[derive(Clone)]
struct Fails(&'static [&'static str], Arc<AtomicUsize>);

impl Fails {
    fn of(metrics: &'static [&'static str]) -> Self {
        Self(metrics, Arc::default())
    }

    fn fail(&self) {
        let left = self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left.is_err(), "a recorder of the user");
    }
}

impl CounterFn for Fails {
    fn increment(&self, _: u64) {
        self.fail();
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Fails {
    fn increment(&self, _: f64) {
        self.fail();
    }

    fn decrement(&self, _: f64) {
        self.fail();
    }

    fn set(&self, _: f64) {}
}

impl HistogramFn for Fails {
    fn record(&self, _: f64) {
        self.fail();
    }
}

impl Recorder for Fails {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let fails = self.0.contains(&key.name());
        if fails { Counter::from_arc(Arc::new(self.clone())) } else { Counter::noop() }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let fails = self.0.contains(&key.name());
        if fails { Gauge::from_arc(Arc::new(self.clone())) } else { Gauge::noop() }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let fails = self.0.contains(&key.name());
        if fails { Histogram::from_arc(Arc::new(self.clone())) } else { Histogram::noop() }
    }
}

#[tokio::test]
async fn a_recorder_that_panics_keeps_no_lock_and_loses_none() {
    let fails = Fails::of(&[
        "lockkeeper_renewals_total",
        "lockkeeper_held_seconds",
        "lockkeeper_unfinished_releases",
    ]);
    let _recorder = metrics::set_default_local_recorder(&fails);
    let scene = Scene::start();
    let locks = connect(scene.server.url(), LockConfig::builder().watchdog_lease(1_500 * MS)).await;
    let mut guards = Vec::new();
    for name in ["a", "b", "c"] {
        guards.push(locks.rlock(name).lock().await.unwrap());
    }
    fails.1.store(usize::MAX, Ordering::Relaxed);
    // One command renews them all. A lock that is not renewed is lost in this time.
    sleep(4 * SECOND).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    for guard in guards {
        catch_unwind(AssertUnwindSafe(|| drop(guard))).unwrap_err();
    }
    eventually("all are released", || scene.server.keys(), Vec::is_empty).await;
    fails.1.store(0, Ordering::Relaxed);
    locks.shutdown().await.unwrap();
    scene.end(locks).await;
}

/// The background notices that the connection broke, and its command has not left.
#[tokio::test]
async fn a_recorder_that_panics_in_a_release_does_not_end_it() {
    let fails = Fails::of(&["lockkeeper_reconnects_total"]);
    let _recorder = metrics::set_default_local_recorder(&fails);
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), LockConfig::builder().connections(1).watchdog_lease(60 * SECOND)).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    fails.1.store(1, Ordering::Relaxed);
    proxy.cut();
    drop(guard);
    eventually("it is released", || scene.server.keys(), Vec::is_empty).await;
    assert_eq!(fails.1.load(Ordering::Relaxed), 0, "it panicked");
    locks.shutdown().await.unwrap();
    scene.end((locks, proxy)).await;
}

/// The attempt that follows a release. Nothing else would wake the waiter before the end of the test.
#[tokio::test]
async fn a_recorder_that_panics_in_an_attempt_keeps_no_waiter_asleep() {
    panics_in_an_attempt(|locks| locks.rlock("a")).await;
    panics_in_an_attempt(|locks| locks.fair_lock("a")).await;
}

#[allow(clippy::future_not_send, reason = "the recorder of a thread is not `Send`")]
async fn panics_in_an_attempt<K: BaseLock>(lock: fn(&LockClient) -> Lock<'static, K>) {
    let scene = Scene::start();
    let holder = scene.client().await;
    let mut held = lock(&holder);
    let guard = held.lock().await.unwrap();
    let fails = Fails::of(&["lockkeeper_calls_total"]);
    let _recorder = metrics::set_default_local_recorder(&fails);
    let locks = scene.client_with(patient().safety_poll(2 * LIMIT).diagnosis(false)).await;
    let mut lock = lock(&locks);
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
    let waits = || (scene.server.channels().len(), scene.server.calls("pttl"));
    eventually("it stands in the line", waits, |(channels, attempts)| *channels > 0 && *attempts >= 2).await;
    fails.1.store(1, Ordering::Relaxed);
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    assert_eq!(fails.1.load(Ordering::Relaxed), 0, "it panicked");
    scene.end((held, locks, holder)).await;
}

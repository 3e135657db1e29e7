//! Guarantee 18: what the feature `metrics` records, and that `docs/operate.md` lists it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::support::{
    Faults, MS, SECOND, Scene, at_least, at_most, connect, eventually, fixed, grouped, listens, patient,
    renewed, soon,
};
use futures_util::future::join_all;
use lockkeeper::{BaseLock, Error, Lock, LockClient, LockConfig, MultiLock, ReadWriteLock, RedLock, Source};
use lockkeeper_memory::MemoryServer;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Label, LocalRecorderGuard,
    Metadata, Recorder, SharedString, Unit, set_default_local_recorder,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

// --- a recorder --------------------------------------------------------------------------------------------------------

/// Keeps everything that is recorded on this thread. The tests run on one thread each, so they do not see each other.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The kind and the description of each metric.
    described: BTreeMap<String, (&'static str, String)>,
    series: BTreeMap<(String, Labels), Arc<Series>>,
}

type Labels = BTreeMap<String, String>;

#[derive(Default)]
struct Series(Mutex<Values>);

#[derive(Default)]
struct Values {
    value: f64,
    samples: Vec<f64>,
}

impl Recorded {
    fn install(&self) -> LocalRecorderGuard<'_> {
        set_default_local_recorder(self)
    }

    fn describe(&self, kind: &'static str, name: &KeyName, unit: Option<Unit>, description: &SharedString) {
        let is_time = name.as_str().ends_with("_seconds");
        assert_eq!(unit, Some(if is_time { Unit::Seconds } else { Unit::Count }), "{name:?}");
        let value = (kind, description.to_string());
        self.0.lock().unwrap().described.insert(name.as_str().to_owned(), value);
    }

    fn series(&self, key: &Key) -> Arc<Series> {
        let text = |label: &Label| (label.key().to_owned(), label.value().to_owned());
        let key = (key.name().to_owned(), key.labels().map(text).collect());
        Arc::clone(self.0.lock().unwrap().series.entry(key).or_default())
    }

    /// The series of a metric with these labels, and perhaps others.
    fn find(&self, name: &str, labels: &[(&str, &str)]) -> Vec<Arc<Series>> {
        let has = |found: &Labels| {
            labels.iter().all(|(key, value)| found.get(*key).is_some_and(|found| found == value))
        };
        let state = self.0.lock().unwrap();
        let found: Vec<Arc<Series>> = state
            .series
            .iter()
            .filter(|((found, with), _)| *found == format!("lockkeeper_{name}") && has(with))
            .map(|(_, series)| Arc::clone(series))
            .collect();
        assert!(state.described.contains_key(&format!("lockkeeper_{name}")), "there is no {name}");
        found
    }

    /// The value of a counter or a gauge.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the facade counts in f64, and these counts are small"
    )]
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> i64 {
        let sum: f64 = self.find(name, labels).iter().map(|series| series.0.lock().unwrap().value).sum();
        sum as i64
    }

    /// The values of a histogram.
    fn samples(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        let samples = |series: &Arc<Series>| series.0.lock().unwrap().samples.clone();
        self.find(name, labels).iter().flat_map(samples).collect()
    }

    async fn becomes(&self, name: &str, labels: &[(&str, &str)], value: i64) {
        eventually(&format!("{name} is {value}"), || self.value(name, labels), |&now| now == value).await;
    }

    /// Waits until the gauges are as they were before the first lock.
    async fn rests(&self) {
        for gauge in ["holds", "waiters", "unfinished_releases"] {
            crate::support::within(
                2 * crate::support::LIMIT,
                gauge,
                || self.value(gauge, &[]),
                |&now| now == 0,
            )
            .await;
        }
    }

    fn renewals(&self, outcome: &str) -> i64 {
        self.value("renewals_total", &[("outcome", outcome)])
    }

    fn commands(&self, outcome: &str) -> i64 {
        self.value("commands_total", &[("outcome", outcome)])
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe("counter", &name, unit, &description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe("gauge", &name, unit, &description);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe("histogram", &name, unit, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.0.lock().unwrap().value += value as f64;
    }

    fn absolute(&self, _: u64) {
        panic!("counters are only incremented");
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.0.lock().unwrap().value += value;
    }

    fn decrement(&self, value: f64) {
        let mut values = self.0.lock().unwrap();
        values.value -= value;
        assert!(values.value >= 0.0, "a gauge is negative");
    }

    fn set(&self, _: f64) {
        panic!("the clients of a process share the gauges, so no client sets one");
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().samples.push(value);
    }
}

// --- acquires ----------------------------------------------------------------------------------------------------------

const ORDERS: &[(&str, &str)] = &[("type", "rlock"), ("group", "orders")];

#[tokio::test]
async fn an_acquire_counts_once_by_its_outcome() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let locks = scene.client().await;
    let lock = || locks.rlock("a").with(&grouped("orders"));
    let outcomes = || {
        ["granted", "busy", "timed_out", "error", "cancelled"]
            .map(|outcome| recorded.value("acquires_total", &[ORDERS, &[("outcome", outcome)]].concat()))
    };
    let mut first = lock();
    assert_eq!(outcomes(), [0; 5], "a series exists before the first acquire");

    let guard = first.lock().await.unwrap();
    assert_eq!(outcomes(), [1, 0, 0, 0, 0]);
    assert!(lock().try_lock().await.unwrap().is_none());
    assert_eq!(outcomes(), [1, 1, 0, 0, 0]);
    assert!(lock().try_lock_for(50 * MS).await.unwrap().is_none());
    assert_eq!(outcomes(), [1, 1, 1, 0, 0]);
    let mut unnamed = locks.rlock("").with(&grouped("orders"));
    assert!(matches!(unnamed.lock().await, Err(Error::InvalidName { .. })));
    assert_eq!(outcomes(), [1, 1, 1, 1, 0]);
    drop(lock().lock());
    assert_eq!(outcomes(), [1, 1, 1, 1, 0], "it was never polled");
    assert!(timeout(50 * MS, lock().lock()).await.is_err());
    assert_eq!(outcomes(), [1, 1, 1, 1, 1]);

    let again = first.lock().await.unwrap();
    assert_eq!(outcomes(), [2, 1, 1, 1, 1], "a re-entry is granted");
    assert_eq!(recorded.value("holds", ORDERS), 2);
    assert!(recorded.samples("held_seconds", ORDERS).is_empty());
    sleep(20 * MS).await;
    again.unlock().await.unwrap();
    drop(guard);
    assert_eq!(recorded.value("holds", ORDERS), 0, "also before the release has reached the server");
    let held = recorded.samples("held_seconds", ORDERS);
    assert!(held.len() == 2 && held.iter().all(|&time| (0.02..20.0).contains(&time)), "{held:?}");
    assert!(held[1] > 0.11, "the first guard was held while others waited: {held:?}");
    let took = recorded.samples("acquire_seconds", ORDERS);
    assert!(took.len() == 2 && took.iter().all(|&time| (0.0..20.0).contains(&time)), "{took:?}");
    assert!(took[0] > 0.0, "{took:?}");

    recorded.rests().await;
    drop((locks, first, unnamed));
    scene.end().await;
}

#[tokio::test]
async fn the_time_to_acquire_has_the_time_of_waiting() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let guard = beside.rlock("a").lock().await.unwrap();
    let mut lock = locks.rlock("a").with(&grouped("orders"));
    let start = Instant::now();
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
    recorded.becomes("waiters", ORDERS, 1).await;
    let waits_from = Instant::now();
    sleep(500 * MS).await;
    let waited = waits_from.elapsed();
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    let most = (start.elapsed() - waited).as_secs_f64();
    let took = recorded.samples("acquire_seconds", ORDERS);
    assert!(took.len() == 1 && took[0] >= waited.as_secs_f64(), "{took:?}, and it waited for {waited:?}");
    let held = recorded.samples("held_seconds", ORDERS);
    assert!(held.len() == 1 && held[0] <= most, "{held:?} of {most}: the wait is no part of it");
    recorded.rests().await;
    drop((locks, beside));
    scene.end().await;
}

#[tokio::test]
async fn waiters_are_counted_while_they_wait() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let locks = scene.client().await;
    let free = locks.rlock("free").lock().await.unwrap();
    assert_eq!(recorded.value("waiters", &[]), 0, "nobody waits for a free lock");
    free.unlock().await.unwrap();
    macro_rules! check {
        ($type:literal: $lock:expr, held by $holder:expr) => {{
            let labels = [("type", $type)];
            let guard = $holder.lock().await.unwrap();
            let mut waiting = JoinSet::new();
            for _ in 0..3 {
                let mut lock = $lock;
                waiting.spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
            }
            recorded.becomes("waiters", &labels, 3).await;
            let mut dropped = $lock;
            assert!(timeout(100 * MS, dropped.lock()).await.is_err());
            assert_eq!(recorded.value("waiters", &labels), 3, "a waiter that was dropped does not wait");
            guard.unlock().await.unwrap();
            soon(waiting.join_all()).await;
            assert_eq!(recorded.value("waiters", &labels), 0);
            recorded.rests().await;
        }};
    }
    check!("rlock": locks.rlock("a"), held by locks.rlock("a"));
    check!("fair": locks.fair_lock("b"), held by locks.fair_lock("b"));
    check!("read": locks.read_write_lock("c").into_read(), held by locks.read_write_lock("c").into_write());
    check!("write": locks.read_write_lock("d").into_write(), held by locks.read_write_lock("d").into_read());
    drop(locks);
    scene.end().await;
}

#[tokio::test]
async fn holds_that_are_passed_on_or_shared_count_as_granted() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let locks = scene.client_with(patient().sharing(SECOND)).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let mut lock = locks.rlock("a");
        waiting.spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
    }
    recorded.becomes("waiters", &[], 5).await;
    let before = scene.server.scripts();
    guard.unlock().await.unwrap();
    soon(waiting.join_all()).await;
    assert!(scene.server.scripts() - before < 5, "nothing was passed on");
    let labels = [("type", "rlock")];
    assert_eq!(recorded.value("acquires_total", &[("type", "rlock"), ("outcome", "granted")]), 6);
    assert_eq!(recorded.samples("held_seconds", &labels).len(), 6);

    let before = scene.server.scripts();
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(locks.read_write_lock("b").into_read().lock().await.unwrap());
    }
    assert_eq!(scene.server.scripts() - before, 1, "nothing was shared");
    let labels = [("type", "read")];
    assert_eq!(recorded.value("acquires_total", &[("type", "read"), ("outcome", "granted")]), 3);
    assert_eq!(recorded.value("holds", &labels), 3);
    for reader in readers {
        reader.unlock().await.unwrap();
    }
    assert_eq!(recorded.samples("held_seconds", &labels).len(), 3);
    recorded.rests().await;
    drop(locks);
    scene.end().await;
}

#[tokio::test]
async fn a_leaked_hold_and_a_kept_hold_no_longer_count() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let locks = scene.client().await;
    let leaked = locks.rlock("a").with(&fixed(500 * MS)).lock().await.unwrap();
    let kept = locks.rlock("b").with(&at_least(500 * MS)).lock().await.unwrap();
    assert_eq!(recorded.value("holds", &[]), 2);
    leaked.leak();
    kept.unlock().await.unwrap();
    assert_eq!(recorded.value("holds", &[]), 0);
    assert_eq!(recorded.samples("held_seconds", &[]).len(), 2);
    assert_eq!(recorded.value("lost_holds_total", &[]), 0);
    drop(locks);
    scene.end().await;
}

/// A hold of several permits is one hold.
#[tokio::test]
async fn permits_of_a_semaphore_are_counted_as_holds_are() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(3 * SECOND)).await;
    let labels: &[_] = &[("type", "semaphore"), ("group", "orders")];
    let outcomes = || {
        ["granted", "busy", "timed_out", "error", "cancelled"]
            .map(|outcome| recorded.value("acquires_total", &[labels, &[("outcome", outcome)]].concat()))
    };
    let semaphore = locks.semaphore("a", 2).with(&grouped("orders"));
    let batch = semaphore.acquire_many(2).await.unwrap();
    assert_eq!((outcomes(), recorded.value("holds", labels)), ([1, 0, 0, 0, 0], 1));
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert!(semaphore.try_acquire_for(50 * MS).await.unwrap().is_none());
    assert!(semaphore.acquire_many(3).await.is_err());
    assert!(timeout(50 * MS, semaphore.acquire()).await.is_err());
    assert_eq!(outcomes(), [1, 1, 1, 1, 1]);
    let next = semaphore.clone();
    let waiting = tokio::spawn(async move { next.acquire().await.unwrap() });
    recorded.becomes("waiters", labels, 1).await;
    let renewals = || recorded.value("renewals_total", &[labels, &[("outcome", "ok")]].concat());
    eventually("a renewal", renewals, |&count| count > 0).await;
    batch.unlock().await.unwrap();
    let permit = soon(waiting).await.unwrap();
    assert_eq!((outcomes(), recorded.value("holds", labels)), ([2, 1, 1, 1, 1], 1));
    assert_eq!(recorded.value("waiters", labels), 0);
    assert_eq!(recorded.samples("acquire_seconds", labels).len(), 2);
    assert!(semaphore.force_unlock(permit.id()).await.unwrap());
    soon(permit.ended()).await.unwrap_err();
    let lost = |cause| recorded.value("lost_holds_total", &[labels, &[("cause", cause)]].concat());
    assert_eq!(["not_renewed", "removed", "lease_ended", "max_hold"].map(lost), [0, 1, 0, 0]);
    // If the server told of the release, the client looked, which is no renewal.
    assert!(recorded.value("renewals_total", &[labels, &[("outcome", "gone")]].concat()) <= 1);
    drop(permit);
    assert_eq!(recorded.samples("held_seconds", labels).len(), 2);
    recorded.rests().await;
    semaphore.delete().await.unwrap();
    drop((locks, semaphore));
    scene.end().await;
}

// --- losses and renewals -----------------------------------------------------------------------------------------------

#[tokio::test]
async fn lost_holds_are_counted_by_their_cause() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), LockConfig::builder().watchdog_lease(SECOND)).await;
    let lost = |cause| recorded.value("lost_holds_total", &[("type", "rlock"), ("cause", cause)]);
    let all = || ["not_renewed", "removed", "lease_ended", "max_hold"].map(lost);

    let guard = locks.rlock("a").with(&fixed(200 * MS)).lock().await.unwrap();
    soon(guard.ended()).await.unwrap_err();
    assert!(soon(guard.unlock()).await.is_err());
    assert_eq!(all(), [0, 0, 1, 0]);
    let guard = locks.rlock("b").with(&at_most(200 * MS)).lock().await.unwrap();
    soon(guard.ended()).await.unwrap_err();
    drop(guard);
    assert_eq!(all(), [0, 0, 1, 1]);
    let guard = locks.rlock("c").lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "c"]);
    assert!(matches!(soon(guard.unlock()).await, Err(Error::NotHeld { .. })));
    assert_eq!(all(), [0, 1, 1, 1], "the release found nothing");
    let guard = locks.rlock("d").lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "d"]);
    soon(guard.ended()).await.unwrap_err();
    assert_eq!(recorded.value("holds", &[]), 0, "the guard exists, and holds nothing");
    drop(guard);
    assert_eq!(all(), [0, 2, 1, 1], "the renewal found nothing");
    // The thread that renews tells the guard first.
    eventually("the renewal is counted", || recorded.renewals("gone"), |&gone| gone == 1).await;
    let guard = locks.rlock("e").lock().await.unwrap();
    proxy.set(Faults::black_hole());
    soon(guard.ended()).await.unwrap_err();
    assert!(guard.is_lost());
    assert_eq!(all(), [1, 2, 1, 1]);
    proxy.set(Faults::default());
    drop(guard);
    assert_eq!(recorded.samples("held_seconds", &[]).len(), 5);
    recorded.rests().await;
    locks.shutdown().await.unwrap();
    drop((locks, proxy));
    scene.end().await;
}

/// With a paused clock, no renewal is late unless the server holds its replies.
#[tokio::test(start_paused = true)]
async fn renewals_are_counted_with_their_lateness() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let server = MemoryServer::new();
    let config = LockConfig::builder().watchdog_lease(3 * SECOND).build().unwrap();
    let locks = LockClient::connect_with(Source::stream(server.connector()), config).await.unwrap();
    let orders = locks.rlock("a").with(&grouped("orders")).lock().await.unwrap();
    let multi = MultiLock::new([locks.rlock("b"), locks.rlock("c")]).unwrap().lock().await.unwrap();
    let renewed_of = |labels| recorded.value("renewals_total", labels);
    assert_eq!(recorded.renewals("ok"), 0);
    renewed(&orders).await;
    renewed(&multi).await;
    assert!(renewed_of(&[("type", "rlock"), ("group", "orders"), ("outcome", "ok")]) >= 1);
    assert!(renewed_of(&[("type", "multi"), ("group", "default"), ("outcome", "ok")]) >= 1);
    assert_eq!(renewed_of(&[("type", "rlock"), ("outcome", "failed")]), 0);
    let lateness = || recorded.samples("renewal_lateness_seconds", ORDERS);
    let in_time = lateness();
    assert!(!in_time.is_empty() && in_time.iter().all(|&late| late < 0.2), "{in_time:?}");
    multi.unlock().await.unwrap();

    let before = lateness().len();
    server.hold(true);
    let failed = || renewed_of(&[("type", "rlock"), ("group", "orders"), ("outcome", "failed")]);
    eventually("a renewal fails", failed, |&count| count > 0).await;
    server.hold(false);
    let late =
        eventually("a renewal succeeds", || lateness()[before..].to_vec(), |late| !late.is_empty()).await;
    assert!(late[0] > 0.2, "counted from when it was due first: {late:?}");
    assert!(!orders.is_lost());
    orders.unlock().await.unwrap();
    recorded.rests().await;
    locks.shutdown().await.unwrap();
}

// --- the background, commands and connections --------------------------------------------------------------------------

#[tokio::test]
async fn the_unfinished_releases_are_what_the_background_has_not_released() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient()).await;
    let guards = [locks.rlock("a").lock().await.unwrap(), locks.rlock("b").lock().await.unwrap()];
    let kept = locks.rlock("c").with(&at_least(300 * MS)).lock().await.unwrap();
    kept.unlock().await.unwrap();
    assert_eq!(recorded.value("unfinished_releases", &[]), 0, "a lock that is kept is not being released");
    proxy.set(Faults::replies_held());
    drop(guards);
    sleep(50 * MS).await;
    assert_eq!(recorded.value("unfinished_releases", &[]), 2);
    proxy.set(Faults::default());
    recorded.rests().await;
    eventually("the kept lock is released", || scene.server.keys(), Vec::is_empty).await;
    recorded.rests().await;
    drop((locks, proxy));
    scene.end().await;
}

#[tokio::test]
async fn commands_are_counted_by_their_outcome() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient()).await;
    let hurried = connect(proxy.url(), patient().retry_timeout(100 * MS)).await;
    let outcomes = || ["ok", "refused", "unanswered", "not_sent"].map(|outcome| recorded.commands(outcome));
    let round_trips = || recorded.samples("round_trip_seconds", &[]);
    let (before, trips) = (outcomes(), round_trips().len());
    assert!(before[0] > 0, "the self-test");
    for _ in 0..40 {
        locks.rlock("a").lock().await.unwrap().unlock().await.unwrap();
    }
    assert_eq!(outcomes()[0] - before[0], 80);
    assert!((8..=12).contains(&(round_trips().len() - trips)), "one of eight is timed: {:?}", round_trips());
    assert!(round_trips().iter().all(|&time| time > 0.0 && time < 20.0));

    proxy.set(Faults { delay: 50 * MS, ..Faults::default() });
    for _ in 0..16 {
        locks.rlock("a").is_locked().await.unwrap();
    }
    proxy.set(Faults::default());
    let last = *round_trips().last().unwrap();
    assert!(last > 0.05, "{last}");

    let before = outcomes();
    scene.server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(matches!(hurried.rlock("a").try_lock().await, Err(Error::OutOfMemory(_))));
    drop(hurried);
    scene.server.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(outcomes()[1] > before[1]);
    recorded.rests().await;

    let (before, trips) = (outcomes(), round_trips().len());
    proxy.set(Faults::replies_held());
    assert!(timeout(50 * MS, locks.rlock("a").is_locked()).await.is_err());
    assert_eq!(outcomes()[2] - before[2], 1);
    assert_eq!(round_trips().len(), trips, "there was no answer");
    proxy.set(Faults::default());
    drop((locks, proxy));
    scene.end().await;
}

/// Calls that go out together are one command, and each is a call.
#[tokio::test]
async fn commands_and_their_calls_are_counted_as_they_are_sent() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = connect(proxy.url(), patient().connections(1)).await;
    let calls = || recorded.value("calls_total", &[("outcome", "ok")]);
    let (before, called, sent) = (recorded.commands("ok"), calls(), proxy.commands());
    let mut all: Vec<_> = (0..30).map(|number| locks.rlock(number.to_string())).collect();
    let guards = soon(join_all(all.iter_mut().map(Lock::lock))).await;
    assert_eq!(calls() - called, 30);
    let sent = proxy.commands() - sent;
    assert!(sent < 30, "nothing went out together");
    assert_eq!(usize::try_from(recorded.commands("ok") - before).unwrap(), sent);
    for guard in guards {
        guard.unwrap().unlock().await.unwrap();
    }
    recorded.rests().await;
    drop((all, locks, proxy));
    scene.end().await;
}

#[tokio::test]
async fn connections_that_are_replaced_are_counted() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let locks = scene.client_with(patient().connections(1)).await;
    let replaced =
        || ["commands", "messages"].map(|use_| recorded.value("reconnects_total", &[("connection", use_)]));
    let guard = locks.rlock("a").lock().await.unwrap();
    assert_eq!(replaced(), [0, 0]);
    scene.disconnect().await;
    assert!(locks.rlock("a").is_locked().await.unwrap());
    assert_eq!(replaced(), [1, 0]);
    let waiting = tokio::spawn({
        let mut lock = locks.rlock("a");
        async move { lock.lock().await.unwrap().unlock().await.unwrap() }
    });
    listens(&scene.server).await;
    let closed: usize = scene.server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(closed, 1);
    eventually("the client notices", replaced, |&replaced| replaced == [1, 1]).await;
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    recorded.rests().await;
    drop(locks);
    scene.end().await;
}

// --- labels and the page -----------------------------------------------------------------------------------------------

/// Uses every type of lock, with names that begin with `name`.
async fn use_every_type(clients: &[LockClient; 3], name: &str) {
    let locks = &clients[0];
    let named = |suffix: &str| format!("{name}:{suffix}");
    locks.rlock(named("a")).lock().await.unwrap().unlock().await.unwrap();
    locks.fair_lock(named("b")).lock().await.unwrap().unlock().await.unwrap();
    locks.fenced_lock(named("c")).lock().await.unwrap().unlock().await.unwrap();
    let mut both = locks.read_write_lock(named("d"));
    both.read().lock().await.unwrap().unlock().await.unwrap();
    both.write().lock().await.unwrap().unlock().await.unwrap();
    let mut multi = MultiLock::new([locks.rlock(named("a")), locks.rlock(named("b"))]).unwrap();
    multi.lock().await.unwrap().unlock().await.unwrap();
    let mut red = RedLock::new(clients.each_ref().map(|client| client.rlock(named("e")))).unwrap();
    red.lock().await.unwrap().unlock().await.unwrap();
    locks.claims(named("f")).claim([named("g")]).await.unwrap().unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn the_page_lists_every_metric_and_no_label_has_the_name_of_a_lock() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scenes = [Scene::start(), Scene::start(), Scene::start()];
    let clients = [scenes[0].client().await, scenes[1].client().await, scenes[2].client().await];
    use_every_type(&clients, "private").await;
    compare_with_page(&recorded.0.lock().unwrap(), "private");
    drop(clients);
    for scene in scenes {
        scene.end().await;
    }
}

/// `name`: the names of all locks contain it.
fn compare_with_page(state: &State, name: &str) {
    let (mut labels_of, mut values_of) = (BTreeMap::new(), BTreeMap::new());
    for (metric, labels) in state.series.keys() {
        let keys: BTreeSet<String> = labels.keys().cloned().collect();
        assert_eq!(labels_of.entry(metric.clone()).or_insert_with(|| keys.clone()), &keys, "{metric}");
        for (key, value) in labels {
            assert!(!value.contains(name), "{metric} has {value} as {key}");
            values_of.entry(key.clone()).or_insert_with(BTreeSet::new).insert(value.clone());
        }
    }
    let types = values_of["type"].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(types, ["claim", "fair", "fenced", "multi", "read", "red", "rlock", "write"]);
    let recorded: BTreeMap<String, (String, BTreeSet<String>)> = state
        .described
        .iter()
        .map(|(name, (kind, _))| (name.clone(), ((*kind).to_owned(), labels_of[name].clone())))
        .collect();
    assert_eq!(recorded.len(), labels_of.len(), "what is recorded is described");

    // Each row of the table: metric, kind, labels.
    let page = include_str!("../docs/operate.md");
    let quoted =
        |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let listed: BTreeMap<String, (String, BTreeSet<String>)> = page
        .lines()
        .filter(|line| line.starts_with("| `lockkeeper_"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            assert!(cells.len() == 5 && !cells[3].is_empty() && !cells[4].is_empty(), "{line}");
            (quoted(cells[0]).remove(0), (cells[1].to_owned(), quoted(cells[2]).into_iter().collect()))
        })
        .collect();
    assert_eq!(listed, recorded, "left: docs/operate.md; right: the code");
    // The values of the labels are on the page, too.
    for value in values_of.values().flatten() {
        assert!(page.contains(&format!("`{value}`")), "docs/operate.md does not explain `{value}`");
    }
}

#[tokio::test]
async fn every_handle_can_have_a_group() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let locks = scene.client().await;
    async fn granted<K: BaseLock>(mut lock: Lock<'_, K>, recorded: &Recorded, kind: &str, group: &str) {
        let labels = [("type", kind), ("group", group), ("outcome", "granted")];
        let before = recorded.value("acquires_total", &labels);
        lock.lock().await.unwrap().unlock().await.unwrap();
        assert_eq!(recorded.value("acquires_total", &labels), before + 1, "{labels:?}");
    }
    let recorded = &recorded;
    granted(locks.rlock("a").with(&grouped("g")), recorded, "rlock", "g").await;
    granted(locks.rlock("a").with(&grouped("g")).with(&grouped(String::from("h"))), recorded, "rlock", "h")
        .await;
    granted(locks.fair_lock("b").with(&grouped("g")), recorded, "fair", "g").await;
    granted(locks.fenced_lock("c").with(&grouped("g")), recorded, "fenced", "g").await;
    let sides =
        |locks: &LockClient| -> ReadWriteLock<'static> { locks.read_write_lock("d").with(&grouped("g")) };
    granted(sides(&locks).into_read(), recorded, "read", "g").await;
    granted(sides(&locks).into_write(), recorded, "write", "g").await;
    let mut owner = locks.owner();
    granted(owner.rlock("e").with(&grouped("g")), recorded, "rlock", "g").await;
    let member = |name, group: &'static str| locks.rlock(name).with(&grouped(group));
    let same = MultiLock::new([member("a", "g"), member("b", "g")]).unwrap();
    granted(same, recorded, "multi", "g").await;
    for kind in ["rlock", "fair", "read", "write"] {
        let of_group =
            |group: &str| !recorded.find("acquires_total", &[("type", kind), ("group", group)]).is_empty();
        assert!(of_group("g") && !of_group("default"), "no {kind} without a group was used");
    }
    let claimed = |outcome| {
        recorded.value("acquires_total", &[("type", "claim"), ("group", "g"), ("outcome", outcome)])
    };
    let jobs = locks.claims("f").with(&grouped("g"));
    let claim = jobs.claim(["1"]).await.unwrap().unwrap();
    assert!(jobs.claim(["1"]).await.unwrap().is_none());
    assert_eq!((claimed("granted"), claimed("busy")), (1, 1));
    claim.unlock().await.unwrap();
    drop(jobs);
    let different = MultiLock::new([member("a", "g"), member("b", "h")]).unwrap();
    granted(different, recorded, "multi", "default").await;
    let named = MultiLock::new([member("a", "g"), locks.rlock("b")]).unwrap().with(&grouped("all"));
    granted(named, recorded, "multi", "all").await;
    granted(locks.rlock("a"), recorded, "rlock", "default").await;
    recorded.rests().await;
    drop((locks, owner));
    scene.end().await;
}

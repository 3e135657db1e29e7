//! Guarantee 18: what the feature `metrics` records, and that `docs/operate.md` lists it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::support::{
    Faults, MS, SECOND, Scene, at_least, at_most, connect, eventually, fixed, grouped, listens, patient,
    renewed, soon,
};
use futures_util::future::join_all;
use lockkeeper::{Error, Lock, LockClient, LockConfig, MultiLock, RedLock, Source};
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

// --- what happens, and what is counted -----------------------------------------------------------------------------------

/// Metrics that tests of their own look at, because they depend on time and on what runs in the background.
const OF_TIME: [&str; 6] = [
    "calls_total",
    "commands_total",
    "reconnects_total",
    "renewal_lateness_seconds",
    "renewals_total",
    "round_trip_seconds",
];

/// How each series changed: a counter, a gauge, or the number of times in a histogram.
type Changes = BTreeMap<String, i64>;

/// A run in which all that is counted is compared after each step.
struct Run {
    recorded: Recorded,
    before: Changes,
}

impl Run {
    #[allow(clippy::cast_possible_truncation, reason = "these counts are small")]
    fn counts(recorded: &Recorded) -> Changes {
        let state = recorded.0.lock().unwrap();
        let series = state.series.iter().map(|((name, labels), series)| {
            let values = series.0.lock().unwrap();
            let labels = ["type", "group", "outcome", "cause"].iter().filter_map(|key| labels.get(*key));
            let mut words = vec![name.trim_start_matches("lockkeeper_")];
            words.extend(labels.map(String::as_str).filter(|value| *value != "default"));
            (words.join(" "), values.value as i64 + values.samples.len() as i64)
        });
        series.filter(|(name, _)| OF_TIME.iter().all(|other| !name.starts_with(other))).collect()
    }

    /// Waits until exactly this changed since the last step.
    async fn counts_that<const N: usize>(&mut self, what: &str, expected: [Vec<(String, i64)>; N]) {
        let mut all = Changes::new();
        for (series, change) in expected.into_iter().flatten() {
            *all.entry(series).or_default() += change;
        }
        all.retain(|_, change| *change != 0);
        let changes = || {
            let mut now = Self::counts(&self.recorded);
            now.iter_mut().for_each(|(series, value)| *value -= self.before.get(series).unwrap_or(&0));
            // The background can begin a release at any time.
            now.retain(|series, change| {
                *change != 0 && (series != "unfinished_releases" || all.contains_key(series))
            });
            now
        };
        eventually(&format!("{what}: {all:?}"), changes, |found| *found == all).await;
        // Not what is counted now: the background can have begun something.
        all.into_iter().for_each(|(series, change)| *self.before.entry(series).or_default() += change);
    }
}

fn granted(of: &str, count: i64) -> Vec<(String, i64)> {
    ["acquire_seconds OF", "acquires_total OF granted", "holds OF"]
        .map(|series| (series.replace("OF", of), count))
        .into()
}

fn ended(of: &str, count: i64) -> Vec<(String, i64)> {
    vec![(format!("held_seconds {of}"), count), (format!("holds {of}"), -count)]
}

/// An acquire that was not granted.
fn not_granted(of: &str, outcome: &str) -> Vec<(String, i64)> {
    vec![(format!("acquires_total {of} {outcome}"), 1)]
}

fn lost(of: &str, cause: &str) -> Vec<(String, i64)> {
    [ended(of, 1), vec![(format!("lost_holds_total {of} {cause}"), 1)]].concat()
}

fn waits(of: &str, count: i64) -> Vec<(String, i64)> {
    vec![(format!("waiters {of}"), count)]
}

#[tokio::test]
async fn what_happens_is_counted_once() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let locks = scene.client_with(patient().watchdog_lease(3 * SECOND).sharing(SECOND)).await;
    let hurried = connect(proxy.url(), LockConfig::builder().watchdog_lease(SECOND)).await;
    let mut run = Run { before: Run::counts(&recorded), recorded: recorded.clone() };

    // The outcomes of calls, and a group.
    let of = "rlock orders";
    let lock = || locks.rlock("private:a").with(&grouped("orders"));
    let mut first = lock();
    let guard = first.lock().await.unwrap();
    run.counts_that("it is granted", [granted(of, 1)]).await;
    assert!(lock().try_lock().await.unwrap().is_none());
    run.counts_that("it is busy", [not_granted(of, "busy")]).await;
    assert!(lock().try_lock_for(50 * MS).await.unwrap().is_none());
    run.counts_that("the time is up", [not_granted(of, "timed_out")]).await;
    assert!(locks.rlock("").with(&grouped("orders")).lock().await.is_err());
    run.counts_that("the name is invalid", [not_granted(of, "error")]).await;
    drop(lock().lock());
    run.counts_that("it was never polled", []).await;
    assert!(timeout(50 * MS, lock().lock()).await.is_err());
    run.counts_that("it was dropped", [not_granted(of, "cancelled")]).await;
    let again = first.lock().await.unwrap();
    run.counts_that("a re-entry", [granted(of, 1)]).await;
    again.unlock().await.unwrap();
    drop(guard);
    run.counts_that("a release and a drop", [ended(of, 2)]).await;

    // Each handle, with a group and without.
    let member = |name, group: &'static str| locks.rlock(name).with(&grouped(group));
    let multi = |groups: [&'static str; 2]| {
        MultiLock::new([member("private:a", groups[0]), member("private:b", groups[1])]).unwrap()
    };
    let mut owner = locks.owner();
    macro_rules! holds {
        ($($lock:expr, $of:literal;)*) => {$(
            $lock.lock().await.unwrap().unlock().await.unwrap();
            run.counts_that($of, [granted($of, 1), ended($of, 1)]).await;
        )*};
    }
    holds! {
        locks.rlock("private:a"), "rlock";
        member("private:a", "g").with(&grouped(String::from("h"))), "rlock h";
        owner.rlock("private:a").with(&grouped("g")), "rlock g";
        locks.fair_lock("private:b").with(&grouped("g")), "fair g";
        locks.fenced_lock("private:c").with(&grouped("g")), "fenced g";
        locks.read_write_lock("private:d").with(&grouped("g")).into_read(), "read g";
        locks.read_write_lock("private:d").with(&grouped("g")).into_write(), "write g";
        RedLock::new([member("private:e", "g")]).unwrap(), "red g";
        multi(["g", "g"]), "multi g";
        multi(["g", "h"]), "multi";
        multi(["g", "h"]).with(&grouped("all")), "multi all";
    }
    let jobs = locks.claims("private:f").with(&grouped("g"));
    let claim = jobs.claim(["private:1"]).await.unwrap().unwrap();
    assert!(jobs.claim(["private:1"]).await.unwrap().is_none());
    run.counts_that("claims", [granted("claim g", 1), not_granted("claim g", "busy")]).await;
    claim.unlock().await.unwrap();
    run.counts_that("the end of a claim", [ended("claim g", 1)]).await;

    // Waiters. The last one is dropped.
    macro_rules! waits {
        ($($of:literal: $lock:expr, behind $other:literal: $holder:expr;)*) => {$(
            let guard = $holder.lock().await.unwrap();
            run.counts_that("the holder", [granted($other, 1)]).await;
            let mut waiting = JoinSet::new();
            for _ in 0..3 {
                let mut lock = $lock;
                waiting.spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
            }
            run.counts_that("three wait", [waits($of, 3)]).await;
            assert!(timeout(100 * MS, $lock.lock()).await.is_err());
            run.counts_that("one was dropped", [not_granted($of, "cancelled")]).await;
            guard.unlock().await.unwrap();
            soon(waiting.join_all()).await;
            run.counts_that("all had it", [waits($of, -3), granted($of, 3), ended($of, 3), ended($other, 1)]).await;
        )*};
    }
    waits! {
        "rlock": locks.rlock("private:a"), behind "rlock": locks.rlock("private:a");
        "fair": locks.fair_lock("private:b"), behind "fair": locks.fair_lock("private:b");
        "read": locks.read_write_lock("private:c").into_read(), behind "write": locks.read_write_lock("private:c").into_write();
        "write": locks.read_write_lock("private:d").into_write(), behind "read": locks.read_write_lock("private:d").into_read();
    }
    let before = scene.server.scripts();
    let readers = [
        locks.read_write_lock("private:e").into_read().lock().await,
        locks.read_write_lock("private:e").into_read().lock().await,
    ];
    assert_eq!(scene.server.scripts(), before + 1, "nothing was shared");
    run.counts_that("readers share a hold", [granted("read", 2)]).await;
    for reader in readers {
        drop(reader.unwrap());
    }
    run.counts_that("they end", [ended("read", 2)]).await;

    // Several permits are one hold.
    let semaphore = locks.semaphore("private:s", 2);
    let batch = semaphore.acquire_many(2).await.unwrap();
    run.counts_that("two permits", [granted("semaphore", 1)]).await;
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert!(semaphore.try_acquire_for(50 * MS).await.unwrap().is_none());
    assert!(semaphore.acquire_many(3).await.is_err());
    assert!(timeout(50 * MS, semaphore.acquire()).await.is_err());
    let others = ["busy", "timed_out", "error", "cancelled"].map(|outcome| not_granted("semaphore", outcome));
    run.counts_that("no permit", others).await;
    assert!(semaphore.force_unlock(batch.id()).await.unwrap());
    soon(batch.ended()).await.unwrap_err();
    run.counts_that("a permit is removed", [lost("semaphore", "removed")]).await;
    drop(batch);
    semaphore.delete().await.unwrap();

    // What no longer counts, and losses by their cause.
    locks.rlock("private:leaked").with(&fixed(500 * MS)).lock().await.unwrap().leak();
    run.counts_that("it is leaked", [granted("rlock", 1), ended("rlock", 1)]).await;
    locks.rlock("private:kept").with(&at_least(500 * MS)).lock().await.unwrap().unlock().await.unwrap();
    run.counts_that("it is kept", [granted("rlock", 1), ended("rlock", 1)]).await;
    for (options, cause) in [(fixed(200 * MS), "lease_ended"), (at_most(200 * MS), "max_hold")] {
        let guard = locks.rlock(format!("private:{cause}")).with(&options).lock().await.unwrap();
        soon(guard.ended()).await.unwrap_err();
        run.counts_that(cause, [granted("rlock", 1), lost("rlock", cause)]).await;
    }
    let guard = locks.rlock("private:removed").lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "private:removed"]);
    assert!(matches!(soon(guard.unlock()).await, Err(Error::NotHeld { .. })));
    run.counts_that("a release finds nothing", [granted("rlock", 1), lost("rlock", "removed")]).await;
    let guard = hurried.rlock("private:silent").lock().await.unwrap();
    proxy.set(Faults::black_hole());
    soon(guard.ended()).await.unwrap_err();
    run.counts_that("nothing answers", [granted("rlock", 1), lost("rlock", "not_renewed")]).await;
    proxy.set(Faults::default());
    drop(guard);
    run.recorded.rests().await;
    compare_with_page(&recorded.0.lock().unwrap(), "private");
    hurried.shutdown().await.unwrap();
    scene.end((first, owner, jobs, semaphore, locks, hurried, proxy)).await;
}

const ORDERS: &[(&str, &str)] = &[("type", "rlock"), ("group", "orders")];

#[tokio::test]
async fn the_time_to_acquire_has_the_time_of_waiting() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let (scene, locks, beside) = Scene::with_two_clients().await;
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
    scene.end((locks, beside)).await;
}

// --- losses and renewals -----------------------------------------------------------------------------------------------

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
    let (scene, proxy, locks) = Scene::behind_proxy(patient()).await;
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
    scene.end((locks, proxy)).await;
}

#[tokio::test]
async fn commands_are_counted_by_their_outcome() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let (scene, proxy, locks) = Scene::behind_proxy(patient()).await;
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
    scene.end((locks, proxy)).await;
}

/// Calls that go out together are one command, and each is a call.
#[tokio::test]
async fn commands_and_their_calls_are_counted_as_they_are_sent() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let (scene, proxy, locks) = Scene::behind_proxy(patient().connections(1)).await;
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
    scene.end((all, locks, proxy)).await;
}

#[tokio::test]
async fn connections_that_are_replaced_are_counted() {
    let recorded = Recorded::default();
    let _installed = recorded.install();
    let (scene, locks) = Scene::with_client_of(patient().connections(1)).await;
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
    scene.end(locks).await;
}

// --- labels and the page -----------------------------------------------------------------------------------------------

/// The page lists each metric and each label, and no label has the name of a lock: the names of all locks contain `name`.
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
    assert_eq!(types, ["claim", "fair", "fenced", "multi", "read", "red", "rlock", "semaphore", "write"]);
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
    // The values of the labels are on the page, too, except for those that a program chooses.
    values_of.remove("group");
    for value in values_of.values().flatten() {
        assert!(page.contains(&format!("`{value}`")), "docs/operate.md does not explain `{value}`");
    }
}

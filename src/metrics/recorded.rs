//! Records what happens with the crate `metrics`.

use std::array::from_fn;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use metrics::{Counter, Gauge, Histogram, Label};
use tokio::time::Instant;

use super::kinds::{Acquired, ConnectionUse, LossCause, Renewed};
use super::table::{self, Kind, Metric};
use crate::base::clock::{self, Moment};
use crate::base::fault::Sent;
use crate::base::sync::lock;
use crate::protocol::LockType;

// The labels of the kinds, each list in the order of the kinds. Those that spans have, too, are with their kinds.

const CAUSES: [&str; 4] = ["not_renewed", "removed", "lease_ended", "max_hold"];
const RENEWED: [&str; 3] = ["ok", "gone", "failed"];
const CONNECTIONS: [&str; 2] = ["commands", "messages"];
const ANSWERS: [&str; 4] = ["ok", "refused", "unanswered", "not_sent"];
const UNANSWERED: usize = 2;

/// The group of locks for which the user named none.
const NO_GROUP: &str = "default";

/// The metrics of one client.
pub(crate) struct OfClient {
    without_group: [OnceLock<OfLock>; LockType::NAMES.len()],
    in_groups: Mutex<HashMap<(LockType, Cow<'static, str>), OfLock>>,
    undos: Gauge,
}

impl OfClient {
    pub(crate) fn new() -> Self {
        describe();
        Self {
            without_group: from_fn(|_| OnceLock::new()),
            in_groups: Mutex::default(),
            undos: gauge(&table::UNDOS, &[]),
        }
    }

    /// The metrics of locks of this type without a group.
    pub(crate) fn of(&self, lock_type: LockType) -> OfLock {
        self.without_group[lock_type as usize].get_or_init(|| OfLock::new(lock_type, None)).clone()
    }

    /// The metrics of locks of this type in a group.
    pub(crate) fn in_group(&self, lock_type: LockType, group: Cow<'static, str>) -> OfLock {
        let new = || OfLock::new(lock_type, Some(group.clone()));
        lock(&self.in_groups).entry((lock_type, group.clone())).or_insert_with(new).clone()
    }

    /// A release or an undo in the background begins. It ends when the result is dropped.
    pub(crate) fn undoing(&self) -> Undoing {
        self.undos.increment(1);
        Undoing(self.undos.clone())
    }
}

/// The metrics of one type of lock and one group.
#[derive(Clone)]
pub(crate) struct OfLock(Arc<Series>);

struct Series {
    group: Option<Cow<'static, str>>,
    acquires: [Counter; Acquired::NAMES.len()],
    acquire_time: Histogram,
    held_time: Histogram,
    holds: Gauge,
    waiters: Gauge,
    lost: [Counter; CAUSES.len()],
    renewals: [Counter; RENEWED.len()],
    lateness: Histogram,
}

impl OfLock {
    fn new(lock_type: LockType, group: Option<Cow<'static, str>>) -> Self {
        let name = group.clone().unwrap_or(Cow::Borrowed(NO_GROUP));
        let labels = [Label::from_static_parts("type", lock_type.name()), Label::new("group", name)];
        Self(Arc::new(Series {
            group,
            acquires: counters(&table::ACQUIRES, &labels, "outcome", Acquired::NAMES),
            acquire_time: histogram(&table::ACQUIRE_TIME, &labels),
            held_time: histogram(&table::HELD_TIME, &labels),
            holds: gauge(&table::HOLDS, &labels),
            waiters: gauge(&table::WAITERS, &labels),
            lost: counters(&table::LOST_HOLDS, &labels, "cause", CAUSES),
            renewals: counters(&table::RENEWALS, &labels, "outcome", RENEWED),
            lateness: histogram(&table::LATENESS, &labels),
        }))
    }

    /// The group that the user named.
    pub(crate) fn group(&self) -> Option<&Cow<'static, str>> {
        self.0.group.as_ref()
    }

    /// An acquire ended.
    pub(crate) fn acquired(&self, outcome: Acquired) {
        self.0.acquires[outcome as usize].increment(1);
    }

    /// For a call that perhaps has to wait.
    pub(crate) const fn waiting(&self) -> Waiting<'_> {
        Waiting { of: self, is_counted: false }
    }

    /// An acquire that began at `start` was granted, and a hold begins. When the result is dropped, the hold ends at the latest.
    pub(crate) fn granted(&self, start: Moment, now: Moment) -> Held {
        self.0.acquire_time.record(now.since(start));
        self.0.holds.increment(1);
        Held { of: Some(self.clone()), since: now, is_over: AtomicBool::new(false) }
    }
}

/// A call that perhaps waits.
pub(crate) struct Waiting<'a> {
    of: &'a OfLock,
    is_counted: bool,
}

impl Waiting<'_> {
    /// From here on the call waits, until this value is dropped.
    pub(crate) fn begins(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.of.0.waiters.increment(1);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            self.of.0.waiters.decrement(1);
        }
    }
}

/// A hold. The default is a hold that is not counted.
pub(crate) struct Held {
    of: Option<OfLock>,
    since: Moment,
    is_over: AtomicBool,
}

impl Held {
    /// The hold was given back, or is lost. Only the first call counts.
    pub(crate) fn ends(&self, now: Moment) {
        let Some(OfLock(series)) = &self.of else { return };
        if !self.is_over.swap(true, Ordering::Relaxed) {
            series.holds.decrement(1);
            series.held_time.record(now.since(self.since));
        }
    }

    pub(crate) fn is_lost(&self, cause: LossCause, now: Moment) {
        if let Some(OfLock(series)) = &self.of {
            series.lost[cause as usize].increment(1);
        }
        self.ends(now);
    }
}

impl Default for Held {
    fn default() -> Self {
        Self { of: None, since: Moment::PAST, is_over: AtomicBool::new(false) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !*self.is_over.get_mut() {
            self.ends(clock::now());
        }
    }
}

/// The renewal of the holds of one owner.
#[derive(Default)]
pub(crate) struct Renewing(Option<Renewal>);

struct Renewal {
    of: OfLock,
    /// When it was due first: a renewal that failed is tried again.
    due: Moment,
}

impl Renewing {
    pub(crate) fn begins(&mut self, hold: &Held, due: Moment) {
        if let Self(None) = self {
            self.0 = hold.of.clone().map(|of| Renewal { of, due });
        }
    }

    pub(crate) fn ends(&mut self, outcome: Renewed) {
        let Some(Renewal { of, due }) = self.0.take() else { return };
        of.0.renewals[outcome as usize].increment(1);
        match outcome {
            Renewed::Ok => of.0.lateness.record(clock::now().since(due)),
            Renewed::Gone => {}
            Renewed::Failed => self.0 = Some(Renewal { of, due }),
        }
    }
}

/// A release or an undo in the background.
pub(crate) struct Undoing(Gauge);

impl Drop for Undoing {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// The commands to one server.
pub(crate) struct Commands {
    answers: [Counter; ANSWERS.len()],
    round_trip: Histogram,
}

impl Commands {
    pub(crate) fn new() -> Self {
        Self {
            answers: counters(&table::COMMANDS, &[], "outcome", ANSWERS),
            round_trip: histogram(&table::ROUND_TRIP, &[]),
        }
    }

    /// A command is sent. If the result is dropped before it ends, nobody waits for the answer.
    pub(crate) const fn sends(&self, start: Instant) -> Command<'_> {
        Command { of: self, start, answer: UNANSWERED }
    }
}

/// A command under way.
pub(crate) struct Command<'a> {
    of: &'a Commands,
    start: Instant,
    answer: usize,
}

impl Command<'_> {
    pub(crate) fn ends(mut self, result: Result<(), Sent>) {
        self.answer = match result {
            Ok(()) => 0,
            Err(Sent::Refused) => 1,
            Err(Sent::Unknown) => UNANSWERED,
            Err(Sent::No) => 3,
        };
    }
}

impl Drop for Command<'_> {
    fn drop(&mut self) {
        self.of.answers[self.answer].increment(1);
        if self.answer < UNANSWERED {
            self.of.round_trip.record(self.start.elapsed());
        }
    }
}

/// Counts the connections that are replaced.
pub(crate) struct Reconnects(Counter);

impl Reconnects {
    pub(crate) fn of(connections: ConnectionUse) -> Self {
        let label = Label::from_static_parts("connection", CONNECTIONS[connections as usize]);
        Self(counter(&table::RECONNECTS, vec![label]))
    }

    pub(crate) fn count(&self) {
        self.0.increment(1);
    }
}

fn describe() {
    for &Metric { name, kind, unit, description } in table::ALL {
        match kind {
            Kind::Counter => metrics::describe_counter!(name, unit, description),
            Kind::Gauge => metrics::describe_gauge!(name, unit, description),
            Kind::Histogram => metrics::describe_histogram!(name, unit, description),
        }
    }
}

fn counter(metric: &Metric, labels: Vec<Label>) -> Counter {
    metrics::counter!(metric.name, labels)
}

/// A counter for each value of one more label.
fn counters<const LEN: usize>(
    metric: &Metric,
    labels: &[Label],
    name: &'static str,
    values: [&'static str; LEN],
) -> [Counter; LEN] {
    values.map(|value| counter(metric, [labels, &[Label::from_static_parts(name, value)]].concat()))
}

fn gauge(metric: &Metric, labels: &[Label]) -> Gauge {
    metrics::gauge!(metric.name, labels.to_vec())
}

fn histogram(metric: &Metric, labels: &[Label]) -> Histogram {
    metrics::histogram!(metric.name, labels.to_vec())
}

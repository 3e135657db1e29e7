//! What is recorded of clients, locks, holds and commands.

use std::array::from_fn;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::instruments::{Counter, Gauge, Histogram, counter, gauge, histogram};
use super::kinds::{Acquired, Answered, Renewed};
use super::table::{self, Labelled};
use crate::base::clock::{self, Moment};
use crate::base::error::LossCause;
use crate::base::fault::Sent;
use crate::base::sync::lock;
use crate::base::timer::Instant;
use crate::protocol::LockType;

/// Whether anything is recorded.
const IS_RECORDING: bool = cfg!(feature = "metrics");

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
        table::describe();
        drop(["commands", "messages"].map(reconnects)); // so that they are there, and 0
        Self {
            without_group: from_fn(|_| OnceLock::new()),
            in_groups: Mutex::default(),
            undos: gauge(table::UNDOS, &[]),
        }
    }

    /// The metrics of locks of this type, in this group if there is one.
    pub(crate) fn of(&self, lock_type: LockType, group: Option<&Cow<'static, str>>) -> OfLock {
        if !IS_RECORDING {
            return OfLock::default();
        }
        let new =
            || OfLock(Some(Arc::new(Locks { lock_type, group: group.cloned(), series: OnceLock::new() })));
        match group {
            None => self.without_group[lock_type as usize].get_or_init(new).clone(),
            Some(group) => {
                lock(&self.in_groups).entry((lock_type, group.clone())).or_insert_with(new).clone()
            }
        }
    }

    /// A release or an undo in the background begins. It ends when the result is dropped.
    pub(crate) fn undoing(&self) -> Counted {
        Counted::begins(&self.undos)
    }
}

/// The metrics of one type of lock and one group. The default records nothing.
#[derive(Clone, Default)]
pub(crate) struct OfLock(Option<Arc<Locks>>);

struct Locks {
    lock_type: LockType,
    group: Option<Cow<'static, str>>,
    /// Made when a lock is used: a handle can get another group before.
    series: OnceLock<Series>,
}

struct Series {
    acquires: [Counter; Acquired::ALL.len()],
    acquire_time: Histogram,
    held_time: Histogram,
    holds: Gauge,
    waiters: Gauge,
    lost: [Counter; LossCause::ALL.len()],
    renewals: [Counter; Renewed::ALL.len()],
    lateness: Histogram,
}

impl Locks {
    fn make_series(&self) -> Series {
        let group = self.group.clone().unwrap_or(Cow::Borrowed(NO_GROUP));
        let labels: [Labelled; 2] = [("type", self.lock_type.name().into()), ("group", group)];
        Series {
            acquires: counters(table::ACQUIRES, &labels, "outcome", Acquired::ALL.map(Acquired::label)),
            acquire_time: histogram(table::ACQUIRE_TIME, &labels),
            held_time: histogram(table::HELD_TIME, &labels),
            holds: gauge(table::HOLDS, &labels),
            waiters: gauge(table::WAITERS, &labels),
            lost: counters(table::LOST_HOLDS, &labels, "cause", LossCause::ALL.map(LossCause::label)),
            renewals: counters(table::RENEWALS, &labels, "outcome", Renewed::ALL.map(Renewed::label)),
            lateness: histogram(table::LATENESS, &labels),
        }
    }
}

impl OfLock {
    fn series(&self) -> Option<&Series> {
        self.0.as_ref().map(|locks| locks.series.get_or_init(|| locks.make_series()))
    }

    /// The group that the user named. `None` without the feature `metrics`, too.
    pub(crate) fn group(&self) -> Option<&Cow<'static, str>> {
        self.0.as_ref()?.group.as_ref()
    }

    /// An acquire ended.
    pub(crate) fn acquired(&self, outcome: Acquired) {
        if let Some(series) = self.series() {
            series.acquires[outcome as usize].increment(1);
        }
    }

    /// A call begins to wait. It ends when the result is dropped.
    pub(crate) fn waiting(&self) -> Option<Counted> {
        self.series().map(|series| Counted::begins(&series.waiters))
    }

    /// An acquire that began at `start` was granted, and a hold begins. When the result is dropped, the hold ends at the latest.
    pub(crate) fn granted(&self, start: Moment, now: Moment) -> Held {
        self.begins(start, now);
        Held { of: self.clone(), since: now, is_over: AtomicBool::new(false), guard: None }
    }

    /// A hold of a lock of several, which is counted when it belongs to a [`Guarded`].
    pub(crate) fn granted_to_member(&self) -> Held {
        let guard = Some(OnceLock::new());
        Held { of: self.clone(), since: Moment::PAST, is_over: AtomicBool::new(false), guard }
    }

    /// An acquire that began at `start` was granted these holds, and a guard begins. It ends when more than `spare` of them have ended.
    pub(crate) fn granted_together<'a>(
        &self,
        (start, now): (Moment, Moment),
        spare: usize,
        holds: impl Iterator<Item = &'a Held>,
    ) {
        self.begins(start, now);
        let [ended, lost] = [0, 0].map(AtomicUsize::new);
        let guard = Arc::new(Guarded { since: now, spare, ended, lost });
        for held in holds {
            let of = held.guard.as_ref().expect("BUG: each hold of a lock of several is one of a member");
            let _ = of.set(Arc::clone(&guard));
            if held.is_over.load(Ordering::Acquire) {
                held.of_guard_ends(now);
            }
        }
    }

    fn begins(&self, start: Moment, now: Moment) {
        if let Some(series) = self.series() {
            series.acquire_time.record(now.since(start));
            series.holds.increment(1);
        }
    }
}

/// A hold. The default is a hold that is not counted.
#[derive(Default)]
pub(crate) struct Held {
    of: OfLock,
    since: Moment,
    is_over: AtomicBool,
    /// `Some`: the hold of a member of several. Empty: it belongs to no guard yet.
    guard: Option<OnceLock<Arc<Guarded>>>,
}

/// The guard of a lock of several, which has several holds, and is counted once.
struct Guarded {
    since: Moment,
    spare: usize,
    ended: AtomicUsize,
    lost: AtomicUsize,
}

impl Held {
    /// The hold was given back, or is lost. Only the first call counts.
    pub(crate) fn ends(&self, now: Moment) {
        if self.of.0.is_none() || self.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.guard.is_some() { self.of_guard_ends(now) } else { self.end(self.since, now) }
    }

    fn of_guard_ends(&self, now: Moment) {
        if let Some(guard) = self.guarded()
            && guard.ended.fetch_add(1, Ordering::Relaxed) == guard.spare
        {
            self.end(guard.since, now);
        }
    }

    fn end(&self, since: Moment, now: Moment) {
        let Some(series) = self.of.series() else { return };
        series.holds.decrement(1);
        series.held_time.record(now.since(since));
    }

    fn guarded(&self) -> Option<&Guarded> {
        self.guard.as_ref()?.get().map(|guard| &**guard)
    }

    pub(crate) fn is_lost(&self, cause: LossCause, now: Moment) {
        let counts = self.guard.is_none()
            || self.guarded().is_some_and(|guard| guard.lost.fetch_add(1, Ordering::Relaxed) == guard.spare);
        if counts && let Some(series) = self.of.series() {
            series.lost[cause as usize].increment(1);
        }
        self.ends(now);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.of.0.is_some() && !*self.is_over.get_mut() {
            self.ends(clock::now());
        }
    }
}

/// The renewal of the holds of one owner.
#[derive(Default)]
pub(crate) struct Renewing(Option<Renewal>);

#[derive(Clone)]
struct Renewal {
    of: OfLock,
    /// When it was due first: a renewal that failed is tried again.
    due: Moment,
}

impl Renewing {
    pub(crate) fn begins(&mut self, hold: &Held, due: Moment) {
        if let Self(None) = self {
            self.0 = hold.of.0.is_some().then(|| Renewal { of: hold.of.clone(), due });
        }
    }

    /// Ends with this outcome. Returns what [`tell`](Self::tell) counts.
    pub(crate) fn ends(&mut self, outcome: Renewed) -> Self {
        Self(if outcome == Renewed::Failed { self.0.clone() } else { self.0.take() })
    }

    /// Counts the end of this renewal. Runs code of the recorder, so call this with nothing locked.
    pub(crate) fn tell(self, outcome: Renewed) {
        let Some(Renewal { of, due }) = self.0 else { return };
        let Some(series) = of.series() else { return };
        series.renewals[outcome as usize].increment(1);
        if outcome == Renewed::Ok {
            series.lateness.record(clock::now().since(due));
        }
    }
}

/// Something that a gauge counts until this is dropped.
pub(crate) struct Counted(Gauge);

impl Counted {
    fn begins(gauge: &Gauge) -> Self {
        gauge.increment(1);
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// One command in eight is timed. To read the clock and to record a time is a third of what metrics cost. A counter, and not the time,
/// chooses the command, so that the sample has slow ones as often as they occur.
const TIMED_BITS: u32 = 3;

/// Scatters the numbers of the timed commands: acquires and releases often alternate, so each eighth command would be a release.
const SCATTER: u32 = 0x9e37_79b9;

/// The commands to one server, and the calls of scripts in them.
pub(crate) struct Commands {
    answers: [Counter; Answered::ALL.len()],
    calls: [Counter; Answered::ALL.len()],
    round_trip: Histogram,
    answered: AtomicU32,
}

impl Commands {
    pub(crate) fn new() -> Self {
        Self {
            answers: counters(table::COMMANDS, &[], "outcome", Answered::ALL.map(Answered::label)),
            calls: counters(table::CALLS, &[], "outcome", Answered::ALL.map(Answered::label)),
            round_trip: histogram(table::ROUND_TRIP, &[]),
            answered: AtomicU32::new(0),
        }
    }

    fn times_next(&self) -> bool {
        let number = self.answered.fetch_add(1, Ordering::Relaxed);
        number.wrapping_mul(SCATTER) >> (u32::BITS - TIMED_BITS) == 0
    }

    /// A command is sent. If the result is dropped before it ends, nobody waits for the answer.
    pub(crate) const fn sends(&self, start: Instant) -> Command<'_> {
        Command { of: self, start: Some(start), answered: Answered::Unanswered }
    }

    /// A script is called, in a command of its own or with others.
    pub(crate) const fn calls(&self) -> Command<'_> {
        Command { of: self, start: None, answered: Answered::Unanswered }
    }
}

/// A command, or a call of a script, under way.
pub(crate) struct Command<'a> {
    of: &'a Commands,
    /// `None`: a call.
    start: Option<Instant>,
    answered: Answered,
}

impl Command<'_> {
    pub(crate) fn ends(mut self, result: Result<(), Sent>) {
        self.answered = match result {
            Ok(()) => Answered::Ok,
            Err(Sent::Refused) => Answered::Refused,
            Err(Sent::Unknown) => Answered::Unanswered,
            Err(Sent::No) => Answered::NotSent,
        };
    }
}

impl Drop for Command<'_> {
    fn drop(&mut self) {
        let Some(start) = self.start else {
            return self.of.calls[self.answered as usize].increment(1);
        };
        self.of.answers[self.answered as usize].increment(1);
        let has_answer = matches!(self.answered, Answered::Ok | Answered::Refused);
        if IS_RECORDING && has_answer && self.of.times_next() {
            self.of.round_trip.record(start.elapsed());
        }
    }
}

/// Counts how often the runtime of the program stood still.
pub(crate) fn stalls() -> Counter {
    counter(table::STALLS, &[])
}

/// Counter of the replaced connections for this use. Calls the recorder of the user, so the caller holds no mutex.
pub(crate) fn reconnects(of: &'static str) -> Counter {
    counter(table::RECONNECTS, &[("connection", of.into())])
}

/// A counter for each value of one more label.
fn counters<const LEN: usize>(
    metric: &'static str,
    labels: &[Labelled],
    name: &'static str,
    values: [&'static str; LEN],
) -> [Counter; LEN] {
    values.map(|value| counter(metric, &[labels, &[(name, value.into())]].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_in_eight_is_timed_and_acquires_as_often_as_releases() {
        let commands = Commands::new();
        let timed: Vec<usize> = (0..80_000).filter(|_| commands.times_next()).collect();
        assert!((9_900..10_100).contains(&timed.len()), "{}", timed.len());
        let even = timed.iter().filter(|number| *number % 2 == 0).count();
        assert!((4_900..5_100).contains(&even), "{even}");
        assert_eq!(timed[0], 0, "the first one is timed");
    }
}

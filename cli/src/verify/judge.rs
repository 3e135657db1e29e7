//! Judges a history. It knows no server, no client and no clock: events in, a verdict out.
//!
//! **When a worker holds a lock.** A worker reads the clock, then checks that its guard is not lost, and only then writes the event with that
//! time. A lost guard stays lost. So at each of these times, and at all times between them, the worker relied on the lock. Its *section* is the time from the first
//! of these events (`entered`) to the last one (`worked` or `leaving`). A section therefore lies within the time of the grant:
//!
//! - `entered` is after the grant, and `leaving` is before the release.
//! - A worker that is killed or stopped writes nothing, so its section ends with its last step. When it continues, it
//!   notices the loss before its next step, or that step belongs to its section.
//! - The order of answers is not the order of grants. Only sections are compared, and sections that only touch do not overlap.
//! - A grant whose answer never came has no section. For waiters, the lock counts as possibly held until the lease has ended.
//!
//! So each overlap is a real one. What is reported:
//!
//! - **Two holders**: the sections of two holds that exclude each other overlap, or there are more sections than permits.
//! - **Told late**: a guard told of its loss more than [`LATE`] after the next section began, although its process ran meanwhile.
//! - **A token that does not grow**: it is not greater than that of a section that began earlier.
//! - **A sleeping waiter**: a call waited for more than [`SLEEP`] while nobody held the lock, or can have held it.
//! - **Out of turn**: a fair lock was granted to a call that began more than [`HEAD_START`] after another one that still waited.
//! - **Left behind**: keys that are there after the leases have ended.
//!
//! **Disturbances.** The last two rules of waiting hold only while all is well. Each process writes an event at least every 100 ms. A gap
//! of more than [`GAP`] is a disturbance: the process was killed, stopped, or had no processor. A gap of the process that asks the server is a
//! disturbance of all: the server did not answer. A cut connection is one, too. A disturbance lasts until the leases after it have ended. It
//! excuses waits and turns. It never excuses two holders, or a token.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::history::{Event, Examined, MAIN, PERMITS, What, name_of};
use super::picture::picture;

const MS: u64 = 1_000_000;

/// A process that writes nothing for longer than this does not run.
const GAP: u64 = 400 * MS;
/// How long a loss may take to be told after the next grant, while the process runs.
const LATE: u64 = 500 * MS;
/// How long a call may wait beside a free lock. A waiter that is told of no release waits for the end of the lease, or for `safety_poll`.
const SLEEP: u64 = 1_500 * MS;
/// So much earlier must a call begin to be certainly in front of another one.
const HEAD_START: u64 = 500 * MS;
/// After a call has given up, its release can be under way for so long.
const UNDO: u64 = 500 * MS;
/// Permits of a dead process can take so much longer than a lease.
const SLACK: u64 = 1_500 * MS;
/// A failover is seen so long after it happened.
const SEEN: u64 = 2_000 * MS;
/// So many violations of each rule are described.
const DESCRIBED: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Rule {
    TwoHolders,
    ToldLate,
    TokenNotGreater,
    SleepingWaiter,
    OutOfTurn,
    LeftBehind,
}

/// A promise that was broken.
#[derive(Debug, Serialize)]
pub(super) struct Violation {
    pub(super) rule: Rule,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lock: Option<String>,
    pub(super) text: String,
    /// The sections around it, a line for each process.
    pub(super) picture: Vec<String>,
}

/// What the history shows.
#[derive(Debug, Default, Serialize)]
pub(super) struct Verdict {
    pub(super) lease_ms: u64,
    pub(super) seconds: u64,
    pub(super) grants: u64,
    /// Grants whose lock was held by another process before.
    pub(super) handed_over: u64,
    pub(super) deaths: u64,
    pub(super) pauses: u64,
    pub(super) cuts: u64,
    pub(super) failovers: u64,
    /// The longest time without an answer of the server, if it was noticed.
    pub(super) outage_ms: u64,
    pub(super) losses_told: u64,
    /// The shortest time between a notice and the next grant.
    pub(super) earliest_notice_ms: Option<u64>,
    pub(super) longest_wait_beside_free_lock_ms: u64,
    pub(super) keys_left_behind: Option<u64>,
    pub(super) counts: BTreeMap<Rule, u64>,
    pub(super) violations: Vec<Violation>,
}

/// What became of one call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) process: u32,
    lock: Examined,
    number: u32,
    pub(super) asked: u64,
    pub(super) entered: Option<u64>,
    /// The last time at which it relied on the lock.
    pub(super) last: u64,
    pub(super) told: Option<u64>,
    token: Option<u64>,
    left: Option<(u64, bool)>,
    gave_up: Option<u64>,
}

impl Call {
    fn name(&self) -> String {
        name_of(self.lock, self.number)
    }

    /// When it stopped to wait.
    fn waited_until(&self) -> u64 {
        self.entered.or(self.told).or(self.gave_up).unwrap_or(u64::MAX)
    }

    /// Until when it can hold the lock on the server.
    fn freed(&self, lease: u64) -> u64 {
        match self.left {
            Some((at, true)) => at,
            left => left.map_or(self.last, |(at, _)| at).max(self.told.unwrap_or_default()) + lease + SLACK,
        }
    }
}

type Times = (u64, u64);

/// How long the hold of a dead process, or its place in the queue of a fair lock, can stay: 4/3 of the allowance, which is one lease.
const fn effects(lease: u64) -> u64 {
    lease / 3 * 4 + SLACK
}

/// Judges the events, which are in the order of their times.
pub(super) fn judge(events: &[Event]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut lease = 0;
    for event in events {
        match &event.what {
            What::Began { lease_ms } => {
                lease = lease_ms * MS;
                verdict.lease_ms = *lease_ms;
            }
            What::Killed => verdict.deaths += 1,
            What::Paused => verdict.pauses += 1,
            What::Cut => verdict.cuts += 1,
            What::FailedOver { .. } => verdict.failovers += 1,
            What::LeftBehind { keys } => {
                verdict.keys_left_behind = Some(keys.len() as u64);
                if !keys.is_empty() {
                    let text =
                        format!("{} keys after the end of all leases: {}", keys.len(), keys.join(", "));
                    verdict.add(Rule::LeftBehind, None, text, Vec::new());
                }
            }
            _ => {}
        }
    }
    if let (Some(first), Some(last)) = (events.first(), events.last()) {
        verdict.seconds = (last.at - first.at) / (1_000 * MS);
    }
    let calls = calls(events);
    let disturbed = disturbances(events);
    verdict.outage_ms = outage(events);
    verdict.losses_told = calls.iter().filter(|call| call.told.is_some()).count() as u64;
    let mut locks: BTreeMap<String, Vec<&Call>> = BTreeMap::new();
    for call in &calls {
        locks.entry(call.name()).or_default().push(call);
    }
    for of_lock in locks.values() {
        let lock = of_lock[0].lock;
        let permits = if lock == Examined::Semaphore { PERMITS as usize } else { 1 };
        exclusion(of_lock, permits, &mut verdict);
        notices(of_lock, events, &disturbed, &mut verdict);
        if lock == Examined::Fenced {
            tokens(of_lock, &mut verdict);
        }
        sleepers(of_lock, permits, lease, &disturbed, &mut verdict);
        if lock == Examined::Fair {
            turns(of_lock, lease, &disturbed, &mut verdict);
        }
    }
    verdict
}

impl Verdict {
    fn add(&mut self, rule: Rule, lock: Option<String>, text: String, picture: Vec<String>) {
        let count = self.counts.entry(rule).or_default();
        *count += 1;
        if *count <= DESCRIBED as u64 {
            self.violations.push(Violation { rule, lock, text, picture });
        }
    }

    pub(super) fn count(&self, rule: Rule) -> u64 {
        self.counts.get(&rule).copied().unwrap_or_default()
    }
}

/// All calls, in the order in which they began.
fn calls(events: &[Event]) -> Vec<Call> {
    let (mut all, mut index) = (Vec::new(), BTreeMap::new());
    for &Event { at, process, ref what } in events {
        if let What::Asked { call, lock, number } = *what {
            index.insert((process, call), all.len());
            let (entered, told, token, left, gave_up) = (None, None, None, None, None);
            all.push(Call {
                process,
                lock,
                number,
                asked: at,
                entered,
                last: at,
                told,
                token,
                left,
                gave_up,
            });
            continue;
        }
        let number = match what {
            What::Entered { call, .. }
            | What::Worked { call }
            | What::Told { call }
            | What::Leaving { call } => *call,
            What::Left { call, .. } | What::GaveUp { call } => *call,
            _ => continue,
        };
        let Some(call) = index.get(&(process, number)).map(|index| &mut all[*index]) else { continue };
        match *what {
            What::Entered { token, .. } => (call.entered, call.token, call.last) = (Some(at), token, at),
            What::Worked { .. } | What::Leaving { .. } => call.last = at,
            What::Told { .. } => call.told = Some(call.told.unwrap_or(at)),
            What::Left { ok, .. } => call.left = Some((at, ok)),
            _ => call.gave_up = Some(at),
        }
    }
    all
}

/// The sections, in the order in which they began.
fn sections<'a>(calls: &[&'a Call]) -> Vec<(u64, &'a Call)> {
    let mut sections: Vec<_> = calls.iter().filter_map(|call| Some((call.entered?, *call))).collect();
    sections.sort_by_key(|(entered, _)| *entered);
    sections
}

/// Whether two holds of one lock exclude each other. Permits are counted.
fn excludes(one: Examined, other: Examined) -> bool {
    !(one == Examined::Read && other == Examined::Read || one == Examined::Semaphore)
}

fn exclusion(calls: &[&Call], permits: usize, verdict: &mut Verdict) {
    let mut inside: Vec<(u64, &Call)> = Vec::new();
    let mut before: Option<u32> = None;
    for (entered, call) in sections(calls) {
        verdict.grants += 1;
        verdict.handed_over += u64::from(before.is_some_and(|process| process != call.process));
        before = Some(call.process);
        inside.retain(|(_, other)| other.last > entered);
        let too_many = call.lock == Examined::Semaphore && inside.len() >= permits;
        let other = inside.iter().filter(|(_, other)| too_many || excludes(other.lock, call.lock));
        if let Some((since, other)) = other.max_by_key(|(_, other)| other.last) {
            let together = (other.last.min(call.last) - entered) / MS;
            let ignored = if other.told.is_some_and(|told| told < other.last) {
                format!(" Worker {} had been told of its loss, and went on.", other.process)
            } else {
                String::new()
            };
            let what = if too_many { "more holders than permits" } else { "two holders" };
            let text = format!(
                "{what} of {}: worker {} since {} ms, until it was {together} ms together with worker {}.{ignored}",
                call.name(),
                other.process,
                (entered - since) / MS,
                call.process
            );
            verdict.add(
                Rule::TwoHolders,
                Some(call.name()),
                text,
                picture(calls, *since, other.last.max(call.last)),
            );
        }
        inside.push((entered, call));
    }
}

fn notices(calls: &[&Call], events: &[Event], disturbed: &BTreeMap<u32, Vec<Times>>, verdict: &mut Verdict) {
    let sections = sections(calls);
    for (entered, call) in &sections {
        let Some(told) = call.told.filter(|_| call.lock != Examined::Semaphore) else { continue };
        let next = sections.partition_point(|(other, _)| other <= entered);
        let next = sections[next..].iter().find(|(_, other)| excludes(other.lock, call.lock));
        let Some(&(next, other)) = next else { continue };
        if told <= next {
            let left = (next - told) / MS;
            verdict.earliest_notice_ms =
                Some(verdict.earliest_notice_ms.map_or(left, |least| least.min(left)));
            continue;
        }
        let ran = events.iter().any(|event| {
            event.process == call.process && event.at > next && event.at + LATE < told && is_own(&event.what)
        });
        if ran && !is_disturbed(disturbed, call.process, (next, told), 0) {
            let text = format!(
                "{}: worker {} was told of its loss {} ms after worker {} had entered",
                call.name(),
                call.process,
                (told - next) / MS,
                other.process
            );
            verdict.add(Rule::ToldLate, Some(call.name()), text, picture(calls, *entered, told));
        }
    }
}

fn tokens(calls: &[&Call], verdict: &mut Verdict) {
    let mut greatest: Option<(u64, &Call)> = None;
    for (_, call) in sections(calls) {
        let Some(token) = call.token else { continue };
        if let Some((great, earlier)) = greatest.filter(|(great, _)| token <= *great) {
            let text = format!(
                "the token {token} of worker {} is not greater than {great}, which worker {} had before",
                call.process, earlier.process
            );
            verdict.add(
                Rule::TokenNotGreater,
                Some(call.name()),
                text,
                picture(calls, earlier.asked, call.last),
            );
        } else {
            greatest = Some((token, call));
        }
    }
}

/// Events that the process itself writes.
const fn is_own(what: &What) -> bool {
    !matches!(
        what,
        What::Killed
            | What::Paused
            | What::Resumed
            | What::Cut
            | What::Joined
            | What::FailedOver { .. }
            | What::LeftBehind { .. }
    )
}

/// The longest time without an answer of the server.
fn outage(events: &[Event]) -> u64 {
    let mut answers =
        events.iter().filter(|event| event.process == MAIN && is_own(&event.what)).map(|event| event.at);
    let mut last = answers.next().unwrap_or_default();
    let gaps = answers.map(|at| at - std::mem::replace(&mut last, at)).filter(|gap| *gap > GAP);
    gaps.max().unwrap_or_default() / MS
}

/// When each process did not run, or could not reach the server.
fn disturbances(events: &[Event]) -> BTreeMap<u32, Vec<Times>> {
    let mut all: BTreeMap<u32, Vec<Times>> = BTreeMap::new();
    let (mut last, mut cut, mut ended) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for Event { at, process, what } in events {
        let times = all.entry(*process).or_default();
        let before = if is_own(what) { last.insert(*process, *at) } else { None };
        times.extend(before.filter(|before| before + GAP < *at).map(|before| (before, *at)));
        match what {
            What::Ended => drop(ended.insert(*process)),
            What::Cut => drop(cut.insert(*process, *at)),
            What::Joined => times.extend(cut.remove(process).map(|from| (from, *at))),
            What::FailedOver { .. } => times.push((at.saturating_sub(SEEN), *at)),
            What::Killed => times.push((last.get(process).copied().unwrap_or(*at), *at)),
            _ => {}
        }
    }
    for (process, from) in cut {
        all.entry(process).or_default().push((from, u64::MAX));
    }
    for (process, times) in &mut all {
        times.sort_unstable();
        let is_dead = events.iter().any(|event| event.process == *process && event.what == What::Killed);
        if *process != MAIN && !ended.contains(process) && !is_dead {
            times.extend(last.get(process).map(|last| (*last, u64::MAX)));
        }
    }
    all
}

/// Whether a process, or all, were disturbed in these times. A disturbance has effects for so long.
fn is_disturbed(all: &BTreeMap<u32, Vec<Times>>, process: u32, (from, to): Times, effects: u64) -> bool {
    let of = |process| all.get(&process).into_iter().flatten();
    of(process).chain(of(MAIN)).any(|(begin, end)| *begin < to && end.saturating_add(effects) > from)
}

fn sleepers(
    calls: &[&Call],
    permits: usize,
    lease: u64,
    disturbed: &BTreeMap<u32, Vec<Times>>,
    verdict: &mut Verdict,
) {
    let effects = effects(lease);
    let mut taken: Vec<(Times, bool)> = Vec::new();
    for call in calls {
        if let Some(entered) = call.entered {
            taken.push(((entered, call.freed(lease)), false));
        }
        // A call that gave up may have acquired the lock, and its release can be under way for `UNDO`.
        let involved = (call.asked, call.waited_until().max(call.last).saturating_add(UNDO));
        for &(from, to) in disturbed.get(&call.process).into_iter().flatten() {
            if from < involved.1 && to > involved.0 {
                taken.push(((from, to.saturating_add(effects)), true));
            }
        }
    }
    let of_all = disturbed.get(&MAIN).into_iter().flatten();
    taken.extend(of_all.map(|(from, to)| ((*from, to.saturating_add(effects)), true)));
    let free = free_times(&taken, permits);
    for call in calls {
        let until = call.waited_until();
        if until == u64::MAX || is_disturbed(disturbed, call.process, (call.asked, until), effects) {
            continue;
        }
        let first = free.partition_point(|(_, to)| *to <= call.asked);
        for &(from, to) in free[first..].iter().take_while(|(from, _)| *from < until) {
            let (from, to) = (from.max(call.asked), to.min(until));
            verdict.longest_wait_beside_free_lock_ms =
                verdict.longest_wait_beside_free_lock_ms.max((to - from) / MS);
            if to - from > SLEEP {
                let text = format!(
                    "{}: worker {} waited for {} ms while nobody held the lock",
                    call.name(),
                    call.process,
                    (to - from) / MS
                );
                verdict.add(Rule::SleepingWaiter, Some(call.name()), text, picture(calls, from, to));
            }
        }
    }
}

/// The times in which there are fewer holds than permits, and nothing else takes the lock: whatever is `true` takes all permits.
fn free_times(taken: &[(Times, bool)], permits: usize) -> Vec<Times> {
    let weight = |takes_all: bool| if takes_all { permits } else { 1 };
    let mut changes: Vec<(u64, bool, usize)> = Vec::new();
    for &((from, to), takes_all) in taken {
        changes.push((from, false, weight(takes_all)));
        changes.push((to, true, weight(takes_all)));
    }
    changes.sort_unstable();
    let (mut count, mut since, mut free) = (0, Some(0), Vec::new());
    for (at, ends, weight) in changes {
        count = if ends { count - weight } else { count + weight };
        match since {
            Some(from) if count >= permits => {
                free.push((from, at));
                since = None;
            }
            None if count < permits => since = Some(at),
            // A grant while permits are still free: a waiter was served, so this free time ends and the next one
            // begins.
            Some(from) if !ends => {
                free.push((from, at));
                since = Some(at);
            }
            _ => {}
        }
    }
    free.extend(since.map(|from| (from, u64::MAX)));
    free
}

fn turns(calls: &[&Call], lease: u64, disturbed: &BTreeMap<u32, Vec<Times>>, verdict: &mut Verdict) {
    let effects = effects(lease);
    let longest =
        calls.iter().filter_map(|call| call.entered.or(call.gave_up).map(|until| until - call.asked)).max();
    for (entered, call) in sections(calls) {
        let first = calls.partition_point(|other| other.asked + longest.unwrap_or_default() < entered);
        let earlier = calls[first..].iter().find(|other| {
            let still_waits = match other.entered {
                Some(later) => later > entered,
                None => other.told.is_none() && other.gave_up.is_some_and(|at| at > entered + UNDO),
            };
            other.asked + HEAD_START < call.asked
                && still_waits
                && !is_disturbed(disturbed, other.process, (other.asked, entered), effects)
        });
        if let Some(earlier) = earlier {
            let text = format!(
                "worker {} was granted the fair lock before worker {}, which had begun to wait {} ms earlier",
                call.process,
                earlier.process,
                (call.asked - earlier.asked) / MS
            );
            verdict.add(Rule::OutOfTurn, Some(call.name()), text, picture(calls, earlier.asked, entered));
        }
    }
}

#[cfg(test)]
#[path = "judge/tests.rs"]
mod tests;

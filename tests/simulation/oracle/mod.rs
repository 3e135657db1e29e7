//! What must be true of a world. It knows guards, the faults, the calls of the workers, and the keys of the servers; it shares no
//! code with the engine.

mod commands;
mod faults;
mod guards;
mod holds;
mod leases;
mod looks;
mod results;
mod shutdowns;
mod slots;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Arguments, Display};
use std::time::Duration;

use lockkeeper::Process;

use commands::Late;
use faults::Fault;
use guards::Entry;
pub use holds::RenewedHold;
use leases::Leases;
use looks::{Force, Seen};
pub use results::{Passed, Releasing};
use shutdowns::Closing;
use turns::Turns;
pub use turns::come_too_early;

use crate::plan::Plan;
use crate::queue::Queues;
use crate::trace::Trace;
use crate::waits::Waits;

pub struct Oracle {
    pub plan: Plan,
    pub trace: Trace,
    pub faults: Vec<Fault>,
    pub processes: Vec<Process>,
    pub waits: Waits,
    pub queues: Queues,
    entries: Vec<Entry>,
    /// When each server lost data.
    losses: Vec<Vec<Duration>>,
    /// When a master was last replaced, which one, and by which.
    last_replaced: Option<(Duration, usize, usize)>,
    /// When a former master came back so soon that a client perhaps heard nothing of it.
    replaced_back: Vec<Duration>,
    tokens: BTreeMap<usize, u64>,
    /// Holds that late copies created.
    late: Vec<Late>,
    passed: Vec<Passed>,
    /// The owners of all guards that there were.
    owners: BTreeSet<String>,
    /// Of each owner on each server: the number of the last command that acquired, and of the last that released.
    commands: BTreeMap<(usize, String), (u64, u64)>,
    /// When an owner was last granted a lock by a server, as that saw it.
    grants: BTreeMap<(usize, String), Duration>,
    /// When a server granted each permit for the first time.
    first_grants: BTreeMap<(usize, String), Duration>,
    /// When a server refused a command about several slots on a connection for the first time.
    refused_slots: BTreeMap<(usize, u64), Duration>,
    leases: Leases,
    turns: Turns,
    /// Waiters for fair locks that got no heartbeat.
    dead: BTreeSet<String>,
    seen: Seen,
    forced: Vec<Force>,
    /// The owners of the guards that are unlocked at this moment.
    unlocking: BTreeSet<String>,
    /// Of lost guards with a shortest time: the process, the owners, and until when what the servers still have of them stays.
    staying: Vec<(usize, String, Duration)>,
    /// The processes whose clients are shut down.
    closing: BTreeMap<usize, Closing>,
    pub violations: Vec<String>,
    pub excused: BTreeMap<&'static str, u64>,
    pub counts: BTreeMap<&'static str, u64>,
}

impl Oracle {
    pub fn new(plan: &Plan, is_printed: bool) -> Self {
        Self {
            plan: plan.clone(),
            trace: Trace::new(is_printed),
            faults: Vec::new(),
            processes: Vec::new(),
            waits: Waits::new(plan),
            queues: Queues::default(),
            entries: Vec::new(),
            losses: vec![Vec::new(); plan.servers],
            last_replaced: None,
            replaced_back: Vec::new(),
            tokens: BTreeMap::new(),
            late: Vec::new(),
            passed: Vec::new(),
            owners: BTreeSet::new(),
            commands: BTreeMap::new(),
            grants: BTreeMap::new(),
            first_grants: BTreeMap::new(),
            refused_slots: BTreeMap::new(),
            leases: Leases::default(),
            turns: Turns::default(),
            dead: BTreeSet::new(),
            seen: Seen::default(),
            forced: Vec::new(),
            unlocking: BTreeSet::new(),
            staying: Vec::new(),
            closing: BTreeMap::new(),
            violations: Vec::new(),
            excused: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    pub fn say(&mut self, now: Duration, who: impl Display, text: Arguments<'_>) {
        self.trace.event(now, &who, &text);
    }

    pub fn violate(&mut self, now: Duration, rule: &str, text: impl Display) {
        let text = format!("{:.6}: rule {rule}: {text}", now.as_secs_f64());
        self.say(now, "VIOLATION", format_args!("{text}"));
        if self.violations.len() < 5 {
            self.violations.push(text);
        }
    }

    pub fn excuse(&mut self, reason: &'static str) {
        *self.excused.entry(reason).or_default() += 1;
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

//! What must be true of a world. It knows guards, the faults, the calls of the workers, and the keys of the servers; it shares no
//! code with the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Arguments, Display};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lockkeeper::memory::Process;
use lockkeeper::{Error, LockGuard};

use crate::locks::Claim;
use crate::plan::{FaultKind, MS, Mode, Plan, SECOND};
use crate::queue::Queues;
use crate::trace::{Script, Trace};
use crate::waits::Waits;

/// Something that went wrong outside of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub kind: Option<FaultKind>,
    /// `None`: all.
    pub process: Option<usize>,
    pub server: Option<usize>,
    pub start: Duration,
    /// `Duration::MAX`: it goes on.
    pub end: Duration,
}

/// A guard, or what was one.
pub struct Entry {
    pub worker: usize,
    pub process: usize,
    pub claims: Vec<Claim>,
    pub is_majority: bool,
    /// When the servers granted it.
    pub granted_at: Duration,
    /// When it ends, if it is not renewed for as long as it is wanted.
    pub ends: Option<Duration>,
    pub owner: String,
    pub guard: Weak<LockGuard>,
    /// It was leaked: others may acquire the lock from then on.
    leaked_until: Option<Duration>,
    was_lost: bool,
}

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
    tokens: BTreeMap<usize, u64>,
    /// Holds that late copies created.
    late: Vec<Late>,
    /// The owners of all guards that there were.
    owners: BTreeSet<String>,
    /// Of each owner on each server: the number of the last command that acquired, and of the last that released.
    commands: BTreeMap<(usize, String), (u64, u64)>,
    /// When an owner was last granted a lock by a server, as that saw it.
    grants: BTreeMap<(usize, String), Duration>,
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
            tokens: BTreeMap::new(),
            late: Vec::new(),
            owners: BTreeSet::new(),
            commands: BTreeMap::new(),
            grants: BTreeMap::new(),
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

    // --- faults --------------------------------------------------------------------------------------------------------

    /// Returns a number for [`Self::end_fault`].
    pub fn begin_fault(
        &mut self,
        now: Duration,
        kind: Option<FaultKind>,
        process: Option<usize>,
        server: Option<usize>,
    ) -> usize {
        let name = kind.map_or("unpolled", FaultKind::text);
        self.say(now, "fault", format_args!("{name} begins, process {process:?}, server {server:?}"));
        self.count(name);
        self.faults.push(Fault { kind, process, server, start: now, end: Duration::MAX });
        if matches!(kind, Some(FaultKind::RestartLost | FaultKind::RestartOld))
            && let Some(server) = server
        {
            self.losses[server].push(now);
            self.queues.forget(server);
        }
        self.faults.len() - 1
    }

    pub fn end_fault(&mut self, now: Duration, number: usize) {
        let fault = &mut self.faults[number];
        fault.end = now;
        let kind = fault.kind;
        if matches!(kind, Some(FaultKind::RestartLost | FaultKind::RestartOld))
            && let Some(server) = fault.server
        {
            self.losses[server].push(now);
            self.queues.forget(server);
        }
        self.say(now, "fault", format_args!("{} ends", kind.map_or("unpolled", FaultKind::text)));
    }

    /// Since when there has been no fault, and no effect of one.
    pub fn calm_from(&self, now: Duration) -> Duration {
        match self.faults.iter().map(|fault| fault.end).max() {
            Some(end) if end > now => Duration::MAX,
            Some(end) => end + self.plan.settle(),
            None => Duration::ZERO,
        }
    }

    /// Whether a fault of this process or of these servers explains what happened between two times.
    ///
    /// A server without memory explains a refused lock, and nothing else.
    fn is_disturbed(
        &self,
        process: usize,
        claims: &[Claim],
        from: Duration,
        to: Duration,
        by_full: bool,
    ) -> bool {
        let tail = 2 * self.plan.command_timeout + 2 * SECOND;
        self.faults.iter().any(|fault| {
            (by_full || fault.kind != Some(FaultKind::Full))
                && fault.start <= to
                && from <= fault.end.saturating_add(tail)
                && fault.process.is_none_or(|one| one == process)
                && fault.server.is_none_or(|one| claims.iter().any(|claim| claim.server == one))
        })
    }

    fn lost_data_since(&self, claims: &[Claim], since: Duration) -> bool {
        claims.iter().any(|claim| self.losses[claim.server].iter().any(|at| *at >= since))
    }

    /// Whether a hold may not have noticed yet that its server lost data. It notices with its next renewal, or its lease ends.
    fn may_be_void(&self, entry: &Entry, now: Duration) -> bool {
        let latest = match entry.ends {
            Some(ends) => now.saturating_sub(ends.saturating_sub(entry.granted_at)),
            None => now.saturating_sub(self.plan.lease + self.plan.command_timeout),
        };
        self.lost_data_since(&entry.claims, entry.granted_at.max(latest))
    }

    // --- commands ------------------------------------------------------------------------------------------------------

    /// A server ran a command.
    pub fn command(
        &mut self,
        now: Duration,
        server: usize,
        client: u64,
        words: &[Arc<[u8]>],
        reply: &[u8],
        ask: &mut dyn FnMut(&[&str]) -> Vec<u8>,
    ) {
        let script = Script::of(words);
        self.trace.command(now, server, client, words, script.as_ref(), reply);
        self.check_waits(now);
        let Some(script) = script else { return };
        if self.waits.update(now, server, ask) {
            self.violate(now, "d", "a lock is held without expiry");
        }
        let numbers = (server, script.arg(0).to_owned());
        if script.file.ends_with("/acquire.lua") {
            let is_granted = reply.starts_with(b"$");
            if is_granted {
                let key = String::from_utf8_lossy(&script.keys[0]).into_owned();
                let is_late = self.commands.get(&numbers).is_some_and(|(_, released)| *released > 0);
                self.late.push(Late { server, key, owner: numbers.1.clone(), at: now, is_late });
            }
            self.grants.insert(numbers.clone(), now);
            self.commands.entry(numbers).or_default().0 = self.trace.events;
        } else if script.file.ends_with("/release.lua")
            && script.arg(if script.file.starts_with("read/") { 2 } else { 1 }) == "0"
        {
            self.commands.entry(numbers).or_default().1 = self.trace.events;
        }
        if let Some(problem) = self.queues.command(now, server, &script, reply) {
            self.violate(now, "i", problem);
        }
    }

    /// Rule j: a hold of which no guard knows, such as that of a late copy, lasts for seconds, and not for a lease. Returns what
    /// lasts too long, if it is still there.
    pub fn late(&mut self, now: Duration) -> Vec<Late> {
        let (old, late) =
            std::mem::take(&mut self.late).into_iter().partition(|late| late.at + LONGEST_LATE < now);
        self.late = late;
        let is_quiet = |late: &Late| {
            self.faults.iter().all(|fault| {
                fault.end <= late.at && fault.kind != Some(FaultKind::KillProcess) || fault.start > now
            })
        };
        let is_unknown = |late: &Late| late.is_late || !self.owners.contains(&late.owner);
        let old: Vec<Late> = old;
        old.into_iter().filter(is_quiet).filter(is_unknown).collect()
    }

    /// Rules d and g: a free lock is acquired, and a key that nobody has is removed.
    pub fn check_waits(&mut self, now: Duration) {
        let calm_from = self.calm_from(now);
        let limit = self.plan.handover();
        if calm_from.saturating_add(limit) < now {
            for problem in self.waits.overdue(now, calm_from, limit) {
                self.violate(now, "d", problem);
            }
            for problem in self.waits.orphans(now, calm_from, limit) {
                self.violate(now, "d", problem);
            }
        }
        if self.plan.mode == Mode::Hung {
            for problem in self.waits.overdue(now, Duration::ZERO, self.plan.hung_handover()) {
                self.violate(now, "g", problem);
            }
        }
    }

    // --- guards --------------------------------------------------------------------------------------------------------

    fn is_valid(&self, entry: &Entry, now: Duration) -> bool {
        match (entry.leaked_until, entry.guard.upgrade()) {
            (Some(until), _) => now < until,
            (None, Some(guard)) => self.processes[entry.process].enter(|| !guard.is_lost()),
            (None, None) => false,
        }
    }

    /// A worker got a guard. Returns its number.
    #[allow(clippy::too_many_arguments, reason = "it is what a grant is")]
    pub fn granted(
        &mut self,
        now: Duration,
        worker: usize,
        process: usize,
        claims: &[Claim],
        is_majority: bool,
        asked_at: Duration,
        ends: Option<Duration>,
        guard: &Arc<LockGuard>,
    ) -> usize {
        self.count("holds");
        self.owners.extend(guard.owner_id().split(", ").map(str::to_owned));
        let new = Entry {
            worker,
            process,
            claims: claims.to_vec(),
            is_majority,
            // From then on, lost data may be that of this hold.
            granted_at: self.server_granted_at(claims, &guard.owner_id()).unwrap_or(asked_at),
            ends,
            owner: guard.owner_id(),
            guard: Arc::downgrade(guard),
            leaked_until: None,
            was_lost: false,
        };
        self.check_lost_is_final(now);
        self.entries.retain(|entry| {
            entry.leaked_until.is_some_and(|until| now < until) || entry.guard.strong_count() > 0
        });
        if self.is_valid(&new, now) {
            let conflicts = self
                .entries
                .iter()
                .filter(|old| old.worker != worker && conflict(old, &new) && self.is_valid(old, now));
            let conflicts: Vec<_> = conflicts
                .map(|old| {
                    let is_excused = self.may_be_void(old, now) || self.may_be_void(&new, now);
                    (old.worker, is_excused)
                })
                .collect();
            for (other, is_excused) in conflicts {
                if is_excused {
                    self.excuse("overlap after data was lost");
                } else {
                    self.violate(now, "a", format!("workers {worker} and {other} both hold the lock"));
                }
            }
        } else {
            self.excuse("a guard was lost when it came");
        }
        self.entries.push(new);
        self.entries.len() - 1
    }

    fn server_granted_at(&self, claims: &[Claim], owners: &str) -> Option<Duration> {
        let grants = owners.split(", ").flat_map(|owner| {
            claims.iter().filter_map(move |claim| self.grants.get(&(claim.server, owner.to_owned())))
        });
        grants.min().copied()
    }

    /// Rule f: tokens grow.
    pub fn token(
        &mut self,
        now: Duration,
        claims: &[Claim],
        token: u64,
        is_first: bool,
        guard: &Arc<LockGuard>,
    ) {
        if self.lost_data_since(claims, self.entry(guard).granted_at) {
            return self.excuse("a token that came after data was lost");
        }
        let before = self.tokens.insert(claims[0].name, token);
        if before.is_some_and(|before| if is_first { token <= before } else { token < before }) {
            self.violate(now, "f", format!("token {token} after {before:?}"));
        }
    }

    /// Rule b: a hold that was lost stays lost.
    pub fn check_lost_is_final(&mut self, now: Duration) {
        let mut revived = Vec::new();
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            let Some(guard) = entry.guard.upgrade() else { continue };
            let is_lost = self.processes[entry.process].enter(|| guard.is_lost());
            if entry.was_lost && !is_lost {
                revived.push(entry.worker);
            }
            self.entries[index].was_lost |= is_lost;
        }
        for worker in revived {
            self.violate(now, "b", format!("a lost hold of worker {worker} is held again"));
        }
    }

    fn entry(&self, guard: &Arc<LockGuard>) -> &Entry {
        let found = self.entries.iter().rev().find(|entry| entry.guard.as_ptr() == Arc::as_ptr(guard));
        found.expect("each guard is recorded")
    }

    /// A guard was found lost. Something must explain that.
    pub fn lost(&mut self, now: Duration, guard: &Arc<LockGuard>) {
        self.count("lost");
        let problem = self.unexplained_loss(self.entry(guard), now);
        self.check_lost_is_final(now);
        if let Some((rule, problem)) = problem {
            self.violate(now, rule, problem);
        }
    }

    fn unexplained_loss(&self, entry: &Entry, now: Duration) -> Option<(&'static str, String)> {
        let plan = &self.plan;
        // Timers and answers are a little late, and drift.
        let slack = plan.margin + plan.lease / 30 + plan.command_timeout + 20 * MS;
        let worker = entry.worker;
        if entry.ends.is_some_and(|ends| ends <= now + slack) {
            return None;
        }
        if self.lost_data_since(&entry.claims, entry.granted_at) {
            return None;
        }
        // The deadline counts from before the attempt was sent. If that was delayed, little of the lease may be left to renew it.
        let sent = entry.granted_at.saturating_sub(plan.command_timeout);
        let was_delayed = |fault: &Fault| fault.start <= entry.granted_at && sent <= fault.end + 20 * MS;
        if plan.mode == Mode::Gentle && !self.faults.iter().any(was_delayed) {
            return Some(("e", format!("worker {worker} lost a hold that was renewed")));
        }
        let from = now.saturating_sub(2 * plan.longest_lease());
        if self.is_disturbed(entry.process, &entry.claims, from, now, false) {
            return None;
        }
        Some(("c", format!("worker {worker} lost a hold without a cause")))
    }

    /// The lease was extended to end at this time at the earliest.
    pub fn extended(&mut self, guard: &Arc<LockGuard>, ends: Duration) {
        let index = self.entries.iter().position(|entry| entry.guard.as_ptr() == Arc::as_ptr(guard));
        let entry = &mut self.entries[index.expect("each guard is recorded")];
        if let Some(before) = &mut entry.ends {
            *before = ends.max(*before);
        }
    }

    /// The guard is leaked: the lock stays held until `until`.
    pub fn leaks(&mut self, guard: &Arc<LockGuard>, until: Duration) {
        let index = self.entries.iter().position(|entry| entry.guard.as_ptr() == Arc::as_ptr(guard));
        let entry = &mut self.entries[index.expect("each guard is recorded")];
        entry.leaked_until = Some(until);
        entry.guard = Weak::new();
        let (claims, lasts) = (entry.claims.clone(), until);
        self.waits.leaked(&claims, lasts + self.plan.lease);
    }

    /// Describes a guard before it is released.
    pub fn before_release(&self, guard: &Arc<LockGuard>) -> Releasing {
        let entry = self.entry(guard);
        Releasing {
            worker: entry.worker,
            process: entry.process,
            claims: entry.claims.clone(),
            granted_at: entry.granted_at,
            owner: entry.owner.clone(),
            was_lost: self.processes[entry.process].enter(|| guard.is_lost()),
            remaining: self.processes[entry.process].enter(|| guard.remaining()),
        }
    }

    /// Rule c: what `unlock` says is true. `is_last`: the owner has no other hold.
    pub fn released(&mut self, now: Duration, begun: Duration, of: &Releasing, result: &Result<(), Error>) {
        match result {
            Ok(()) if of.was_lost => self.violate(now, "c", "a lost hold was released"),
            Ok(()) => self.count("released"),
            Err(Error::NotHeld(_)) => {
                self.count("not held");
                let took = now - begun;
                let is_over = of.was_lost || of.remaining <= took + took / 50 + self.plan.margin;
                if is_over {
                    return;
                }
                if self.lost_data_since(&of.claims, of.granted_at) {
                    return self.excuse("not held after data was lost");
                }
                self.violate(now, "c", format!("worker {} did not hold what it released", of.worker));
            }
            Err(error) => self.failed_with_a_hold(now, begun, of, error),
        }
    }

    /// Rule c: after a release the server has nothing of the owner, except from a late copy.
    pub fn is_left_behind(&mut self, now: Duration, server: usize, owner: &str) {
        let (acquired, released) =
            self.commands.get(&(server, owner.to_owned())).copied().unwrap_or_default();
        // A server that returns to earlier data has the hold again.
        let recently = now.saturating_sub(self.plan.command_timeout + SECOND);
        if self.losses[server].iter().any(|at| *at >= recently) {
            self.excuse("a released hold is back after data was lost");
        } else if acquired > released {
            self.excuse("a late copy acquired after the release");
        } else {
            self.violate(now, "c", format!("the server has {owner} after its release"));
        }
    }

    /// A release or an extension failed. Neither needs memory, and single faults are ridden out.
    pub fn failed_with_a_hold(&mut self, now: Duration, begun: Duration, of: &Releasing, error: &Error) {
        if matches!(error, Error::OutOfMemory(_)) || self.plan.mode == Mode::Gentle {
            self.violate(now, "e", format!("worker {}: {error:?}", of.worker));
        }
        self.failed(now, begun, of.worker, of.process, &of.claims, error);
    }

    /// A call failed. A fault must explain that.
    pub fn failed(
        &mut self,
        now: Duration,
        begun: Duration,
        worker: usize,
        process: usize,
        claims: &[Claim],
        error: &Error,
    ) {
        self.count("failed");
        self.say(now, format_args!("worker {worker}"), format_args!("failed: {error}"));
        if !error.is_transient() {
            self.violate(now, "errors", format!("worker {worker}: {error:?}"));
        } else if !self.is_disturbed(process, claims, begun, now, true) {
            self.violate(now, "errors", format!("worker {worker}, without a fault: {error:?}"));
        }
    }

    /// A call did not get the lock. Another owner must have had it, or waited before.
    pub fn refused(
        &mut self,
        now: Duration,
        begun: Duration,
        worker: usize,
        process: usize,
        claims: &[Claim],
    ) {
        self.count("refused");
        // A call behind another waiter of its process takes that waiter's answer.
        let was_held = self.waits.was_held(claims, begun.saturating_sub(self.plan.handover()));
        let has_queue = claims.iter().any(|claim| self.queues.is_used(claim.server));
        if !was_held && !has_queue && !self.is_disturbed(process, claims, begun, now, true) {
            self.violate(now, "errors", format!("worker {worker} was refused a lock that nobody had"));
        }
    }
}

/// Pauses between undos are up to 6 s.
const LONGEST_LATE: Duration = Duration::from_secs(8);

/// A hold that a server granted.
pub struct Late {
    pub server: usize,
    pub key: String,
    pub owner: String,
    at: Duration,
    /// Its owner had released the lock before.
    is_late: bool,
}

/// A guard while it is released.
pub struct Releasing {
    pub worker: usize,
    pub process: usize,
    pub claims: Vec<Claim>,
    pub granted_at: Duration,
    pub owner: String,
    pub was_lost: bool,
    pub remaining: Duration,
}

fn conflict(one: &Entry, other: &Entry) -> bool {
    if one.is_majority || other.is_majority {
        return one.claims[0].name == other.claims[0].name;
    }
    one.claims.iter().any(|one| {
        other.claims.iter().any(|other| {
            (one.server, one.name) == (other.server, other.name) && !(one.is_shared && other.is_shared)
        })
    })
}

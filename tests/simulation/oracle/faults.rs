//! The faults of a world, and what they explain.

use std::time::Duration;

use super::Oracle;
use super::guards::Entry;
use crate::locks::Claim;
use crate::plan::{FaultKind, Mode, SECOND};

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

/// How often a client of a cluster asks a node who the masters are.
const ASKS: Duration = Duration::from_millis(500);

/// A client of a cluster renews within 100 ms after an answer that is news.
const TOLD: Duration = SECOND;

impl Oracle {
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
        self.loses(now, kind, server);
        self.faults.len() - 1
    }

    pub fn end_fault(&mut self, now: Duration, number: usize) {
        let fault = &mut self.faults[number];
        fault.end = now;
        let Fault { kind, server, .. } = *fault;
        self.loses(now, kind, server);
        self.say(now, "fault", format_args!("{} ends", kind.map_or("unpolled", FaultKind::text)));
    }

    /// The server has lost data, if this fault does that.
    pub fn loses(&mut self, now: Duration, kind: Option<FaultKind>, server: Option<usize>) {
        if let (true, Some(server)) = (kind.is_some_and(FaultKind::loses), server) {
            self.losses[server].push(now);
            self.queues.forget(server);
            self.waits.forget(server);
            self.leases.forget(server);
        }
    }

    /// The clock of a server is set. A step forward can end leases and places, as if the server had lost them. After a step back,
    /// what the server has lives for longer.
    pub fn steps_clock(&mut self, now: Duration, server: usize, seconds: i64) {
        self.say(now, "fault", format_args!("the clock of server {server} is set by {seconds} s"));
        let until = if seconds < 0 { now + Duration::from_secs(seconds.unsigned_abs()) } else { now };
        let kind = Some(FaultKind::StepClock);
        self.faults.push(Fault { kind, process: None, server: Some(server), start: now, end: until });
        if seconds > 0 {
            self.losses[server].push(now);
            self.waits.forget(server);
        }
        self.queues.forget(server);
        self.leases.shift(now, server, seconds);
    }

    /// Whether the clock of one of these servers was set between two times, or is behind.
    pub(super) fn was_stepped(&self, claims: &[Claim], from: Duration, to: Duration) -> bool {
        self.faults.iter().any(|fault| {
            fault.kind == Some(FaultKind::StepClock)
                && fault.start <= to
                && from <= fault.end
                && fault.server.is_none_or(|one| claims.iter().any(|claim| claim.server == one))
        })
    }

    /// A node takes the place of a master.
    pub fn replaces(&mut self, now: Duration, node: usize, master: usize) {
        if self
            .last_replaced
            .is_some_and(|(at, before, after)| now < at + ASKS && (before, after) == (node, master))
        {
            self.replaced_back.push(now);
        }
        self.last_replaced = Some((now, master, node));
    }

    /// Since when there has been no fault, and no effect of one.
    pub fn calm_from(&self, now: Duration) -> Duration {
        if self.plan.hides_moves() || self.plan.classes.only_messages {
            return Duration::ZERO;
        }
        match self.faults.iter().map(|fault| fault.end).max() {
            Some(end) if end > now => Duration::MAX,
            Some(end) => end + self.plan.settle(),
            None => Duration::ZERO,
        }
    }

    /// The same where faults are short and come one by one. Holds and places that one left behind are not over then, and a lock that they
    /// keep is not free.
    pub fn calm_from_here(&self, now: Duration) -> Duration {
        if self.plan.mode != Mode::Gentle || self.plan.can_switch() {
            return self.calm_from(now);
        }
        let places = if self.plan.is_fair() { 2 * self.plan.fair_allowance } else { Duration::ZERO };
        match self.faults.iter().map(|fault| fault.end).max() {
            Some(end) if end > now => Duration::MAX,
            Some(end) => end + 2 * self.plan.command_timeout + 2 * SECOND + places,
            None => Duration::ZERO,
        }
    }

    /// Whether all that went wrong was a single fault that is too short to cost a place in a queue: a place outlives a heartbeat that fails.
    pub(super) fn was_short(&self, process: usize, from: Duration, to: Duration) -> bool {
        let plan = &self.plan;
        let tail = 2 * plan.command_timeout + 2 * SECOND;
        let costs_more = |fault: &&Fault| {
            fault.start <= to
                && from <= fault.end.saturating_add(tail)
                && fault.process.is_none_or(|one| one == process)
                && fault.end.saturating_sub(fault.start) + plan.command_timeout > plan.fair_allowance / 2
        };
        plan.mode == Mode::Gentle && !plan.can_switch() && !self.faults.iter().any(|fault| costs_more(&fault))
    }

    /// Whether a fault of this process or of these servers explains what happened between two times.
    ///
    /// A server without memory explains a refused lock, and nothing else. Connections for messages explain nothing: waiters poll.
    pub(super) fn is_disturbed(
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
                && !fault.kind.is_some_and(FaultKind::explains_no_error)
                && fault.start <= to
                && from <= fault.end.saturating_add(tail)
                && fault.process.is_none_or(|one| one == process)
                && fault.server.is_none_or(|one| claims.iter().any(|claim| claim.server == one))
        })
    }

    /// How much longer than otherwise nobody in a process is told that a lock is free: connections for messages fail.
    pub(super) fn untold(&self, process: usize, from: Duration, to: Duration) -> Duration {
        let (untold, tail) = (self.plan.untold(), 2 * self.plan.command_timeout + 2 * SECOND);
        let is_one = |fault: &Fault| {
            fault.kind.is_some_and(FaultKind::is_of_messages)
                && fault.process.is_none_or(|one| one == process)
                && fault.start <= to
                && from <= fault.end.saturating_add(tail + untold)
        };
        if self.faults.iter().any(is_one) { untold } else { Duration::ZERO }
    }

    pub(super) fn lost_data_since(&self, claims: &[Claim], since: Duration) -> bool {
        // An old master that goes on for a while can grant what will be lost.
        let loses = |fault: &Fault, server| {
            fault.kind.is_some_and(FaultKind::loses) && fault.server == Some(server) && fault.end > since
        };
        claims.iter().any(|claim| {
            self.losses[claim.server].iter().any(|at| *at >= since)
                || self.faults.iter().any(|fault| loses(fault, claim.server))
        })
    }

    /// Whether a hold may not have noticed yet that its server lost data. It notices with its next renewal, or its lease ends.
    ///
    /// After a master of a cluster was replaced, the client of a hold that is renewed asks the new one soon. Nobody renews a leaked one.
    pub(super) fn may_be_void(&self, entry: &Entry, now: Duration) -> bool {
        let of_process = |fault: &&Fault| fault.process.is_none_or(|process| process == entry.process);
        let quiet_since = self.faults.iter().filter(of_process).map(|fault| fault.end).max();
        let is_told = self.plan.can_switch()
            && entry.ends.is_none()
            && entry.leaked_until.is_none()
            // A killed process is told nothing, and after a shutdown nothing is renewed.
            && self.waits.is_running(entry.process)
            && !self.is_closing(entry.process, now)
            // Two changes between two questions are no news, if the old master is the new one.
            && !self.replaced_back.iter().any(|at| *at >= entry.granted_at)
            && quiet_since.is_some_and(|since| now > since.saturating_add(TOLD));
        let latest = match entry.ends {
            // Nobody is told that it is lost, so it may be void until its end.
            _ if entry.leaked_until.is_some() => Duration::ZERO,
            Some(ends) => now.saturating_sub(ends.saturating_sub(entry.granted_at)),
            None if entry.was_extended => {
                now.saturating_sub(self.plan.longest_lease() + self.plan.command_timeout)
            }
            None => now.saturating_sub(self.plan.lease + self.plan.command_timeout),
        };
        (!is_told && self.lost_data_since(&entry.claims, entry.granted_at.max(latest)))
            || self.may_be_forced(entry, now, latest)
    }
}

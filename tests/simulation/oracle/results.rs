//! What calls returned. Each refusal and each error needs an explanation.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Error, LockGuard};

use super::Oracle;
use super::faults::Fault;
use super::guards::Entry;
use crate::locks::Claim;
use crate::plan::{FaultKind, Kind, MS, Mode, SECOND};

/// A guard while it is released.
pub struct Releasing {
    pub worker: usize,
    pub process: usize,
    pub claims: Vec<Claim>,
    pub granted_at: Duration,
    pub owner: String,
    pub was_lost: bool,
    pub remaining: Duration,
    /// It has a shortest time, and is released after that.
    pub is_kept: bool,
}

/// A hold that its owner gave back without a release.
pub struct Passed {
    pub claim: Claim,
    pub owner: String,
    at: Duration,
}

impl Oracle {
    /// A worker begins to await an `unlock`, whose result is told to [`released`](Self::released).
    pub fn unlocks(&mut self, owners: &str) {
        self.unlocking.extend(owners.split(", ").map(str::to_owned));
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
            is_kept: false,
        }
    }

    /// Rule c: what `unlock` says is true. `is_last`: the owner has no other hold.
    pub fn released(&mut self, now: Duration, begun: Duration, of: &Releasing, result: &Result<(), Error>) {
        for owner in of.owner.split(", ") {
            self.unlocking.remove(owner);
        }
        match result {
            Ok(()) if of.was_lost => self.violate(now, "c", "a lost hold was released"),
            Ok(())
                if !of.is_kept
                    && self.plan.sharing.is_zero()
                    && of.claims.len() == 1
                    && self.is_forced(&of.claims, of.granted_at, begun)
                    // A server that starts with earlier data has the hold again.
                    && !self.lost_data_since(&of.claims, of.granted_at)
                    // If the reply of a release was lost, nobody knows which of its copies found the hold.
                    && !self.is_disturbed(of.process, &of.claims, begun, now, true) =>
            {
                self.violate(now, "u", "a hold that was released by force was released");
            }
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
                if self.was_forced(&of.claims, of.granted_at, now) {
                    return self.excuse("not held after a release by force");
                }
                self.violate(now, "c", format!("worker {} did not hold what it released", of.worker));
            }
            Err(error) => self.failed_with_a_hold(now, begun, of, error),
        }
    }

    /// Rule c: after a release the server has nothing of the owner, except from a late copy, or if the hold was passed on.
    pub fn is_left_behind(&mut self, now: Duration, begun: Duration, claim: &Claim, owner: &str) {
        let server = claim.server;
        let (acquired, released) =
            self.commands.get(&(server, owner.to_owned())).copied().unwrap_or_default();
        // A server that returns to earlier data has the hold again. So has one that takes the place of the master that released it.
        let recently = begun.min(now.saturating_sub(self.plan.command_timeout + SECOND));
        if self.lost_data_since(std::slice::from_ref(claim), recently) {
            return self.excuse("a released hold is back after data was lost");
        }
        if released == 0 && !self.plan.sharing.is_zero() && self.plan.passes_on() {
            return self.is_passed_on(now, claim, owner);
        }
        if acquired > released {
            self.excuse("a late copy acquired after the release");
        } else {
            self.violate(now, "c", format!("the server has {owner} after its release"));
        }
    }

    /// Rule n: a hold stays for its shortest time, also if its guard is gone.
    pub fn is_not_kept(&mut self, now: Duration, claim: &Claim, owner: &str) {
        let entry = self.entries.iter().find(|entry| entry.owner.split(", ").any(|one| one == owner));
        if entry.is_none_or(|entry| self.may_be_void(entry, now)) {
            return self.excuse("a hold that was not kept after data was lost");
        }
        self.violate(now, "n", format!("{owner} is not kept on server {}", claim.server));
    }

    /// Rule b: whoever writes can read, unless its hold is lost.
    pub fn is_stopped_by_itself(&mut self, now: Duration, write: &Arc<LockGuard>) {
        let entry = self.entry(write);
        if !self.may_be_void(entry, now) {
            self.violate(now, "b", format!("worker {} writes, and was refused to read", entry.worker));
        }
    }

    /// Rule k: a hold is passed on for a short time only, and somebody has it, see [`not_taken`](Self::not_taken).
    fn is_passed_on(&mut self, now: Duration, claim: &Claim, owner: &str) {
        self.count("passed on");
        let granted_at = self.grants.get(&(claim.server, owner.to_owned())).copied().unwrap_or_default();
        // The client counts from when it learns of the grant; a future that nobody polls learns nothing. A read hold lasts as long as
        // one of those who share it.
        let most = self.plan.sharing + self.plan.command_timeout + 20 * MS;
        let is_late = !claim.is_shared && !self.plan.parks && now > granted_at + most;
        let stands_still = [Some(FaultKind::StopProcess), Some(FaultKind::Suspend)];
        let stood_still = |fault: &Fault| {
            stands_still.contains(&fault.kind)
                && fault.process == self.turns.process_of(owner)
                && fault.start <= now
                && granted_at <= fault.end
        };
        if is_late && self.faults.iter().any(stood_still) {
            self.excuse("a hold is passed on late by a process that stood still");
        } else if is_late {
            self.violate(now, "k", format!("{owner} is passed on {:?} after its grant", now - granted_at));
        }
        self.passed.retain(|passed| passed.owner != owner);
        // Those who share it have it already. The last of them releases it, and that command is under way for a moment.
        if claim.is_shared && self.somebody_has(owner) {
            return;
        }
        self.passed.push(Passed { claim: *claim, owner: owner.to_owned(), at: now });
    }

    /// Rule k: returns the holds that nobody took in time and nobody released. They are violations if a server still has them.
    pub fn not_taken(&mut self, now: Duration) -> Vec<Passed> {
        let limit = SECOND + self.plan.command_timeout;
        let (old, passed) =
            std::mem::take(&mut self.passed).into_iter().partition(|passed| passed.at + limit < now);
        self.passed = passed;
        let is_calm =
            |passed: &Passed| self.faults.iter().all(|fault| fault.end <= passed.at || fault.start > now);
        let is_taken = |passed: &Passed| {
            let released = self.commands.get(&(passed.claim.server, passed.owner.clone()));
            self.somebody_has(&passed.owner) || released.is_some_and(|(_, released)| *released > 0)
        };
        let old: Vec<Passed> = old;
        old.into_iter().filter(|passed| is_calm(passed) && !is_taken(passed)).collect()
    }

    pub(super) fn somebody_has(&self, owner: &str) -> bool {
        let is_there = |entry: &Entry| entry.guard.strong_count() > 0 || entry.leaked_until.is_some();
        self.entries.iter().any(|entry| entry.owner == owner && is_there(entry))
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
        if let Error::InvalidPermits { wanted, .. } = error
            && (self.waits.totals_since(&claims[0], begun).0 < i64::from(*wanted)
                // Perhaps an old master that goes on has another total.
                || self.lost_data_since(claims, begun))
        {
            return self.count("too many");
        }
        if matches!(error, Error::Closed) && self.is_closing(process, now) {
            return self.count("closed");
        }
        if !error.is_transient() {
            return self.violate(now, "errors", format!("worker {worker}: {error:?}"));
        }
        if self.is_disturbed(process, claims, begun, now, true) {
            return;
        }
        if self.is_behind_a_disturbed_one(process, begun, now, error) {
            self.excuse("a call got no answer, as the one in front of it waited for another server");
        } else if self.had_an_idle_connection(process, claims, now, error) {
            self.excuse("a connection that broke while it was idle was used at the end of a call");
        } else {
            self.violate(now, "errors", format!("worker {worker}, without a fault: {error:?}"));
        }
    }

    /// In front of the call waited perhaps one for several locks, and one of these is on a server with a fault.
    fn is_behind_a_disturbed_one(
        &self,
        process: usize,
        begun: Duration,
        now: Duration,
        error: &Error,
    ) -> bool {
        let on = |server| Claim { server, name: 0, is_shared: false, permits: 0 };
        let all: Vec<Claim> = (0..self.plan.servers).map(on).collect();
        self.plan.kind == Kind::Multi
            && matches!(error, Error::TimedOut(_))
            && self.is_disturbed(process, &all, begun, now, true)
    }

    /// A call for several locks waits for one of them for long, so nobody notices that the connection for another one broke.
    fn had_an_idle_connection(&self, process: usize, claims: &[Claim], now: Duration, error: &Error) -> bool {
        use FaultKind::{Cut, CutLate, MaxClients, Refuse, Restart, RestartLost, RestartOld};
        let breaks = [Cut, CutLate, MaxClients, Refuse, Restart, RestartLost, RestartOld];
        (self.plan.kind == Kind::Multi || self.plan.classes.only_limits)
            && matches!(error, Error::Unreachable(_))
            && self.faults.iter().any(|fault| {
                fault.kind.is_some_and(|kind| breaks.contains(&kind))
                    && fault.start <= now
                    && fault.process.is_none_or(|one| one == process)
                    && fault.server.is_none_or(|one| claims.iter().any(|claim| claim.server == one))
            })
    }

    /// A call did not get the lock. Another owner must have had it, or waited before. `was_behind`: another call of its process did.
    pub fn refused(
        &mut self,
        now: Duration,
        begun: Duration,
        worker: usize,
        process: usize,
        claims: &[Claim],
        was_behind: bool,
    ) {
        self.count("refused");
        // A call behind another waiter of its process takes that waiter's answer. No message says that a clock ended a lease.
        let poll = self.plan.safety_poll;
        let is_stepped = self.was_stepped(claims, begun.saturating_sub(poll), now);
        let unnoticed = if is_stepped { poll } else { Duration::ZERO };
        let since = begun.saturating_sub(self.plan.handover() + self.untold(process, begun, now) + unnoticed);
        let was_held = self.waits.was_held(now, claims, since, was_behind);
        let has_queue = claims.iter().any(|claim| self.queues.is_used(claim.server));
        if !was_held && !has_queue && !self.is_disturbed(process, claims, begun, now, true) {
            self.violate(now, "errors", format!("worker {worker} was refused a lock that nobody had"));
        }
    }
}

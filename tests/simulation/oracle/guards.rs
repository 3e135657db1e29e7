//! What the guards say: that they exclude each other, and what is lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use lockkeeper::LockGuard;

use super::Oracle;
use super::faults::Fault;
use crate::locks::Claim;
use crate::plan::{MS, Mode};

/// A guard, or what was one.
pub struct Entry {
    pub worker: usize,
    pub process: usize,
    pub claims: Vec<Claim>,
    pub is_majority: bool,
    /// When the servers granted it.
    pub granted_at: Duration,
    /// Its owner had no other guard then.
    pub(super) is_first: bool,
    /// When its worker got it.
    came_at: Duration,
    /// When it ends, if it is not renewed for as long as it is wanted.
    pub ends: Option<Duration>,
    pub owner: String,
    pub guard: Weak<LockGuard>,
    /// It was leaked: others may acquire the lock from then on.
    pub(super) leaked_until: Option<Duration>,
    /// When it was first found lost.
    lost_at: Option<Duration>,
    /// Once it was extended by a lease of its own.
    pub(super) was_extended: bool,
    /// Its server was found to keep less than it relies on.
    pub(super) was_beyond: bool,
}

impl Oracle {
    pub(super) fn is_valid(&self, entry: &Entry, now: Duration) -> bool {
        match (entry.leaked_until, entry.guard.upgrade()) {
            (Some(until), _) => now < until,
            (None, Some(guard)) => !self.is_lost(entry, &guard),
            (None, None) => false,
        }
    }

    /// Whether a guard is lost by the clock of its process.
    fn is_lost(&self, entry: &Entry, guard: &LockGuard) -> bool {
        // `is_lost` ends the waits for the loss. After a suspend, nobody else must look.
        let is_lost = || {
            if self.plan.classes.suspends { guard.remaining().is_zero() } else { guard.is_lost() }
        };
        self.processes[entry.process].enter(is_lost)
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
        let owner = guard.owner_id();
        let new = Entry {
            worker,
            process,
            claims: claims.to_vec(),
            is_majority,
            // From then on, lost data may be that of this hold.
            granted_at: self.server_granted_at(claims, &owner).unwrap_or(asked_at),
            is_first: !self.somebody_has(&owner),
            came_at: now,
            ends,
            owner,
            guard: Arc::downgrade(guard),
            leaked_until: None,
            lost_at: None,
            was_extended: false,
            was_beyond: false,
        };
        self.check_turn(now, &new);
        self.check_lost_is_final(now);
        self.entries.retain(|entry| {
            entry.leaked_until.is_some_and(|until| now < until + self.plan.lease)
                || entry.guard.strong_count() > 0
        });
        if self.is_valid(&new, now) {
            self.check_permits(now, &new);
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
        // What was passed on has an owner again.
        self.passed.retain(|passed| new.owner.split(", ").all(|owner| owner != passed.owner));
        self.entries.push(new);
        self.entries.len() - 1
    }

    /// Rule a, for a semaphore: no more permits are valid than there are. A smaller total counts for later grants.
    fn check_permits(&mut self, now: Duration, new: &Entry) {
        let claim = new.claims[0];
        if claim.permits == 0 {
            return;
        }
        let is_here = |old: &&Entry| (old.claims[0].server, old.claims[0].name) == (claim.server, claim.name);
        let (mut valid, mut void) = (0, 0);
        for entry in self.entries.iter().filter(is_here).filter(|old| self.is_valid(old, now)).chain([new]) {
            let count = if self.may_be_void(entry, now) { &mut void } else { &mut valid };
            *count += i64::from(entry.claims[0].permits);
        }
        // A call whose reply was lost finds its permits later, also after the total was made smaller.
        let first = new
            .owner
            .split(", ")
            .filter_map(|id| self.first_grants.get(&(claim.server, id.to_owned())))
            .min();
        let (_, total) = self.waits.totals_since(&claim, first.copied().unwrap_or(new.granted_at));
        if valid > total {
            self.violate(now, "a", format!("{valid} permits are valid, and there are {total}"));
        } else if valid + void > total {
            self.excuse("too many permits after data was lost");
        }
    }

    /// When the servers granted the first of these holds. `None`: an old master granted one, which does not count.
    pub(super) fn server_granted_at(&self, claims: &[Claim], owners: &str) -> Option<Duration> {
        let granted_at = |owner: &str| {
            claims
                .iter()
                .filter_map(|claim| self.grants.get(&(claim.server, owner.to_owned())))
                .min()
                .copied()
        };
        let grants: Option<Vec<_>> = owners.split(", ").map(granted_at).collect();
        grants?.into_iter().min()
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
        if self.was_forced(claims, self.entry(guard).granted_at, now) {
            return self.excuse("a token that came after a release by force");
        }
        let before = self.tokens.insert(claims[0].name, token);
        if before.is_some_and(|before| if is_first { token <= before } else { token < before }) {
            // A counter that is lost begins again at the time of the server.
            let has_lost = self.lost_data_since(claims, Duration::ZERO);
            if has_lost && self.was_stepped(claims, Duration::ZERO, now) {
                return self.excuse("a token after data was lost and a clock was set");
            }
            self.violate(now, "f", format!("token {token} after {before:?}"));
        }
    }

    /// Rule b: a hold that was lost stays lost, and one that is not renewed for ever is lost at its end.
    pub fn check_lost_is_final(&mut self, now: Duration) {
        let (mut revived, mut too_long) = (Vec::new(), Vec::new());
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            let Some(guard) = entry.guard.upgrade() else { continue };
            let is_lost = self.is_lost(entry, &guard);
            if entry.lost_at.is_some() && !is_lost {
                revived.push(entry.worker);
            }
            // Clocks drift, and an extension is known a moment later.
            let most =
                |ends: Duration| ends + (ends.saturating_sub(entry.granted_at)).mul_f64(0.001) + 20 * MS;
            if !is_lost
                && entry.ends.is_some_and(|ends| now > most(ends))
                && !self.is_disturbed(entry.process, &entry.claims, entry.granted_at, now, true)
            {
                too_long.push(entry.worker);
            }
            if is_lost {
                self.entries[index].lost_at.get_or_insert(now);
            }
        }
        for worker in revived {
            self.violate(now, "b", format!("a lost hold of worker {worker} is held again"));
        }
        for worker in too_long {
            self.violate(now, "b", format!("the hold of worker {worker} goes on after its end"));
        }
    }

    pub(super) fn entry(&self, guard: &Arc<LockGuard>) -> &Entry {
        let found = self.entries.iter().rev().find(|entry| entry.guard.as_ptr() == Arc::as_ptr(guard));
        found.expect("each guard is recorded")
    }

    /// A guard was found lost. Something must explain that.
    pub fn lost(&mut self, now: Duration, guard: &Arc<LockGuard>) {
        self.count("lost");
        let entry = self.entry(guard);
        // Perhaps its worker looks at it long after that.
        let problem = self.unexplained_loss(entry, entry.lost_at.unwrap_or(now));
        self.check_lost_is_final(now);
        if let Some((rule, problem)) = problem {
            self.violate(now, rule, problem);
        }
    }

    pub(super) fn unexplained_loss(&self, entry: &Entry, now: Duration) -> Option<(&'static str, String)> {
        let plan = &self.plan;
        // Timers and answers are a little late, and drift.
        let slack = plan.margin + plan.lease / 30 + plan.command_timeout + 20 * MS;
        let worker = entry.worker;
        if entry.ends.is_some_and(|ends| ends <= now + slack) {
            return None;
        }
        let granted_at = entry.granted_at;
        let is_forced = self.was_forced(&entry.claims, granted_at, now);
        if is_forced || self.lost_data_since(&entry.claims, granted_at) || self.is_closing(entry.process, now)
        {
            return None;
        }
        // The deadline counts from before the attempt was sent. If that was delayed, little of the lease may be left to renew it.
        let sent = entry.granted_at.saturating_sub(plan.command_timeout);
        let was_delayed = |fault: &Fault| fault.start <= entry.came_at && sent <= fault.end + 20 * MS;
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
        entry.was_extended = true;
        if let Some(before) = &mut entry.ends {
            *before = ends.max(*before);
        }
    }

    /// Until when a hold is kept at least, whatever becomes of its process, and until when at most.
    pub fn kept_until(&self, now: Duration, guard: &Arc<LockGuard>, least: Duration) -> (Duration, Duration) {
        // The clock of the process drifts.
        (self.entry(guard).granted_at + least.mul_f64(0.998), now + least.mul_f64(1.002) + MS)
    }

    /// The guard is given back, and its hold is kept until `until` at least, and until `most` at most.
    pub fn keeps(&mut self, guard: &Arc<LockGuard>, until: Duration, most: Duration) {
        self.count("kept");
        let index = self.entries.iter().position(|entry| entry.guard.as_ptr() == Arc::as_ptr(guard));
        let entry = &mut self.entries[index.expect("each guard is recorded")];
        entry.leaked_until = Some(until);
        entry.guard = Weak::new();
        let (claims, process) = (entry.claims.clone(), entry.process);
        // A shutdown leaves it to its lease.
        let lease = if self.closing.contains_key(&process) {
            2 * self.plan.longest_lease()
        } else {
            self.plan.lease / 10
        };
        self.waits.leaked(&claims, most + lease);
    }

    /// A lost guard is given back. What the servers still have of it, such as another member, stays for its shortest time.
    pub fn stays(&mut self, process: usize, owner: &str, most: Duration) {
        self.staying.push((process, owner.to_owned(), most));
    }

    /// The guard is leaked: the lock stays held until `until`.
    pub fn leaks(&mut self, guard: &Arc<LockGuard>, until: Duration) {
        let index = self.entries.iter().position(|entry| entry.guard.as_ptr() == Arc::as_ptr(guard));
        let entry = &mut self.entries[index.expect("each guard is recorded")];
        entry.leaked_until = Some(until);
        entry.guard = Weak::new();
        let (claims, lasts) = (entry.claims.clone(), until);
        self.waits.leaked(&claims, lasts + self.plan.lease + self.plan.slack());
    }
}

fn conflict(one: &Entry, other: &Entry) -> bool {
    if one.is_majority || other.is_majority {
        return one.claims[0].name == other.claims[0].name;
    }
    one.claims.iter().any(|one| {
        other.claims.iter().any(|other| {
            (one.server, one.name) == (other.server, other.name)
                && !(one.is_shared && other.is_shared)
                && one.permits == 0
        })
    })
}

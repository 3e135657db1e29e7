//! What those are told who look at locks, and what a release by force does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockkeeper::{LockInfo, RemainingLease};

use super::Oracle;
use super::guards::Entry;
use crate::locks::{Claim, NAMES};
use crate::permits::texts;
use crate::plan::{Kind, MS, SECOND};

/// Who held each lock of each server, from each time on.
#[derive(Default)]
pub struct Seen(BTreeMap<(usize, usize), Vec<State>>);

#[derive(PartialEq)]
struct State {
    from: Duration,
    /// Their fields, and how many holds each has.
    owners: BTreeMap<String, String>,
    /// When the lease ends. `None`: never.
    until: Option<Duration>,
}

/// A lock during a time.
#[derive(Default)]
struct Window<'a> {
    /// Who held it at a moment, and how often.
    some: BTreeSet<(&'a str, &'a str)>,
    /// Who held it all the time.
    all: BTreeSet<&'a str>,
    leases: Vec<Option<Duration>>,
    was_free: bool,
}

/// A release by force.
pub struct Force {
    claim: Claim,
    begun: Duration,
    /// It has no effect after this. `Duration::MAX`: it goes on.
    end: Duration,
    is_done: bool,
}

/// An expiry is in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(3);

impl Seen {
    /// Asks a server about a lock, after a command.
    pub fn update(
        &mut self,
        now: Duration,
        server: usize,
        name: usize,
        ask: &mut dyn FnMut(&[&str]) -> Vec<u8>,
    ) {
        let fields = texts(&ask(&["HGETALL", NAMES[name]]));
        let left =
            String::from_utf8_lossy(&ask(&["PTTL", NAMES[name]])).trim_start_matches(':').trim().parse();
        let until = left.ok().map(|left: u64| now + Duration::from_millis(left));
        let pairs = fields.chunks(2).filter(|pair| pair[0] != "mode");
        let owners = pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        let states = self.0.entry((server, name)).or_default();
        if states.last().is_none_or(|last| last.owners != owners || last.until != until) {
            states.push(State { from: now, owners, until });
        }
    }

    fn window(&self, claim: &Claim, begun: Duration, now: Duration) -> Window<'_> {
        let mut window = Window::default();
        let (mut next, mut all) = (now, None::<BTreeSet<&str>>);
        let states = self.0.get(&(claim.server, claim.name)).map_or(&[][..], Vec::as_slice);
        for state in states.iter().rev() {
            let end = state.until.map_or(next, |until| next.min(until + ROUNDING));
            window.was_free |= state.owners.is_empty() || state.until.is_some_and(|until| until < next);
            if end >= begun {
                window.some.extend(state.owners.iter().map(|(owner, count)| (&**owner, &**count)));
                window.leases.push(state.until);
                let owners: BTreeSet<_> = state.owners.keys().map(String::as_str).collect();
                all = Some(all.map_or_else(|| owners.clone(), |all| &all & &owners));
            }
            if state.from < begun {
                window.all = all.unwrap_or_default();
                return window;
            }
            next = state.from;
        }
        window.was_free = true;
        window
    }
}

impl Oracle {
    /// Whether a look at this time would tell nothing, because the server lost data.
    fn cannot_tell(&self, claim: &Claim, begun: Duration) -> bool {
        self.lost_data_since(std::slice::from_ref(claim), begun.saturating_sub(3 * SECOND))
    }

    /// Guards that held this lock all the time.
    fn held_all_the_time(&self, claim: &Claim, begun: Duration, now: Duration) -> Vec<String> {
        let is_held = |entry: &&Entry| {
            entry.granted_at < begun && self.is_valid(entry, now) && !self.may_be_void(entry, now)
        };
        let here = |one: &Claim| (one.server, one.name) == (claim.server, claim.name);
        let held = self.entries.iter().filter(is_held);
        held.flat_map(|entry| entry.owner.split(", ").zip(&entry.claims))
            .filter(|(_, claim)| here(claim))
            // Each member of a lock is granted at a time of its own.
            .filter(|(owner, claim)| {
                let granted_at = self.grants.get(&(claim.server, (*owner).to_owned()));
                granted_at.is_some_and(|at| *at < begun)
            })
            .map(|(owner, _)| owner.to_owned())
            .collect()
    }

    /// Rule w: what an inspection tells was true at a moment of the call.
    pub fn inspected(&mut self, now: Duration, begun: Duration, claim: &Claim, info: Option<&LockInfo>) {
        if self.cannot_tell(claim, begun) {
            return self.excuse("a look after data was lost");
        }
        self.count("looked");
        let window = self.seen.window(claim, begun, now);
        let mut problems = Vec::new();
        let holders = info.map_or(&[][..], |info| &info.holders);
        for holder in holders {
            if !window.some.contains(&(&*holder.owner, &*holder.holds.to_string())) {
                problems.push(format!("{} {} did not hold it", holder.owner, holder.holds));
            }
        }
        for owner in self.held_all_the_time(claim, begun, now) {
            if !holders.iter().any(|holder| holder.owner == owner) {
                problems.push(format!("{owner} held it all the time"));
            }
        }
        // Of readers, the dead ones are left out, and each has a lease of its own.
        if self.plan.kind != Kind::ReadWrite {
            if info.is_none() && !window.was_free {
                problems.push("it was not free".to_owned());
            }
            if let Some(RemainingLease::For(left)) = info.map(|info| info.remaining_lease) {
                let fits =
                    |until: &Duration| *until + ROUNDING >= begun + left && *until <= now + left + ROUNDING;
                if !window.leases.iter().flatten().any(fits) {
                    problems.push(format!("its lease never ended in {left:?}"));
                }
            }
        }
        for problem in problems {
            self.violate(now, "w", format!("a look at {} since {begun:?}: {problem}", NAMES[claim.name]));
        }
    }

    /// Rule w: what a list does not name was free at a moment of the call.
    pub fn is_unlisted(&mut self, now: Duration, begun: Duration, claim: &Claim) {
        if self.cannot_tell(claim, begun) {
            return self.excuse("a look after data was lost");
        }
        // The former master has no data yet, and a client that has not heard of the new one asks it.
        if self.last_replaced.is_some_and(|(at, ..)| begun < at + 3 * SECOND) {
            return self.excuse("a list while a master is replaced");
        }
        for owner in self.held_all_the_time(claim, begun, now) {
            let name = NAMES[claim.name];
            self.violate(now, "w", format!("{name} is not listed since {begun:?}, and {owner} held it"));
        }
    }

    /// A release by force begins. Returns its number.
    pub fn forces(&mut self, now: Duration, claim: &Claim) -> usize {
        self.count("forced");
        self.say(now, "force", format_args!("releases {claim:?}"));
        self.forced.push(Force { claim: *claim, begun: now, end: Duration::MAX, is_done: false });
        self.forced.len() - 1
    }

    /// Rule u: a release by force removes those that hold the lock when it begins. `was_held`: what it says. `None`: it failed.
    pub fn forced(&mut self, now: Duration, number: usize, was_held: Option<bool>) {
        let force = &mut self.forced[number];
        let (claim, begun) = (force.claim, force.begun);
        force.is_done = was_held.is_some();
        // A copy of a command can run later.
        force.end = if force.is_done { now } else { now + 12 * SECOND };
        let Some(was_held) = was_held else { return };
        if self.cannot_tell(&claim, begun) {
            return self.excuse("a look after data was lost");
        }
        let is_of_side =
            |owner: &&str| self.plan.kind != Kind::ReadWrite || owner.ends_with(":write") != claim.is_shared;
        let window = self.seen.window(&claim, begun, now);
        let mut left: Vec<_> =
            window.all.iter().filter(|owner| is_of_side(owner)).map(ToString::to_string).collect();
        // Of a reader, only the keys of its holds may be gone.
        let was_there = window.some.iter().any(|(owner, _)| is_of_side(owner));
        let problem = (was_held && !was_there).then(|| "nobody held it".to_owned());
        let all = if claim.is_shared { Vec::new() } else { left.clone() };
        let problem = problem.or_else(|| (!was_held && !all.is_empty()).then(|| "it was held".to_owned()));
        left.retain(|owner| !claim.is_shared || self.somebody_holds(owner, begun, now));
        let problem = problem.or_else(|| left.first().map(|owner| format!("{owner} still holds it")));
        if let Some(problem) = problem {
            self.violate(now, "u", format!("{} was released by force: {problem}", NAMES[claim.name]));
        }
    }

    fn somebody_holds(&self, owner: &str, begun: Duration, now: Duration) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.owner == owner && entry.granted_at < begun && self.is_valid(entry, now))
    }

    /// Whether a release by force can have ended such a hold.
    pub(super) fn was_forced(&self, claims: &[Claim], granted_at: Duration, now: Duration) -> bool {
        self.forces_of(claims, granted_at).any(|force| force.begun <= now)
    }

    /// Whether a hold may not have noticed yet that it was released by force: the next renewal tells it, if nothing is wrong.
    pub(super) fn may_be_forced(&self, entry: &Entry, now: Duration, latest: Duration) -> bool {
        let Entry { claims, granted_at, .. } = entry;
        // Nobody is told of the end of a hold without a guard.
        if entry.leaked_until.is_some() {
            return self.was_forced(claims, *granted_at, now);
        }
        let told = self.plan.lease / 3 + self.plan.command_timeout + SECOND / 2;
        let since = |force: &Force| {
            // After a shutdown, nothing is renewed.
            let is_told = entry.ends.is_none()
                && !self.is_closing(entry.process, now)
                && !self.is_disturbed(
                    entry.process,
                    claims,
                    force.begun.saturating_sub(self.plan.settle()),
                    now,
                    true,
                );
            if is_told { latest.max(now.saturating_sub(told)) } else { latest }
        };
        self.forces_of(claims, *granted_at).any(|force| force.end >= since(force))
    }

    /// Whether such a hold is certainly gone since this time.
    pub(super) fn is_forced(&self, claims: &[Claim], granted_at: Duration, at: Duration) -> bool {
        let is_certain = |force: &Force| force.is_done && granted_at + MS < force.begun && force.end < at;
        self.forces_of(claims, granted_at).any(is_certain)
    }

    fn forces_of<'a>(&'a self, claims: &'a [Claim], granted_at: Duration) -> impl Iterator<Item = &'a Force> {
        let is_here = |force: &Force, claim: &Claim| {
            (force.claim.server, force.claim.name, force.claim.is_shared)
                == (claim.server, claim.name, claim.is_shared)
        };
        self.forced
            .iter()
            .filter(move |force| force.end >= granted_at && claims.iter().any(|claim| is_here(force, claim)))
    }
}

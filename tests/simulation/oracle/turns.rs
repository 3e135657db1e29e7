//! How long the owners of one client keep a lock while others wait. Rule t: they share a hold for as long as the configuration says, in the
//! order of their calls, and let other clients go first after that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Oracle;
use super::guards::Entry;
use crate::locks::{Claim, NAMES};
use crate::plan::{Kind, MS, SECOND};
use crate::trace::Script;

/// A call that began so much earlier stands in front.
const EARLIER: Duration = Duration::from_millis(50);

/// An offer that nobody takes lasts for so long.
const TAKEN: Duration = Duration::from_millis(12);

/// In worlds with delays of up to a millisecond, what goes to a server and back needs two: timers are in whole milliseconds. So those who
/// wait a millisecond longer, as others wait, come after this.
const YIELD: Duration = Duration::from_micros(2_500);

const TOO_EARLY: &str = "came too early";
const AFTER_OTHERS: &str = "came after others";

/// If too many of those who knew that others wait did not let them go first. Some were under way: about 4 of 100.
pub fn come_too_early(counts: &BTreeMap<&'static str, u64>) -> Option<String> {
    let [early, after] = [TOO_EARLY, AFTER_OTHERS].map(|what| counts.get(what).copied().unwrap_or_default());
    let are_many = early >= 20 && 3 * early > after;
    are_many.then(|| format!("all worlds: rule t: {early} attempts came at once after a release that others were told of, {after} did not"))
}

#[derive(Default)]
pub struct Turns {
    /// Of each hold, the worker that got it last, and all that got it.
    takers: BTreeMap<String, (usize, BTreeSet<usize>)>,
    /// The process of each client.
    clients: BTreeMap<String, usize>,
    /// The last release of each lock by each client, and how many connections its message reached.
    releases: BTreeMap<(usize, usize, String), (Duration, u64)>,
    /// Calls that ended without the lock: when they began and ended, and what they asked for.
    vain: Vec<Vain>,
    suspects: Vec<Suspect>,
}

struct Vain {
    worker: usize,
    process: usize,
    claims: Vec<Claim>,
    end: Duration,
}

/// A call that was perhaps refused by what an earlier call of the same handle left.
struct Suspect {
    at: Duration,
    worker: usize,
    process: usize,
    claims: Vec<Claim>,
    /// When the earlier call began.
    since: Duration,
    holders: BTreeSet<String>,
    /// What the earlier call was to release.
    former: Option<String>,
}

fn client_of(owner: &str) -> String {
    owner.split_once(':').map_or(owner, |(client, _)| client).to_owned()
}

impl Turns {
    /// The process of a client that had a guard.
    pub fn process_of(&self, owner: &str) -> Option<usize> {
        self.clients.get(&client_of(owner)).copied()
    }
}

impl Oracle {
    /// A script ran on a server. The undo of an attempt tells its client nothing about others.
    pub(super) fn notes_release(&mut self, now: Duration, server: usize, script: &Script<'_>, reply: &[u8]) {
        let released = matches!(script.file, "rlock/release.lua" | "write/release.lua");
        let receivers =
            std::str::from_utf8(reply).ok().and_then(|reply| reply.strip_prefix(':')?.trim().parse().ok());
        if let (true, Some(receivers)) = (released && self.owners.contains(script.arg(0)), receivers) {
            for name in (0..self.waits.names()).filter(|name| script.is_about(NAMES[*name])) {
                self.turns.releases.insert((server, name, client_of(script.arg(0))), (now, receivers));
            }
        }
    }

    /// An owner of this process whose guards are examined elsewhere.
    pub fn knows(&mut self, process: usize, owner: String) {
        if let Some((client, _)) = owner.split_once(':') {
            self.turns.clients.insert(client.to_owned(), process);
        }
        self.owners.insert(owner);
    }

    /// A worker got a guard.
    pub(super) fn check_turn(&mut self, now: Duration, new: &Entry) {
        if let Some((client, _)) = new.owner.split(", ").next().and_then(|owner| owner.split_once(':')) {
            self.turns.clients.insert(client.to_owned(), new.process);
        }
        let [claim] = new.claims[..] else { return };
        let (last, takers) =
            self.turns.takers.entry(new.owner.clone()).or_insert_with(|| (new.worker, BTreeSet::new()));
        let is_new = takers.is_empty();
        // An owner that re-enters has its own hold once more.
        let is_given =
            !is_new && if claim.is_shared { !takers.contains(&new.worker) } else { *last != new.worker };
        *last = new.worker;
        takers.insert(new.worker);
        if is_given {
            self.check_given(now, new, &claim);
        } else if is_new {
            self.check_yield(new, &claim);
        }
        if is_given || is_new {
            self.check_order(now, new, &claim);
        }
    }

    fn is_calm(&self, new: &Entry, from: Duration, now: Duration) -> bool {
        !self.is_disturbed(new.process, &new.claims, from, now, true)
            && !self.was_stepped(&new.claims, from, now)
    }

    /// A worker got the hold of another owner of its client.
    fn check_given(&mut self, now: Duration, new: &Entry, claim: &Claim) {
        let Entry { owner, worker, process, .. } = new;
        self.count("given");
        let granted_at = self.server_granted_at(&new.claims, owner).unwrap_or_default();
        // A RedLock of one member is one of its members.
        let can_be = self.plan.passes_on() || matches!(self.plan.kind, Kind::Semaphore | Kind::Red);
        if !can_be || self.plan.sharing.is_zero() || new.ends.is_some() {
            return self.violate(
                now,
                "t",
                format!("worker {worker} was given {owner}, which may not be shared"),
            );
        }
        let is_long = self.kept_once(claim, owner).is_some_and(|until| until > now + self.plan.lease + MS);
        if is_long && !self.was_stepped(&new.claims, granted_at, now) {
            self.violate(
                now,
                "t",
                format!("worker {worker} was given {owner} with a lease that is too long"),
            );
        }
        // The client counts from when it learns of the grant.
        let under_way = 2 * self.plan.most_delay + TAKEN;
        if !self.is_calm(new, granted_at.saturating_sub(SECOND), now) {
            return;
        }
        let most = if !claim.is_shared && self.knows_of_others(*process, claim, *worker, granted_at) {
            self.count("given while others wait");
            self.plan.sharing * 2 / 5
        } else {
            self.plan.sharing.max(self.plan.lingers())
        };
        if now > granted_at + most + under_way {
            let after = now - granted_at;
            self.violate(now, "t", format!("worker {worker} was given {owner} {after:?} after its grant, at most {most:?} are allowed"));
        }
        if claim.is_shared
            && let Some((writer, since)) = self.waits.first_queued(*process, claim)
            && now > since + EARLIER
            && !self.waits.is_late(now, writer)
            && self.is_calm(new, since, now)
            // With the connection for messages, those for commands are perhaps replaced, too: it does not stand in the queue yet.
            && self.untold(*process, since, now).is_zero()
        {
            self.violate(
                now,
                "t",
                format!("worker {worker} joined {owner}, and worker {writer} waits to write"),
            );
        }
    }

    /// Whether the message of the client's last release reached another client, and its queue still stands that learned this.
    fn knows_of_others(&self, process: usize, claim: &Claim, worker: usize, granted_at: Duration) -> bool {
        if self.plan.can_switch() {
            return false;
        }
        let is_of_process = |client: &String| self.turns.clients.get(client) == Some(&process);
        let here =
            |at: &(usize, usize, String)| (at.0, at.1) == (claim.server, claim.name) && is_of_process(&at.2);
        let Some((_, (at, receivers))) = self.turns.releases.iter().find(|(key, _)| here(key)) else {
            return false;
        };
        let queued = self.waits.queued_since(worker).into_iter();
        let queued = queued.chain(self.waits.first_queued(process, claim).map(|(_, since)| since)).min();
        *receivers > 1 && *at < granted_at && queued.is_some_and(|since| since + EARLIER < *at)
    }

    /// After a release that others were told of, those who wait here do not attempt at once, see [`come_too_early`].
    fn check_yield(&mut self, new: &Entry, claim: &Claim) {
        let Some(granted_at) = self.grants.get(&(claim.server, new.owner.clone())).copied() else { return };
        let released = self.turns.releases.get(&(claim.server, claim.name, client_of(&new.owner))).copied();
        let Some((at, receivers)) = released else { return };
        let is_told =
            receivers > 1 && self.waits.queued_since(new.worker).is_some_and(|since| since + EARLIER < at);
        let is_passed_on = !self.plan.sharing.is_zero() && self.plan.passes_on();
        if !is_told || !is_passed_on || granted_at < at || self.plan.most_delay > MS {
            return;
        }
        if granted_at > at + SECOND || !self.is_calm(new, at.saturating_sub(SECOND), granted_at) {
            return;
        }
        let is_early = granted_at < at + YIELD;
        self.count(if is_early { TOO_EARLY } else { AFTER_OTHERS });
    }

    /// The calls of one client are granted a lock in their order.
    fn check_order(&mut self, now: Duration, new: &Entry, claim: &Claim) {
        let Some(since) = self.waits.queued_since(new.worker) else { return };
        let Some((worker, earlier)) = self.waits.first_queued(new.process, claim) else { return };
        if earlier + EARLIER < since && self.is_calm(new, earlier, now) {
            if self.waits.was_late(now, new.worker) {
                return self.excuse("a call whose time was up came first");
            }
            if self.waits.is_late(now, worker) {
                return self.excuse("the time of the call in front was up");
            }
            // Before a call stands in the line, what its owner attempted before has to be released.
            let was_dropped =
                |vain: &Vain| vain.worker == worker && vain.end <= earlier && earlier < vain.end + 100 * MS;
            if self.turns.vain.iter().any(was_dropped) {
                return self.excuse("an earlier call of the owner in front was dropped");
            }
            // A re-entry does not queue, and attempts at once if its hold is gone.
            let was_forced = self.entries.iter().any(|entry| {
                entry.worker == new.worker
                    && entry.granted_at < since
                    && entry.claims.contains(claim)
                    && self.was_forced(&new.claims, entry.granted_at, now)
            });
            if was_forced {
                return self.excuse("a re-entry came first after a release by force");
            }
            let text = format!(
                "worker {} got the lock before worker {worker}, which has waited since {earlier:?}",
                new.worker
            );
            self.violate(now, "t", text);
        }
    }

    /// A call ended without the lock: it was dropped, or refused, or it failed.
    pub fn ends_in_vain(&mut self, now: Duration, worker: usize, process: usize, claims: &[Claim]) {
        let vain = &mut self.turns.vain;
        vain.retain(|vain| now < vain.end + 10 * SECOND);
        vain.push(Vain { worker, process, claims: claims.to_vec(), end: now });
    }

    /// A call was refused right after another call of the same handle was dropped. That began at `since`.
    /// `former`: the hold that the earlier call was to release.
    pub fn refused_in_a_hurry(
        &mut self,
        now: Duration,
        since: Duration,
        worker: usize,
        process: usize,
        claims: &[Claim],
        former: Option<String>,
    ) {
        // Others perhaps stand in the queue of a fair lock, a writer stops readers, and a call for several locks holds some for a moment.
        let of_several = matches!(self.plan.kind, Kind::Multi | Kind::Red);
        if self.plan.is_fair() || claims[0].is_shared || of_several {
            return;
        }
        let holders: BTreeSet<_> = claims.iter().flat_map(|claim| self.holders(claim, since, now)).collect();
        self.count("refused in a hurry");
        let claims = claims.to_vec();
        self.turns.suspects.push(Suspect { at: now, worker, process, claims, since, holders, former });
    }

    /// Rule r: a call is not refused by what an earlier call of the same handle left.
    pub fn check_refused_in_a_hurry(&mut self, now: Duration) {
        let (old, suspects) = std::mem::take(&mut self.turns.suspects)
            .into_iter()
            .partition(|suspect| suspect.at + SECOND < now);
        self.turns.suspects = suspects;
        let old: Vec<Suspect> = old;
        for Suspect { at, worker, process, claims, since, holders, former } in old {
            let is_own = |owner: &String| {
                self.turns.process_of(owner) == Some(process)
                    && (!self.owners.contains(owner)
                        || former.as_ref().is_some_and(|former| former.split(", ").any(|one| one == owner)))
            };
            // The client of another handle removes what its call left, at about the same time.
            let from = since.saturating_sub(SECOND / 2);
            let is_here = |vain: &Vain| {
                vain.claims.iter().any(|claim| {
                    claims.iter().any(|one| (one.server, one.name) == (claim.server, claim.name))
                })
            };
            let is_of_other = self.turns.vain.iter().any(|vain| {
                vain.worker != worker
                    && vain.process == process
                    && is_here(vain)
                    && (from..=at).contains(&vain.end)
            });
            if !holders.is_empty()
                && holders.iter().all(is_own)
                && !is_of_other
                && !self.is_disturbed(process, &claims, from, at, true)
            {
                self.violate(now, "r", format!("worker {worker} was refused at {at:?} by {holders:?}, which its own dropped call left"));
            }
        }
    }
}

//! How long the servers keep each hold. Rule l: a guard relies on less time than its server keeps the hold. The server keeps it for as
//! long as its owner asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::LockGuard;

use super::Oracle;
use super::faults::Fault;
use super::guards::Entry;
use crate::locks::{Claim, NAMES, Term};
use crate::permits;
use crate::plan::{FaultKind, Kind, MS, Plan};
use crate::trace::Script;

/// A guard ends at least so much before its lease. The server counts in whole milliseconds, and clocks drift, so this is a little less than
/// the margin of a short lease.
const MARGIN: Duration = Duration::from_millis(8);

/// A command asks for a lease when it is sent, and the server counts from when it comes. Perhaps its script is loaded in between,
/// or a connection is made.
const UNDER_WAY: Duration = Duration::from_millis(50);

/// How long ago the end of a hold still counts.
const PAST: Duration = Duration::from_secs(5);

/// The holds of each lock on each server.
#[derive(Default)]
pub struct Leases {
    locks: BTreeMap<(usize, usize), BTreeMap<String, Kept>>,
    /// Ended holds: the lock, the owner, the begin and the end.
    ended: Vec<((usize, usize), String, Duration, Duration)>,
    asked: BTreeMap<String, Asked>,
    /// The workers that extend a lease at this moment.
    extending: BTreeSet<usize>,
}

/// A hold, as a server keeps it.
#[derive(Clone, Copy, Debug)]
struct Kept {
    from: Duration,
    until: Duration,
}

/// What the guards of an owner id asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// The longest lease that is renewed.
    renewed: Duration,
    /// When the last lease ends that is not renewed.
    until: Duration,
}

impl Leases {
    /// The server lost data.
    pub fn forget(&mut self, server: usize) {
        self.locks.retain(|(at, _), _| *at != server);
    }

    /// The clock of a server was set. Holds whose lease had ended are over.
    pub fn shift(&mut self, now: Duration, server: usize, seconds: i64) {
        let by = Duration::from_secs(seconds.unsigned_abs());
        let locks = self.locks.iter_mut().filter(|((at, _), _)| *at == server);
        for kept in locks.flat_map(|(_, holds)| holds.values_mut()).filter(|kept| kept.until > now) {
            kept.until = if seconds < 0 { kept.until + by } else { kept.until.saturating_sub(by).max(now) };
        }
    }

    /// Until when a server keeps a hold.
    fn until(&self, claim: &Claim, owner: &str) -> Option<Duration> {
        Some(self.locks.get(&(claim.server, claim.name))?.get(owner)?.until)
    }

    /// Who held a lock between two times.
    fn holders(&self, claim: &Claim, from: Duration, to: Duration) -> BTreeSet<String> {
        let here = (claim.server, claim.name);
        let now = self.locks.get(&here).into_iter().flatten();
        let now = now.filter(|(_, kept)| kept.from <= to && from <= kept.until).map(|(owner, _)| owner);
        let ended =
            self.ended.iter().filter(|(at, _, begun, end)| *at == here && *begun <= to && from <= *end);
        now.chain(ended.map(|(_, owner, ..)| owner)).cloned().collect()
    }

    /// Asks a server about a lock, after a script. Returns what it may not have done.
    fn update(
        &mut self,
        now: Duration,
        (server, name): (usize, usize),
        kind: Kind,
        script: &Script<'_>,
        ask: &mut dyn FnMut(&[&str]) -> Vec<u8>,
    ) -> Vec<String> {
        let found =
            if kind == Kind::Semaphore { permits_of(now, name, ask) } else { holds_of(now, name, ask) };
        let mut holds: BTreeMap<_, _> =
            found.into_iter().map(|(owner, until)| (owner, Kept { from: now, until })).collect();
        let Some(before) = self.locks.get(&(server, name)) else {
            self.locks.insert((server, name), holds);
            return Vec::new();
        };
        let owners = script.owners();
        let is_about = |verb: &str, owner: &String| script.file.ends_with(verb) && owners.contains(owner);
        let releases = |owner: &String| is_about("/release.lua", owner);
        let acquires = |owner: &String| is_about("/acquire.lua", owner);
        let mut problems = Vec::new();
        for (owner, kept) in before {
            let left = kept.until.saturating_sub(now);
            match holds.get_mut(owner) {
                Some(new) if new.until + MS < kept.until && !acquires(owner) => {
                    problems.push(format!("the lease of {owner} fell by {:?}", kept.until - new.until));
                    new.from = kept.from;
                }
                Some(new) => new.from = kept.from,
                None => {
                    if left > MS && !releases(owner) && !acquires(owner) {
                        problems.push(format!("the hold of {owner} ended {left:?} before its lease"));
                    }
                    self.ended.push(((server, name), owner.clone(), kept.from, now.min(kept.until)));
                }
            }
        }
        for owner in holds.keys().filter(|owner| !before.contains_key(*owner) && !acquires(owner)) {
            problems.push(format!("{owner} did not acquire, and holds"));
        }
        self.locks.insert((server, name), holds);
        self.ended.retain(|(.., end)| now < *end + PAST);
        problems
    }

    fn asks(&mut self, owner: &str, renewed: Duration, until: Duration) {
        let asked = self.asked.entry(owner.to_owned()).or_default();
        asked.renewed = asked.renewed.max(renewed);
        asked.until = asked.until.max(until);
    }

    /// Until when a server can keep a hold. `None`: nobody knows its guards.
    fn most(&self, now: Duration, owner: &str) -> Option<Duration> {
        // The owner of a write lock can read, too, and the key has the longer lease of both.
        let reader = owner.strip_suffix(":write").and_then(|owner| self.asked.get(owner));
        let most =
            |asked: &Asked| asked.until.max(if asked.renewed.is_zero() { now } else { now + asked.renewed });
        self.asked.get(owner).map(most).max(reader.map(most))
    }
}

/// The holders of a lock, and until when the server keeps each hold. Each reader has a lease of its own, in a key beside the lock; the first
/// of these keys has the longest lease of all. A hold of a reader also ends with the lease of the lock.
fn holds_of(
    now: Duration,
    name: usize,
    ask: &mut dyn FnMut(&[&str]) -> Vec<u8>,
) -> BTreeMap<String, Duration> {
    let Some(until) = expiry(now, &ask(&["PTTL", NAMES[name]])) else { return BTreeMap::new() };
    let fields = permits::texts(&ask(&["HGETALL", NAMES[name]]));
    let is_read_write = fields.chunks(2).any(|pair| pair[0] == "mode");
    let owners = fields.chunks(2).map(|pair| &pair[0]).filter(|field| *field != "mode");
    let hold = |owner: &String| {
        if !is_read_write || owner.ends_with(":write") {
            return Some((owner.clone(), until));
        }
        let key = format!("{{{}}}:{owner}:rwlock_timeout:1", NAMES[name]);
        Some((owner.clone(), expiry(now, &ask(&["PTTL", &key]))?.min(until)))
    };
    owners.filter_map(hold).collect()
}

/// The ids of the permits in use, and when the lease of each ends.
fn permits_of(
    now: Duration,
    name: usize,
    ask: &mut dyn FnMut(&[&str]) -> Vec<u8>,
) -> BTreeMap<String, Duration> {
    let key = format!("{{{}}}:timeout", NAMES[name]);
    let permits = permits::bulks(&ask(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]));
    if permits.is_empty() {
        return BTreeMap::new();
    }
    let now_ms = permits::clock_ms(ask);
    let permit = |pair: &[Vec<u8>]| {
        let id: String = pair[0].iter().map(|byte| format!("{byte:02x}")).collect();
        let left_ms = permits::number(&String::from_utf8_lossy(&pair[1])) - permits::SLACK_MS - now_ms;
        (id, whole(now) + Duration::from_millis(u64::try_from(left_ms).unwrap_or_default()))
    };
    permits.chunks(2).map(permit).collect()
}

/// The time at which a key expires, by its reply to `PTTL`. The server's clock shows whole milliseconds since the world began.
fn expiry(now: Duration, reply: &[u8]) -> Option<Duration> {
    let left: i64 = std::str::from_utf8(reply).ok()?.trim_start_matches(':').trim().parse().ok()?;
    match u64::try_from(left) {
        Ok(left) => Some(whole(now) + Duration::from_millis(left)),
        // Without expiry, which is a violation of another rule.
        Err(_) => (left == -1).then_some(Duration::MAX / 2),
    }
}

fn whole(now: Duration) -> Duration {
    Duration::from_millis(u64::try_from(now.as_millis()).expect("years"))
}

impl Oracle {
    /// A server ran a script.
    pub(super) fn check_leases(
        &mut self,
        now: Duration,
        server: usize,
        script: &Script<'_>,
        ask: &mut dyn FnMut(&[&str]) -> Vec<u8>,
    ) {
        let kind = self.plan.kind;
        let names: Vec<_> = (0..self.waits.names()).filter(|name| script.is_about(NAMES[*name])).collect();
        for name in &names {
            for problem in self.leases.update(now, (server, *name), kind, script, ask) {
                self.violate(now, "l", problem);
            }
        }
        if !names.is_empty() {
            self.check_remaining(now, server);
        }
        for name in names {
            self.check_longest(now, server, name);
        }
    }

    /// A guard ends before the server ends its hold. And a hold that is renewed has more than half of its lease left.
    fn check_remaining(&mut self, now: Duration, server: usize) {
        let mut found = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            // After a server lost data, what it has of a lock is known with the next script about it.
            let is_known = |claim: &Claim| self.leases.locks.contains_key(&(claim.server, claim.name));
            if entry.was_beyond
                || !entry.claims.iter().any(|claim| claim.server == server)
                || !entry.claims.iter().all(is_known)
            {
                continue;
            }
            let Some(guard) = entry.guard.upgrade() else { continue };
            let remaining = self.processes[entry.process].enter(|| guard.remaining());
            if remaining.is_zero() {
                continue;
            }
            let least = now + remaining + MARGIN.min((remaining / 4).saturating_sub(MS));
            let kept = self.kept(entry);
            let wanted =
                if entry.is_majority { entry.claims.len() / 2 + 1 } else { entry.owner.split(", ").count() };
            if kept.iter().filter(|until| **until >= least).count() < wanted {
                let kept: Vec<_> = kept.iter().map(|until| until.saturating_sub(now)).collect();
                let text = format!(
                    "worker {} has {remaining:?} left, and the server keeps {} for {kept:?}",
                    entry.worker, entry.owner
                );
                found.push((index, self.may_be_void(entry, now), text));
            } else if self.is_renewed_late(entry, &kept, now) {
                let text = format!("{} of worker {} was not renewed in time", entry.owner, entry.worker);
                found.push((index, false, text));
            }
        }
        for (index, is_excused, text) in found {
            self.entries[index].was_beyond = true;
            if is_excused {
                self.excuse("a guard relies on a hold that was lost with data, or ended by force");
            } else {
                self.violate(now, "l", text);
            }
        }
    }

    /// Until when the servers keep the holds of a guard, as far as they have them.
    fn kept(&self, entry: &Entry) -> Vec<Duration> {
        let of_owner = |owner| entry.claims.iter().find_map(|claim| self.leases.until(claim, owner));
        entry.owner.split(", ").filter_map(of_owner).collect()
    }

    /// A renewal is due after each third of a lease.
    fn is_renewed_late(&self, entry: &Entry, kept: &[Duration], now: Duration) -> bool {
        let lease = self.plan.lease;
        entry.ends.is_none()
            && kept.iter().any(|until| until.saturating_sub(now) < lease.mul_f64(0.6))
            && !self.is_closing(entry.process, now)
            && !self.is_killed(entry.process)
            && !self.was_stepped(&entry.claims, now.saturating_sub(lease), now)
            // A server without memory renews.
            && !self.is_disturbed(entry.process, &entry.claims, now.saturating_sub(lease), now, false)
    }

    fn is_killed(&self, process: usize) -> bool {
        let kills =
            |fault: &Fault| fault.kind == Some(FaultKind::KillProcess) && fault.process == Some(process);
        self.faults.iter().any(kills)
    }

    /// The server keeps no hold for longer than its guards asked for.
    fn check_longest(&mut self, now: Duration, server: usize, name: usize) {
        let Some(holds) = self.leases.locks.get(&(server, name)) else { return };
        let claim = Claim { server, name, is_shared: false, permits: 0 };
        let mut problems = Vec::new();
        for (owner, Kept { until, .. }) in holds {
            let Some(most) = self.leases.most(now, owner).filter(|most| *most + MS < *until) else {
                continue;
            };
            let base = owner.strip_suffix(":write").unwrap_or(owner);
            let mut of_owner = self.entries.iter().filter(|entry| {
                entry.owner.split(", ").any(|one| one.strip_suffix(":write").unwrap_or(one) == base)
            });
            // A call of the same owner, or one that it dropped, perhaps makes the lease longer, and its guard comes later.
            let Some(first) = of_owner.next() else { continue };
            let is_asking = |worker| self.waits.is_waiting(worker) || self.leases.extending.contains(&worker);
            let from = now.saturating_sub(2 * self.plan.longest_lease());
            if is_asking(first.worker)
                || of_owner.any(|entry| is_asking(entry.worker))
                || self.is_disturbed(first.process, &[claim], from, now, true)
                || self.was_stepped(&[claim], from, now)
            {
                continue;
            }
            problems.push((
                owner.clone(),
                *until,
                format!("{owner} is kept for {:?} longer than it asked for", *until - most),
            ));
        }
        for (owner, until, problem) in problems {
            self.leases.asks(&owner, Duration::ZERO, until);
            self.violate(now, "l", problem);
        }
    }

    /// A worker got a guard, and its handle asks for such leases.
    pub fn asks(&mut self, now: Duration, owner: &str, term: Term, least: Option<Duration>) {
        let lease = self.plan.lease;
        let late = match self.plan.kind {
            // A majority is enough: the command to another server perhaps comes later.
            Kind::Red => self.plan.command_timeout,
            Kind::Semaphore => Duration::ZERO,
            // A re-entry, an inner release and a reader's restored lease ask for the time that is left when the command is sent.
            _ => UNDER_WAY,
        };
        let (renewed, until) = match term {
            Term::Renewed => (lease.max(least.unwrap_or_default()), Duration::ZERO),
            Term::Fixed(time) => (Duration::ZERO, now + late + time),
            Term::AtMost(time) => (
                Duration::ZERO,
                now + late + time.mul_f64(1.001) + UNDER_WAY + renewed_beyond(&self.plan, time),
            ),
        };
        for owner in owner.split(", ") {
            self.leases.asks(owner, renewed, until);
        }
    }

    /// A worker begins to extend a lease.
    pub fn extends(&mut self, worker: usize) {
        self.leases.extending.insert(worker);
    }

    /// The call of a worker that has guards has ended without one more, or it extended a lease: perhaps the lease became longer meanwhile.
    pub fn may_have_asked(&mut self, now: Duration, worker: usize, lease: Duration) {
        self.leases.extending.remove(&worker);
        let owners: BTreeSet<_> = self
            .entries
            .iter()
            .filter(|entry| entry.worker == worker)
            .map(|entry| entry.owner.clone())
            .collect();
        for owner in owners.iter().flat_map(|owner| owner.split(", ")) {
            self.leases.asks(owner, Duration::ZERO, now + lease + UNDER_WAY);
        }
    }

    /// Rule n: if its process died, the server would keep a hold for its shortest time.
    pub fn check_first_lease(&mut self, now: Duration, guard: &Arc<LockGuard>, least: Duration) {
        let entry = self.entry(guard);
        let until = entry.granted_at + least;
        let is_short = self.kept(entry).iter().any(|kept| *kept + MS < until);
        if is_short && self.is_valid(entry, now) && !self.may_be_void(entry, now) {
            self.violate(
                now,
                "n",
                format!("the first lease of {} is shorter than {least:?}", guard.owner_id()),
            );
        }
    }

    /// Until when the server keeps the one hold of a guard.
    pub(super) fn kept_once(&self, claim: &Claim, owner: &str) -> Option<Duration> {
        self.leases.until(claim, owner)
    }

    /// Who held a lock on a server between two times.
    pub(super) fn holders(&self, claim: &Claim, from: Duration, to: Duration) -> BTreeSet<String> {
        self.leases.holders(claim, from, to)
    }
}

/// A renewal asks for a whole lease, also near the end of a longest hold. One lease is enough for a hold that is no longer.
fn renewed_beyond(plan: &Plan, time: Duration) -> Duration {
    if time > plan.lease { plan.lease } else { Duration::ZERO }
}

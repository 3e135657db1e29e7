//! What the oracle knows of the holds at this moment.

use std::time::Duration;

use super::Oracle;
use crate::locks::Claim;
use crate::plan::FaultKind;

/// A hold that is renewed for as long as it is wanted.
pub struct RenewedHold {
    pub worker: usize,
    pub process: usize,
    pub claim: Claim,
    pub owner: String,
    /// When a server granted it, if its owner had none before.
    pub first_granted_at: Option<Duration>,
}

impl Oracle {
    /// The holds whose guards say that they are valid, and that nobody released by force.
    pub fn renewed_holds(&self, now: Duration) -> Vec<RenewedHold> {
        let is_guarded = |entry: &&super::Entry| entry.ends.is_none() && entry.guard.strong_count() > 0;
        let was_forced = |entry: &super::Entry| self.was_forced(&entry.claims, entry.granted_at, now);
        let valid = self.entries.iter().filter(is_guarded).filter(|entry| self.is_valid(entry, now));
        // After a shutdown, nothing is renewed.
        let valid = valid.filter(|entry| !was_forced(entry) && !self.is_closing(entry.process, now));
        let holds = valid.flat_map(|entry| {
            entry.owner.split(", ").zip(entry.claims.iter().cycle()).map(|(owner, claim)| RenewedHold {
                worker: entry.worker,
                process: entry.process,
                claim: *claim,
                owner: owner.to_owned(),
                first_granted_at: entry.is_first.then_some(entry.granted_at),
            })
        });
        holds.collect()
    }

    /// Whether anything but a change of the cluster disturbed this process between two times.
    pub fn is_troubled(&self, process: usize, from: Duration, to: Duration) -> bool {
        self.faults.iter().any(|fault| {
            fault.kind.is_some_and(|kind| !FaultKind::CHANGES.contains(&kind))
                && fault.process.is_none_or(|one| one == process)
                && fault.start <= to
                && from <= fault.end
        })
    }
}

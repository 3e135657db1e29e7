//! What the servers ran: who holds, who waits, and what late copies leave.

use std::sync::Arc;
use std::time::Duration;

use super::Oracle;
use crate::plan::{FaultKind, Kind, Mode};
use crate::trace::Script;

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

impl Oracle {
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
        if let Some(batch) = self.plan.batch_of(&script) {
            self.count(batch);
        }
        if self.plan.kind == Kind::Semaphore {
            if let Some(problem) = self.waits.update_permits(now, server, &script, ask) {
                self.violate(now, "p", problem);
            }
        } else if self.waits.update(now, server, ask) {
            self.violate(now, "d", "a lock is held without expiry");
        }
        if self.plan.extras.looks || self.plan.extras.forces {
            for name in 0..self.waits.names() {
                self.seen.update(now, server, name, ask);
            }
        }
        // It did not run.
        if reply.starts_with(b"-") {
            return;
        }
        let is_semaphore = script.file.starts_with("semaphore/");
        let keep = if script.file.starts_with("read/") { 2 } else { 1 };
        for owner in script.owners() {
            let numbers = (server, owner);
            if script.file.ends_with("/acquire.lua") {
                // Of a semaphore: the permits that are left, and the total.
                let is_granted = reply.starts_with(if is_semaphore { b"*" } else { b"$" })
                    && !reply.starts_with(b"*2\r\n:-16");
                if is_granted {
                    let key = String::from_utf8_lossy(&script.keys[0]).into_owned();
                    let is_late = self.commands.get(&numbers).is_some_and(|(_, released)| *released > 0);
                    self.late.push(Late { server, key, owner: numbers.1.clone(), at: now, is_late });
                }
                if is_semaphore && is_granted {
                    self.first_grants.entry(numbers.clone()).or_insert(now);
                }
                self.grants.insert(numbers.clone(), now);
                self.commands.entry(numbers).or_default().0 = self.trace.events;
            } else if script.file.ends_with("/release.lua") && (is_semaphore || script.arg(keep) == "0") {
                self.commands.entry(numbers).or_default().1 = self.trace.events;
            }
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
        // An owner that writes can read, stop, and read again.
        let is_unknown = |late: &Late| {
            late.is_late && !self.somebody_has(&late.owner) || !self.owners.contains(&late.owner)
        };
        let old: Vec<Late> = old;
        old.into_iter().filter(is_quiet).filter(is_unknown).collect()
    }

    /// Rules d and g: a free lock is acquired, and a key that nobody has is removed.
    pub fn check_waits(&mut self, now: Duration) {
        let calm_from = self.calm_from(now);
        let limit = self.plan.handover();
        if calm_from.saturating_add(limit) < now {
            for problem in self.waits.overdue(now, calm_from, limit, false) {
                self.violate(now, "d", problem);
            }
            for problem in self.waits.orphans(now, calm_from, limit) {
                self.violate(now, "d", problem);
            }
        }
        if self.plan.mode == Mode::Hung {
            for problem in self.waits.overdue(now, Duration::ZERO, self.plan.hung_handover(), true) {
                self.violate(now, "g", problem);
            }
        }
    }
}

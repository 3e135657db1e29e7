//! What the servers ran: who holds, who waits, and what late copies leave.

use std::sync::Arc;
use std::time::Duration;

use super::Oracle;
use super::faults::Fault;
use crate::locks::{Claim, NAMES};
use crate::permits::texts;
use crate::plan::{FaultKind, Kind, Mode, SECOND};
use crate::trace::Script;

/// Pauses between undos are up to 6 s.
const LONGEST_LATE: Duration = Duration::from_secs(8);

/// A replica that takes over lacks at most what was written in this time.
const OLDEST_DATA: Duration = Duration::from_secs(2);

/// A hold that a server granted.
pub struct Late {
    pub server: usize,
    pub key: String,
    pub owner: String,
    at: Duration,
    /// Its owner had released the lock before.
    is_late: bool,
}

/// The reply to a confirmation of a hold for which nobody waits. Readers join such a hold as one that was granted just now.
const CONFIRMED: &[u8] = b":-12";

/// The reply to a call that came after its end.
const LATE: &[u8] = b":-9\r\n";

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
        if script.is_with_others {
            self.count("calls with others in a command");
        }
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
        self.check_leases(now, server, &script, ask);
        self.notes_release(now, server, &script, reply);
        // It did not run, or came too late to do anything.
        if reply.starts_with(b"-") || reply == LATE {
            return;
        }
        let is_semaphore = script.file.starts_with("semaphore/");
        self.check_end(now, server, &script, reply, ask);
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
            } else if script.file == "read/confirm.lua" && reply.starts_with(CONFIRMED) {
                self.grants.insert(numbers, now);
            } else if script.file.ends_with("/release.lua") {
                self.commands.entry(numbers).or_default().1 = self.trace.events;
            }
        }
        if let Some(problem) = self.queues.command(now, server, &script, reply) {
            self.violate(now, "i", problem);
        }
        self.check_places(now, server, &script, reply, ask);
    }

    /// Rule v: an acquire and a heartbeat end by the server's clock: a second after the time limit of a command at the latest, counted from when it was
    /// sent. Later it changes nothing.
    fn check_end(
        &mut self,
        now: Duration,
        server: usize,
        script: &Script<'_>,
        reply: &[u8],
        ask: &mut dyn FnMut(&[&str]) -> Vec<u8>,
    ) {
        if !script.file.ends_with("/acquire.lua") && script.file != "fair/heartbeat.lua" {
            return;
        }
        let time = texts(&ask(&["TIME"]));
        let [time, end] = [&*time[0], script.last_arg()].map(|text| text.parse::<u64>().expect("seconds"));
        // Clocks that were set back count as they were until a connection learns the time again.
        let here = [Claim { server, name: 0, is_shared: false, permits: 0 }];
        let is_known = !self.was_stepped(&here, now.saturating_sub(90 * SECOND), now);
        if is_known && end > time + self.plan.command_timeout.as_secs() + 2 {
            self.violate(now, "v", format!("{} ends {} s after it came", script.file, end - time));
        }
        if time > end && reply != LATE {
            self.violate(now, "v", format!("{} ran {} s after its end", script.file, time - end));
        }
    }

    /// Rule q: a waiter for a fair lock keeps its place until it is granted the lock or leaves, unless it is dead. And nobody dies whose
    /// process nothing disturbs.
    fn check_places(
        &mut self,
        now: Duration,
        server: usize,
        script: &Script<'_>,
        reply: &[u8],
        ask: &mut dyn FnMut(&[&str]) -> Vec<u8>,
    ) {
        let from = now.saturating_sub(2 * self.plan.fair_allowance);
        let on_server = [Claim { server, name: 0, is_shared: false, permits: 0 }];
        if let Some(problem) = self.queues.check_places(now, server, script, reply, ask) {
            if self.has_half_a_queue(now, server) {
                self.excuse("an order of which half had moved when data was lost");
            } else if self.was_stepped(&on_server, from, now) {
                self.excuse("a place that ended when the clock of its server was set");
            } else {
                self.violate(now, "q", problem);
            }
        }
        if !script.file.starts_with("fair/") {
            return;
        }
        for waiter in self.queues.dead(now, server) {
            let Some(process) = self.turns.process_of(&waiter) else { continue };
            let is_calm = self.waits.is_running(process)
                && !self.is_closing(process, now)
                && !self.was_stepped(&on_server, from, now)
                && (!self.is_disturbed(process, &on_server, from, now, true)
                    || self.was_short(process, from, now));
            if is_calm && self.dead.insert(waiter.clone()) {
                self.violate(now, "q", format!("{waiter} of process {process} got no heartbeat"));
            }
        }
    }

    /// Whether a server has perhaps some keys of a queue without the others: its data is that of a moment when they moved one by one.
    fn has_half_a_queue(&self, now: Duration, server: usize) -> bool {
        let moved = |at: Duration| {
            let is_near = |fault: &Fault| fault.start <= at && at <= fault.end + OLDEST_DATA;
            self.faults.iter().any(|fault| fault.kind == Some(FaultKind::MoveSlot) && is_near(fault))
        };
        self.losses[server].iter().any(|loss| now < *loss + 2 * self.plan.fair_allowance && moved(*loss))
    }

    /// Rule j: a hold of which no guard knows, such as that of a late copy, lasts for seconds, and not for a lease. Returns what
    /// lasts too long, if it is still there.
    pub fn late(&mut self, now: Duration) -> Vec<Late> {
        self.check_refused_in_a_hurry(now);
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
        // After a shutdown, nobody undoes what a copy acquires.
        let is_undone = |late: &Late| {
            let process = self.turns.process_of(&late.owner);
            !process.is_some_and(|process| self.is_closing(process, late.at))
        };
        let old: Vec<Late> = old;
        old.into_iter().filter(is_quiet).filter(is_unknown).filter(is_undone).collect()
    }

    /// Rules d and g: a free lock is acquired, and a key that nobody has is removed.
    pub fn check_waits(&mut self, now: Duration) {
        let (limit, queues) = (self.plan.handover(), &self.queues);
        let is_told = |claim: &Claim, ended| queues.is_told(claim.server, NAMES[claim.name], ended);
        // If no message arrives, each that comes to the front learns it from its own heartbeat. And if nobody polls it, its place must end.
        let changes = self.plan.classes.only_messages || self.plan.mode == Mode::Hung;
        let front_since = |claim: &Claim| {
            if changes { queues.front_since(claim.server, NAMES[claim.name]) } else { Duration::ZERO }
        };
        let mut problems = Vec::new();
        // A single fault is over sooner, except for what it left behind.
        let waiters_from = self.calm_from_here(now);
        if waiters_from.saturating_add(limit) < now {
            problems = self.waits.overdue(now, waiters_from, limit, false, &is_told, &front_since);
        }
        let calm_from = self.calm_from(now);
        if calm_from.saturating_add(limit) < now {
            problems.extend(self.waits.orphans(now, calm_from, limit));
        }
        let mut hung = Vec::new();
        if self.plan.mode == Mode::Hung {
            let limit = self.plan.hung_handover();
            hung = self.waits.overdue(now, Duration::ZERO, limit, true, &|_, _| false, &front_since);
        }
        for (rule, problem) in
            problems.into_iter().map(|one| ("d", one)).chain(hung.into_iter().map(|one| ("g", one)))
        {
            self.violate(now, rule, problem);
        }
    }
}

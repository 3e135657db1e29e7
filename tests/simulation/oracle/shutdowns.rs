//! Clients that are shut down while they work.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Oracle;

/// A shutdown of the clients of a process.
pub struct Closing {
    begun: Duration,
    /// The owners that had guards then, or leaked or kept ones.
    held: BTreeSet<String>,
    /// All that had guards before.
    known: BTreeSet<String>,
}

impl Oracle {
    /// The clients of a process begin to shut down.
    pub fn closes(&mut self, now: Duration, process: usize) {
        self.count("shutdown");
        self.say(now, "shutdown", format_args!("of process {process}"));
        let held = self.held_by(process, now);
        // What its process still keeps is left to its lease.
        for entry in
            self.entries.iter().filter(|entry| entry.process == process && entry.leaked_until.is_some())
        {
            self.waits.leaked(&entry.claims, now + 2 * self.plan.longest_lease());
        }
        self.closing.insert(process, Closing { begun: now, held, known: self.owners.clone() });
    }

    pub fn is_closing(&self, process: usize, now: Duration) -> bool {
        self.closing.get(&process).is_some_and(|closing| closing.begun <= now)
    }

    /// The owners of what a process has, or leaves behind.
    fn held_by(&self, process: usize, now: Duration) -> BTreeSet<String> {
        // A re-entry after the leak perhaps made the lease longer.
        let is_leaked =
            |entry: &super::Entry| entry.leaked_until.is_some_and(|until| now < until + self.plan.lease);
        let is_held = |entry: &&super::Entry| {
            entry.process == process && (entry.guard.strong_count() > 0 || is_leaked(entry))
        };
        let held = self.entries.iter().filter(is_held).map(|entry| &entry.owner);
        let staying = self.staying.iter().filter(|(other, _, most)| *other == process && now < *most);
        let owners = held.chain(staying.map(|(_, owner, _)| owner));
        owners.flat_map(|owner| owner.split(", ").map(str::to_owned)).collect()
    }

    /// Rule s: after a shutdown the servers have nothing of a client, except what its guards hold, and what ends by itself.
    /// `left`: what they have.
    pub fn closed(&mut self, now: Duration, process: usize, left: &[String]) {
        let Closing { begun, held, known } = &self.closing[&process];
        let lost_data = self.losses.iter().flatten().any(|at| *at + self.plan.settle() >= *begun);
        let now_held = self.held_by(process, now);
        // A guard that came after the shutdown began may be released at this moment.
        let is_new = |owner: &String| !known.contains(owner) && self.owners.contains(owner);
        // No owner id is used again. So what acquired after a release is a copy that the network kept for longer than a shutdown waits.
        let is_of_late_copy = |owner: &String| {
            let mut commands = self.commands.iter().filter(|((_, other), _)| other == owner);
            commands.any(|(_, (acquired, released))| *released > 0 && acquired > released)
        };
        // An `unlock` that is under way tells its own caller what becomes of the hold.
        let is_excused = |owner: &&String| {
            held.contains(*owner)
                || now_held.contains(*owner)
                || self.unlocking.contains(*owner)
                || is_new(owner)
        };
        let left: Vec<_> = left.iter().filter(|owner| !is_excused(owner)).cloned().collect();
        let (late, left): (Vec<_>, Vec<_>) = left.into_iter().partition(is_of_late_copy);
        if !late.is_empty() {
            self.excuse("a late copy acquired after the release that a shutdown sent");
        }
        if left.is_empty() {
            return;
        }
        if lost_data {
            return self.excuse("something is left after a shutdown, and data was lost");
        }
        self.violate(now, "s", format!("the shutdown of process {process} left {left:?}"));
    }
}

//! Which process has reached the new master of a slot, and what follows from that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockkeeper_memory::MemoryCluster;

use crate::locks::NAMES;
use crate::plan::SECOND;
use crate::trace::Script;
use crate::world::World;

/// After a process reached the new master of a slot, it learns within this time which of its holds that master lacks.
const TOLD: Duration = Duration::from_millis(500);

/// A connection to the old master that was being made at that moment is no new one.
const LEAVES: Duration = Duration::from_millis(100);

/// A node and the number of a connection there.
type Connection = (usize, u64);

#[derive(Default)]
pub struct Masters {
    /// The process of each connection, and when it was made.
    connections: BTreeMap<Connection, (usize, Duration)>,
    /// The nodes that were the masters of a slot until others took their places.
    former: BTreeMap<u16, BTreeSet<usize>>,
    /// When the master of a slot was last replaced.
    replaced: BTreeMap<u16, Duration>,
    /// When a process was first answered by the new master of a slot, on a connection that was made after that. A former master that comes
    /// back soon goes on with the connections of before, and nobody learns of it by those.
    reached: BTreeMap<(usize, u16), Duration>,
    /// The owners whose acquires an old master answered although their process had reached the new one.
    late: BTreeSet<String>,
    /// Since when the new master lacks a hold, as far as somebody looked.
    lacking: BTreeMap<String, Duration>,
}

impl Masters {
    pub fn connects(&mut self, now: Duration, process: usize, connection: Connection) {
        self.connections.insert(connection, (process, now));
    }

    /// A node takes the place of the master of these slots.
    pub fn replaces(&mut self, now: Duration, new: usize, old: usize, slots: &[u16]) {
        // It gets only slots that its old master has. But those that moved away from there have other masters in any case.
        self.former.values_mut().for_each(|former| former.retain(|node| *node != new));
        for slot in slots {
            self.former.entry(*slot).or_default().insert(old);
            self.replaced.insert(*slot, now);
            self.reached.retain(|(_, other), _| other != slot);
        }
        self.late.clear();
    }

    /// A node ran a script about a key, or refused it. `is_master`: it is the master of the slot. Returns what is wrong.
    ///
    /// Rule m: who was answered by the new master of a slot does not turn to the old one again.
    pub fn asked(
        &mut self,
        now: Duration,
        connection: Connection,
        script: &Script<'_>,
        (slot, is_master): (u16, bool),
        is_refused: bool,
    ) -> Option<String> {
        let (process, made_at) = *self.connections.get(&connection)?;
        let former = self.former.get(&slot)?;
        if is_master {
            if !is_refused && self.replaced.get(&slot).is_none_or(|at| made_at >= *at) {
                self.reached.entry((process, slot)).or_insert(now);
            }
            return None;
        }
        let reached = *self.reached.get(&(process, slot))?;
        if former.contains(&connection.0) && now > reached + LEAVES && script.file.ends_with("/acquire.lua") {
            self.late.extend(script.owners());
        }
        let is_back = former.contains(&connection.0) && made_at > reached + LEAVES;
        is_back.then(|| {
            format!(
                "process {process} turned to {} again, whose place another master of slot {slot} has taken",
                connection.0
            )
        })
    }

    /// Whether a process has reached the new master of one of these slots.
    pub fn is_reached(&self, slots: &[u16]) -> bool {
        self.reached.keys().any(|(_, slot)| slots.contains(slot))
    }

    /// Rule m: the answers of an old master do not count any more, and a hold that the new master lacks is lost soon after the process reached that one.
    pub fn check_told(&mut self, world: &World, is_settled: impl Fn(usize) -> bool) {
        let now = world.now();
        let holds = world.oracle().renewed_holds(now);
        let mut lacking = BTreeMap::new();
        for hold in holds {
            let slot = MemoryCluster::slot_of(NAMES[hold.claim.name]);
            let Some(reached) = self.reached.get(&(hold.process, slot)) else { continue };
            let tail = 2 * world.plan.command_timeout + SECOND;
            if !is_settled(hold.claim.name)
                || world.is_killed(hold.process)
                || world.oracle().is_troubled(hold.process, reached.saturating_sub(tail), now)
                || world.has_field(&hold.claim, &hold.owner)
            {
                continue;
            }
            let since = self.lacking.get(&hold.owner).copied().unwrap_or_else(|| {
                world.oracle().count("holds that a new master lacks");
                now
            });
            let problem = if self.late.contains(&hold.owner) {
                Some("holds what an old master granted after its process had reached the new one")
            } else {
                (now > since + TOLD).then_some("was not told that the new master lacks its hold")
            };
            if let Some(problem) = problem {
                world.oracle().violate(now, "m", format!("worker {} {problem}", hold.worker));
            }
            lacking.insert(hold.owner, since);
        }
        self.lacking = lacking;
    }

    /// How long nobody looks at the holds.
    pub const LOOKS: Duration = Duration::from_millis(50);
}

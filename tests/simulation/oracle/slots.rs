//! What the oracle knows of servers that refuse commands about several slots.

use std::time::Duration;

use super::Oracle;

/// What was sent before the first refusal arrived has come after this. After a failover, hundreds of releases can be in front of it.
const UNDER_WAY: Duration = Duration::from_millis(500);

impl Oracle {
    /// Rule o: a server that refused a command about several slots gets none on this connection any more.
    pub fn refuses_slots(&mut self, now: Duration, connection: (usize, u64), reply: &[u8]) {
        if !reply.starts_with(b"-CROSSSLOT") {
            return;
        }
        self.count("refused slots");
        let first = self.refused_slots.entry(connection).or_insert(now);
        // A command that a fault delayed was perhaps given up, so nobody heard of its refusal.
        let is_heard =
            self.faults.iter().all(|fault| fault.end.saturating_add(UNDER_WAY) < *first || now < fault.start);
        if !is_heard {
            *first = now;
        } else if now > *first + UNDER_WAY {
            self.violate(now, "o", "a server was asked again about several slots, which it refuses");
        }
    }
}

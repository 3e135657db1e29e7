//! What some worlds have beside plain sections.

use std::time::Duration;

use fastrand::Rng;

use crate::plan::{Kind, SECOND, up_to};

/// Drawn from numbers of its own, so that a world without it stays the same.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Owners that write also read, and go on when they have released the write lock.
    pub downgrades: bool,
    /// Some handles have a shortest hold.
    pub keeps: bool,
    /// The clients of one process are shut down then.
    pub shuts_down: Option<Duration>,
    /// Somebody looks at locks.
    pub looks: bool,
    /// Somebody releases locks by force.
    pub forces: bool,
    /// Sections within sections of other names, in any order.
    pub nests: bool,
    /// The members of a lock come in any order.
    pub reorders: bool,
    /// A handle is used again at once after a call that was dropped.
    pub hurries: bool,
    /// Leases are extended often, and by much.
    pub extends: bool,
    /// Calls are dropped often: several in a row, those of owners that hold the lock, and releases. The handle is used again at once.
    /// And leases are extended as soon as they begin.
    pub drops: bool,
    /// All want one lock all the time, and hold it for a short time.
    pub competes: bool,
    /// A shortest hold can be longer than a lease.
    pub keeps_long: bool,
}

impl Extras {
    pub fn draw(seed: u64, kind: Kind) -> Self {
        // Not in the worlds with which mutants and tests begin.
        let is_later = seed >= 10_000 && kind != Kind::Semaphore;
        match seed % 16 {
            4 | 7 | 9 if is_later => return Self { drops: true, ..Self::default() },
            1 | 15 if is_later => return Self { competes: true, ..Self::default() },
            _ => {}
        }
        if kind == Kind::Semaphore || ![3, 10, 11, 12].contains(&(seed % 16)) {
            return Self::default();
        }
        let mut rng = Rng::with_seed(seed.wrapping_mul(577) ^ 0xe27a);
        let single = !matches!(kind, Kind::Multi | Kind::Red);
        let mut has = |is_possible: bool| rng.bool() && is_possible;
        let mut extras = Self {
            downgrades: has(kind == Kind::ReadWrite),
            keeps: has(kind != Kind::Red),
            shuts_down: has(true).then_some(Duration::ZERO),
            looks: has(kind != Kind::Red),
            forces: has(kind != Kind::Red),
            nests: has(single),
            reorders: has(kind == Kind::Multi),
            hurries: has(true),
            extends: has(true),
            drops: false,
            competes: false,
            keeps_long: is_later,
        };
        extras.shuts_down = extras.shuts_down.map(|_| 5 * SECOND + up_to(&mut rng, 60 * SECOND));
        extras
    }

    /// Those of worlds in which another server can become the master. Their faults are over sooner.
    pub fn for_changes(self) -> Self {
        let shuts_down = self.shuts_down.map(|at| at / 3);
        Self { shuts_down, ..self }
    }
}

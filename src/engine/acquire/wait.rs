//! What the diagnosis knows of a call in a line.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::timer::Instant;
use crate::engine::grant::owner_grants::OwnerGrants;
use crate::engine::grant::sharing::Offer;
use crate::engine::line::lines::Offered;
use crate::engine::lock_ref::LockRef;
use crate::engine::waits::{LONG, RecentWait, WaitOutcome};

impl Offered for Offer {
    type Call = Wait;
}

/// What the diagnosis knows of a call in a line.
pub(crate) struct Wait {
    pub(crate) lock: Arc<LockRef>,
    pub(crate) owner: Arc<OwnerGrants>,
    pub(crate) caller: Caller,
    /// When the call began.
    pub(crate) since: Moment,
    /// The call is that of a candidate, whose work is to wait.
    pub(crate) is_standby: bool,
    /// Another owner held the lock when the call came, or when the diagnosis looked.
    pub(crate) is_refused: AtomicBool,
    /// When the diagnosis next does something for it. `None`: the diagnosis has not looked yet.
    pub(crate) due: Mutex<Option<Due>>,
    /// Who held the lock when the client looked. It looks once, after a lease.
    pub(crate) holders_seen: OnceLock<Vec<String>>,
}

/// When something is to be done for a wait.
#[derive(Clone, Copy)]
pub(crate) struct Due {
    /// When it is reported.
    pub(crate) report: Option<Instant>,
    /// When the next deadlock is looked for.
    pub(crate) check: Option<Instant>,
}

/// A call that waits. Dropping this value, after the call has left its line, ends the wait.
pub(crate) struct Waiting {
    pub(crate) wait: Arc<Wait>,
    pub(crate) outcome: WaitOutcome,
}

impl Waiting {
    /// `is_refused`: another owner holds the lock.
    pub(crate) fn begins(wait: Arc<Wait>, is_refused: bool) -> Self {
        wait.is_refused.store(is_refused, Ordering::Relaxed);
        let engine = &wait.lock.engine;
        if let Some(waits) = &engine.waits {
            let due = LONG.min(engine.config.watchdog_lease());
            waits.look_at(Instant::now() + due.saturating_sub(clock::now().since(wait.since)));
        }
        Self { wait, outcome: WaitOutcome::GivenUp }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Wait { lock, caller, since, is_refused, holders_seen, .. } = &*self.wait;
        let Some(waits) = &lock.engine.waits else { return };
        // The age is taken before the wall clock is read. In the other order, the wait would seem to begin before its call.
        let (age, to) = (clock::now().since(*since), SystemTime::now());
        if is_refused.load(Ordering::Relaxed) {
            waits.ended(RecentWait {
                lock: lock.name.to_string(),
                waited_at: caller,
                from: to - age,
                to,
                outcome: self.outcome,
                holders_seen: holders_seen.get().cloned().unwrap_or_default(),
            });
        }
        if age >= LONG {
            waits.look_at(Instant::now()); // those who look were perhaps shown this wait
        }
    }
}

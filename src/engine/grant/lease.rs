//! The lease that the server counts for a grant, and its renewal.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::engine::upkeep::scheduler::Slot;
use crate::telemetry::Renewing;

#[derive(Default)]
pub(crate) struct Lease {
    /// When the server granted the lock; long ago if the hold is too old to be handed over.
    pub(crate) since: Option<Moment>,
    /// When the server granted the lock.
    pub(crate) granted_at: Moment,
    /// When the server recorded since when the lock is held.
    pub(crate) recorded_at: Option<Moment>,
    /// The server perhaps has a record.
    pub(crate) may_be_recorded: bool,
    /// The deadline of what the server granted or renewed last.
    pub(crate) until: Moment,
    /// Nobody releases the last hold before that, although it perhaps ended for this process.
    pub(crate) stays_until: Moment,
    /// The server can keep the lock for longer than a hold lasts.
    pub(crate) outlasts: bool,
    /// When it is to be renewed.
    pub(crate) renew_at: Option<Moment>,
    /// The lease that the renewal under way asks for. `None`: it only restores a lease that another client shortened.
    pub(crate) asked: Option<Duration>,
    pub(crate) slot: Slot,
    pub(crate) renewing: Renewing,
}

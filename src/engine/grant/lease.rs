//! The lease that the server counts for a grant, and its renewal.

use crate::base::clock::Moment;
use crate::engine::upkeep::scheduler::Slot;
use crate::telemetry::Renewing;

#[derive(Default)]
pub(crate) struct Lease {
    /// When the server granted the lock.
    pub(crate) since: Option<Moment>,
    /// The deadline of what the server granted or renewed last.
    pub(crate) until: Moment,
    /// The server can keep the lock for longer than a hold lasts.
    pub(crate) outlasts: bool,
    /// When it is to be renewed.
    pub(crate) renew_at: Option<Moment>,
    /// The renewal under way lengthens leases. Otherwise it only restores leases that another client shortened.
    pub(crate) lengthens: bool,
    pub(crate) slot: Slot,
    pub(crate) renewing: Renewing,
}

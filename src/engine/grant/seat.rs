//! A hold between two owners.

use std::sync::Arc;

use crate::base::clock::Moment;
use crate::protocol::Arg;

/// A hold that its owner passed on, until the next owner takes it. Dropping it releases the hold.
pub(crate) struct Seat {
    tenure: Tenure,
    /// `None`: it was taken.
    former: Option<Arc<dyn Former>>,
}

/// What the next owner needs to know about the hold.
#[derive(Clone)]
pub(crate) struct Tenure {
    /// The owner id that the server knows, and the number of its grant. Both stay.
    pub(crate) id: Arg,
    pub(crate) number: u64,
    /// When the server granted the hold.
    pub(crate) since: Moment,
    /// Until when it can be relied on.
    pub(crate) until: Moment,
    /// When its lease is to be renewed.
    pub(crate) renew_at: Option<Moment>,
    /// The longest lease that was asked for, in milliseconds.
    pub(crate) lease_ms: u64,
    /// How many switches to another master there had been when the server granted the hold.
    pub(crate) switches: u64,
}

/// The grant of the owner that passed its hold on. It owes the release until the next owner has the hold.
pub(crate) trait Former: Send + Sync {
    /// The next owner has the hold.
    fn is_succeeded(&self);

    /// Nobody took the hold: it is released in the background.
    fn take_back(self: Arc<Self>);
}

impl Seat {
    pub(crate) fn new(tenure: Tenure, former: Arc<dyn Former>) -> Self {
        Self { tenure, former: Some(former) }
    }

    pub(crate) const fn until(&self) -> Moment {
        self.tenure.until
    }

    /// Takes the hold. From here on the caller owes its release.
    pub(crate) fn take(mut self) -> Tenure {
        if let Some(former) = self.former.take() {
            former.is_succeeded();
        }
        self.tenure.clone()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(former) = self.former.take() {
            former.take_back();
        }
    }
}

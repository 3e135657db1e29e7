//! What a wait queue knows for handing holds over.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::engine::grant::offer::Offer;

/// After a release for other clients, the waiters here do not attempt for this time. Otherwise the client that releases mostly wins,
/// because it needs no message.
pub(crate) const COURTESY: Duration = Duration::from_millis(1);

/// The same while the release is under way: a message can be faster than the reply.
const COURTESY_BEFORE_REPLY: Duration = Duration::from_millis(10);

/// A waiter in front that was woken so long ago and did nothing is perhaps a future that nobody polls.
pub(crate) const IDLE: Duration = Duration::from_millis(10);

/// Whom the message about a release reached.
#[derive(Clone, Copy)]
pub(crate) enum Told {
    /// So many connections, perhaps that of this client among them.
    Exactly(u32),
    PerhapsOthers,
}

impl Told {
    /// `own`: the connections of this client that listen.
    pub(crate) const fn reached_others(self, own: u32) -> bool {
        match self {
            Self::Exactly(told) => told > own,
            Self::PerhapsOthers => true,
        }
    }
}

/// What one wait queue knows for handing holds over.
#[derive(Default)]
pub(crate) struct Line {
    /// A hold of this client: for the waiter in front to take, or for the readers here to join.
    pub(crate) offer: Option<Offer>,
    /// Counts the offers that were put here.
    pub(crate) offers: u64,
    /// A message came, or perhaps one was missed, since a waiter here last attempted: perhaps the hold of this client was removed.
    pub(crate) is_disturbed: bool,
    /// Waiters that cannot take a hold of another owner. The order is first come, first served, so while there is one, nothing is handed over.
    pub(crate) unable: usize,
    /// A job takes back what nobody takes.
    pub(crate) is_watched: bool,
    /// The message about the last release reached other clients.
    pub(crate) others_wait: bool,
    /// When the server last granted the lock to a waiter here. Holds of an earlier grant are gone.
    pub(crate) granted_at: Option<Moment>,
    /// Until then, other clients come first.
    yields_until: Option<Moment>,
}

impl Line {
    /// For how long holds are passed on here.
    pub(crate) fn pass_time(&self, most: Duration) -> Duration {
        if self.others_wait { most * 2 / 5 } else { most }
    }

    /// The lock is about to be released on the server.
    pub(crate) fn releases(&mut self, now: Moment) {
        self.yields_until = self.others_wait.then(|| now.plus(COURTESY_BEFORE_REPLY));
    }

    /// The release ended. `None`: it released nothing, or that is not certain.
    pub(crate) fn release_ended(&mut self, others_wait: Option<bool>, now: Moment) {
        self.others_wait = others_wait.unwrap_or(self.others_wait);
        self.yields_until = (others_wait == Some(true)).then(|| now.plus(COURTESY));
    }

    /// How long other clients still come first.
    pub(crate) fn yields(&self, now: Moment) -> Duration {
        self.yields_until.map_or(Duration::ZERO, |until| until.since(now))
    }
}

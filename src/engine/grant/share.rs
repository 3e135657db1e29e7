//! A read hold that several readers of one client share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::sync::lock;
use crate::engine::grant::seat::Tenure;

/// The newest shared read hold of each lock, by the key of the lock.
#[derive(Default)]
pub(crate) struct Shares(Mutex<HashMap<Arc<str>, Weak<Share>>>);

/// A read hold that several readers share. The last one that leaves releases it.
pub(crate) struct Share {
    tenure: Tenure,
    lock: Arc<str>,
    shares: Arc<Shares>,
    sharers: Mutex<Sharers>,
}

struct Sharers {
    count: usize,
    /// Nobody joins any more.
    is_closed: bool,
    /// The server does not have the hold any more.
    is_lost: bool,
}

/// What a reader leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nobody: it has to release the hold.
    Last,
    Others,
    /// Others, and the hold is lost.
    Lost,
}

impl Shares {
    /// Lets others join a hold that one reader has.
    pub(crate) fn open(self: &Arc<Self>, lock_key: &Arc<str>, tenure: Tenure) -> Arc<Share> {
        let share = Arc::new(Share {
            tenure,
            lock: Arc::clone(lock_key),
            shares: Arc::clone(self),
            sharers: Mutex::new(Sharers { count: 1, is_closed: false, is_lost: false }),
        });
        let _before = lock(&self.0).insert(Arc::clone(lock_key), Arc::downgrade(&share));
        share
    }

    /// Nobody joins the hold of a lock any more.
    pub(crate) fn close(&self, lock_key: &str) {
        // In a statement of its own, as in `join`.
        let share = lock(&self.0).get(lock_key).and_then(Weak::upgrade);
        if let Some(share) = share {
            share.close();
        }
    }

    /// Joins the hold of a lock, if it is younger than `most` and lasts for `least`.
    pub(crate) fn join(
        &self,
        lock_key: &str,
        most: Duration,
        least: Duration,
        now: Moment,
        is_allowed: impl FnOnce(&Tenure) -> bool,
    ) -> Option<Arc<Share>> {
        // In a statement of its own: dropping a share locks the map.
        let share = lock(&self.0).get(lock_key).and_then(Weak::upgrade)?;
        let Tenure { since, until, .. } = share.tenure;
        let is_fit = now.since(since) < most && until.since(now) >= least && is_allowed(&share.tenure);
        (is_fit && share.enter()).then_some(share)
    }
}

impl Share {
    pub(crate) const fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    fn enter(&self) -> bool {
        let mut sharers = lock(&self.sharers);
        let is_open = sharers.count > 0 && !sharers.is_closed;
        sharers.count += usize::from(is_open);
        is_open
    }

    /// A reader leaves.
    pub(crate) fn leave(&self) -> Left {
        let mut sharers = lock(&self.sharers);
        sharers.count -= 1;
        match *sharers {
            Sharers { count: 0, .. } => Left::Last,
            Sharers { is_lost: true, .. } => Left::Lost,
            _ => Left::Others,
        }
    }

    /// Nobody joins from here on.
    pub(crate) fn close(&self) {
        lock(&self.sharers).is_closed = true;
    }

    /// The server does not have the hold any more.
    pub(crate) fn lose(&self) {
        let mut sharers = lock(&self.sharers);
        sharers.is_closed = true;
        sharers.is_lost = true;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = lock(&self.shares.0);
        if shares.get(&self.lock).is_some_and(|newest| newest.strong_count() == 0) {
            shares.remove(&self.lock);
        }
    }
}

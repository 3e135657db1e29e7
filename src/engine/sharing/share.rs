//! A read hold that several readers of one client share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::seat::Tenure;
use crate::clock::Moment;
use crate::sync::lock;

/// The newest shared read hold of each lock, by the key of the lock.
#[derive(Default)]
pub(in crate::engine) struct Shares(Mutex<HashMap<Arc<str>, Weak<Share>>>);

/// A read hold that several readers share. The last one that leaves releases it.
pub(in crate::engine) struct Share {
    tenure: Tenure,
    lock: Arc<str>,
    shares: Arc<Shares>,
    sharers: Mutex<Sharers>,
}

struct Sharers {
    count: usize,
    /// The server does not have the hold any more.
    is_closed: bool,
}

impl Shares {
    /// Lets others join a hold that one reader has.
    pub(in crate::engine) fn open(self: &Arc<Self>, lock_key: &Arc<str>, tenure: Tenure) -> Arc<Share> {
        let share = Arc::new(Share {
            tenure,
            lock: Arc::clone(lock_key),
            shares: Arc::clone(self),
            sharers: Mutex::new(Sharers { count: 1, is_closed: false }),
        });
        let _before = lock(&self.0).insert(Arc::clone(lock_key), Arc::downgrade(&share));
        share
    }

    /// Joins the hold of a lock, if it is younger than `most` and lasts for `least`.
    pub(in crate::engine) fn join(
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
    pub(in crate::engine) const fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    fn enter(&self) -> bool {
        let mut sharers = lock(&self.sharers);
        let is_open = sharers.count > 0 && !sharers.is_closed;
        sharers.count += usize::from(is_open);
        is_open
    }

    /// A reader leaves. True: it was the last one, and has to release the hold.
    pub(in crate::engine) fn leave(&self) -> bool {
        let mut sharers = lock(&self.sharers);
        sharers.count -= 1;
        sharers.count == 0
    }

    /// Nobody joins from here on: the server does not have the hold any more.
    pub(in crate::engine) fn close(&self) {
        lock(&self.sharers).is_closed = true;
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

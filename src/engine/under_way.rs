//! What the futures of callers have under way: acquires, or releases of guards. A shutdown waits until they have ended. Before that, it does
//! not know everything that has to be undone.

use std::sync::{Arc, Mutex};

use slab::Slab;
use tokio::sync::Notify;

use crate::base::sync::{lock, nothing_is_locked, until};

pub(crate) struct UnderWay<T> {
    list: Mutex<List<T>>,
    all_ended: Notify,
}

struct List<T> {
    pending: Slab<Arc<T>>,
    /// A shutdown waits until the list is empty.
    is_awaited: bool,
}

impl<T> Default for UnderWay<T> {
    fn default() -> Self {
        let list = List { pending: Slab::new(), is_awaited: false };
        Self { list: Mutex::new(list), all_ended: Notify::new() }
    }
}

impl<T: Send + Sync> UnderWay<T> {
    /// Adds a grant whose acquire or release begins. Returns the key with which it is removed.
    ///
    /// Add first, and then check whether the client is closing. A shutdown first closes, and then looks at the list. So
    /// at least one of the two sees the other.
    pub(crate) fn add(&self, pending: Arc<T>) -> usize {
        lock(&self.list).pending.insert(pending)
    }

    /// As [`add`](Self::add), until it is dropped. `None`: there are as many already.
    pub(crate) fn add_at_most(&self, most: usize, pending: &Arc<T>) -> Option<Enlisted<'_, T>> {
        let mut list = lock(&self.list);
        let key = (list.pending.len() < most).then(|| list.pending.insert(Arc::clone(pending)))?;
        Some(Enlisted { of: self, key })
    }

    /// Removes what has ended.
    pub(crate) fn remove(&self, key: usize) {
        let mut list = lock(&self.list);
        let removed = list.pending.remove(key);
        let wakes = list.is_awaited && list.pending.is_empty();
        drop(list);
        drop(removed); // with the list unlocked: the drop of a grant locks the map of read grants
        if wakes {
            nothing_is_locked();
            self.all_ended.notify_waiters();
        }
    }

    /// Waits until the list is empty.
    pub(crate) async fn all_ended(&self) {
        lock(&self.list).is_awaited = true;
        until(&self.all_ended, || lock(&self.list).pending.is_empty()).await;
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        lock(&self.list).pending.iter().map(|(_, pending)| Arc::clone(pending)).collect()
    }
}

/// What is under way until this is dropped.
pub(crate) struct Enlisted<'a, T: Send + Sync> {
    of: &'a UnderWay<T>,
    key: usize,
}

impl<T: Send + Sync> Drop for Enlisted<'_, T> {
    fn drop(&mut self) {
        self.of.remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_added_than_wanted() {
        let list = UnderWay::default();
        let one = Arc::new(());
        let [first, second, third] = [(); 3].map(|()| list.add_at_most(2, &one));
        assert!(second.is_some() && third.is_none());
        drop(first);
        assert!(list.add_at_most(2, &one).is_some());
    }
}

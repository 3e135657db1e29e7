//! Of which holds the server tells that somebody changed their key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use crate::base::sync::lock;

/// What is tracked, by the key. Several holds of a client can have one key, such as permits of a semaphore.
pub(crate) struct Tracked<T>(Mutex<HashMap<Arc<str>, Vec<Weak<T>>>>);

impl<T> Default for Tracked<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Tracked<T> {
    pub(crate) fn add(&self, key: Arc<str>, item: &Arc<T>) {
        lock(&self.0).entry(key).or_default().push(Arc::downgrade(item));
    }

    pub(crate) fn remove(&self, key: &str, item: &Arc<T>) {
        let mut all = lock(&self.0);
        let Some(of_key) = all.get_mut(key) else { return };
        of_key.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(item)));
        if of_key.is_empty() {
            all.remove(key);
        }
    }

    pub(crate) fn of(&self, key: &str) -> Vec<Arc<T>> {
        lock(&self.0).get(key).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Returns everything, in the order of the keys.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let mut all: Vec<_> =
            lock(&self.0).iter().map(|(key, items)| (Arc::clone(key), items.clone())).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        all.iter().flat_map(|(_, items)| items.iter().filter_map(Weak::upgrade)).collect()
    }
}

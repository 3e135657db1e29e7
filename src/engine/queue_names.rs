//! The locks that use a queue on the server.
//!
//! Redisson derives the same queue from the names `x` and `{x}`. Two such locks would share one order, and each would delay the
//! other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use crate::base::sync::lock;

/// The queues that the fair locks of one client use.
#[derive(Default)]
pub(crate) struct QueueNames(Mutex<HashMap<Arc<str>, User>>);

/// The lock that uses a queue, and the number of its handles.
type User = (Arc<str>, usize);

impl QueueNames {
    /// Uses a queue for a lock, until [`leave`](Self::leave). If another lock already uses the queue, returns that lock.
    pub(crate) fn join(&self, queue: &Arc<str>, name: &Arc<str>) -> Option<Arc<str>> {
        let mut names = lock(&self.0);
        let (user, count) = names.entry(Arc::clone(queue)).or_insert_with(|| (Arc::clone(name), 0));
        if user != name {
            return Some(Arc::clone(user));
        }
        *count += 1;
        None
    }

    pub(crate) fn leave(&self, queue: &Arc<str>) {
        if let Entry::Occupied(mut found) = lock(&self.0).entry(Arc::clone(queue)) {
            found.get_mut().1 -= 1;
            if found.get().1 == 0 {
                found.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_belongs_to_the_first_lock_that_uses_it() {
        let names = QueueNames::default();
        let [queue, one, other] = ["queue:{x}", "x", "{x}"].map(Arc::<str>::from);
        assert_eq!((names.join(&queue, &one), names.join(&queue, &one)), (None, None));
        assert_eq!(names.join(&queue, &other), Some(Arc::clone(&one)));
        names.leave(&queue);
        assert_eq!(names.join(&queue, &other), Some(one));
        names.leave(&queue);
        assert_eq!(names.join(&queue, &other), None);
    }
}

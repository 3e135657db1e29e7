//! What one client remembers by the names of locks: the queues that its fair locks use, and the numbers of permits that
//! it has warned of.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use crate::base::sync::lock;

/// The queues that the fair locks of one client use on the server.
///
/// Redisson derives the same queue from the names `x` and `{x}`. Two such locks would share one order, and each would
/// delay the other.
#[derive(Default)]
pub(crate) struct QueueNames(Mutex<HashMap<Arc<str>, User>>);

/// The lock that uses a queue, and the number of its handles.
type User = (Arc<str>, usize);

impl QueueNames {
    /// Uses a queue for a lock, until [`leave`](Self::leave). If another lock already uses the queue, returns that
    /// lock.
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

/// The most semaphores that are remembered. After that the list begins anew, and a difference is reported again.
const MOST: usize = 1_000;

/// The numbers that were reported last, by the key of the semaphore.
#[derive(Default)]
pub(crate) struct ReportedTotals(Mutex<HashMap<Arc<str>, u32>>);

impl ReportedTotals {
    /// Whether this number is not the one that was reported last, so that it has to be reported.
    pub(crate) fn is_new(&self, semaphore: &Arc<str>, found: u32) -> bool {
        let mut reported = lock(&self.0);
        if reported.get(semaphore) == Some(&found) {
            return false;
        }
        if reported.len() == MOST {
            reported.clear();
        }
        reported.insert(Arc::clone(semaphore), found);
        true
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

    #[test]
    fn a_number_is_reported_once_for_each_semaphore_until_it_changes() {
        let (reported, [a, b]) = (ReportedTotals::default(), ["a", "b"].map(Arc::from));
        let news = [(&a, 5), (&a, 5), (&b, 5), (&b, 5), (&a, 6), (&a, 5), (&a, 5)];
        let news = news.map(|(semaphore, found)| reported.is_new(semaphore, found));
        assert_eq!(news, [true, false, true, false, true, true, false]);
        for number in 0..2 * MOST {
            assert!(reported.is_new(&number.to_string().into(), 1));
        }
        assert!(lock(&reported.0).len() <= MOST);
    }
}

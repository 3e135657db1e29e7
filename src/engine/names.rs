//! What one client remembers by the names of semaphores: the numbers of permits that it has warned of.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::base::sync::lock;

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

//! The releases that the master confirmed last, in case another server becomes the master and lacks them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use crate::base::clock::{self, Moment};
use crate::base::sync::lock;
use crate::protocol::Call;
use crate::store::{Route, Store};

/// A release that is older than this when another one is confirmed has reached the replicas, and is forgotten.
const RECENT: Duration = Duration::from_secs(5);

/// The most releases that are kept. Each takes about 300 bytes.
const MOST: usize = 10_000;

/// The full releases that the master confirmed last. `None`: no other server can become the master.
pub(crate) struct RecentReleases(Option<Mutex<Recent<Release>>>);

/// A release to the count zero.
pub(crate) type Release = (Route, Call);

/// The last values, and when each came.
type Recent<T> = VecDeque<(Moment, T)>;

impl RecentReleases {
    pub(crate) fn new(store: &Store) -> Self {
        Self(store.can_switch().then(Mutex::default))
    }

    /// Keeps a release that the master confirmed.
    pub(crate) fn keep(&self, route: Route, call: Call) {
        if let Some(recent) = &self.0 {
            push(&mut lock(recent), clock::now(), (route, call));
        }
    }

    pub(crate) fn take(&self) -> Vec<Release> {
        let taken = self.0.as_ref().map(|recent| std::mem::take(&mut *lock(recent)));
        taken.into_iter().flatten().map(|(_, release)| release).collect()
    }
}

fn push<T>(values: &mut Recent<T>, now: Moment, value: T) {
    while values.len() >= MOST || values.front().is_some_and(|(at, _)| now.since(*at) > RECENT) {
        values.pop_front();
    }
    values.push_back((now, value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_a_limit() {
        let (mut recent, now) = (Recent::new(), clock::now());
        (0..=MOST).for_each(|number| push(&mut recent, now, number));
        assert_eq!((recent.len(), recent[0].1), (MOST, 1));
        push(&mut recent, now.plus(RECENT), 0);
        assert_eq!(recent.len(), MOST, "an outage does not age them: only another release does");
        push(&mut recent, now.plus(RECENT * 2), 0);
        assert_eq!(recent.len(), 2);
    }
}

//! Every key and channel that follows from a lock's name, to the byte as Redisson derives them.
//!
//! A lock's main key is its name itself. What belongs to it carries the name as a hash tag, so that Redis Cluster
//! keeps both in one slot. A name that contains `{` is taken to bring a tag of its own.

use std::sync::Arc;

use smallvec::SmallVec;

/// What Redis is told about a lock: derived from its name once for a handle, and not for each command.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The lock's own: its name as it is.
    pub(crate) lock: Arc<str>,
    /// The channel that is told when the lock becomes free, or, with a queue, what those of all its waiters begin with.
    pub(crate) channel: Arc<str>,
    /// Those that only this type of lock has, in an order of its own.
    pub(crate) more: SmallVec<[Arc<str>; 1]>,
}

impl Keys {
    pub(crate) fn new(
        lock: Arc<str>,
        channel: fn(&str) -> Arc<str>,
        more: impl IntoIterator<Item = fn(&str) -> Arc<str>>,
    ) -> Self {
        let (channel, more) = (channel(&lock), more.into_iter().map(|key| key(&lock)).collect());
        Self { lock, channel, more }
    }
}

/// Where the waiters of an [`RLock`](crate::RLock) listen, as those of a fenced lock do.
pub(crate) fn lock_channel(name: &str) -> Arc<str> {
    prefixed("redisson_lock__channel", name)
}

/// Where the waiters of a read-write lock listen, readers and writers.
pub(crate) fn read_write_channel(name: &str) -> Arc<str> {
    prefixed("redisson_rwlock", name)
}

/// The queue of a fair lock: a list of owners.
pub(crate) fn fair_queue(name: &str) -> Arc<str> {
    prefixed("redisson_lock_queue", name)
}

/// Until when Java takes those in the queue for alive: a sorted set.
pub(crate) fn fair_scores(name: &str) -> Arc<str> {
    prefixed("redisson_lock_timeout", name)
}

/// The places in the queue that are not Java's: a hash that Redisson does not know.
pub(crate) fn fair_places(name: &str) -> Arc<str> {
    prefixed("lockkeeper_fair", name)
}

/// The last token of a fenced lock: a number.
pub(crate) fn fencing_counter(name: &str) -> Arc<str> {
    prefixed("redisson_lock_token", name)
}

fn prefixed(prefix: &str, name: &str) -> Arc<str> {
    if name.contains('{') { [prefix, ":", name].concat() } else { [prefix, ":{", name, "}"].concat() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_redissons() {
        for (name, channel) in [
            ("myLock", "redisson_lock__channel:{myLock}"),
            ("{grp}:a", "redisson_lock__channel:{grp}:a"),
            ("a{b", "redisson_lock__channel:a{b"),
            ("a}b", "redisson_lock__channel:{a}b}"),
        ] {
            assert_eq!(&*lock_channel(name), channel);
        }
    }
}

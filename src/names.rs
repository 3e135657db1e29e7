//! Every key and channel that follows from a lock's name, to the byte as Redisson derives them.
//!
//! A lock's main key is its name itself. What belongs to it carries the name as a hash tag, so that Redis Cluster
//! keeps both in one slot. A name that contains `{` is taken to bring a tag of its own.

use std::sync::Arc;

/// Where the waiters of an [`RLock`](crate::RLock) listen, as those of a fenced lock do.
pub(crate) fn lock_channel(name: &str) -> Arc<str> {
    prefixed("redisson_lock__channel", name)
}

fn prefixed(prefix: &str, name: &str) -> Arc<str> {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }.into()
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

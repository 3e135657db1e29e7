//! The keys and channels of a lock. They follow from its name, byte for byte as Redisson derives them.
//!
//! The main key is the name itself. Every other key and channel contains the name as a hash tag, so that Redis Cluster keeps
//! them in one slot. A name that contains `{` brings its own tag.

use std::sync::Arc;

use smallvec::SmallVec;

use super::slot::hashed_part;

/// The end of the key of a writer's intent: a string that Redisson does not know. No lock may have a name with this end, because a grant
/// of a write lock deletes such a key.
const INTENT: &str = "lockkeeper_intent";

/// The channel of an RLock, a fair lock or a fenced lock.
pub(super) const CHANNEL: &str = "redisson_lock__channel";
/// The channel of a read-write lock, for readers and writers.
pub(super) const READ_WRITE_CHANNEL: &str = "redisson_rwlock";
/// The channel of a semaphore.
pub(super) const SEMAPHORE_CHANNEL: &str = "redisson_sc";

/// The queue of a fair lock: a list of owners. The time until which Java considers each waiter alive: a sorted set. The records of waiters
/// that are not Java's: a hash that Redisson does not know. And the order of these waiters: a sorted set that Redisson does not know.
pub(super) const FAIR: [&str; 4] =
    ["redisson_lock_queue", "redisson_lock_timeout", "lockkeeper_fair", "lockkeeper_fair_tickets"];
/// The last token of a fenced lock: a number.
pub(super) const COUNTER: &str = "redisson_lock_token";
/// The last token of a group of claims: a number. Not that of a fenced lock, because Java would read it.
pub(super) const CLAIMS: &str = "lockkeeper_claims";

/// The message of a release.
pub(crate) const RELEASED: &str = "0";

/// The keys and channels of one lock, derived once for each handle.
#[derive(Clone, Debug)]
pub(crate) struct LockKeys {
    /// The main key: the name of the lock.
    pub(crate) lock: Arc<str>,
    /// The channel of release messages. With a queue on the server, the prefix of each waiter's channel.
    pub(crate) channel: Arc<str>,
    /// The keys that only this type of lock has, in an order that its protocol defines.
    pub(crate) more: SmallVec<[Arc<str>; 1]>,
}

impl LockKeys {
    /// The channel and the further keys have these names in front.
    pub(crate) fn new(lock: Arc<str>, channel: &str, more: &[&str]) -> Self {
        let more = more.iter().map(|prefix| prefixed(prefix, &lock)).collect();
        Self { channel: prefixed(channel, &lock), more, lock }
    }

    /// The keys of a lock in the group of claims that has these keys.
    pub(crate) fn in_group(&self, name: &str) -> Self {
        let lock: Arc<str> = [&self.lock, ":", name].concat().into();
        Self { channel: prefixed(CHANNEL, &lock), lock, more: self.more.clone() }
    }

    /// Whether the main key can be the intent of a writer for another lock.
    pub(crate) fn can_be_intent(&self) -> bool {
        self.lock.ends_with(INTENT)
    }

    /// Whether a cluster keeps all keys and channels of the lock in one slot. It does not if braces in the name are not a hash
    /// tag, as in `a{b`, `a}b`, `a{}b`, `{}x` and `}{`.
    ///
    /// Keys of read holds, and channels of waiters, begin like the keys here, up to the end of the tag.
    pub(crate) fn are_in_one_slot(&self) -> bool {
        let tag = hashed_part(&self.lock);
        self.more.iter().chain([&self.channel]).all(|key| hashed_part(key) == tag)
    }
}

/// What the holder of a lock announces, and the channel with that name: a string that Redisson does not know.
pub(crate) fn announcement_key(name: &str) -> Arc<str> {
    prefixed("lockkeeper_announcement", name)
}

/// A key of one hold of a reader: a string.
pub(super) fn read_hold(name: &str, owner: &str, number: u32) -> Arc<str> {
    suffixed(name, &format!("{owner}:rwlock_timeout:{number}"))
}

/// The intent of a writer that readers kept waiting: a string that Redisson does not know.
pub(super) fn writer_intent(name: &str) -> Arc<str> {
    suffixed(name, INTENT)
}

/// The permits of a semaphore that are in use, and the ends of their leases: a sorted set.
pub(super) fn permits(name: &str) -> Arc<str> {
    suffixed(name, "timeout")
}

/// What a client tells of its holds and waits: a string that Redisson does not know. With the `name_prefix` of the client in front of its id,
/// a rule of the server can keep services apart.
pub(crate) fn client_key(name_prefix: &str, client: &str) -> Arc<str> {
    ["lockkeeper_client:", name_prefix, client].concat().into()
}

/// The keys of the self-test. They are in one slot, unless braces in the prefix are no hash tag. They look like keys of
/// clients, so a user that may write those may also use them. No client has such an id, so no client creates these
/// keys.
pub(crate) fn self_test_keys(name_prefix: &str) -> [Arc<str>; 2] {
    ["{lockkeeper:self-test}", "{lockkeeper:self-test}:other"].map(|client| client_key(name_prefix, client))
}

fn suffixed(name: &str, suffix: &str) -> Arc<str> {
    if name.contains('{') { [name, ":", suffix].concat() } else { ["{", name, "}:", suffix].concat() }.into()
}

fn prefixed(prefix: &str, name: &str) -> Arc<str> {
    if name.contains('{') { [prefix, ":", name].concat() } else { [prefix, ":{", name, "}"].concat() }.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::{Claim, Fair, Fenced, Protocol, Read, Reentrant, Semaphore, Write};

    #[test]
    fn channels_equal_redissons() {
        for (name, channel) in [
            ("myLock", "redisson_lock__channel:{myLock}"),
            ("{grp}:a", "redisson_lock__channel:{grp}:a"),
            ("a{b", "redisson_lock__channel:a{b"),
            ("a}b", "redisson_lock__channel:{a}b}"),
        ] {
            assert_eq!(&*prefixed(CHANNEL, name), channel);
        }
    }

    /// All keys and channels of a lock of any type with this name, without the main key.
    fn derived(name: &str) -> Vec<Arc<str>> {
        const OWNER: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:77";
        let protocols: [&dyn Protocol; 6] = [&Reentrant, &Fair, &Fenced, &Read, &Write, &Semaphore];
        let channel = format!("{}:{OWNER}", prefixed(CHANNEL, name)).into();
        let mut all = vec![read_hold(name, OWNER, 1), writer_intent(name), announcement_key(name), channel];
        for keys in protocols.map(|protocol| protocol.keys(name.into())) {
            all.push(keys.channel);
            all.extend(keys.more);
        }
        all
    }

    /// Whether a lock of each type with this name is in one slot. All types have to agree.
    fn is_in_one_slot(name: &str) -> bool {
        let protocols: [&dyn Protocol; 6] = [&Reentrant, &Fair, &Fenced, &Read, &Write, &Semaphore];
        let answers = protocols.map(|protocol| protocol.keys(name.into()).are_in_one_slot());
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{name}: {answers:?}");
        answers[0]
    }

    #[test]
    fn names_whose_braces_are_no_tag_are_not_in_one_slot() {
        for name in ["a{b", "a}b", "a{}b", "{}x", "}{", "{", "}", "{}", "a{", "}a", "shop:a}b", "x{}{a}"] {
            assert!(!is_in_one_slot(name), "{name}");
        }
        for name in
            ["a", "a b", "ключ", "{g}:a", "a:{g}", "{g}", "a{b}c", "a{b}{}", "}{a}", "{{a}}", "shop:{g}"]
        {
            assert!(is_in_one_slot(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_group_of_claims_is_in_one_slot(prefix in "[{}a-c:]{0,5}", group in "[a-c:]{1,5}", names: [String; 2]) {
            let group = Claim.keys(format!("{prefix}{{{group}}}").into());
            let locks = names.map(|name| group.in_group(&name));
            for lock in &locks {
                prop_assert_eq!(lock.are_in_one_slot(), group.are_in_one_slot(), "{:?}", lock);
            }
            if group.are_in_one_slot() {
                prop_assert_eq!(hashed_part(&locks[0].lock), hashed_part(&locks[1].lock));
            }
        }

        #[test]
        fn a_lock_in_one_slot_has_all_of_its_keys_there(name in "[{}a-c:]{1,9}") {
            // Two different hash tags can have the same slot by chance, so the tags are compared and not the slots.
            let all_equal = derived(&name).iter().all(|key| hashed_part(key) == hashed_part(&name));
            prop_assert_eq!(is_in_one_slot(&name), all_equal, "{:?}", derived(&name));
        }
    }

    #[test]
    fn keys_of_read_holds_equal_redissons() {
        assert_eq!(&*read_hold("a", "x:1", 2), "{a}:x:1:rwlock_timeout:2");
        assert_eq!(&*read_hold("{g}:a", "x:1", 1), "{g}:a:x:1:rwlock_timeout:1");
        assert_eq!(&*writer_intent("a"), "{a}:lockkeeper_intent");
        assert_eq!(&*writer_intent("{g}:a"), "{g}:a:lockkeeper_intent");
    }
}

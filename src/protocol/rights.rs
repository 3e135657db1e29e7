//! The rights that a user of the server needs, for each type of lock. A test compares them with the scripts.

use std::sync::Arc;

use super::keys::{LockKeys, announcement_key, read_hold, writer_intent};

/// A key or a channel, and the commands on it.
pub(crate) type Right = (Arc<str>, &'static str);

/// Stands for any owner: rights are granted by patterns of keys, and these patterns do not distinguish owners.
const OWNER: &str = "00000000-0000-0000-0000-000000000000:0";

const CHANNEL: &str = "publish subscribe unsubscribe";

/// The commands on a channel in a cluster whose messages are sharded.
const SHARDED_CHANNEL: &str = "spublish ssubscribe sunsubscribe";

/// The channel is among the keys of a script, so the server also checks the user's right to a key with this name.
const CHANNEL_AS_KEY: &str = "exists";

const LOCK: &str = "exists hdel hexists hget hrandfield hscan hset persist pexpire pttl time";

/// The rights for a lock that one owner holds alone.
pub(super) fn exclusive(keys: &LockKeys) -> Vec<Right> {
    vec![(Arc::clone(&keys.lock), LOCK), (Arc::clone(&keys.channel), CHANNEL)]
}

/// The rights for a fair lock with these keys of its queue.
pub(super) fn fair(keys: &LockKeys, [queue, scores, records, tickets]: &[Arc<str>; 4]) -> Vec<Right> {
    vec![
        (Arc::clone(&keys.lock), LOCK),
        (Arc::clone(queue), "exists lindex llen lpop lpush lrange lrem persist pexpire rpush"),
        (Arc::clone(scores), "persist pexpire zadd zcard zrem zscore"),
        (Arc::clone(records), "hdel hget hlen hmget hset pexpire"),
        (Arc::clone(tickets), "exists pexpire zadd zcard zrange zrank zrem zscore"),
        (format!("{}:{OWNER}", keys.channel).into(), CHANNEL),
        (Arc::clone(&keys.channel), CHANNEL_AS_KEY),
    ]
}

/// The rights for a fenced lock with this counter.
pub(super) fn fenced(keys: &LockKeys, counter: &Arc<str>) -> Vec<Right> {
    let mut rights = exclusive(keys);
    rights.push((Arc::clone(counter), "get incr set"));
    rights
}

/// The rights for a group of claims with these keys and this counter: those for its locks, whatever their names are.
pub(super) fn claims(group: &LockKeys, counter: &Arc<str>) -> Vec<Right> {
    fenced(&group.in_group("0"), counter)
}

/// The rights for both sides of a read-write lock.
pub(super) fn read_write(keys: &LockKeys) -> Vec<Right> {
    const LOCK: &str =
        "del exists hdel hexists hget hgetall hlen hrandfield hscan hset persist pexpire pttl time";
    vec![
        (Arc::clone(&keys.lock), LOCK),
        (read_hold(&keys.lock, OWNER, 1), "del get pexpire pttl set"),
        (writer_intent(&keys.lock), "del exists get pexpire pttl set"),
        (Arc::clone(&keys.channel), CHANNEL),
        (Arc::clone(&keys.channel), CHANNEL_AS_KEY),
    ]
}

/// The rights for a semaphore with this sorted set of its permits.
pub(super) fn semaphore(keys: &LockKeys, permits: &Arc<str>) -> Vec<Right> {
    vec![
        (Arc::clone(&keys.lock), "del exists get incrby pttl set time"),
        (Arc::clone(permits), "del pexpire zadd zcard zrange zrem zscore"),
        (Arc::clone(&keys.channel), CHANNEL),
    ]
}

/// The rights for what the holder of this lock announces. The channel has the name of the key.
pub(crate) fn announcements(lock: &Arc<str>) -> Vec<Right> {
    let name = announcement_key(lock);
    vec![(Arc::clone(&name), "del get set"), (name, CHANNEL)]
}

/// The same rights in a cluster whose messages are sharded.
pub(crate) fn sharded(rights: Vec<Right>) -> Vec<Right> {
    let sharded = |commands| if commands == CHANNEL { SHARDED_CHANNEL } else { commands };
    rights.into_iter().map(|(name, commands)| (name, sharded(commands))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use lockkeeper_testkit::lua;

    use super::*;
    use crate::protocol::{Claim, Fair, Fenced, Protocol, Read, Semaphore, Write};

    /// The commands that scripts run, by the name of the key in the script. A command without a key counts for the lock. Each
    /// script is named by its file, or by its folder.
    fn run(scripts: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
        let mut files = lua::files();
        files.retain(|file| scripts.iter().any(|script| file.starts_with(script)));
        let mut found = BTreeMap::<String, BTreeSet<String>>::new();
        for file in files {
            let text = lua::source(&file);
            for call in text.split("call('").skip(1) {
                let (command, rest) = call.split_once('\'').expect("a name of a command");
                if command == "pubsub" {
                    continue; // a lock works without the right to ask who listens
                }
                let key = rest.strip_prefix(", ").unwrap_or("lock");
                let key = key.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                let key = if key == "first_key" { "hold_key" } else { key };
                found.entry(key.to_owned()).or_default().insert(command.to_owned());
            }
        }
        found
    }

    /// The commands that are granted, by the name of the key in the scripts.
    fn granted(rights: Vec<Right>, names: &[(&str, &str)]) -> BTreeMap<String, BTreeSet<String>> {
        let mut found = BTreeMap::<String, BTreeSet<String>>::new();
        for (key, commands) in rights {
            let name =
                names.iter().find(|(_, prefix)| key.starts_with(prefix)).expect("a key of this lock").0;
            let commands = if name == "channel" { "publish" } else { commands };
            let commands = commands.split(' ');
            found.entry(name.to_owned()).or_default().extend(commands.map(str::to_owned));
        }
        found
    }

    #[test]
    fn a_cluster_with_sharded_messages_needs_the_rights_to_them_instead() {
        let plain = Fair.rights(&Fair.keys("a".into()));
        let sharded = sharded(plain.clone());
        let changed: Vec<_> =
            plain.iter().zip(&sharded).filter(|(plain, sharded)| plain != sharded).collect();
        let channel = format!("redisson_lock__channel:{{a}}:{OWNER}");
        let ((from, commands), (to, instead)) = changed[0];
        assert_eq!((&**from, &**to, changed.len()), (&*channel, &*channel, 1));
        assert_eq!((*commands, *instead), (CHANNEL, SHARDED_CHANNEL));
    }

    /// Leaves out the command `TYPE`. Without the right to `TYPE`, `inspect` works, but does not name the type of a key
    /// that is no lock.
    fn forget_type(run_by_scripts: &mut BTreeMap<String, BTreeSet<String>>) {
        assert!(run_by_scripts.get_mut("lock").is_some_and(|commands| commands.remove("type")));
    }

    #[test]
    fn rights_cover_exactly_what_the_scripts_run() {
        let rights = |protocol: &dyn Protocol| protocol.rights(&protocol.keys("a".into()));
        let both = |one: &dyn Protocol, other: &dyn Protocol| [rights(one), rights(other)].concat();

        let names = [
            ("queue", "redisson_lock_queue"),
            ("scores", "redisson_lock_timeout"),
            ("tickets", "lockkeeper_fair_tickets"),
            ("records", "lockkeeper_fair"),
            ("counter", "redisson_lock_token"),
            ("channel", "redisson_lock__channel"),
            ("lock", "a"),
        ];
        let mut run_by_scripts = run(&["rlock/", "fair/", "fenced/", "inspect.lua"]);
        // `inspect` looks at the keys of read holds only if the lock is a read-write lock.
        run_by_scripts.remove("hold_key");
        forget_type(&mut run_by_scripts);
        assert_eq!(granted(both(&Fair, &Fenced), &names), run_by_scripts);

        let names =
            [("counter", "lockkeeper_claims"), ("channel", "redisson_lock__channel"), ("lock", "{a}:")];
        let mut run_by_scripts = run(&["rlock/", "claims/", "inspect.lua"]);
        // As above: `inspect` looks at the keys of read holds only if the lock is a read-write lock.
        run_by_scripts.remove("hold_key");
        forget_type(&mut run_by_scripts);
        assert_eq!(granted(Claim.rights(&Claim.keys("{a}".into())), &names), run_by_scripts);

        let names = [("permits", "{a}:timeout"), ("channel", "redisson_sc"), ("semaphore", "a")];
        let mut run_by_scripts = run(&["semaphore/"]);
        // `TIME` has no key, so the loop above counts it as a command about `lock`.
        let time = run_by_scripts.remove("lock").expect("a command");
        run_by_scripts.entry("semaphore".to_owned()).or_default().extend(time);
        assert_eq!(granted(rights(&Semaphore), &names), run_by_scripts);

        let names = [
            ("intent", "{a}:lockkeeper_intent"),
            ("hold_key", "{a}"),
            ("channel", "redisson_rwlock"),
            ("lock", "a"),
        ];
        let mut run_by_scripts =
            run(&["read/", "write/", "inspect.lua", "rlock/show.lua", "rlock/renew.lua"]);
        forget_type(&mut run_by_scripts);
        assert_eq!(granted(both(&Read, &Write), &names), run_by_scripts);
    }
}

//! The commands on keys. They have the replies, the errors and the order of checks of Redis 7.

mod hash;
mod keys;
mod list;
mod parse;
mod scores;
mod text;

pub(crate) use parse::{integer, wrong_number};

use crate::keyspace::Keyspace;
use crate::value::Bytes;
use crate::wire::Outcome;

/// A command on keys.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// The number of its words, with its name. A negative number: at least so many.
    arity: isize,
    run: fn(&mut Keyspace, &[Bytes]) -> Outcome,
}

macro_rules! commands {
    ($($name:literal $arity:literal $run:path;)*) => {
        const COMMANDS: &[Command] = &[$(Command { name: $name, arity: $arity, run: $run }),*];
    };
}

// The commands of the scripts, sorted by name.
commands! {
    "del" -2 keys::del;
    "exists" -2 keys::exists;
    "flushall" 1 keys::flush;
    "flushdb" 1 keys::flush;
    "get" 2 text::get;
    "hdel" -3 hash::del;
    "hexists" 3 hash::exists;
    "hget" 3 hash::get;
    "hgetall" 2 hash::get_all;
    "hkeys" 2 hash::keys;
    "hlen" 2 hash::len;
    "hmget" -3 hash::get_many;
    "hrandfield" -2 hash::random;
    "hscan" -3 hash::scan;
    "hset" -4 hash::set;
    "incr" 2 text::incr;
    "incrby" 3 text::incr_by;
    "lindex" 3 list::index;
    "llen" 2 list::len;
    "lpop" -2 list::pop;
    "lpush" -3 list::push_front;
    "lrange" 4 list::range;
    "lrem" 4 list::remove;
    "persist" 2 keys::persist;
    "pexpire" -3 keys::expire;
    "pttl" 2 keys::ttl;
    "rename" 3 keys::rename;
    "rpush" -3 list::push_back;
    "scan" -2 keys::scan;
    "set" -3 text::set;
    "time" 1 keys::time;
    "type" 2 keys::kind;
    "zadd" -4 scores::add;
    "zcard" 2 scores::len;
    "zrange" -4 scores::range;
    "zrank" 3 scores::rank;
    "zrem" -3 scores::remove;
    "zscore" 3 scores::score;
}

/// The commands that change the keys which they name.
const WRITES: [&str; 15] = [
    "del", "hdel", "hset", "incr", "incrby", "lpop", "lpush", "lrem", "persist", "pexpire", "rename",
    "rpush", "set", "zadd", "zrem",
];

/// Finds a command by its name in small letters.
pub(crate) fn find(name: &str) -> Option<Command> {
    let index = COMMANDS.binary_search_by_key(&name, |command| command.name).ok()?;
    Some(COMMANDS[index])
}

/// Whether a command takes so many words. A negative arity: at least so many.
pub(crate) fn takes(arity: isize, words: usize) -> bool {
    if arity < 0 { words >= arity.unsigned_abs() } else { words == arity.unsigned_abs() }
}

impl Command {
    pub(crate) fn takes(&self, words: usize) -> bool {
        takes(self.arity, words)
    }

    /// The keys among the words of the command, which [takes](Self::takes) them.
    pub(crate) fn keys<'a>(&self, words: &'a [Bytes]) -> &'a [Bytes] {
        match self.name {
            "flushall" | "flushdb" | "scan" | "time" => &[],
            "del" | "exists" | "rename" => &words[1..],
            _ => &words[1..2],
        }
    }

    /// Whether the command only reads the keys that it names.
    pub(crate) fn only_reads(&self) -> bool {
        !WRITES.contains(&self.name)
    }

    /// Runs the command, which [takes](Self::takes) these words. The first is its name.
    pub(crate) fn run(&self, keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
        (self.run)(keyspace, words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted() {
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
        assert!(find("hset").is_some_and(|command| command.takes(4) && !command.takes(3)));
        assert!(find("get").is_some_and(|command| command.takes(2) && !command.takes(3)));
        assert!(find("flush").is_none());
    }

    #[test]
    fn the_readme_names_every_command() {
        let others = crate::state::COMMANDS.map(|(name, _)| name);
        for name in COMMANDS.iter().map(|command| command.name).chain(others) {
            let name = format!("`{}", name.to_uppercase());
            assert!(include_str!("../../README.md").contains(&name), "{name}");
        }
    }
}

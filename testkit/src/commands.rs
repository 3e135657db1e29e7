//! Commands that a test sends to its server, and facts about the server from their replies.

use std::fmt;

use redis::{FromRedisValue, RedisError, Value};

use crate::lua;
use crate::stats::CommandStats;

type Execute = dyn Fn(&[&str]) -> Result<Value, RedisError> + Send + Sync;

/// Runs commands on a server, whatever kind of server that is.
pub struct Commands(Box<Execute>);

impl Commands {
    /// Makes a value that runs commands by this function.
    pub fn new(execute: impl Fn(&[&str]) -> Result<Value, RedisError> + Send + Sync + 'static) -> Self {
        Self(Box::new(execute))
    }

    /// Runs a command.
    pub fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_run(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Runs a command that can fail.
    pub fn try_run<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, RedisError> {
        Ok(T::from_redis_value((self.0)(words)?)?)
    }

    /// Runs a command with many pairs of arguments, a thousand pairs at a time. Empty words are left out.
    pub fn run_many(&self, command: &[&str], pairs: &[[String; 2]]) {
        for pairs in pairs.chunks(1_000) {
            let words = pairs.iter().flatten().map(String::as_str).filter(|word| !word.is_empty());
            self.run::<()>(&[command, &words.collect::<Vec<_>>()].concat());
        }
    }

    /// Runs a script of lockkeeper, such as `"rlock/acquire.lua"`, in time.
    pub fn script(&self, file: &str, keys: &[&str], args: &[&str]) -> Value {
        let (text, count) = (lua::source(file), keys.len().to_string());
        self.run(&[&["EVAL", &text, &count], keys, args, lua::in_time(file).as_slice()].concat())
    }

    /// Loads all scripts of lockkeeper.
    pub fn load_scripts(&self) {
        for script in lua::sources() {
            let _: Result<String, _> = self.try_run(&["SCRIPT", "LOAD", script]);
        }
    }

    /// Name and version, such as "Redis 7.0.15".
    pub fn version(&self) -> String {
        let info: String = self.run(&["INFO", "server"]);
        let fact = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        match (fact("valkey_version:"), fact("redis_version:")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, version) => format!("Redis {}", version.unwrap_or("of unknown version")),
        }
    }

    /// All keys, except the token counters, which no release removes, and the records of clients.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.run(&["KEYS", "*"]);
        keys.retain(|key| !is_counter(key) && !is_record(key));
        keys
    }

    /// The keys of what clients tell of their holds and waits.
    pub fn records(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.run(&["KEYS", "lockkeeper_*"]);
        keys.retain(|key| is_record(key));
        keys
    }

    /// Removes what killed processes told.
    pub fn remove_records(&self) {
        for record in self.records() {
            self.run::<()>(&["DEL", &record]);
        }
    }

    /// All channels that have a subscriber, except that of sentinels. On a server of a cluster, those of the shard, too.
    pub fn channels(&self) -> Vec<String> {
        let mut channels: Vec<String> = self.run(&["PUBSUB", "CHANNELS"]);
        channels.extend(self.try_run::<Vec<String>>(&["PUBSUB", "SHARDCHANNELS"]).unwrap_or_default());
        channels.retain(|channel| channel != "__sentinel__:hello");
        channels
    }

    /// The connected clients as `CLIENT LIST` describes them, without sentinels and the connection that asks.
    pub fn clients(&self) -> Vec<String> {
        let list: String = self.run(&["CLIENT", "LIST"]);
        let is_other = |line: &&str| line.contains("cmd=client|list") || line.contains("name=sentinel-");
        list.lines().filter(|line| !is_other(line)).map(str::to_owned).collect()
    }

    /// Milliseconds since 1970 by the server's clock.
    pub fn now_ms(&self) -> u64 {
        let time: Vec<u64> = self.run(&["TIME"]);
        time[0] * 1_000 + time[1] / 1_000
    }

    /// How often a command was called since the server started, by clients and by scripts.
    pub fn calls(&self, command: &str) -> u64 {
        self.command_stats().of(command, "calls")
    }

    /// How often the server refused a command of a client, such as one without the right to it.
    pub fn refusals(&self, command: &str) -> u64 {
        self.command_stats().of(command, "rejected_calls")
    }

    /// How many errors with this code the server answered since it started, such as `"MOVED"`.
    pub fn errors(&self, code: &str) -> u64 {
        let info: String = self.run(&["INFO", "errorstats"]);
        let prefix = format!("errorstat_{code}:count=");
        let count = info.lines().find_map(|line| line.strip_prefix(&prefix));
        count.map_or(0, |count| count.trim_end().parse().expect("a number"))
    }

    /// Microseconds that the server spent on a command since it started.
    pub fn micros(&self, command: &str) -> u64 {
        self.command_stats().of(command, "usec")
    }

    /// How many scripts ran since the server started.
    pub fn scripts(&self) -> u64 {
        self.command_stats().scripts()
    }

    /// How many commands scripts ran since the server started. The number is right only if clients send no command that
    /// a script runs, too.
    pub fn calls_in_scripts(&self) -> u64 {
        self.command_stats().in_scripts()
    }

    fn command_stats(&self) -> CommandStats {
        CommandStats(self.run(&["INFO", "commandstats"]))
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands").finish_non_exhaustive()
    }
}

fn is_counter(key: &str) -> bool {
    key.starts_with("redisson_lock_token:") || key.starts_with("lockkeeper_claims:")
}

fn is_record(key: &str) -> bool {
    key.starts_with("lockkeeper_client:")
}

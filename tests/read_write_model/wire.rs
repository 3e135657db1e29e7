//! Redis: performs a step, and tells what it did.

use std::collections::BTreeMap;
use std::time::Instant;

use redis::{Connection, PubSub, Value};

use crate::command::{Command, Owner, Side, What};
use crate::state::{Hash, Key, State};
use crate::support::{SECOND, Server, script_hash};

/// Sets the leases, as if no time had passed. Without any left, a key is removed. One moment for all: the clock of Redis
/// 7.0 goes on while a script runs, and a lock that ends with a hold would end a millisecond after it.
pub const SET_LEASES: &str = "
    local time = redis.call('time')
    local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
    for i, key in ipairs(KEYS) do redis.call('pexpireat', key, now_ms + ARGV[i]) end";

pub const SEE: &str = "
    local seen = {}
    for i, key in ipairs(redis.call('keys', '*')) do
      local is_hash = redis.call('type', key).ok == 'hash'
      local value = is_hash and redis.call('hgetall', key) or {redis.call('get', key)}
      seen[i] = {key, redis.call('pttl', key), value}
    end
    return seen";

/// The last message of each step.
pub const MARK: &str = "that was all";

pub type Words = Vec<String>;

pub struct Wire<'a> {
    pub name: &'static str,
    pub tag: String,
    pub channel: String,
    pub connection: Connection,
    pub hearing: PubSub<'a>,
    pub hashes: BTreeMap<&'static str, String>,
}

/// What a step did.
pub struct Seen {
    /// Of the last command.
    pub answer: Value,
    pub state: State,
    pub messages: Vec<String>,
    /// What leases may have become shorter by.
    pub took_ms: u64,
}

impl<'a> Wire<'a> {
    pub fn new(server: &Server, listening: &'a mut Connection, name: &'static str) -> Self {
        let tag = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
        let channel = format!("redisson_rwlock:{tag}");
        let mut connection = server.connect().unwrap();
        redis::cmd("FLUSHDB").exec(&mut connection).unwrap();
        let mut hearing = listening.as_pubsub();
        hearing.set_read_timeout(Some(20 * SECOND)).unwrap();
        hearing.subscribe(&channel).unwrap();
        Self { name, tag, channel, connection, hearing, hashes: BTreeMap::new() }
    }

    pub fn key(&self, (owner, number): (Owner, u32)) -> String {
        format!("{}:{owner}:rwlock_timeout:{number}", self.tag)
    }

    pub fn call(&mut self, command: Command) -> Words {
        let script = command.script();
        let hash = self.hashes.entry(script).or_insert_with(|| script_hash(script)).clone();
        let mut words = vec!["EVALSHA".to_owned(), hash];
        if matches!(command.what, What::Release { .. }) {
            words.extend(["2".to_owned(), self.name.to_owned(), self.channel.clone()]);
        } else {
            words.extend(["1".to_owned(), self.name.to_owned()]);
        }
        words.extend(command.args());
        words
    }

    /// Sets the leases to what they are `before`, and sends commands.
    pub fn perform(&mut self, before: &State, now: u64, commands: &[Words]) -> Seen {
        let began = Instant::now();
        let mut pipe = redis::pipe();
        let mut leases: Vec<(String, u64)> =
            before.keys.iter().map(|(&id, key)| (self.key(id), key.ends.saturating_sub(now))).collect();
        leases.extend(before.hash.iter().map(|hash| (self.name.to_owned(), hash.ends.saturating_sub(now))));
        let (keys, leases): (Vec<_>, Vec<_>) = leases.into_iter().unzip();
        pipe.cmd("EVAL").arg(SET_LEASES).arg(keys.len()).arg(keys).arg(leases).ignore();
        for words in commands {
            pipe.cmd(&words[0]).arg(&words[1..]);
        }
        pipe.cmd("PUBLISH").arg(&self.channel).arg(MARK).ignore();
        pipe.cmd("EVAL").arg(SEE).arg(0);
        let mut replies: Vec<Value> = pipe.query(&mut self.connection).expect("every command succeeds");
        let found = replies.pop().expect("what there is");
        let messages = self.messages();
        let took_ms = u64::try_from(began.elapsed().as_millis()).expect("not for ever") + 5;
        let found: Vec<(String, i64, Words)> = redis::from_redis_value(found).expect("as asked for");
        Seen { answer: replies.pop().unwrap_or(Value::Nil), state: self.parse(found, now), messages, took_ms }
    }

    pub fn messages(&mut self) -> Vec<String> {
        let hearing = &mut self.hearing;
        let next = || hearing.get_message().expect("the mark comes").get_payload::<String>().unwrap();
        std::iter::repeat_with(next).take_while(|message| message != MARK).collect()
    }

    pub fn parse(&self, found: Vec<(String, i64, Words)>, now: u64) -> State {
        let mut state = State::default();
        for (key, left_ms, value) in found {
            let ends = now + u64::try_from(left_ms).unwrap_or_else(|_| panic!("{key} has no expiry"));
            if key == self.name {
                state.hash = Some(parse_hash(&value, ends));
            } else {
                let hold = key.strip_prefix(&format!("{}:", self.tag));
                let hold = hold.and_then(|hold| hold.split_once(":rwlock_timeout:"));
                let (owner, number) = hold.unwrap_or_else(|| panic!("what is {key}?"));
                let id = (Owner::parse(owner), number.parse().expect("the number of a hold"));
                state.keys.insert(id, Key { grant: value[0].parse().expect("a grant"), ends });
            }
        }
        state
    }
}

pub fn parse_hash(fields: &[String], ends: u64) -> Hash {
    let mut mode = None;
    let (mut writers, mut readers) = (BTreeMap::new(), BTreeMap::new());
    for pair in fields.chunks(2) {
        let (field, value) = (pair[0].as_str(), pair[1].as_str());
        let count = || value.parse().expect("a count");
        match (field, field.strip_suffix(":write")) {
            ("mode", _) => mode = Some(if value == "write" { Side::Write } else { Side::Read }),
            (_, Some(owner)) => drop(writers.insert(Owner::parse(owner), count())),
            (_, None) => drop(readers.insert(Owner::parse(field), count())),
        }
    }
    Hash { mode: mode.expect("a mode"), writers, readers, ends }
}

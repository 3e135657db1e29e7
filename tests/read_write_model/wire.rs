//! Redis: performs a step, and returns what it did.

use std::collections::BTreeMap;
use std::time::Instant;

use proptest::test_runner::TestCaseError;
use redis::{Connection, PubSub, Value};

use crate::read_write_model::command::{Command, Owner, Side};
use crate::read_write_model::state::{Hash, Key, State};
use crate::support::{Server, lua, script_hash};

/// Sets the leases, as if no time had passed. A key whose lease is 0 is removed. All keys get the same moment: the clock
/// of Redis 7.0 goes on while a script runs, and a lock would end a millisecond after the hold that it ends with.
const SET_LEASES: &str = "
    local time = redis.call('time')
    local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
    for i, key in ipairs(KEYS) do redis.call('pexpireat', key, now_ms + ARGV[i]) end";

const SEE: &str = "
    local seen = {}
    for i, key in ipairs(redis.call('keys', '*')) do
      local is_hash = redis.call('type', key).ok == 'hash'
      local value = is_hash and redis.call('hgetall', key) or {redis.call('get', key)}
      seen[i] = {key, redis.call('pttl', key), value}
    end
    return seen";

/// The last message of each step.
const MARK: &str = "end of the step";

pub type Words = Vec<String>;

pub struct Wire<'a> {
    pub name: &'static str,
    tag: String,
    channel: String,
    connection: Connection,
    subscription: PubSub<'a>,
    hashes: BTreeMap<&'static str, String>,
}

/// What a step did.
pub struct Seen {
    /// Of the last command.
    pub answer: Value,
    pub state: State,
    pub messages: Vec<String>,
    /// By so much a lease may have become shorter.
    pub took_ms: u64,
}

impl<'a> Wire<'a> {
    pub fn new(server: &Server, listening: &'a mut Connection, name: &'static str) -> Self {
        let tag = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
        let channel = format!("redisson_rwlock:{tag}");
        let mut connection = server.connect().unwrap();
        redis::cmd("FLUSHDB").exec(&mut connection).unwrap();
        let mut subscription = listening.as_pubsub();
        subscription.subscribe(&channel).unwrap();
        Self { name, tag, channel, connection, subscription, hashes: BTreeMap::new() }
    }

    pub fn key(&self, (owner, number): (Owner, u32)) -> String {
        format!("{}:{owner}:rwlock_timeout:{number}", self.tag)
    }

    pub fn call(&mut self, command: Command) -> Words {
        let script = command.script();
        let hash = self.hashes.entry(script).or_insert_with(|| script_hash(script)).clone();
        let mut words = vec!["EVALSHA".to_owned(), hash];
        // The other scripts look for read holds.
        if script.starts_with("rlock/") {
            words.extend(["1".to_owned(), self.name.to_owned()]);
        } else {
            words.extend(["2".to_owned(), self.name.to_owned(), self.channel.clone()]);
        }
        words.extend(command.args());
        words.extend(lua::in_time(script).map(str::to_owned));
        words
    }

    /// Sets the leases to what they are in `before`, and sends commands.
    pub fn perform(&mut self, before: &State, now: u64, commands: &[Words]) -> Result<Seen, TestCaseError> {
        let began = Instant::now();
        let mut pipe = redis::pipe();
        let mut leases: Vec<(String, u64)> =
            before.keys.iter().map(|(&id, key)| (self.key(id), key.ends.saturating_sub(now))).collect();
        leases.extend(before.hash.iter().map(|hash| (self.name.to_owned(), hash.ends.saturating_sub(now))));
        let (keys, leases): (Vec<_>, Vec<_>) = leases.into_iter().unzip();
        pipe.cmd("EVAL").arg(SET_LEASES).arg(keys.len()).arg(keys).arg(leases).ignore();
        for words in commands {
            if let [late @ .., last] = &words[..]
                && lua::in_time("/acquire.lua") == Some(&**last)
            {
                // A late copy changes nothing, and says so.
                pipe.cmd(&late[0]).arg(&late[1..]).arg(lua::TOO_LATE);
            }
            pipe.cmd(&words[0]).arg(&words[1..]);
        }
        pipe.cmd("PUBLISH").arg(&self.channel).arg(MARK).ignore();
        pipe.cmd("EVAL").arg(SEE).arg(0);
        let mut replies: Vec<Value> = pipe
            .query(&mut self.connection)
            .map_err(|error| TestCaseError::fail(format!("a command failed: {error}")))?;
        let found = replies.pop().expect("the answer of SEE");
        replies.retain(|reply| *reply != Value::Int(lua::reply("LATE")));
        assert_eq!(replies.len(), commands.len(), "{replies:?}");
        let messages = self.messages();
        let took_ms = u64::try_from(began.elapsed().as_millis()).expect("a short time") + 5;
        let found: Vec<(String, i64, Words)> = redis::from_redis_value(found).expect("the answer of SEE");
        let state = self.parse(found, now).map_err(TestCaseError::fail)?;
        Ok(Seen { answer: replies.pop().unwrap_or(Value::Nil), state, messages, took_ms })
    }

    fn messages(&mut self) -> Vec<String> {
        let subscription = &mut self.subscription;
        let next = || subscription.get_message().expect("the mark arrives").get_payload::<String>().unwrap();
        std::iter::repeat_with(next).take_while(|message| message != MARK).collect()
    }

    fn parse(&self, found: Vec<(String, i64, Words)>, now: u64) -> Result<State, String> {
        let mut state = State::default();
        for (key, left_ms, value) in found {
            let ends = now + u64::try_from(left_ms).map_err(|_| format!("{key} has no expiry"))?;
            if key == self.name {
                let hash = parse_hash(&value, ends);
                state.hash = Some(hash.ok_or_else(|| format!("{key} has other fields: {value:?}"))?);
            } else {
                let hold = self.parse_hold(&key).zip(value[0].parse().ok());
                let (id, grant) = hold.ok_or_else(|| format!("there is another key: {key} = {value:?}"))?;
                state.keys.insert(id, Key { grant, ends });
            }
        }
        Ok(state)
    }

    fn parse_hold(&self, key: &str) -> Option<(Owner, u32)> {
        let rest = key.strip_prefix(&self.tag)?.strip_prefix(':')?;
        let (owner, number) = rest.split_once(":rwlock_timeout:")?;
        Some((Owner::parse(owner)?, number.parse().ok()?))
    }
}

fn parse_hash(fields: &[String], ends: u64) -> Option<Hash> {
    let mut mode = None;
    let (mut writers, mut readers) = (BTreeMap::new(), BTreeMap::new());
    for pair in fields.chunks(2) {
        let (field, value) = (pair[0].as_str(), pair[1].as_str());
        match (field, field.strip_suffix(":write"), value) {
            ("mode", _, "read") => mode = Some(Side::Read),
            ("mode", _, "write") => mode = Some(Side::Write),
            (_, Some(owner), _) => drop(writers.insert(Owner::parse(owner)?, value.parse().ok()?)),
            (_, None, _) => drop(readers.insert(Owner::parse(field)?, value.parse().ok()?)),
        }
    }
    Some(Hash { mode: mode?, writers, readers, ends })
}

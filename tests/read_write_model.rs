//! The scripts of the read-write lock against a model of what they shall do: random nests of reading and writing by
//! up to three owners and a Java client, with deaths, copies that run late, and leases that end.
//!
//! The model knows the rules and not the scripts. After each step it is compared with all that Redis has: fields,
//! counts, keys, leases, the answer and the messages. Beside it stand the promises that owners were given, which are
//! compared with Redis alone: no answer of the model can excuse that one of them is broken.
//!
//! No time passes but the model's: before each step all leases in Redis are set to what the model says, from which they
//! differed by no more than the last step took. So leases are multiples of seconds, and last for no time at all.
//!
//! `LOCKKEEPER_MODEL_SEEDS=5000` runs more nests than by default, and `LOCKKEEPER_MODEL_FROM=17` begins with another.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use redis::{Connection, PubSub, Value};
use support::{SECOND, Server, script_hash};

const SEEDS: u64 = 200;
const STEPS: usize = 200;

/// What the crate gives as the usual lease.
const USUAL_MS: u64 = 30_000;
const LEASES_MS: [u64; 8] = [10_000, 20_000, 30_000, 30_000, 30_000, 60_000, 120_000, 300_000];
const PAUSES_MS: [u64; 8] = [10_000, 10_000, 10_000, 20_000, 20_000, 30_000, 60_000, 130_000];
const MOST_HOLDS: u32 = 4;
const MOST_CLIENTS: u64 = 3;

/// Redisson's owner is its thread, for ever.
const JAVA: Owner = Owner { client: 9, number: 77 };
/// What Redisson puts into the keys of its holds.
const JAVA_GRANT: u64 = 1;
/// "Whatever it was."
const ANY_GRANT: u64 = 0;

#[test]
fn random_nests_leave_what_the_model_says_and_break_no_promise() {
    let server = Server::start();
    let from = from_environment("LOCKKEEPER_MODEL_FROM", 0);
    for seed in from..from + from_environment("LOCKKEEPER_MODEL_SEEDS", SEEDS) {
        let mut listening = server.connect().unwrap();
        let wire =
            Wire::new(&server, &mut listening, if seed.is_multiple_of(2) { "myLock" } else { "{grp}:a" });
        let mut run = Run::new(seed, wire);
        for _ in 0..STEPS {
            run.step();
        }
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |value| value.parse().expect("a number"))
}

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("less than an usize")
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }
}

// What is sent.

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    client: u8,
    number: u64,
}

impl Owner {
    fn parse(text: &str) -> Self {
        let (uuid, number) = text.split_once(':').expect("UUID:number");
        Self { client: uuid[..8].parse().expect("a client"), number: number.parse().expect("a number") }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}-0000-4000-8000-000000000000:{}", self.client, self.number)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Acquire { lease_ms: u64 },
    Reenter { want: u32, lease_ms: u64 },
    Release { keep: u32 },
    Renew { lease_ms: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Command {
    side: Side,
    owner: Owner,
    /// Of no meaning for a write hold.
    grant: u64,
    what: What,
}

impl Command {
    const fn script(self) -> &'static str {
        match (self.side, self.what) {
            (Side::Read, What::Acquire { .. }) => "read/acquire.lua",
            (Side::Read, What::Reenter { .. }) => "read/reenter.lua",
            (Side::Read, What::Release { .. }) => "read/release.lua",
            (Side::Read, What::Renew { .. }) => "read/renew.lua",
            (Side::Write, What::Acquire { .. }) => "write/acquire.lua",
            (Side::Write, What::Reenter { .. }) => "rlock/reenter.lua",
            (Side::Write, What::Release { .. }) => "write/release.lua",
            (Side::Write, What::Renew { .. }) => "rlock/renew.lua",
        }
    }

    fn args(self) -> Vec<String> {
        let id = match self.side {
            Side::Read => vec![self.owner.to_string(), self.grant.to_string()],
            Side::Write => vec![format!("{}:write", self.owner)],
        };
        let (first, last) = match self.what {
            What::Acquire { lease_ms } => (None, vec![lease_ms]),
            What::Reenter { want, lease_ms } => (None, vec![want.into(), lease_ms]),
            What::Release { keep } if self.side == Side::Read => (None, vec![keep.into(), USUAL_MS]),
            What::Release { keep } => (None, vec![keep.into()]),
            // No lease that somebody may have made shorter.
            What::Renew { lease_ms } if self.side == Side::Read => (Some(lease_ms), vec![0]),
            What::Renew { lease_ms } => (Some(lease_ms), vec![]),
        };
        let text = |number: u64| number.to_string();
        first.map(text).into_iter().chain(id).chain(last.into_iter().map(text)).collect()
    }
}

// What there is.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    grant: u64,
    ends: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hash {
    mode: Side,
    writers: BTreeMap<Owner, u32>,
    readers: BTreeMap<Owner, u32>,
    ends: u64,
}

/// What is in Redis, or should be. Times are those of the model.
#[derive(Clone, Debug, Default)]
struct State {
    hash: Option<Hash>,
    keys: BTreeMap<(Owner, u32), Key>,
}

/// A read hold that is alive.
#[derive(Clone, Copy, Debug)]
struct Living {
    count: u32,
    grant: u64,
    ends: u64,
}

impl State {
    fn mode(&self) -> Option<Side> {
        self.hash.as_ref().map(|hash| hash.mode)
    }

    fn ends(&self) -> u64 {
        self.hash.as_ref().map_or(0, |hash| hash.ends)
    }

    /// By the hash, alive or dead.
    fn count(&self, owner: Owner) -> u32 {
        self.hash.as_ref().and_then(|hash| hash.readers.get(&owner).copied()).unwrap_or(0)
    }

    fn writes(&self, owner: Owner) -> u32 {
        self.hash.as_ref().and_then(|hash| hash.writers.get(&owner).copied()).unwrap_or(0)
    }

    fn living(&self, owner: Owner) -> Option<Living> {
        let count = self.count(owner);
        let keys: Vec<Key> =
            (1..=count).filter_map(|number| self.keys.get(&(owner, number)).copied()).collect();
        let ends = keys.iter().map(|key| key.ends).max()?;
        Some(Living { count, grant: keys[0].grant, ends })
    }

    fn readers(&self) -> Vec<(Owner, Living)> {
        let owners = self.hash.iter().flat_map(|hash| hash.readers.keys().copied());
        owners.filter_map(|owner| Some((owner, self.living(owner)?))).collect()
    }

    /// The same without what is dead, which any script may drop.
    fn without_dead(&self) -> Self {
        let alive: Vec<Owner> = self.readers().into_iter().map(|(owner, _)| owner).collect();
        let mut state = self.clone();
        if let Some(hash) = &mut state.hash {
            hash.readers.retain(|owner, _| alive.contains(owner));
        }
        state
    }
}

// The rules.

#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Granted,
    Number(i64),
    Renewed(bool),
    /// Held by others, until one of these times.
    Until(Vec<u64>),
}

const RELEASED: Answer = Answer::Number(1);
const LOWERED: Answer = Answer::Number(0);
const LOST: Answer = Answer::Number(-2);

#[derive(Default)]
struct Model {
    now: u64,
    state: State,
    published: Vec<&'static str>,
    /// When the hash may end as well, where that depends on which reader a script happens to look at.
    or_ends: Option<u64>,
}

impl Model {
    fn run(&mut self, command: Command) -> Answer {
        let Command { side, owner, grant, what } = command;
        match (side, what) {
            (Side::Read, What::Acquire { lease_ms }) => self.read(owner, grant, self.now + lease_ms),
            (Side::Read, What::Reenter { want, lease_ms }) => {
                self.read_more(owner, grant, want, self.now + lease_ms)
            }
            (Side::Read, What::Release { keep }) => self.read_less(owner, grant, keep),
            (Side::Read, What::Renew { lease_ms }) => self.read_longer(owner, grant, self.now + lease_ms),
            (Side::Write, What::Acquire { lease_ms }) => self.write(owner, self.now + lease_ms),
            (Side::Write, What::Reenter { want, lease_ms }) => {
                self.write_more(owner, want, self.now + lease_ms)
            }
            (Side::Write, What::Release { keep }) => self.write_less(owner, keep),
            (Side::Write, What::Renew { lease_ms }) => {
                Answer::Renewed(self.write_more(owner, 1, self.now + lease_ms) == Answer::Granted)
            }
        }
    }

    /// Whatever has ended by then is gone.
    fn pass(&mut self, ms: u64) {
        self.now += ms;
        let now = self.now;
        self.state.keys.retain(|_, key| key.ends > now);
        if self.state.ends() <= now {
            self.state.hash = None;
        }
    }

    fn hash(&mut self, mode: Side) -> &mut Hash {
        let fresh = || Hash { mode, writers: BTreeMap::new(), readers: BTreeMap::new(), ends: 0 };
        self.state.hash.get_or_insert_with(fresh)
    }

    fn lock_lasts_until(&mut self, ends: u64) {
        if let Some(hash) = &mut self.state.hash {
            hash.ends = hash.ends.max(ends);
        }
    }

    fn key_lasts_until(&mut self, owner: Owner, number: u32, ends: u64) {
        if let Some(key) = self.state.keys.get_mut(&(owner, number)) {
            key.ends = key.ends.max(ends);
        }
    }

    fn drop_keys(&mut self, owner: Owner, which: impl Fn(u32) -> bool) {
        self.state.keys.retain(|&(other, number), _| other != owner || !which(number));
    }

    fn free(&mut self, message: &'static str) {
        self.state.hash = None;
        self.published.push(message);
    }

    fn read(&mut self, owner: Owner, grant: u64, ends: u64) -> Answer {
        if self.state.mode() == Some(Side::Write) && self.state.writes(owner) == 0 {
            return Answer::Until(vec![self.state.ends()]);
        }
        match self.state.living(owner) {
            Some(living) if living.grant > grant => return LOST,
            Some(living) if living.grant == grant => self.key_lasts_until(owner, 1, ends),
            _ => {
                let before = self.state.count(owner);
                self.drop_keys(owner, |number| number <= before);
                self.state.keys.insert((owner, 1), Key { grant, ends });
                self.hash(Side::Read).readers.insert(owner, 1);
            }
        }
        self.lock_lasts_until(ends);
        Answer::Granted
    }

    fn read_more(&mut self, owner: Owner, grant: u64, want: u32, ends: u64) -> Answer {
        let Some(living) = self.state.living(owner).filter(|living| living.grant == grant) else {
            return LOST;
        };
        let longest = living.ends.max(ends);
        self.state.keys.insert((owner, 1), Key { grant, ends: longest });
        for number in living.count + 1..=want {
            self.state.keys.insert((owner, number), Key { grant, ends });
        }
        self.hash(Side::Read).readers.insert(owner, want.max(living.count));
        self.lock_lasts_until(longest);
        Answer::Granted
    }

    fn read_longer(&mut self, owner: Owner, grant: u64, ends: u64) -> Answer {
        let Some(living) = self.state.living(owner).filter(|living| living.grant == grant) else {
            return Answer::Renewed(false);
        };
        for number in 1..=living.count {
            self.key_lasts_until(owner, number, ends);
        }
        self.lock_lasts_until(living.ends.max(ends));
        Answer::Renewed(true)
    }

    fn read_less(&mut self, owner: Owner, grant: u64, keep: u32) -> Answer {
        let count = self.state.count(owner);
        if count == 0 {
            self.drop_leftovers(owner, grant);
            return LOST;
        }
        match self.state.living(owner) {
            Some(living) if grant != living.grant && grant != ANY_GRANT => LOST,
            Some(living) if keep > 0 => {
                if keep < count {
                    self.drop_keys(owner, |number| (keep + 1..=count).contains(&number));
                    let first = Key { grant: living.grant, ends: living.ends };
                    self.state.keys.insert((owner, 1), first);
                    self.hash(Side::Read).readers.insert(owner, keep);
                }
                LOWERED
            }
            living => {
                self.drop_keys(owner, |number| number <= count);
                self.hash(Side::Read).readers.remove(&owner);
                self.one_reader_less(living.map_or(0, |living| living.ends));
                if living.is_some() { RELEASED } else { LOST }
            }
        }
    }

    /// Without a hash: the keys of that grant, from the first on.
    fn drop_leftovers(&mut self, owner: Owner, grant: u64) {
        let is_its =
            |number: &u32| self.state.keys.get(&(owner, *number)).is_some_and(|key| key.grant == grant);
        let run = (1..).take_while(is_its).count();
        self.drop_keys(owner, |number| number as usize <= run);
    }

    /// One that lasted until then does not read any more.
    fn one_reader_less(&mut self, lasted_until: u64) {
        if self.state.mode() == Some(Side::Write) {
            return;
        }
        let others: Vec<u64> = self.state.readers().iter().map(|(_, living)| living.ends).collect();
        let Some(longest) = others.iter().copied().max() else {
            self.free("0");
            return;
        };
        let ends = self.state.ends();
        if ends <= self.now + USUAL_MS || lasted_until < ends {
            return;
        }
        // It ends with the readers that are left, if they end in less than half of the time. Which of them a script
        // looks at is left to chance.
        let half = self.now + (ends - self.now) / 2;
        if others.iter().all(|&other| other < half) {
            self.hash(Side::Read).ends = longest;
        } else if others.iter().any(|&other| other <= half) {
            self.or_ends = Some(longest);
        }
    }

    fn write(&mut self, owner: Owner, ends: u64) -> Answer {
        if self.state.writes(owner) > 0 {
            self.lock_lasts_until(ends);
            return Answer::Granted;
        }
        if self.state.mode() == Some(Side::Write) {
            return Answer::Until(vec![self.state.ends()]);
        }
        let readers = self.state.readers();
        if !readers.is_empty() {
            return Answer::Until(readers.iter().map(|(_, living)| living.ends).collect());
        }
        self.state.hash = None;
        self.hash(Side::Write).writers.insert(owner, 1);
        self.lock_lasts_until(ends);
        Answer::Granted
    }

    fn write_more(&mut self, owner: Owner, want: u32, ends: u64) -> Answer {
        let count = self.state.writes(owner);
        if count == 0 {
            return LOST;
        }
        self.hash(Side::Write).writers.insert(owner, count.max(want));
        self.lock_lasts_until(ends);
        Answer::Granted
    }

    fn write_less(&mut self, owner: Owner, keep: u32) -> Answer {
        let count = self.state.writes(owner);
        if count == 0 {
            return LOST;
        }
        if keep > 0 {
            self.hash(Side::Write).writers.insert(owner, count.min(keep));
            return LOWERED;
        }
        if let Some(living) = self.state.living(owner) {
            let hash = self.hash(Side::Read);
            hash.writers.remove(&owner);
            (hash.mode, hash.ends) = (Side::Read, living.ends);
            self.published.push("1");
        } else {
            self.free("1");
        }
        RELEASED
    }

    /// A hold as Redisson adds it. True: it may.
    fn java_reads(&mut self, lease_ms: u64) -> bool {
        if self.state.mode() == Some(Side::Write) {
            return false;
        }
        let (number, ends) = (self.state.count(JAVA) + 1, self.now + lease_ms);
        self.hash(Side::Read).readers.insert(JAVA, number);
        self.state.keys.insert((JAVA, number), Key { grant: JAVA_GRANT, ends });
        self.lock_lasts_until(ends);
        true
    }

    /// Redisson's watchdog sets the lease of the lock, also to less than it is. True: it has what it renews.
    fn java_renews(&mut self) -> bool {
        let ends = self.now + USUAL_MS;
        let Some(living) = self.state.living(JAVA) else {
            return false;
        };
        for number in 1..=living.count {
            self.state.keys.entry((JAVA, number)).and_modify(|key| key.ends = ends);
        }
        self.hash(Side::Read).ends = ends;
        true
    }
}

// Redis.

/// Sets the leases, as if no time had passed. Without any left, a key is removed. One moment for all: the clock of Redis
/// 7.0 goes on while a script runs, and a lock that ends with a hold would end a millisecond after it.
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
const MARK: &str = "that was all";

type Words = Vec<String>;

struct Wire<'a> {
    name: &'static str,
    tag: String,
    channel: String,
    connection: Connection,
    hearing: PubSub<'a>,
    hashes: BTreeMap<&'static str, String>,
}

/// What a step did.
struct Seen {
    /// Of the last command.
    answer: Value,
    state: State,
    messages: Vec<String>,
    /// What leases may have become shorter by.
    took_ms: u64,
}

impl<'a> Wire<'a> {
    fn new(server: &Server, listening: &'a mut Connection, name: &'static str) -> Self {
        let tag = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
        let channel = format!("redisson_rwlock:{tag}");
        let mut connection = server.connect().unwrap();
        redis::cmd("FLUSHDB").exec(&mut connection).unwrap();
        let mut hearing = listening.as_pubsub();
        hearing.set_read_timeout(Some(20 * SECOND)).unwrap();
        hearing.subscribe(&channel).unwrap();
        Self { name, tag, channel, connection, hearing, hashes: BTreeMap::new() }
    }

    fn key(&self, (owner, number): (Owner, u32)) -> String {
        format!("{}:{owner}:rwlock_timeout:{number}", self.tag)
    }

    fn call(&mut self, command: Command) -> Words {
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
    fn perform(&mut self, before: &State, now: u64, commands: &[Words]) -> Seen {
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

    fn messages(&mut self) -> Vec<String> {
        let hearing = &mut self.hearing;
        let next = || hearing.get_message().expect("the mark comes").get_payload::<String>().unwrap();
        std::iter::repeat_with(next).take_while(|message| message != MARK).collect()
    }

    fn parse(&self, found: Vec<(String, i64, Words)>, now: u64) -> State {
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

fn parse_hash(fields: &[String], ends: u64) -> Hash {
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

// Clients that keep to the protocol.

/// A hold that an owner was promised.
#[derive(Clone, Copy, Debug)]
struct Hold {
    side: Side,
    owner: Owner,
    grant: u64,
    count: u32,
    /// The highest count that was ever asked for.
    most: u32,
    until: u64,
}

impl Hold {
    fn command(&self, what: What) -> Command {
        Command { side: self.side, owner: self.owner, grant: self.grant, what }
    }

    fn is_of(&self, command: Command) -> bool {
        (self.side, self.owner, self.grant) == (command.side, command.owner, command.grant)
    }
}

#[derive(Default)]
struct Client {
    holds: Vec<Hold>,
    /// Of these it does not know what became of them.
    undos: Vec<Command>,
}

impl Client {
    fn on(&self, side: Side) -> Option<Hold> {
        self.holds.iter().copied().find(|hold| hold.side == side)
    }

    fn forget(&mut self, hold: Hold) {
        self.holds.retain(|other| other.side != hold.side);
    }

    fn update(&mut self, hold: Hold) {
        self.forget(hold);
        self.holds.push(hold);
    }
}

struct Run<'a> {
    seed: u64,
    dice: Dice,
    wire: Wire<'a>,
    model: Model,
    clients: Vec<Client>,
    /// Holds of the dead. They count until they end.
    left_behind: Vec<Hold>,
    last_number: u64,
    sent: Vec<Command>,
    log: Vec<String>,
}

impl<'a> Run<'a> {
    fn new(seed: u64, wire: Wire<'a>) -> Self {
        Self {
            seed,
            dice: Dice(seed),
            wire,
            model: Model::default(),
            // One alone comes into deeper nests.
            clients: (0..=seed % MOST_CLIENTS).map(|_| Client::default()).collect(),
            left_behind: Vec::new(),
            last_number: 1000,
            sent: Vec::new(),
            log: Vec::new(),
        }
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..12 => self.time_passes(),
            12..32 => self.late_copy(),
            32..35 => self.death(),
            35..40 => self.java(),
            _ => self.act(),
        }
    }

    fn time_passes(&mut self) {
        let ms = self.dice.one_of(&PAUSES_MS);
        self.log.push(format!("{} s pass", ms / 1000));
        // What is set to its lease is what was there before, so that it ends in Redis as well.
        let before = self.model.state.clone();
        self.model.pass(ms);
        let now = self.model.now;
        self.left_behind.retain(|hold| hold.until > now);
        let seen = self.wire.perform(&before, now, &[]);
        self.compare(&seen);
    }

    /// Any command of this run is delivered once more, or for the first time.
    fn late_copy(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let oldest = self.sent.len().saturating_sub(self.dice.one_of(&[5, 20, STEPS]));
        let command = self.sent[oldest + self.dice.below(self.sent.len() - oldest)];
        self.send("late copy", command);
        if matches!(command.what, What::Acquire { .. }) && self.dice.percent(70) {
            self.undo_later(command);
        }
    }

    fn death(&mut self) {
        let dead = self.dice.below(self.clients.len());
        self.log.push(format!("client {dead} dies"));
        let Client { holds, .. } = std::mem::take(&mut self.clients[dead]);
        self.left_behind.extend(holds);
    }

    fn java(&mut self) {
        if self.seed.is_multiple_of(4) {
            return;
        }
        match self.dice.below(4) {
            0 => self.java_renews(),
            1 => {
                let what = What::Release { keep: u32::from(self.dice.percent(50)) };
                self.send("by force", Command { side: Side::Read, owner: JAVA, grant: ANY_GRANT, what });
            }
            _ => self.java_reads(),
        }
    }

    fn java_reads(&mut self) {
        let lease_ms = self.dice.one_of(&LEASES_MS);
        let before = self.model.state.clone();
        if !self.model.java_reads(lease_ms) {
            return;
        }
        self.log.push(format!("Java reads for {lease_ms}"));
        let number = self.model.state.count(JAVA);
        let lock_ms = self.model.state.ends() - self.model.now;
        let (key, name) = (self.wire.key((JAVA, number)), self.wire.name);
        self.command_by_hand(
            &before,
            &[
                format!("HSET {name} mode read"),
                format!("HINCRBY {name} {JAVA} 1"),
                format!("SET {key} {JAVA_GRANT} PX {lease_ms}"),
                format!("PEXPIRE {name} {lock_ms}"),
            ],
        );
    }

    /// What is promised to others does not last longer than the lock, until they renew it.
    fn java_renews(&mut self) {
        let before = self.model.state.clone();
        if !self.model.java_renews() {
            return;
        }
        self.log.push("Java renews".to_owned());
        let ends = self.model.state.ends();
        let promises = self.clients.iter_mut().flat_map(|client| &mut client.holds);
        for hold in promises.chain(&mut self.left_behind) {
            hold.until = hold.until.min(ends);
        }
        let mut commands = vec![format!("PEXPIRE {} {USUAL_MS}", self.wire.name)];
        for number in 1..=self.model.state.count(JAVA) {
            commands.push(format!("PEXPIRE {} {USUAL_MS}", self.wire.key((JAVA, number))));
        }
        self.command_by_hand(&before, &commands);
    }

    fn command_by_hand(&mut self, before: &State, commands: &[String]) {
        let split = |command: &String| command.split(' ').map(str::to_owned).collect();
        let commands: Vec<Words> = commands.iter().map(split).collect();
        let seen = self.wire.perform(before, self.model.now, &commands);
        self.compare(&seen);
    }

    /// One of the clients does something that a user may ask for, or cleans up.
    fn act(&mut self) {
        let who = self.dice.below(self.clients.len());
        if !self.clients[who].undos.is_empty() && self.dice.percent(35) {
            return self.undo(who);
        }
        if self.dice.percent(50) {
            self.give_up_what_ended(who);
        }
        let reads = if self.clients[who].on(Side::Write).is_some() { 70 } else { 40 };
        let side = if self.dice.percent(reads) { Side::Read } else { Side::Write };
        let Some(hold) = self.clients[who].on(side) else {
            return self.acquire(who, side);
        };
        match self.dice.below(10) {
            0..3 if hold.count < MOST_HOLDS => self.reenter(who, hold),
            0..6 => self.release(who, hold),
            6..9 => self.renew(who, hold),
            // As if a re-entry had not been answered.
            _ => self.undo_later(hold.command(What::Release { keep: hold.count })),
        }
    }

    fn give_up_what_ended(&mut self, who: usize) {
        let now = self.model.now;
        let ended: Vec<Hold> =
            self.clients[who].holds.iter().copied().filter(|hold| hold.until <= now).collect();
        for hold in ended {
            self.clients[who].forget(hold);
            self.clients[who].undos.push(hold.command(What::Release { keep: 0 }));
        }
    }

    fn acquire(&mut self, who: usize, side: Side) {
        self.give_up_what_ended(who);
        let within = match (side, self.clients[who].on(Side::Read), self.clients[who].on(Side::Write)) {
            (Side::Write, None, None) | (Side::Read, None, _) => self.clients[who].on(Side::Write),
            _ => return, // it would wait for itself
        };
        self.last_number += 1;
        let number = self.last_number;
        let client = u8::try_from(who).expect("few");
        let owner = within.map_or(Owner { client, number }, |writing| writing.owner);
        let lease_ms = self.dice.one_of(&LEASES_MS);
        let hold = Hold { side, owner, grant: number, count: 1, most: 1, until: self.model.now + lease_ms };
        match self.deliver(hold.command(What::Acquire { lease_ms })) {
            Some(Value::Nil) => self.clients[who].holds.push(hold),
            Some(_) => {}
            None => self.undo_later(hold.command(What::Release { keep: 0 })),
        }
    }

    fn reenter(&mut self, who: usize, mut hold: Hold) {
        let (want, lease_ms) = (hold.count + 1, self.dice.one_of(&LEASES_MS));
        hold.most = hold.most.max(want);
        self.clients[who].update(hold);
        match self.deliver(hold.command(What::Reenter { want, lease_ms })) {
            Some(Value::Nil) => {
                hold.count = want;
                hold.until = hold.until.max(self.model.now + lease_ms);
                self.clients[who].update(hold);
            }
            Some(_) => self.lost(who, hold),
            None => self.undo_later(hold.command(What::Release { keep: hold.count })),
        }
    }

    /// The owner does not rely on it any more from here on, whatever becomes of the command.
    fn release(&mut self, who: usize, mut hold: Hold) {
        let keep = u32::try_from(self.dice.below(hold.count as usize)).expect("few");
        hold.count = keep;
        self.clients[who].update(hold);
        if keep == 0 {
            self.clients[who].forget(hold);
        }
        let command = hold.command(What::Release { keep });
        match self.deliver(command) {
            None => self.undo_later(command),
            Some(answer) if answer == Value::Int(-2) && keep > 0 => self.lost(who, hold),
            Some(_) => {}
        }
    }

    fn renew(&mut self, who: usize, mut hold: Hold) {
        let only_the_lock = hold.side == Side::Read && self.dice.percent(30);
        let lease_ms = if only_the_lock { 0 } else { self.dice.one_of(&LEASES_MS) };
        match self.deliver(hold.command(What::Renew { lease_ms })) {
            Some(Value::Array(renewed)) if renewed == [Value::Int(1)] => {
                hold.until = hold.until.max(self.model.now + lease_ms);
                self.clients[who].update(hold);
            }
            Some(_) => self.lost(who, hold),
            None => {}
        }
    }

    /// Redis may only say so when the time is over.
    fn lost(&mut self, who: usize, hold: Hold) {
        assert!(hold.until <= self.model.now, "lost before its time: {hold:?}");
        self.clients[who].forget(hold);
    }

    fn undo_later(&mut self, command: Command) {
        self.clients[usize::from(command.owner.client)].undos.push(command);
    }

    /// Brings the server down to what the client has, as after a command without an answer.
    fn undo(&mut self, who: usize) {
        let next = self.dice.below(self.clients[who].undos.len());
        let command = self.clients[who].undos.swap_remove(next);
        if self.left_behind.iter().any(|hold| hold.is_of(command)) {
            return; // nobody is left to do it
        }
        let hold = self.clients[who].holds.iter().find(|hold| hold.is_of(command));
        let keep = hold.map_or(0, |hold| hold.count);
        let command = Command { what: What::Release { keep }, ..command };
        self.sent.push(command);
        self.send("undo", command);
    }

    /// The answer, if it comes back; and the command itself may stay on the way.
    fn deliver(&mut self, command: Command) -> Option<Value> {
        self.sent.push(command);
        if self.dice.percent(10) {
            self.log.push(format!("on its way: {command:?}"));
            return None;
        }
        let is_answered = self.dice.percent(92);
        let answer = self.send(if is_answered { "" } else { "unanswered" }, command);
        is_answered.then_some(answer)
    }

    fn send(&mut self, how: &str, command: Command) -> Value {
        self.log.push(format!("{how} {command:?}"));
        let words = self.wire.call(command);
        let before = self.model.state.clone();
        let expected = self.model.run(command);
        let seen = self.wire.perform(&before, self.model.now, &[words]);
        self.compare_answer(&expected, &seen);
        self.compare(&seen);
        if command.what == (What::Release { keep: 0 }) {
            let is_left = match command.side {
                Side::Read => {
                    seen.state.living(command.owner).is_some_and(|left| left.grant == command.grant)
                }
                Side::Write => seen.state.writes(command.owner) > 0,
            };
            assert!(!is_left, "one release is enough");
        }
        seen.answer
    }

    fn compare_answer(&self, expected: &Answer, seen: &Seen) {
        let is_right = match (expected, &seen.answer) {
            (Answer::Granted, Value::Nil) => true,
            (Answer::Number(expected), Value::Int(answer)) => expected == answer,
            (Answer::Renewed(expected), Value::Array(list)) => *list == [Value::Int((*expected).into())],
            (Answer::Until(ends), Value::Int(left_ms)) => u64::try_from(*left_ms).is_ok_and(|left_ms| {
                ends.iter().any(|&ends| is_about(self.model.now + left_ms, ends, seen.took_ms))
            }),
            _ => false,
        };
        assert!(is_right, "answered {:?}, and not {expected:?}", seen.answer);
    }

    fn compare(&mut self, seen: &Seen) {
        assert_eq!(seen.messages, std::mem::take(&mut self.model.published), "messages");
        self.compare_state(seen);
        self.check_exclusion(&seen.state);
        let promises = self.clients.iter().flat_map(|client| &client.holds).chain(&self.left_behind);
        for hold in promises.filter(|hold| hold.until > self.model.now) {
            check_promise(hold, seen);
        }
    }

    fn compare_state(&mut self, seen: &Seen) {
        let or_ends = self.model.or_ends.take();
        if let (Some(hash), Some(ends)) = (&mut self.model.state.hash, or_ends)
            && is_about(seen.state.ends(), ends, seen.took_ms)
        {
            hash.ends = ends;
        }
        let (mut found, expected) = (seen.state.without_dead(), self.model.state.without_dead());
        take_for_equal(&mut found, &expected, seen.took_ms);
        assert_eq!(
            (&found.hash, &found.keys),
            (&expected.hash, &expected.keys),
            "found, and expected, at {}",
            self.model.now
        );
        let Some((ours, theirs)) = self.model.state.hash.as_mut().zip(seen.state.hash.as_ref()) else {
            return;
        };
        for dead in &theirs.readers {
            assert_eq!(ours.readers.get(dead.0), Some(dead.1), "nobody comes back");
        }
        ours.readers.retain(|owner, _| theirs.readers.contains_key(owner));
    }

    /// Of what Redis has, whatever the model says.
    fn check_exclusion(&self, seen: &State) {
        let Some(hash) = &seen.hash else {
            return;
        };
        assert!(hash.writers.len() < 2, "two write");
        assert_eq!(hash.mode == Side::Write, hash.writers.len() == 1, "the mode says who has it");
        if let Some(writer) = hash.writers.keys().next() {
            assert!(seen.readers().iter().all(|(owner, _)| owner == writer), "one reads what another writes");
        }
    }
}

fn check_promise(hold: &Hold, seen: &Seen) {
    let lasts = |ends: u64| ends + seen.took_ms >= hold.until;
    let is_kept = match hold.side {
        Side::Read => seen
            .state
            .living(hold.owner)
            .is_some_and(|found| found.grant == hold.grant && found.count <= hold.most && lasts(found.ends)),
        Side::Write => (1..=hold.most).contains(&seen.state.writes(hold.owner)),
    };
    assert!(is_kept && lasts(seen.state.ends()), "promised {hold:?}, and found {:?}", seen.state);
}

/// A lease only becomes shorter by the time that it took to look.
fn is_about(found: u64, expected: u64, took_ms: u64) -> bool {
    found <= expected && found + took_ms >= expected
}

/// Sets the times that are about the same to the same.
fn take_for_equal(found: &mut State, expected: &State, took_ms: u64) {
    for (id, key) in &mut found.keys {
        if let Some(other) = expected.keys.get(id).filter(|other| is_about(key.ends, other.ends, took_ms)) {
            key.ends = other.ends;
        }
    }
    if let Some((hash, other)) = found.hash.as_mut().zip(expected.hash.as_ref())
        && is_about(hash.ends, other.ends, took_ms)
    {
        hash.ends = other.ends;
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, lock {}:\n{}", self.seed, self.wire.name, self.log.join("\n"));
        }
    }
}

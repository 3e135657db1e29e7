//! The scripts without the engine, beside a model: random calls, second and late copies, deaths, new totals, deleted keys, and Java
//! clients whose clocks are ahead or behind. Runs on a real server and on the in-memory server.
//!
//! Time passes by a change of the scores: so a lease of half a minute ends in no time.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{Commands, Server};
use fastrand::Rng;
use lockkeeper_testkit::lua;
use redis::Value;

const SLACK_MS: i64 = 500;
const LEASE_MS: i64 = 30_000;
const STEPS: usize = 250;

/// Redisson's `tryAcquire`, with the time of a Java client, to the letter of what it does.
const JAVA_ACQUIRE: &str = "
    local expired = redis.call('zrange', KEYS[2], '0', '-1', 'withscores')
    local removed = 0
    for i = 1, #expired, 2 do
      if removed < tonumber(ARGV[1]) and tonumber(expired[i + 1]) <= tonumber(ARGV[3]) then
        redis.call('zrem', KEYS[2], expired[i])
        removed = removed + 1
      end
    end
    if removed > 0 then
      redis.call('incrby', KEYS[1], removed)
    end
    local value = redis.call('get', KEYS[1])
    if value ~= false and tonumber(value) >= tonumber(ARGV[1]) then
      redis.call('incrby', KEYS[1], -tonumber(ARGV[1]))
      for i = 4, #ARGV do
        redis.call('zadd', KEYS[2], ARGV[2], ARGV[i])
      end
      return 'OK'
    end
    return nil";

/// Redisson's `tryRelease` of one permit.
const JAVA_RELEASE: &str = "
    if redis.call('zrem', KEYS[2], ARGV[1]) ~= 1 then
      return 0
    end
    redis.call('incrby', KEYS[1], 1)
    return 1";

/// The permits in use, in hexadecimal digits, with the ends of their leases.
const SEE: &str = "
    local found = redis.call('zrange', KEYS[2], '0', '-1', 'withscores')
    for i = 1, #found, 2 do
      found[i] = string.gsub(found[i], '.', function(byte) return string.format('%02x', string.byte(byte)) end)
    end
    return {redis.call('get', KEYS[1]), found}";

/// Lets time pass for the leases. The ids are in hexadecimal digits here and below, because a call takes text.
const PASS: &str = "
    local found = redis.call('zrange', KEYS[2], '0', '-1', 'withscores')
    for i = 1, #found, 2 do
      if tonumber(found[i + 1]) < 922337203685477 then
        redis.call('zadd', KEYS[2], string.format('%.0f', found[i + 1] - ARGV[1]), found[i])
      end
    end";

type Id = String;

/// A hold of a client that uses our scripts.
#[derive(Clone, Debug)]
struct Hold {
    ids: Vec<Id>,
    /// Until when its holder relies on it.
    until: i64,
}

struct World {
    server: Commands,
    rng: Rng,
    next: u64,
    /// The time, by which leases pass, beyond that of the server.
    passed: i64,
    total: i64,
    holds: Vec<Hold>,
    /// Permits of Java, and until when they are relied on. `None`: for ever.
    java: BTreeMap<Id, Option<i64>>,
    /// Ids of attempts that were refused or released: late copies name them.
    ended: Vec<Vec<Id>>,
    /// What late copies created, and what was not given back by its dead holder.
    orphans: BTreeSet<Id>,
    /// Java clients take part. Otherwise somebody deletes the number now and then: Redisson does not count that.
    has_java: bool,
    /// How far this round's Java clocks are ahead, at most.
    ahead: i64,
    grants: usize,
    copies: usize,
}

fn int(value: &Value) -> i64 {
    let Value::Int(number) = value else { panic!("{value:?}") };
    *number
}

fn text(value: &Value) -> String {
    let Value::BulkString(bytes) = value else { panic!("{value:?}") };
    String::from_utf8(bytes.clone()).unwrap()
}

/// A script whose argument `ARGV[at]` and those behind it are ids in hexadecimal digits.
fn with_hex(script: &str, from: usize, join: bool) -> String {
    let (first, rest) = script.split_once('\n').unwrap_or(("", script));
    let joined = if join { "local hex = ARGV[FROM]" } else { "" }.replace("FROM", &from.to_string());
    let decode = "local function unhex(t) return (string.gsub(t, '%x%x', function(d) return string.char(tonumber(d, 16)) end)) end";
    let change = if join {
        format!("{decode} {joined} ARGV[{from}] = unhex(hex)")
    } else {
        format!("{decode} for i = {from}, #ARGV do ARGV[i] = unhex(ARGV[i]) end")
    };
    format!("{first}\n{change}\n{rest}")
}

impl World {
    fn new(server: &Server, seed: u64) -> Self {
        let server = server.on_one_connection();
        server.run::<()>(&["FLUSHALL"]);
        Self {
            server,
            rng: Rng::with_seed(seed),
            next: 1,
            passed: 0,
            total: 1 + (seed % 4) as i64,
            holds: Vec::new(),
            java: BTreeMap::new(),
            ended: Vec::new(),
            orphans: BTreeSet::new(),
            has_java: seed.is_multiple_of(2),
            ahead: SLACK_MS - 100,
            grants: 0,
            copies: 0,
        }
    }

    fn run(&self, script: &str, args: &[String]) -> Value {
        let mut words = vec!["EVAL", script, "2", "a", "{a}:timeout"];
        words.extend(args.iter().map(String::as_str));
        self.server.run(&words)
    }

    /// By the leases.
    fn now(&self) -> i64 {
        self.server.now_ms() as i64 + self.passed
    }

    fn ids(&mut self, count: usize) -> Vec<Id> {
        let first = self.next;
        self.next += count as u64;
        (0..count as u64).map(|i| format!("{:016x}{:016x}", 0xA0_0000_0000_00FF_u64, first + i)).collect()
    }

    /// What is on the server: the number, and the permits with their ends by `now`.
    fn see(&self) -> (Option<i64>, BTreeMap<Id, i64>) {
        let Value::Array(parts) = self.run(SEE, &[]) else { panic!() };
        let number = (parts[0] != Value::Nil).then(|| text(&parts[0]).parse().unwrap());
        let Value::Array(found) = &parts[1] else { panic!() };
        let (rows, _) = found.as_chunks::<2>();
        let in_use = rows.iter().map(|[id, ends]| {
            // Java reads it with `Long.parseLong`.
            (text(id), text(ends).parse::<i64>().expect("digits") + self.passed)
        });
        (number, in_use.collect())
    }

    fn acquire(&mut self, ids: &[Id]) -> Option<bool> {
        let args = [
            ids.concat(),
            self.total.to_string(),
            LEASE_MS.to_string(),
            SLACK_MS.to_string(),
            "c".to_owned(),
            lua::in_time("semaphore/acquire.lua").unwrap().to_owned(),
        ];
        let (before, began) = (self.see().1, self.now());
        let script = with_hex(&lua::source("semaphore/acquire.lua"), 1, true);
        let late = [&args[..5], &[lua::TOO_LATE.to_owned()]].concat();
        let seen = self.see();
        assert_eq!(self.run(&script, &late), Value::Int(lua::reply("LATE")));
        assert_eq!(self.see(), seen, "a late copy changes nothing");
        let reply = self.run(&script, &args);
        let (number, after) = self.see();
        let wanted = ids.len() as i64;
        let there = ids.iter().filter(|id| after.contains_key(*id)).count() as i64;
        let now = self.now();
        for (id, ends) in &before {
            let is_gone = !after.contains_key(id) && !ids.contains(id);
            assert!(
                !is_gone || *ends < now - SLACK_MS + 50,
                "{id} was removed, {} ms before its end",
                ends - now
            );
        }
        match reply {
            Value::Array(numbers) if int(&numbers[0]) == lua::reply("TOO_MANY") => {
                assert!(wanted > int(&numbers[1]) && there == 0, "{numbers:?}");
                None
            }
            Value::Array(numbers) => {
                assert_eq!(there, wanted, "granted, and all are there");
                // A copy of a granted call does not create a number that was deleted.
                let number = number.unwrap_or(self.total - after.len() as i64);
                assert_eq!(int(&numbers[0]), number.max(0));
                assert_eq!(int(&numbers[1]), number + after.len() as i64);
                for id in ids {
                    assert!(after[id] >= began + LEASE_MS + SLACK_MS, "the lease is too short");
                }
                let ended = after.values().any(|ends| *ends < began - SLACK_MS);
                assert!(number > 0 || !ended, "the next waiter is not told of a permit whose lease ended");
                Some(true)
            }
            refused => {
                let left = int(&refused);
                assert!(left >= -1, "{left}");
                assert_eq!(there, 0, "refused, and nothing is there");
                let available = number.unwrap_or(self.total - after.len() as i64);
                let expired = after.values().filter(|ends| **ends < began - SLACK_MS).count() as i64;
                assert!(available + expired < wanted, "{available} are available, and {wanted} were refused");
                // To the millisecond, between the two looks at the clock. Earlier by the slack, a waiter would attempt again and again until
                // then. A copy that finds only some of its permits perhaps tells their end, and releases them.
                let is_told = |ends: &i64| {
                    let [least, most] = [now, began].map(|at| (ends + SLACK_MS - at).max(0));
                    (least..=most).contains(&left)
                };
                let is_end = before.values().chain(after.values()).any(is_told);
                assert!(is_end || left < 0, "the next end is told: {left} of {after:?} at {now}");
                Some(false)
            }
        }
    }

    fn release(&self, ids: &[Id]) -> i64 {
        let before = self.see();
        let args = [ids.concat(), "c".to_owned()];
        let reply = int(&self.run(&with_hex(&lua::source("semaphore/release.lua"), 1, true), &args));
        let after = self.see();
        let there = ids.iter().filter(|id| before.1.contains_key(*id)).count() as i64;
        assert_eq!(before.1.len() as i64 - there, after.1.len() as i64, "only these are removed");
        assert_eq!(before.0.map(|number| number + there), after.0, "what was removed is available, once");
        assert_eq!(reply == lua::reply("LOST"), there < ids.len() as i64);
        reply
    }

    fn step(&mut self) {
        match self.rng.u8(..24) {
            0..=6 => {
                let wanted = self.rng.usize(1..=3);
                let ids = self.ids(wanted);
                let until = self.now() + LEASE_MS;
                if self.acquire(&ids) == Some(true) {
                    self.grants += 1;
                    self.holds.push(Hold { ids, until });
                } else {
                    self.ended.push(ids);
                }
            }
            // A second copy of an acquire: granted, and counted once.
            7 | 8 if !self.holds.is_empty() => {
                let at = self.rng.usize(..self.holds.len());
                let (ids, is_valid) = (self.holds[at].ids.clone(), self.holds[at].until > self.now());
                let before = self.see().0;
                self.copies += 1;
                let granted = self.acquire(&ids) == Some(true);
                assert!(granted || !is_valid, "a copy of a valid hold is granted");
                if is_valid {
                    let (number, _) = self.see();
                    assert!(number >= before, "a copy counts nothing twice");
                } else if granted {
                    self.holds[at].until = self.now() + LEASE_MS;
                } else {
                    let hold = self.holds.swap_remove(at);
                    self.ended.push(hold.ids);
                }
            }
            9..=12 if !self.holds.is_empty() => {
                let at = self.rng.usize(..self.holds.len());
                let hold = self.holds.swap_remove(at);
                let is_valid = hold.until > self.now();
                let reply = self.release(&hold.ids);
                assert!(!is_valid || reply != lua::reply("LOST"), "a valid hold is there: {hold:?}");
                self.ended.push(hold.ids);
            }
            // A late copy of something that ended: a release changes nothing of others, an acquire leaves an orphan.
            13 | 14 if !self.ended.is_empty() => {
                let ids = self.ended[self.rng.usize(..self.ended.len())].clone();
                self.copies += 1;
                if self.rng.bool() {
                    let is_orphan = ids.iter().any(|id| self.orphans.contains(id));
                    assert!(self.release(&ids) == lua::reply("LOST") || is_orphan);
                    for id in &ids {
                        self.orphans.remove(id);
                    }
                } else if self.acquire(&ids) == Some(true) {
                    self.orphans.extend(ids);
                }
            }
            15 | 16 if !self.holds.is_empty() => {
                let at = self.rng.usize(..self.holds.len());
                let hold = self.holds[at].clone();
                let (is_valid, before) = (hold.until > self.now(), self.see().1);
                let args = [LEASE_MS.to_string(), hold.ids.concat(), SLACK_MS.to_string()];
                // A batch has one key for each hold.
                let script = with_hex(&lua::source("semaphore/renew.lua"), 2, true)
                    .replace("ipairs(KEYS)", "ipairs({KEYS[2]})");
                let Value::Array(replies) = self.run(&script, &args) else { panic!() };
                let is_renewed = int(&replies[0]) == lua::reply("RENEWED");
                assert_eq!(is_renewed, hold.ids.iter().all(|id| before.contains_key(id)));
                assert!(is_renewed || !is_valid, "a valid hold is renewed: {hold:?}");
                let after = self.see().1;
                assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
                assert!(before.iter().all(|(id, ends)| after[id] >= *ends), "no lease becomes shorter");
                if is_renewed {
                    self.holds[at].until = self.now() + LEASE_MS;
                }
            }
            // A holder dies: its permits stay until their leases end.
            17 if !self.holds.is_empty() => {
                let hold = self.holds.swap_remove(self.rng.usize(..self.holds.len()));
                self.orphans.extend(hold.ids);
            }
            18 | 19 => {
                let by = [10, 1_000, 10_000, LEASE_MS + 2 * SLACK_MS + 100][self.rng.usize(..4)];
                self.run(PASS, &[by.to_string()]);
                self.passed += by;
            }
            // A Java client acquires. Its clock is ahead of the server's or behind.
            20 | 21 if !self.has_java => {
                self.server.run::<()>(&["DEL", "a"]);
            }
            20 | 21 => {
                let wanted = self.rng.usize(1..=2);
                let ids = self.ids(wanted);
                let clock = self.now() + self.rng.i64(-60_000..=self.ahead);
                let lease = if self.rng.u8(..6) == 0 { None } else { Some(20_000) };
                let ends = lease.map_or(922_337_203_685_477, |lease| clock + lease - self.passed);
                let mut args = vec![wanted.to_string(), ends.to_string(), (clock - self.passed).to_string()];
                args.extend(ids.clone());
                if self.run(&with_hex(JAVA_ACQUIRE, 4, false), &args) != Value::Nil {
                    for id in ids {
                        self.java.insert(id, lease.map(|lease| clock + lease));
                    }
                }
            }
            22 if !self.java.is_empty() => {
                let at = self.rng.usize(..self.java.len());
                let (id, until) = self.java.iter().nth(at).map(|(id, until)| (id.clone(), *until)).unwrap();
                self.java.remove(&id);
                let released = int(&self.run(&with_hex(JAVA_RELEASE, 1, false), std::slice::from_ref(&id)));
                let is_valid = until.is_none_or(|until| until > self.now());
                assert!(released == 1 || !is_valid, "a permit of Java is there while its lease lasts");
            }
            23 => {
                let total = self.rng.i64(1..=5);
                let args = [total.to_string(), "c".to_owned()];
                let reply = self.run(&lua::source("semaphore/resize.lua"), &args);
                let Value::Array(numbers) = reply else { panic!("{reply:?}") };
                self.total = total;
                let (number, in_use) = self.see();
                assert_eq!(number, Some(total - in_use.len() as i64));
                assert_eq!(int(&numbers[0]), number.unwrap());
            }
            _ => {}
        }
        self.check();
    }

    /// What is true at every moment.
    fn check(&self) {
        let (number, in_use) = self.see();
        if let Some(number) = number {
            assert_eq!(number + in_use.len() as i64, self.total, "the total is what was set");
        }
        let now = self.now();
        for hold in self.holds.iter().filter(|hold| hold.until > now + 1_000) {
            assert!(
                hold.ids.iter().all(|id| in_use.contains_key(id)),
                "a valid hold has its permits: {hold:?}"
            );
        }
        let state =
            self.run(&lua::source("semaphore/state.lua"), &[self.total.to_string(), SLACK_MS.to_string()]);
        let Value::Array(state) = state else { panic!("{state:?}") };
        // Leases can end between these moments.
        let expired = |at: i64| in_use.values().filter(|ends| **ends < at - SLACK_MS).count() as i64;
        let available = |at| number.unwrap_or(self.total - in_use.len() as i64) + expired(at);
        let (least, most) = (available(now), available(self.now() + 1));
        assert!((least..=most).contains(&int(&state[0])), "{least} to {most}: {state:?}");
        assert_eq!(int(&state[1]), self.total);
    }
}

#[test]
fn the_scripts_agree_with_the_model() {
    let (server, mut grants, mut copies) = (Server::start(), 0, 0);
    for seed in 0..40 {
        let mut world = World::new(&server, seed);
        for _ in 0..STEPS {
            world.step();
        }
        grants += world.grants;
        copies += world.copies;
    }
    assert!(grants > 500 && copies > 500, "{grants} grants and {copies} copies");
    println!("{grants} grants and {copies} copies");
}

/// A Java clock that is further ahead than the slack ends permits early. Renewal and release say so.
#[test]
fn a_java_clock_beyond_the_slack_ends_permits_and_their_renewal_says_so() {
    let server = Server::start();
    let mut world = World::new(&server, 2);
    let ids = world.ids(3);
    assert_eq!(world.acquire(&ids), Some(true));
    let clock = world.server.now_ms() as i64 + LEASE_MS + SLACK_MS;
    let java = world.ids(1);
    let mut args = vec!["1".to_owned(), (clock + LEASE_MS).to_string(), (clock - 2_000).to_string()];
    args.extend(java.clone());
    let acquire = with_hex(JAVA_ACQUIRE, 4, false);
    assert_eq!(world.run(&acquire, &args), Value::Nil, "not ended by a clock within the slack");
    args[2] = (clock + 1_000).to_string();
    assert_ne!(world.run(&acquire, &args), Value::Nil);
    assert_eq!(world.release(&ids), lua::reply("LOST"), "one of three was taken");
    assert_eq!(world.see().0, Some(2));
    // A copy of the acquire that finds only some of its permits: it completes them, or gives them back.
    let batch = world.ids(2);
    assert_eq!(world.acquire(&batch), Some(true));
    world.release(&batch[..1]);
    assert_eq!(world.acquire(&batch), Some(true), "it was completed");
    world.release(&batch[1..]);
    let other = world.ids(1);
    assert_eq!(world.acquire(&other), Some(true));
    assert_eq!(world.acquire(&batch), Some(false), "it was given back");
    assert_eq!(world.see().0, Some(1));
}

/// What the scripts publish: the number of available permits, and never less than one, because Java's client fails on those.
#[test]
fn the_number_of_available_permits_is_published_if_there_are_any() {
    let server = Server::start();
    let world = World::new(&server, 1);
    let server = &world.server;
    let id = "0123456789abcdef";
    let published = |file: &str, args: &[&str]| {
        server.run::<()>(&["SET", "published", "nothing"]);
        let text =
            lua::source(file).replace("redis.pcall('publish', channel, ", "redis.call('set', 'published', ");
        server.run::<Value>(
            &[&["EVAL", &text, "2", "a", "{a}:timeout"], args, lua::in_time(file).as_slice()].concat(),
        );
        server.run::<String>(&["GET", "published"])
    };
    let state = |number: &str, ends: &str| {
        server.run::<()>(&["DEL", "{a}:timeout"]);
        server.run::<()>(&["SET", "a", number]);
        server.run::<()>(&["ZADD", "{a}:timeout", ends, id]);
    };
    for (number, told) in [("0", "1"), ("4", "5"), ("-1", "nothing"), ("-3", "nothing")] {
        state(number, "922337203685477");
        assert_eq!(published("semaphore/release.lua", &[id, "c"]), told);
        assert_eq!(published("semaphore/release.lua", &[id, "c"]), "nothing", "a second copy");
        state(number, "5");
        let wanted = number.parse::<i64>().unwrap().max(1);
        let ids: String = (0..wanted).map(|i| format!("fedcba987654321{i}")).collect();
        assert_eq!(published("semaphore/acquire.lua", &[&ids, "9", "1000", "0", "c"]), told);
    }
    for (number, total, told) in [
        ("0", "3", "2"),
        ("0", "1", "nothing"),
        ("2", "2", "1"),
        ("2", "3", "nothing"),
        ("-3", "1", "nothing"),
    ] {
        state(number, "922337203685477");
        assert_eq!(published("semaphore/resize.lua", &[total, "c"]), told);
        assert_eq!(published("semaphore/resize.lua", &[total, "c"]), "nothing", "a second copy");
    }
    state("0", "922337203685477");
    assert_eq!(published("semaphore/delete.lua", &["7", "c"]), "7");
    assert_eq!(published("semaphore/delete.lua", &["7", "c"]), "nothing");
}

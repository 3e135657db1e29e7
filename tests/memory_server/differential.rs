//! The in-memory server beside a real one: the same state, the same command, the same reply and the same state after it. `tests/model/`
//! compares what scripts do there.
//!
//! Each step takes the state of the real server, runs a command there, builds the same state in an in-memory server of the same
//! time, and runs the command there. `LOCKKEEPER_STEPS` and `LOCKKEEPER_SEED` name other numbers of steps and seeds.

use std::collections::BTreeMap;
use std::env;
use std::thread;
use std::time::Duration;

use lockkeeper_memory::MemoryServer;
use lockkeeper_testkit::Server;
use tokio::time::advance;

use crate::memory_server::dice::{Dice, all_keys, words};
use crate::memory_server::resp::{Real, Reply};

/// Choices of `HRANDFIELD` that are tried before a reply counts as wrong.
const CHOICES: u64 = 500;

/// Random numbers of seeds that are close to each other begin alike.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Steps that the report of a failure shows at most.
const REPORTED: usize = 8;

/// Long enough before a step that no expiry is over.
const BEFORE: Duration = Duration::from_secs(10);

/// The keys that exist. Of each: when it expires, in ms since 1970 (-1: never), and what it holds.
type State = BTreeMap<String, (i64, Held)>;

#[derive(Clone, Debug, PartialEq)]
enum Held {
    Hash(Vec<Reply>),
    List(Vec<Reply>),
    Scores(Vec<Reply>),
    Text(Reply),
}

/// A reply, and the state after it.
type Outcome = (Reply, State);

pub fn setting(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

/// The questions that tell what a key holds.
fn questions(key: &str, expiry: &str) -> [Vec<String>; 5] {
    [
        words(["GET", key]),
        words(["HGETALL", key]),
        words(["LRANGE", key, "0", "-1"]),
        words(["ZRANGE", key, "0", "-1", "WITHSCORES"]),
        // Last: it decides whether the key still exists.
        words([expiry, key]),
    ]
}

/// What the answers to the questions say.
fn held(answers: &[Reply]) -> Option<(i64, Held)> {
    let [text, hash, list, scores, Reply::Int(expires)] = answers else { panic!("{answers:?}") };
    let held = match (text, hash, list, scores) {
        (Reply::Text(Some(_)), ..) => Held::Text(text.clone()),
        (_, Reply::List(Some(fields)), ..) if !fields.is_empty() => Held::Hash(fields.clone()),
        (_, _, Reply::List(Some(items)), _) if !items.is_empty() => Held::List(items.clone()),
        (_, _, _, Reply::List(Some(members))) if !members.is_empty() => Held::Scores(members.clone()),
        _ => return None,
    };
    (*expires != -2).then_some((*expires, held))
}

pub fn micros(time: Reply) -> u64 {
    let parts: Vec<u64> = time.list().iter().map(|part| part.text().parse().unwrap()).collect();
    parts[0] * 1_000_000 + parts[1]
}

/// Runs a command on the real server. Returns when it ran, earliest and latest, and what came of it.
fn run_real(real: &mut Real, command: &[String]) -> ([u64; 3], Outcome) {
    let time = words(["TIME"]);
    let mut commands = vec![time.clone(), command.to_vec(), time.clone()];
    let keys = all_keys();
    commands.extend(keys.iter().flat_map(|key| questions(key, "PEXPIRETIME")));
    commands.push(time);
    let mut replies = real.run(&commands);
    let times = [replies.remove(0), replies.remove(1), replies.pop().unwrap()].map(micros);
    let reply = replies.remove(0);
    let state = keys.into_iter().zip(replies.chunks(5)).filter_map(|(key, found)| Some((key, held(found)?)));
    (times, (reply, state.collect()))
}

fn run(server: &MemoryServer, command: &[String]) -> Reply {
    Reply::read(&mut &*server.execute(command))
}

/// Runs a command on an in-memory server at a time, on a state.
async fn run_in_memory(command: &[String], before: &State, at: u64, seed: u64) -> Outcome {
    let server = MemoryServer::simulated(Duration::from_micros(at) - BEFORE, seed);
    let start_ms = i64::try_from(at / 1_000).unwrap() - 10_000;
    for (key, (expires, held)) in before {
        let (name, items) = match held {
            Held::Hash(fields) => ("HSET", fields.clone()),
            Held::List(items) => ("RPUSH", items.clone()),
            Held::Scores(members) => {
                ("ZADD", members.chunks(2).flat_map(|pair| [pair[1].clone(), pair[0].clone()]).collect())
            }
            Held::Text(text) => ("SET", vec![text.clone()]),
        };
        let mut build = words([name, key]);
        build.extend(items.iter().map(Reply::text));
        assert!(!matches!(run(&server, &build), Reply::Error(_)), "{build:?}");
        if *expires != -1 {
            let expire = words(["PEXPIRE", key, &(expires - start_ms).to_string()]);
            assert_eq!(run(&server, &expire), Reply::Int(1), "{expire:?}");
        }
    }
    advance(BEFORE).await;
    let reply = run(&server, command);
    let now_ms = start_ms + 10_000;
    let found = all_keys().into_iter().filter_map(|key| {
        let answers = questions(&key, "PTTL").map(|question| run(&server, &question));
        let (left_ms, held) = held(&answers)?;
        Some((key, (if left_ms == -1 { -1 } else { now_ms + left_ms }, held)))
    });
    (reply, found.collect())
}

/// How far numbers may differ.
#[derive(Clone, Copy)]
struct Slack {
    /// Of those that are microseconds since 1970.
    us: u64,
    /// Of others, which may be milliseconds.
    ms: u64,
    /// The code of an error is enough: the in-memory server has the texts of Redis 7.
    by_code: bool,
}

pub fn code(error: &str) -> Option<&str> {
    error.split_whitespace().next()
}

impl Slack {
    fn allows(self, one: u64, other: u64) -> bool {
        let slack = if one.min(other) > 1_000_000_000_000_000 { self.us } else { self.ms };
        one.abs_diff(other) <= slack
    }

    fn allows_texts(self, one: &[u8], other: &[u8]) -> bool {
        let parts = |text: &[u8]| -> Vec<(bool, String)> {
            let chunks = text.chunk_by(|one, other| one.is_ascii_digit() == other.is_ascii_digit());
            chunks
                .map(|part| (part[0].is_ascii_digit(), String::from_utf8_lossy(part).into_owned()))
                .collect()
        };
        let (one, other) = (parts(one), parts(other));
        let fits = |((is_number, one), (_, other)): (&(bool, String), &(bool, String))| {
            one == other
                || *is_number
                    && matches!((one.parse(), other.parse()), (Ok(one), Ok(other)) if self.allows(one, other))
        };
        one.len() == other.len() && one.iter().zip(&other).all(fits)
    }

    fn allows_replies(self, one: &Reply, other: &Reply) -> bool {
        match (one, other) {
            (Reply::Text(Some(one)), Reply::Text(Some(other))) => {
                one == other || self.allows_texts(one, other)
            }
            (Reply::Int(one), Reply::Int(other)) => {
                one == other
                    || *one >= 0 && *other >= 0 && self.allows(one.unsigned_abs(), other.unsigned_abs())
            }
            (Reply::List(Some(one)), Reply::List(Some(other))) => self.allows_lists(one, other),
            (Reply::Error(one), Reply::Error(other)) if self.by_code => code(one) == code(other),
            _ => one == other,
        }
    }

    fn allows_lists(self, one: &[Reply], other: &[Reply]) -> bool {
        one.len() == other.len() && one.iter().zip(other).all(|(one, other)| self.allows_replies(one, other))
    }

    fn allows_held(self, one: &Held, other: &Held) -> bool {
        match (one, other) {
            (Held::Hash(one), Held::Hash(other))
            | (Held::List(one), Held::List(other))
            | (Held::Scores(one), Held::Scores(other)) => self.allows_lists(one, other),
            (Held::Text(one), Held::Text(other)) => self.allows_replies(one, other),
            _ => false,
        }
    }

    /// Compares what both did. What ended before the real server was asked about it does not count.
    fn allows_outcomes(self, real: &Outcome, memory: &Outcome, asked_ms: i64) -> bool {
        let is_over = |(expires, _): &(i64, Held)| *expires != -1 && *expires <= asked_ms + 1;
        let lasting = |state: &State, other: &State| -> State {
            let lasts = |key: &str| ![state, other].iter().any(|state| state.get(key).is_some_and(is_over));
            state
                .iter()
                .filter(|(key, _)| lasts(key))
                .map(|(key, held)| (key.clone(), held.clone()))
                .collect()
        };
        let (one, other) = (lasting(&real.1, &memory.1), lasting(&memory.1, &real.1));
        self.allows_replies(&real.0, &memory.0)
            && one.len() == other.len()
            && one.iter().zip(&other).all(|((one_key, (one_expires, one)), (key, (expires, other)))| {
                one_key == key && one_expires.abs_diff(*expires) <= self.ms && self.allows_held(one, other)
            })
    }
}

#[derive(Debug, Default)]
struct Counts {
    exact: u64,
    by_another_choice: u64,
    by_another_millisecond: u64,
    while_its_clock_went_on: u64,
    swept: u64,
}

/// Whether the in-memory server could have done what the real one did.
async fn explain(
    command: &[String],
    before: &State,
    times: [u64; 3],
    real: &Outcome,
    by_code: bool,
    counts: &mut Counts,
) -> Result<(), Outcome> {
    let [earliest, latest, asked] = times;
    let strict = Slack { us: latest - earliest + 100, ms: 0, by_code };
    let asked_ms = i64::try_from(asked / 1_000).unwrap();
    let first = run_in_memory(command, before, earliest, 0).await;
    if strict.allows_outcomes(real, &first, asked_ms) {
        counts.exact += 1;
        return Ok(());
    }
    let milliseconds = (earliest / 1_000 + 1..=latest / 1_000).map(|ms| ms * 1_000);
    let times: Vec<u64> = [earliest].into_iter().chain(milliseconds).collect();
    // A real server also looks for expired keys by itself, and deletes them in the millisecond in which a command still finds them.
    let lasts = |expires: i64| expires < 0 || expires.unsigned_abs() > latest / 1_000;
    let swept: State = before
        .iter()
        .filter(|(_, (expires, _))| lasts(*expires))
        .map(|(key, held)| (key.clone(), held.clone()))
        .collect();
    if swept.len() < before.len() {
        let memory = run_in_memory(command, &swept, earliest, 0).await;
        if strict.allows_outcomes(real, &memory, asked_ms) {
            counts.swept += 1;
            return Ok(());
        }
    }
    for at in &times {
        for seed in 0..CHOICES {
            let memory = run_in_memory(command, before, *at, seed.wrapping_mul(SPREAD)).await;
            if strict.allows_outcomes(real, &memory, asked_ms) {
                *(if *at == earliest {
                    &mut counts.by_another_choice
                } else {
                    &mut counts.by_another_millisecond
                }) += 1;
                return Ok(());
            }
            // In a script, the clock of Redis 7.0 goes on. That of later versions stands still, as in memory.
            let passed = latest / 1_000 - earliest / 1_000;
            if passed > 0 && (Slack { ms: passed, ..strict }).allows_outcomes(real, &memory, asked_ms) {
                counts.while_its_clock_went_on += 1;
                return Ok(());
            }
        }
    }
    Err(first)
}

#[tokio::test(start_paused = true)]
async fn the_same_commands_have_the_same_outcomes() {
    let server = Server::start();
    let mut real = Real::connect(server.port());
    let by_code = !real.is_redis_7();
    let (steps, seed) = (setting("LOCKKEEPER_STEPS", 10_000), setting("LOCKKEEPER_SEED", 1));
    let mut dice = Dice::new(seed);
    let mut before = State::new();
    let mut now = micros(real.run(&[words(["TIME"])]).remove(0));
    let (mut counts, mut calls, mut changes) = (Counts::default(), BTreeMap::<String, u64>::new(), 0_u64);
    let mut unexplained = Vec::new();
    for step in 0..steps {
        if dice.rng.u8(..60) == 0 {
            real.run(&[words(["FLUSHALL"])]);
            before.clear();
        }
        if dice.rng.u8(..30) == 0 {
            thread::sleep(Duration::from_millis(dice.rng.u64(1..6))); // so that some keys expire between two steps
        }
        let command = dice.command(now / 1_000);
        let Some(name) = command.first().map(|name| name.to_uppercase()) else { continue };
        *calls.entry(name.clone()).or_default() += 1;
        let (times, outcome) = run_real(&mut real, &command);
        if let Err(memory) = explain(&command, &before, times, &outcome, by_code, &mut counts).await {
            unexplained.push(format!(
                "step {step}, {name} {:?}\non {before:?}\nreal:   {:?} {:?}\nmemory: {:?} {:?}\n",
                &command[1..],
                outcome.0,
                outcome.1,
                memory.0,
                memory.1
            ));
            if unexplained.len() == REPORTED {
                break;
            }
        }
        changes += u64::from(before != outcome.1);
        (before, now) = (outcome.1, times[2]);
    }
    println!("{steps} steps of seed {seed}, {changes} changes: {counts:?}\n{calls:?}");
    assert!(unexplained.is_empty(), "seed {seed}: {}", unexplained.join("\n"));
    assert!(changes > steps / 10, "it compares little");
    assert!(counts.exact > steps * 8 / 10, "most replies are no matter of luck: {counts:?}");
}

/// What is not about keys.
#[tokio::test(start_paused = true)]
async fn the_rest_has_the_same_replies() {
    let server = Server::start();
    let mut real = Real::connect(server.port());
    let by_code = !real.is_redis_7();
    let memory = MemoryServer::new();
    let commands: [&[&str]; 34] = [
        &["PING"],
        &["ping", "x"],
        &["PING", "x", "y"],
        &["PUBLISH", "x", "y"],
        &["PUBLISH", "x"],
        &["SELECT", "0"],
        &["NOSUCH", "a", "b"],
        &["NOSUCH"],
        &["HELLO", "9"],
        &["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "0"],
        &["EVALSHA", "x", "y"],
        &["EVAL", "return 1", "x"],
        &["EVAL", "return 1", "-1"],
        &["EVAL", "return 1", "1"],
        &["EVAL", "return KEYS[1] .. ARGV[1]", "1", "a", "b"],
        &["EVAL", "return {1, 2.9, 'a', {true, false}, nil, 3}", "0"],
        &["EVAL", "return redis.call('nosuch')", "0"],
        &["EVAL", "\nreturn redis.call('get')", "0"],
        &["EVAL", "return redis.call('subscribe', 'x')", "0"],
        &["EVAL", "return redis.call()", "0"],
        &["EVAL", "return redis.call('get', {})", "0"],
        &["EVAL", "return redis.pcall('nosuch')", "0"],
        &["EVAL", "return redis.call('set', 'a', 1.5)", "0"],
        &["EVAL", "return redis.call('set', 'a', 2^53)", "0"],
        &["EVAL", "return redis.call('get', 'a')", "0"],
        &["EVAL", "return redis.call('hget', 'a', 'b')", "0"],
        &["EVAL", "#!lua\n\nreturn redis.call('hget', 'a', 'b')", "0"],
        &["EVAL", "#!lua\nreturn nosuch", "0"],
        &["EVAL", "#!lua\nlocal a = {} return a.b.c", "0"],
        &["EVAL", "#!lua", "0"],
        &["EVAL", "#!java\nreturn 1", "0"],
        &["EVAL", "return {err = 'MY own'}", "0"],
        &["EVAL", "return {ok = 'fine'}", "0"],
        &["SCRIPT", "LOAD", "return 5"],
    ];
    // Newer servers write out such a number. No script uses one.
    let long_numbers: [&[&str]; 2] = [
        &["EVAL", "return redis.call('set', 'a', 1e17 + 2^60)", "0"],
        &["EVAL", "return redis.call('get', 'a')", "0"],
    ];
    let mut different = Vec::new();
    for command in commands.into_iter().chain(long_numbers.into_iter().filter(|_| !by_code)) {
        let words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let real = real.run(std::slice::from_ref(&words)).remove(0);
        let memory = run(&memory, &words);
        if !(Slack { us: 0, ms: 0, by_code }).allows_replies(&real, &memory) {
            different.push(format!("{command:?}\nreal:   {real:?}\nmemory: {memory:?}\n"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

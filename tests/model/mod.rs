//! The scripts beside the model of what they do (`model/`): on a real server, on the one in memory, and the frozen scripts of an earlier
//! version beside the present ones.
//!
//! Each step makes a state on the server, runs a call there, reads the reply, the messages and the state, and compares them with the
//! model. The next step begins with the state of the server. Time passes as all times in the state become earlier, so no test sleeps.
//! `LOCKKEEPER_STEPS` and `LOCKKEEPER_SEED` name other numbers of steps and seeds.

mod draw;
mod wire;

use std::collections::BTreeSet;
use std::time::Duration;

use draw::{Dice, THEMES, for_each_time};
use fastrand::Rng;
use lockkeeper_memory::MemoryServer;
use lockkeeper_model::{Call, Counter, Lock, Message, Reply, State, step};
use lockkeeper_testkit::{Server, lua};
use wire::{Words, fits, frozen, observed, script};

use crate::memory_server::differential::{micros, setting};
use crate::memory_server::resp::{Real, Reply as Found};

/// The most calls in one command, and the most readers.
const BATCH: u32 = 3;
const READERS: usize = 5;

enum Store {
    Real(Real),
    Memory(MemoryServer),
}

impl Store {
    fn run(&mut self, commands: &[Words]) -> Vec<Found> {
        match self {
            Self::Real(real) => real.run(commands),
            Self::Memory(memory) => {
                commands.iter().map(|words| Found::read(&mut &*memory.execute(words))).collect()
            }
        }
    }

    fn now_us(&mut self) -> i64 {
        let time = self.run(&[vec!["TIME".to_owned()]]).remove(0);
        i64::try_from(micros(time)).expect("a time")
    }
}

/// What a server did: its replies, its messages, its state, and its time before and after.
struct Outcome {
    replies: Vec<Found>,
    published: Words,
    state: State,
    times: [i64; 2],
}

/// Runs calls of one script in one command, on this state.
fn run(store: &mut Store, before: &State, calls: &[Call], is_frozen: bool) -> Outcome {
    let old = if is_frozen { frozen(&calls[0], before) } else { None };
    let (file, ..) = script(&calls[0]);
    let is_renewal = file.ends_with("/renew.lua");
    let is_list = is_renewal || calls.len() > 1;
    let (head, parameters) = old.unwrap_or_else(|| {
        let (mut text, mut keys, mut args) = (lua::source(file), Vec::new(), Vec::new());
        for call in calls {
            let (_, of_call, mut arguments) = script(call);
            keys.extend(of_call);
            // A renewal has one lease for all of its holds.
            arguments.drain(..usize::from(is_renewal && !args.is_empty()));
            args.extend(arguments);
        }
        if is_list && !is_renewal {
            text = lua::batch(&text);
        }
        (vec!["EVAL".to_owned(), text, keys.len().to_string()], [keys, args].concat())
    });
    let mut eval = [head, parameters].concat();
    eval[1] = observed(&eval[1], before.listeners);
    let now = store.now_us() / 1000;
    let now = matches!(store, Store::Memory(_)).then_some(now);
    let time = vec!["TIME".to_owned()];
    let mut commands = wire::build(before, now);
    let built = commands.len();
    commands.extend([time.clone(), eval, time]);
    commands.extend(wire::look(now.is_some()));
    let mut found = store.run(&commands);
    for (command, reply) in commands.iter().zip(found.drain(..built)) {
        assert!(!matches!(reply, Found::Error(_)), "{command:?}: {reply:?}");
    }
    let mut found = found.into_iter();
    let mut next = || found.next().expect("a reply");
    let (earliest, reply, latest) = (micros(next()), next(), micros(next()));
    let replies = match reply {
        Found::List(Some(all)) if is_list => all,
        other => vec![other],
    };
    let (mut state, published) = wire::seen(found.collect(), now);
    (state.listeners, state.pick) = (before.listeners, before.pick);
    Outcome {
        replies,
        published,
        state,
        times: [earliest, latest].map(|us| i64::try_from(us).expect("a time")),
    }
}

/// A message as `observed` writes it.
fn written(message: &Message) -> String {
    match message {
        Message::Released => "lock 0".to_owned(),
        Message::Next(owner) => format!("fair:{} 0", wire::id(*owner)),
        Message::ReadWrite(number) => format!("rw {number}"),
        Message::Permits(number) => format!("sc {number}"),
        Message::Announced => "announced 0".to_owned(),
    }
}

/// What the model says. Each digit of `picks` tells which reader the script of a call happens to look at.
fn expect(before: &State, calls: &[Call], now_us: i64, picks: usize) -> (Vec<Reply>, Words, State) {
    let mut state = before.clone();
    let (mut replies, mut published) = (Vec::new(), Vec::new());
    for (number, call) in (0..).zip(calls) {
        state.pick = picks / READERS.pow(number) % READERS;
        let (reply, messages) = step(&mut state, call, now_us);
        replies.push(reply);
        published.extend(messages.iter().map(written));
    }
    state.pick = before.pick;
    (replies, published, state)
}

/// Removes dead readers: a script may remove those that it meets.
fn without_dead(mut state: State) -> State {
    let readers = state.readers();
    if let Some(Lock::Hash(hash)) = &mut state.locks[0]
        && hash.mode.is_some()
    {
        hash.holders.retain(|holder, _| {
            draw::is_reader(holder).is_none_or(|owner| readers.iter().any(|reader| reader.0 == owner))
        });
    }
    state
}

/// Makes times of two states equal that differ by no more than the script took.
fn align(expected: &State, found: &mut State, ms: i64, us: i64) {
    let mut times = Vec::new();
    for_each_time(&mut expected.clone(), &mut |time, _| times.push(*time));
    let mut times = times.into_iter();
    for_each_time(found, &mut |time, scale| {
        let slack = if scale == 1 { ms } else { us };
        *time = times.next().filter(|other| (*time - other).abs() <= slack).unwrap_or(*time);
    });
    for (one, other) in [(&expected.counter, &mut found.counter), (&expected.claims, &mut found.claims)] {
        if let (Some(Counter::Number(one)), Some(Counter::Number(other))) = (one, other)
            && one.abs_diff(*other) <= us.unsigned_abs()
        {
            *other = *one;
        }
    }
}

/// Whether it depends on the moment, or on luck beyond `pick`, what the scripts do.
fn is_open(before: &State, calls: &[Call], times: [i64; 2]) -> bool {
    let mut is_open = false;
    let mut state = before.clone();
    for_each_time(&mut state, &mut |time, scale| {
        let near = |time: i64| (times[0] / 1000 - 1..=times[1] / 1000 + 1).contains(&time);
        is_open |= scale == 1 && (near(*time) || near(*time + 500));
    });
    let has_dead = without_dead(before.clone()) != *before;
    let is_mixed = |lock: &Option<Lock>| matches!(lock, Some(Lock::Hash(hash)) if hash.mode.is_none() && hash.fields() > 1);
    is_open
        || calls.iter().any(|call| match call {
            Call::ReadRelease { .. } => has_dead && before.hash(0).is_some_and(|hash| hash.fields() > 5),
            Call::Claim { .. } => before.locks.iter().any(is_mixed),
            _ => false,
        })
}

/// Compares many steps of a server with the model.
fn follow(store: &mut Store, steps: u64, has_frozen: bool) {
    let seed = setting("LOCKKEEPER_SEED", 1);
    let steps = setting("LOCKKEEPER_STEPS", steps);
    let mut dice = Dice { rng: Rng::with_seed(seed), theme: THEMES[0] };
    let mut state = State::default();
    let mut last = dice.call();
    let (mut changes, mut open) = (0, 0);
    for number in 0..steps {
        if number % 50 == 0 {
            dice.theme = THEMES[dice.rng.usize(..THEMES.len())];
            state = State::default();
        }
        let now = store.now_us() / 1000;
        state.expire(now);
        dice.disturb(&mut state, now);
        state.expire(now);
        // Late copies, and several calls of one script in one command.
        let call = if dice.rng.u8(..5) == 0 { last.clone() } else { dice.call() };
        let mut calls = vec![call.clone()];
        let (file, _, args) = script(&call);
        let is_renewal = file.ends_with("/renew.lua");
        if !has_frozen && (is_renewal || lua::has_batch(file)) {
            for _ in 0..dice.rng.usize(..8) {
                let further = dice.call();
                let (other, _, arguments) = script(&further);
                if other == file && calls.len() < BATCH as usize && (!is_renewal || args[0] == arguments[0]) {
                    calls.push(further);
                }
            }
        }
        let is_frozen = has_frozen && dice.rng.bool();
        let found = run(store, &state, &calls, is_frozen);
        last = call;
        if is_open(&state, &calls, found.times) {
            open += 1;
            state = found.state;
            continue;
        }
        let [us, ms] = [1, 1000].map(|unit| found.times[1] / unit - found.times[0] / unit);
        let us = us + 1000; // the model knows a ticket and a token only by when the script began
        let is_same = |picks| {
            let (replies, published, expected) = expect(&state, &calls, found.times[0], picks);
            let (expected, mut seen) = (without_dead(expected), without_dead(found.state.clone()));
            align(&expected, &mut seen, ms, us);
            replies.len() == found.replies.len()
                && replies.iter().zip(&found.replies).all(|(one, other)| fits(one, other, ms, us))
                && published == found.published
                && expected == seen
        };
        if !(0..READERS.pow(BATCH)).any(is_same) {
            let (replies, published, expected) = expect(&state, &calls, found.times[0], 0);
            panic!(
                "step {number} of seed {seed}: {calls:?}{}\n at {:?}, on {state:?}\n\nthe model: {replies:?} {published:?}\n{expected:?}\n\n\
                 the server: {:?} {:?}\n{:?}",
                if is_frozen { " frozen" } else { "" },
                found.times,
                found.replies,
                found.published,
                found.state
            );
        }
        changes += u64::from(found.state != state);
        state = found.state;
    }
    println!("{steps} steps of seed {seed}: {changes} changes, {open} open");
    assert!(changes > steps / 5 && open < steps / 10, "{changes} changes, {open} open of {steps}");
}

#[test]
fn the_scripts_do_what_the_model_says() {
    let server = Server::start();
    follow(&mut Store::Real(Real::connect(server.port())), 8_000, false);
}

#[tokio::test(start_paused = true)]
async fn the_server_in_memory_runs_them_as_the_model_says() {
    let since_1970 = Duration::from_micros(1_700_000_000_123_456);
    follow(&mut Store::Memory(MemoryServer::simulated(since_1970, 1)), 8_000, false);
}

#[test]
fn scripts_of_version_0_1_0_do_the_same_on_the_same_keys() {
    let server = Server::start();
    follow(&mut Store::Real(Real::connect(server.port())), 5_000, true);
}

/// The model has no scripts that only look, or that test the server.
#[test]
fn each_other_script_has_a_model() {
    let without = [
        "check.lua",
        "clients/read.lua",
        "clients/write.lua",
        "inspect.lua",
        "list.lua",
        "self_test.lua",
        "semaphore/holders.lua",
        "waiters.lua",
    ];
    let mut dice = Dice { rng: Rng::with_seed(1), theme: THEMES[0] };
    let mut known = BTreeSet::from(without.map(str::to_owned));
    for theme in THEMES {
        dice.theme = theme;
        known.extend((0..2_000).map(|_| script(&dice.call()).0.to_owned()));
    }
    assert_eq!(lua::files().into_iter().collect::<BTreeSet<_>>(), known);
}

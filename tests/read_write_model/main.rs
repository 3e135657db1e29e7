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

#![allow(unreachable_pub, reason = "a test")]

#[path = "../support/mod.rs"]
mod support;

mod client;
mod command;
mod compare;
mod dice;
mod model;
mod run;
mod state;
mod wire;

use run::Run;
use support::Server;
use wire::Wire;

const SEEDS: u64 = 200;
const STEPS: usize = 200;

/// What the crate gives as the usual lease.
const USUAL_MS: u64 = 30_000;

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

//! Runs the scripts of the read-write lock beside a model of their rules.
//!
//! proptest draws scenarios: clients and Java read and write in nested sections, clients die, leases expire, commands
//! stay unanswered or stay on their way, and copies of commands arrive late. After each step two things are checked:
//!
//! - Redis against the model, which knows the rules and not the scripts: the answer, the messages, and every field,
//!   count, key and lease.
//! - Redis against the promises that owners were given. The model has no part in it, so a wrong model cannot hide a
//!   broken promise.
//!
//! Only the time of the model passes. Each step first sets all leases in Redis to what the model says; they differ from
//! it by no more than the last step took. So leases are long, and no test sleeps.
//!
//! The scenarios are the same in each run. `PROPTEST_CASES=5000` runs more of them, `PROPTEST_RNG_SEED=17` others. When
//! a scenario fails, proptest simplifies it, and the test prints what happened in the simplest one that still fails.

#![allow(unreachable_pub, reason = "a test")]

mod client;
mod command;
mod compare;
mod model;
mod run;
mod scenario;
mod state;
mod wire;

use crate::support::Server;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner, contextualize_config};
use run::Run;
use scenario::scenarios;
use wire::Wire;

/// The default lease of the crate.
const USUAL_MS: u64 = 30_000;

#[test]
fn the_scripts_behave_as_the_model_and_break_no_promise() {
    let server = Server::start();
    let outcome = TestRunner::new(config()).run(&scenarios(), |scenario| {
        let mut listening = server.connect().unwrap();
        let wire = Wire::new(&server, &mut listening, scenario.lock);
        Run::new(&scenario, wire).perform(scenario.steps)
    });
    if let Err(TestError::Fail(reason, _) | TestError::Abort(reason)) = outcome {
        panic!("{reason}");
    }
}

fn config() -> Config {
    contextualize_config(Config {
        cases: 250,
        rng_seed: RngSeed::Fixed(0),
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..Config::default()
    })
}

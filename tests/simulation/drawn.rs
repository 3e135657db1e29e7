//! Runs worlds that have an oracle of their own.

use std::fmt::Debug;
use std::ops::AddAssign;
use std::sync::Mutex;
use std::thread;

/// Runs a world for each seed, on so many threads. A world returns what it counted, and what was wrong. Returns the sum.
pub fn run_all<C: AddAssign + Debug + Default + Send>(
    (from, count): (u64, u64),
    threads: u64,
    run: impl Fn(u64) -> (C, Vec<String>) + Sync,
) -> C {
    let sum = Mutex::new(C::default());
    thread::scope(|scope| {
        for number in 0..threads {
            let (sum, run) = (&sum, &run);
            scope.spawn(move || {
                for seed in (from..from + count).filter(|seed| seed % threads == number) {
                    let (counts, wrong) = run(seed);
                    assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
                    *sum.lock().expect("no thread panics") += counts;
                }
            });
        }
    });
    sum.into_inner().expect("no thread panics")
}

/// Which worlds are asked for: `<name>_FROM` and `<name>_COUNT`.
pub fn wanted(name: &str) -> (u64, u64) {
    let variable = |which: &str, default: u64| {
        std::env::var(format!("{name}_{which}")).map_or(default, |text| text.parse().expect("a number"))
    };
    (variable("FROM", 1_000), variable("COUNT", 10_000))
}

//! Candidates, side by side.

use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    /// For one candidate in one round.
    pub slice: Duration,
}

impl Effort {
    pub const FULL: Self = Self { rounds: 5, slice: Duration::from_millis(300) };
    /// Enough to see that it works.
    pub const QUICK: Self = Self { rounds: 1, slice: Duration::from_millis(50) };

    pub fn is_quick(self) -> bool {
        self.rounds == Self::QUICK.rounds
    }

    /// Of what happens this often, so many are in a slice.
    pub fn count(self, every: Duration) -> usize {
        (self.slice.as_micros() / every.as_micros()) as usize
    }

    /// For what is rare.
    pub fn longer(self, times: u32) -> Self {
        Self { slice: self.slice * times, ..self }
    }
}

/// Runs each candidate once per round, in an order that rotates. Returns the results of each, round by round.
///
/// A first round warms up and is not counted, unless one is all.
pub fn interleave<T>(rounds: usize, candidates: usize, run: impl Fn(usize) -> T) -> Vec<Vec<T>> {
    let mut results: Vec<Vec<T>> = (0..candidates).map(|_| Vec::new()).collect();
    let warming = usize::from(rounds > 1);
    for round in 0..warming + rounds {
        for step in 0..candidates {
            let candidate = (round + step) % candidates;
            let result = run(candidate);
            if round >= warming {
                results[candidate].push(result);
            }
        }
    }
    results
}

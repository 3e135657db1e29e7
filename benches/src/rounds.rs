//! Rounds in which candidates take turns.

use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    /// The time of one candidate in one round.
    pub slice: Duration,
}

impl Effort {
    pub const FULL: Self = Self { rounds: 9, slice: Duration::from_millis(300) };
    /// Just enough to show that it works.
    pub const QUICK: Self = Self { rounds: 1, slice: Duration::from_millis(50) };

    pub fn is_quick(self) -> bool {
        self.rounds == Self::QUICK.rounds
    }

    /// How many operations of this duration fit into a slice.
    pub fn count(self, each: Duration) -> usize {
        (self.slice.as_micros() / each.as_micros()) as usize
    }

    /// The same rounds with longer slices.
    pub fn longer(self, times: u32) -> Self {
        Self { slice: self.slice * times, ..self }
    }
}

/// Runs each candidate once per round. The order rotates from round to round. Returns the results of each candidate,
/// round by round.
///
/// A first round warms up and is not counted, except if there is only one.
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

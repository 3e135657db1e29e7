//! What many numbers come to.

use std::fmt;

/// The value below which this part of the values lies. Sorts them.
pub fn percentile(values: &mut [f64], part: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let index = (values.len().saturating_sub(1)) as f64 * part;
    values.get(index.round() as usize).copied().unwrap_or(f64::NAN)
}

pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    percentile(&mut values.into_iter().collect::<Vec<_>>(), 0.5)
}

/// Ratios of two candidates in the same rounds.
#[derive(Clone, Copy)]
pub struct Ratio {
    median: f64,
    least: f64,
    greatest: f64,
}

impl Ratio {
    pub fn new<T>(rounds: &[T], to: &[T], value: impl Fn(&T) -> f64) -> Self {
        let mut ratios: Vec<f64> = rounds.iter().zip(to).map(|(a, b)| value(a) / value(b)).collect();
        let mut at = |part| percentile(&mut ratios, part);
        Self { median: at(0.5), least: at(0.0), greatest: at(1.0) }
    }

    pub fn at_least(self, target: f64) -> String {
        verdict(self.median >= target, format!("≥ {target:.2}"))
    }

    pub fn at_most(self, target: f64) -> String {
        at_most(self.median, target)
    }
}

pub fn at_most(value: f64, target: f64) -> String {
    verdict(value <= target, format!("≤ {target:.2}"))
}

fn verdict(is_met: bool, target: String) -> String {
    format!("{target} {}", if is_met { "met" } else { "MISSED" })
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} [{:.2}..{:.2}]", self.median, self.least, self.greatest)
    }
}

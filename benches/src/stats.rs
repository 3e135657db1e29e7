//! Percentiles of latencies, medians of rounds, and ratios of candidates.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// A distribution of latencies, exact to three digits.
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// All latencies of several distributions.
    pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::from_iter([]);
        for Self(part) in parts {
            all.0.add(part).expect("a histogram that grows");
        }
        all
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The microseconds that this share of the latencies does not exceed; 1.0 gives the greatest. NaN without latencies.
    pub fn micros(&self, share: f64) -> f64 {
        if self.0.is_empty() { f64::NAN } else { self.0.value_at_quantile(share) as f64 / 1e3 }
    }
}

impl FromIterator<Duration> for Latencies {
    fn from_iter<I: IntoIterator<Item = Duration>>(latencies: I) -> Self {
        let mut histogram = Histogram::new(3).expect("three digits");
        for latency in latencies {
            histogram.record(latency.as_nanos() as u64).expect("a histogram that grows");
        }
        Self(histogram)
    }
}

/// The middle of a few values, such as one per round.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The sections of the task or process with the fewest, as a share of what each would have if all had the same number.
pub fn least_share(rates: &[f64]) -> f64 {
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    least * rates.len() as f64 / rates.iter().sum::<f64>()
}

/// The ratio of two candidates, taken in each round. Over all rounds: the median, the least and the greatest.
#[derive(Clone, Copy)]
pub struct Ratio {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
}

impl Ratio {
    pub fn new<T>(rounds: &[T], to: &[T], value: impl Fn(&T) -> f64) -> Self {
        let ratios: Vec<f64> = rounds.iter().zip(to).map(|(a, b)| value(a) / value(b)).collect();
        Self {
            median: median(ratios.iter().copied()),
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    pub fn is_finite(self) -> bool {
        self.median.is_finite() && self.least.is_finite() && self.greatest.is_finite()
    }

    /// The target, and whether the median meets it.
    pub fn at_least(self, target: f64) -> String {
        verdict(self.median >= target, format!("≥ {target:.2}"))
    }

    /// The target, and whether the median meets it.
    pub fn at_most(self, target: f64) -> String {
        at_most(self.median, target)
    }
}

/// The target, and whether the value meets it.
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

//! Counters, gauges and histograms, which the crate `metrics` records. Without the feature of that name, `no_instruments.rs` stands here.

pub(crate) use metrics::Counter;
use metrics::Label;
pub(super) use metrics::{Gauge, Histogram};

use super::table::Labelled;

pub(super) fn counter(name: &'static str, with: &[Labelled]) -> Counter {
    metrics::counter!(name, labels(with))
}

pub(super) fn gauge(name: &'static str, with: &[Labelled]) -> Gauge {
    metrics::gauge!(name, labels(with))
}

pub(super) fn histogram(name: &'static str, with: &[Labelled]) -> Histogram {
    metrics::histogram!(name, labels(with))
}

fn labels(with: &[Labelled]) -> Vec<Label> {
    with.iter().map(|(name, value)| Label::new(*name, value.clone())).collect()
}

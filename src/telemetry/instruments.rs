//! Counters, gauges and histograms, which the crate `metrics` records. Without the feature of that name, `no_instruments.rs` stands here.

use metrics::Label;
pub(crate) use metrics::Counter;
pub(super) use metrics::{Gauge, Histogram};

use super::table::{Kind, Labelled, Metric, Unit};

pub(super) fn counter(metric: &Metric, with: &[Labelled]) -> Counter {
    metrics::counter!(metric.name, labels(with))
}

pub(super) fn gauge(metric: &Metric, with: &[Labelled]) -> Gauge {
    metrics::gauge!(metric.name, labels(with))
}

pub(super) fn histogram(metric: &Metric, with: &[Labelled]) -> Histogram {
    metrics::histogram!(metric.name, labels(with))
}

fn labels(with: &[Labelled]) -> Vec<Label> {
    with.iter().map(|(name, value)| Label::new(*name, value.clone())).collect()
}

pub(super) fn describe(all: &[Metric]) {
    for &Metric { name, kind, unit, description } in all {
        let unit = match unit {
            Unit::Count => metrics::Unit::Count,
            Unit::Seconds => metrics::Unit::Seconds,
        };
        match kind {
            Kind::Counter => metrics::describe_counter!(name, unit, description),
            Kind::Gauge => metrics::describe_gauge!(name, unit, description),
            Kind::Histogram => metrics::describe_histogram!(name, unit, description),
        }
    }
}

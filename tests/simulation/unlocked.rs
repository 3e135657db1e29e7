//! Code of the user that lockkeeper runs: a `tracing` subscriber and a metrics recorder. It can call anything in lockkeeper, so lockkeeper
//! must not have a mutex locked meanwhile. The subscriber and the recorder of a world check that.

use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};

/// Checks it, whatever happens.
#[derive(Clone, Copy)]
pub struct Unlocked;

fn check() {
    let locked = lockkeeper::locked_mutexes();
    assert_eq!(locked, 0, "code of the user runs while lockkeeper has a mutex locked");
}

impl Subscriber for Unlocked {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG && metadata.target().starts_with("lockkeeper")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        check();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        check();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {
        check();
    }

    fn event(&self, _: &Event<'_>) {
        check();
    }

    fn enter(&self, _: &Id) {
        check();
    }

    fn exit(&self, _: &Id) {
        check();
    }

    fn clone_span(&self, id: &Id) -> Id {
        check();
        id.clone()
    }

    fn try_close(&self, _: Id) -> bool {
        check();
        true
    }
}

impl Recorder for Unlocked {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        check();
        Counter::from_arc(Arc::new(Self))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        check();
        Gauge::from_arc(Arc::new(Self))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        check();
        Histogram::from_arc(Arc::new(Self))
    }
}

impl CounterFn for Unlocked {
    fn increment(&self, _: u64) {
        check();
    }

    fn absolute(&self, _: u64) {
        check();
    }
}

impl GaugeFn for Unlocked {
    fn increment(&self, _: f64) {
        check();
    }

    fn decrement(&self, _: f64) {
        check();
    }

    fn set(&self, _: f64) {
        check();
    }
}

impl HistogramFn for Unlocked {
    fn record(&self, _: f64) {
        check();
    }
}

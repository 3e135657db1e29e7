//! All metrics. `docs/operate.md` says what to do about each.

#![cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "nothing is recorded"))]

use std::borrow::Cow;

/// A label and its value.
pub(super) type Labelled = (&'static str, Cow<'static, str>);

/// A metric, as exporters show it.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    pub(super) description: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Count,
    Seconds,
}

macro_rules! metrics {
    ($($constant:ident = $name:literal, $kind:ident in $unit:ident: $description:literal;)*) => {
        $(
            pub(super) const $constant: Metric =
                Metric { name: $name, kind: Kind::$kind, unit: Unit::$unit, description: $description };
        )*

        /// All metrics.
        pub(super) const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    ACQUIRES = "lockkeeper_acquires_total", Counter in Count: "Calls that acquire a lock, by outcome";
    ACQUIRE_TIME = "lockkeeper_acquire_seconds", Histogram in Seconds: "Time from the call to the guard, of calls that were granted the lock";
    HELD_TIME = "lockkeeper_held_seconds", Histogram in Seconds: "Time from the guard to its release, or to the loss of the hold";
    HOLDS = "lockkeeper_holds", Gauge in Count: "Guards that hold a lock";
    WAITERS = "lockkeeper_waiters", Gauge in Count: "Calls that wait for a lock";
    LOST_HOLDS = "lockkeeper_lost_holds_total", Counter in Count: "Holds that were lost, by cause";
    RENEWALS = "lockkeeper_renewals_total", Counter in Count: "Renewals of holds by the watchdog, by outcome";
    LATENESS = "lockkeeper_renewal_lateness_seconds", Histogram in Seconds: "Time from when a renewal was due to when it succeeded";
    UNDOS = "lockkeeper_unfinished_releases", Gauge in Count: "Releases in the background that are not finished";
    CALLS = "lockkeeper_calls_total", Counter in Count: "Calls of scripts, by outcome: several can be sent in one command";
    COMMANDS = "lockkeeper_commands_total", Counter in Count: "Commands to servers, by outcome";
    ROUND_TRIP = "lockkeeper_round_trip_seconds", Histogram in Seconds: "Time from a command to its answer, of one command in eight";
    STALLS = "lockkeeper_runtime_stalls_total", Counter in Count: "How often the runtime of the program stood still for a third of the lease";
    RECONNECTS = "lockkeeper_reconnects_total", Counter in Count: "Connections that ended and are replaced";
}

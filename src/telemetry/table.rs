//! All metrics. `docs/operate.md` says what to do about each.

#![cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "nothing is recorded"))]

use std::borrow::Cow;

/// A label and its value.
pub(super) type Labelled = (&'static str, Cow<'static, str>);

/// The names of the metrics, and what the recorder is told of them.
macro_rules! all {
    ($($constant:ident = $name:literal, $describe:ident in $unit:ident: $description:literal;)*) => {
        $( pub(super) const $constant: &str = $name; )*

        pub(super) fn describe() {
            #[cfg(feature = "metrics")]
            {
                $( metrics::$describe!($name, metrics::Unit::$unit, $description); )*
            }
        }
    };
}

all! {
    ACQUIRES = "lockkeeper_acquires_total", describe_counter in Count: "Calls that acquire a lock, by outcome";
    ACQUIRE_TIME = "lockkeeper_acquire_seconds", describe_histogram in Seconds: "Time from the call to the guard, of calls that were granted the lock";
    HELD_TIME = "lockkeeper_held_seconds", describe_histogram in Seconds: "Time from the guard to its release, or to the loss of the hold";
    HOLDS = "lockkeeper_holds", describe_gauge in Count: "Guards that hold a lock";
    WAITERS = "lockkeeper_waiters", describe_gauge in Count: "Calls that wait for a lock";
    LOST_HOLDS = "lockkeeper_lost_holds_total", describe_counter in Count: "Holds that were lost, by cause";
    RENEWALS = "lockkeeper_renewals_total", describe_counter in Count: "Renewals of holds by the watchdog, by outcome";
    LATENESS = "lockkeeper_renewal_lateness_seconds", describe_histogram in Seconds: "Time from when a renewal was due to when it succeeded";
    UNDOS = "lockkeeper_unfinished_releases", describe_gauge in Count: "Releases in the background that are not finished";
    CALLS = "lockkeeper_calls_total", describe_counter in Count: "Calls of scripts, by outcome: several can be sent in one command";
    COMMANDS = "lockkeeper_commands_total", describe_counter in Count: "Commands to servers, by outcome";
    ROUND_TRIP = "lockkeeper_round_trip_seconds", describe_histogram in Seconds: "Time from a command to its answer, of one command in eight";
    STALLS = "lockkeeper_runtime_stalls_total", describe_counter in Count: "How often the runtime of the program stood still for a third of the lease";
    RECONNECTS = "lockkeeper_reconnects_total", describe_counter in Count: "Connections that ended and are replaced";
}

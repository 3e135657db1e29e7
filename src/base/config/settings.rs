//! The settings as a builder collects them and a file has them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::config::{LockConfig, LockConfigBuilder};
use crate::base::error::ConfigError;
use crate::base::options::within;

pub(super) const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

const MOST_CONNECTIONS: usize = 64;
const MOST_REPLICAS: u32 = 16;
/// The most characters of an identity.
const LONGEST_IDENTITY: usize = 64;

/// The methods of a setting: documentation, name, type, and a value for the example.
macro_rules! methods {
    ($(#[$doc:meta])* $field:ident: $type:ty, $example:expr) => {
        impl LockConfigBuilder {
            $(#[$doc])*
            ///
            /// ```
            /// # use std::time::Duration;
            /// # use lockkeeper::LockConfig;
            #[doc = concat!("let config = LockConfig::builder().", stringify!($field), "(", stringify!($example), ").build();")]
            /// ```
            pub const fn $field(mut self, $field: $type) -> Self {
                self.0.$field = $field;
                self
            }
        }

        impl LockConfig {
            #[doc = concat!("Returns the setting [`", stringify!($field), "`](LockConfigBuilder::", stringify!($field), ").")]
            ///
            /// ```
            /// # use lockkeeper::LockConfig;
            #[doc = concat!("let value = LockConfig::default().", stringify!($field), "();")]
            /// ```
            pub const fn $field(&self) -> $type {
                self.0.$field
            }
        }
    };
}

/// The settings. Durations: documentation, name, default, shortest and longest value. Values: documentation, name, type, default, and another
/// value for the example. Texts: only names.
macro_rules! settings {
    (
        durations { $( $(#[$doc:meta])* $field:ident: $default:expr, $least:expr, $most:expr; )* }
        values { $( $(#[$about:meta])* $value:ident: $type:ty = $usual:expr, $example:expr; )* }
        texts { $( $text:ident; )* }
    ) => {
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct Settings {
            $( #[serde(with = "humantime_serde")] $field: Duration, )*
            $( $value: $type, )*
            $( pub(super) $text: String, )*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $( $field: $default, )* $( $value: $usual, )* $( $text: String::new(), )* }
            }
        }

        impl Settings {
            fn check_durations(&self) -> Result<(), ConfigError> {
                $( within(stringify!($field), self.$field, $least..=$most)?; )*
                Ok(())
            }
        }

        $( methods!($(#[$doc])* $field: Duration, Duration::from_secs(2)); )*
        $( methods!($(#[$about])* $value: $type, $example); )*
    };
}

settings! {
    durations {
        /// Sets the lease of a lock that the watchdog renews. Default: 30 s. From 100 ms to a day.
        ///
        /// The watchdog renews each time a third of this lease has passed. A short lease frees the locks of a dead process sooner,
        /// but then a short pause or outage costs a live process its lock. If Java clients use the same read-write locks, it must not be longer than their
        /// `lockWatchdogTimeout`, except if that is at least 30 s.
        watchdog_lease: 30 * SECOND, 100 * MS, DAY;
        /// Sets the time after which a waiter retries if no message wakes it. Default: 3 s. From 10 ms to an hour.
        ///
        /// A lost message costs a waiter this time at most.
        safety_poll: 3 * SECOND, 10 * MS, HOUR;
        /// Sets the allowance of waiters for a fair lock: a waiter counts as alive for 4/3 of this time after its last heartbeat.
        /// Default: 6 s. From 100 ms to a minute.
        ///
        /// Heartbeats are sent after each third of this time. The waiters of a process that died delay the waiters behind them for
        /// 4/3 of this time.
        fair_allowance: 6 * SECOND, 100 * MS, MINUTE;
        /// Sets for how long the owners of this client share a lock without a command. Default: 5 ms. Up to a second; zero: never.
        ///
        /// An `RLock` or a `WriteLock` goes straight from one owner to the next. The time begins with the grant. If other
        /// clients wait, only two fifths of this time count (2 ms by default). Readers join a read hold that is not older than this time; the last one that leaves
        /// releases it. The waiters of other clients pay: they wait longer by this time plus one hold.
        sharing: 5 * MS, Duration::ZERO, SECOND;
        /// Sets how long a waiting writer stops new readers. Default: 1 s. From 10 ms to a minute; zero: it never does.
        ///
        /// A writer that has waited for 20 ms stops new readers for this time. Without such a stop, readers that always overlap starve writers.
        /// The readers pay: a new reader waits, or its `try_lock` returns `None`, until the writer has held the lock or gives up, or the time is
        /// over. A [`RedLock`](crate::RedLock) stops only those of the member for which it waits.
        ///
        /// The time should be longer than most read holds last: the writer is granted the lock when the last of them is released. If it is not
        /// granted the lock, new readers are admitted for nine times `writer_turn` after it (9 s), even if the writer has died.
        writer_turn: SECOND, Duration::ZERO, MINUTE;
        /// Sets the time limit of a command, and of a new connection. Default: 1 s. From 10 ms to a minute.
        ///
        /// With [`sync_replicas`](LockConfigBuilder::sync_replicas), an acquire also waits this long for the replicas, or for a
        /// third of `watchdog_lease` if that is shorter.
        ///
        /// Some limits are shorter, so that there is time for another try before a lease ends. A renewal has at most a
        /// sixth of `watchdog_lease`, a heartbeat at most a sixth of `fair_allowance`. A connection after the first one has at most a
        /// sixth of `watchdog_lease`, or 500 ms if that is longer.
        command_timeout: SECOND, 10 * MS, MINUTE;
        /// Sets how long a call without a time limit keeps retrying after the first fault of server or network. Default: 10 s. Up
        /// to an hour.
        retry_timeout: 10 * SECOND, Duration::ZERO, HOUR;
        /// Sets how long `connect` keeps retrying while the server is unreachable or not ready. Default: it tries once. Up to a
        /// day.
        ///
        /// Set this in a process that can start before its server.
        start_timeout: Duration::ZERO, Duration::ZERO, DAY;
    }
    values {
        /// Sets the number of replicas that must have a hold before the call returns it. Default: 0, calls do not wait for replicas. Up
        /// to 16.
        ///
        /// With 1, a hold survives the failure of the master if the promoted replica has the hold. Each acquire also waits for the
        /// replication, so it is slower, and the throughput falls. A connection that waits runs nothing else, so acquires have as many
        /// connections of their own as [`connections`](Self::connections), to each master. Renewals, releases and re-entries do not wait.
        ///
        /// If too few replicas have the hold within `command_timeout` (at most a third of `watchdog_lease`), the client releases it and tries again. Another owner can acquire the lock in
        /// between. When the time limit of the call is up, it fails with [`TooFewReplicas`](crate::Error::TooFewReplicas).
        sync_replicas: u32 = 0, 1;
        /// Sets the number of connections for commands. The name of a lock selects one. Default: 2. From 1 to 64.
        ///
        /// The masters of a cluster share them: each has `connections` divided by the number of masters, and at least one. A master keeps
        /// its number when others are added or removed.
        connections: usize = 2, 8;
        /// Sets whether the client writes to the server what it holds and waits for. Default: true.
        ///
        /// The client writes to the server which locks it has held for a second, and which calls have waited for a second. It reports
        /// calls that have waited for a lease, and deadlocks. With false, it does none of this, and
        /// [`recent_waits`](crate::LockClient::recent_waits) is empty. Other clients do not see its
        /// [`held_for`](crate::Holder::held_for) or its waits. Its own [`why`](crate::LockClient::why) shows those of other clients.
        diagnosis: bool = true, false;
        /// Sets whether messages stay in their slot of a cluster, if its servers support that. Default: true. Without a cluster, it has no effect.
        ///
        /// With true, messages are published with `SPUBLISH`. With false, they are published with `PUBLISH`, and each server passes them on to
        /// all others. All clients of a lock must agree, otherwise they do not wake each other. Redisson calls it `shardedSubscriptionMode`: set
        /// false if Java has `OFF`, or is older than Redisson 3.22.0.
        sharded_messages: bool = true, false;
        /// Sets whether the client renews its locks on a thread of its own, with a connection of its own to each master. Default: true.
        ///
        /// With true, a program that blocks its runtime keeps its locks: by a call that waits, or by a loop without an `await`. Such a program
        /// keeps them for as long as it lives, even if it never wakes up. So give such a lock a [`max_hold`](crate::LockOptionsBuilder::max_hold).
        /// [`connect`](crate::LockClient::connect) fails if the system starts no thread. With a paused clock, there is none.
        ///
        /// With false, the runtime of the caller renews, and a lock is lost if that runtime is blocked for a lease.
        watchdog_thread: bool = true, false;
    }
    texts {
        name_prefix;
        identity;
    }
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.check_durations()?;
        if !self.writer_turn.is_zero() {
            within("writer_turn", self.writer_turn, 10 * MS..=MINUTE)?;
        }
        if self.sync_replicas > MOST_REPLICAS {
            return Err(ConfigError::new("sync_replicas", format!("must be from 0 to {MOST_REPLICAS}")));
        }
        if !(1..=MOST_CONNECTIONS).contains(&self.connections) {
            return Err(ConfigError::new("connections", format!("must be from 1 to {MOST_CONNECTIONS}")));
        }
        if self.identity.len() > LONGEST_IDENTITY
            || !self.identity.bytes().all(|byte| byte.is_ascii_graphic())
        {
            let detail =
                format!("must be up to {LONGEST_IDENTITY} characters of printable ASCII, without spaces");
            return Err(ConfigError::new("identity", detail));
        }
        Ok(())
    }
}

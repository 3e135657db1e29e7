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

/// The settings that are no durations, with their defaults; then the durations: documentation, name, default, shortest and longest value.
macro_rules! settings {
    (
        { $( $other:ident: $type:ty = $value:expr; )* }
        $( $(#[$doc:meta])* $field:ident: $default:expr, $least:expr, $most:expr; )*
    ) => {
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct Settings {
            $( #[serde(with = "humantime_serde")] pub(super) $field: Duration, )*
            $( pub(super) $other: $type, )*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $( $field: $default, )* $( $other: $value, )* }
            }
        }

        impl Settings {
            fn check_durations(&self) -> Result<(), ConfigError> {
                $( within(stringify!($field), self.$field, $least..=$most)?; )*
                Ok(())
            }
        }

        impl LockConfigBuilder {
            $(
                $(#[$doc])*
                ///
                /// ```
                /// # use std::time::Duration;
                /// # use lockkeeper::LockConfig;
                #[doc = concat!("let config = LockConfig::builder().", stringify!($field), "(Duration::from_secs(2)).build();")]
                /// ```
                pub const fn $field(mut self, $field: Duration) -> Self {
                    self.0.$field = $field;
                    self
                }
            )*
        }

        impl LockConfig {
            $(
                #[doc = concat!("Returns the setting [`", stringify!($field), "`](LockConfigBuilder::", stringify!($field), ").")]
                ///
                /// ```
                /// # use lockkeeper::LockConfig;
                #[doc = concat!("let time = LockConfig::default().", stringify!($field), "();")]
                /// ```
                pub const fn $field(&self) -> Duration {
                    self.0.$field
                }
            )*
        }
    };
}

settings! {
    {
        sync_replicas: u32 = 0;
        connections: usize = 2;
        name_prefix: String = String::new();
        identity: String = String::new();
        diagnosis: bool = true;
        sharded_messages: bool = true;
        watchdog_thread: bool = true;
    }
    /// Sets the lease of a lock that the watchdog renews. Default: 30 s. From 100 ms to a day.
    ///
    /// The watchdog renews each time a third of this lease has passed. A short lease frees the locks of a dead process sooner,
    /// but then a short pause or outage costs a live process its lock. If Java clients use the same read-write locks, it must not be longer than their
    /// `lockWatchdogTimeout`, except if that is at least 30 s.
    watchdog_lease: 30 * SECOND, 100 * MS, DAY;
    /// Sets after how long a waiter that gets no message asks the server again. Default: 3 s. From 10 ms to an hour.
    ///
    /// A lost message costs a waiter this time at most.
    safety_poll: 3 * SECOND, 10 * MS, HOUR;
    /// Sets the allowance of waiters for a fair lock: a waiter counts as alive for 4/3 of this time after its last heartbeat.
    /// Default: 6 s. From 100 ms to a minute.
    ///
    /// Heartbeats are sent after each third of this time. The waiters of a process that died delay the waiters behind them for
    /// 4/3 of this time.
    fair_allowance: 6 * SECOND, 100 * MS, MINUTE;
    /// Sets for how long the owners of this client share a lock without asking the server. Default: 5 ms. Up to a second; zero: never.
    ///
    /// An `RLock` or a `WriteLock` goes straight from one owner to the next. The time begins with the grant. If the last release reached
    /// other clients, two fifths of it count. Readers join a read hold that is not older than this time; the last one that leaves
    /// releases it. The waiters of other clients pay: they wait longer by this time and one section.
    sharing: 5 * MS, Duration::ZERO, SECOND;
    /// Sets how long a waiting writer stops new readers. Default: 1 s. From 10 ms to a minute; zero: it never does.
    ///
    /// A writer that has waited for 20 ms stops new readers for this time. Without such a stop, readers that always overlap starve writers.
    /// The readers pay: a new reader waits, or its `try_lock` returns `None`, until the writer has held the lock or gives up, or the time is
    /// over. A [`RedLock`](crate::RedLock) stops no readers.
    ///
    /// The time should be longer than most read holds last: the writer is granted the lock when the last of them is released. If it is not
    /// granted the lock, new readers are admitted for nine times as long, also if the writer has died.
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

//! The settings of a client.

mod settings;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::config::settings::Settings;
use crate::base::error::ConfigError;

/// The longest wait of a Java client for a fair lock for which it keeps the order: Redisson's default of `fairLockWaitTimeout`.
pub(crate) const JAVA_FAIR_WAIT: Duration = Duration::from_secs(300);
/// For how much the clock of a Java client can be ahead of the server's.
pub(crate) const JAVA_CLOCK_SLACK: Duration = Duration::from_millis(500);
/// Redisson's default of `lockWatchdogTimeout`.
const JAVA_WATCHDOG: Duration = Duration::from_secs(30);

/// How many replicas must have a hold, and how long an acquire waits for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replication {
    pub(crate) replicas: u32,
    pub(crate) timeout: Duration,
}

impl Replication {
    /// No replicas.
    pub(crate) const NONE: Self = Self { replicas: 0, timeout: Duration::from_millis(1) };
}

/// The settings of a [`LockClient`](crate::LockClient). A `LockConfig` that exists is valid.
///
/// It is built with [`builder`](Self::builder), or read with serde. In a file, durations are text such as `"30s"` or
/// `"1m 500ms"`. Every field can be left out; an unknown field is an error.
///
/// ```
/// # use std::time::Duration;
/// # use lockkeeper::LockConfig;
/// let config: LockConfig = toml::from_str(r#"
///     watchdog_lease = "20s"
///     name_prefix = "shop:"
/// "#)?;
/// let same = LockConfig::builder().watchdog_lease(Duration::from_secs(20)).name_prefix("shop:").build()?;
/// assert_eq!(config, same);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// | field | default | meaning |
/// |---|---|---|
/// | `watchdog_lease` | `30s` | the lease of a lock that the watchdog renews (Redisson's `lockWatchdogTimeout`) |
/// | `safety_poll` | `3s` | a waiter that gets no message asks the server again after this time |
/// | `fair_allowance` | `6s` | a waiter for a fair lock counts as alive for 4/3 of this time after its last heartbeat |
/// | `sharing` | `5ms` | the owners of this client share a lock for at most this time without asking the server; `0s`: never |
/// | `writer_turn` | `1s` | a writer that has waited for 20 ms stops new readers for at most this time; `0s`: never |
/// | `command_timeout` | `1s` | the time limit of a command, and of a new connection |
/// | `retry_timeout` | `10s` | a call without a time limit keeps retrying for this long after the first fault of server or network |
/// | `start_timeout` | `0s` | `connect` keeps retrying for this long while the server is unreachable or not ready |
/// | `sync_replicas` | `0` | the number of replicas that must have a hold before the call returns it |
/// | `connections` | `2` | connections for commands; the name of a lock selects one. The masters of a cluster share them |
/// | `name_prefix` | none | a prefix of every lock's key (Redisson's `NameMapper`) |
/// | `identity` | none | how lists name this client; without it `program@host:pid`. Up to 64 printable ASCII characters, no space |
/// | `diagnosis` | `true` | whether the client tells on the server what it holds and waits for, and reports calls that wait for long |
/// | `sharded_messages` | `true` | in a cluster, messages stay in their slot (Redisson's `shardedSubscriptionMode`). Equal in all clients |
/// | `watchdog_thread` | `true` | locks are renewed on a thread of their own, so a blocked runtime loses none |
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Settings", try_from = "Settings")]
pub struct LockConfig(Settings);

/// Builds a [`LockConfig`].
///
/// ```
/// # use std::time::Duration;
/// # use lockkeeper::LockConfig;
/// let config = LockConfig::builder().connections(4).watchdog_lease(Duration::from_secs(10)).build()?;
/// # Ok::<(), lockkeeper::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a builder does nothing until `build`"]
pub struct LockConfigBuilder(Settings);

impl LockConfig {
    /// Begins with the default settings.
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// assert_eq!(LockConfig::builder().build()?, LockConfig::default());
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub fn builder() -> LockConfigBuilder {
        LockConfigBuilder::default()
    }

    /// Begins with these settings, to change some of them.
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// let config = LockConfig::default().to_builder().name_prefix("shop:").build()?;
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub fn to_builder(&self) -> LockConfigBuilder {
        LockConfigBuilder(self.0.clone())
    }

    /// How many replicas must have a hold, and how long an acquire waits for them. `None`: no replica needs it.
    pub(crate) fn sync(&self) -> Option<Replication> {
        let replicas = self.0.sync_replicas;
        // The lease runs while an acquire waits for replicas. With this limit, most of the lease is left after the
        // wait.
        let timeout = self.command_timeout().min(self.watchdog_lease() / 3);
        (replicas > 0).then_some(Replication { replicas, timeout })
    }

    /// The shortest lease that Java's watchdog sets.
    pub(crate) fn java_watchdog(&self) -> Duration {
        self.watchdog_lease().min(JAVA_WATCHDOG)
    }

    /// Returns the setting [`sync_replicas`](LockConfigBuilder::sync_replicas).
    ///
    /// ```
    /// assert_eq!(lockkeeper::LockConfig::default().sync_replicas(), 0);
    /// ```
    pub const fn sync_replicas(&self) -> u32 {
        self.0.sync_replicas
    }

    /// Returns the setting [`connections`](LockConfigBuilder::connections).
    ///
    /// ```
    /// assert_eq!(lockkeeper::LockConfig::default().connections(), 2);
    /// ```
    pub const fn connections(&self) -> usize {
        self.0.connections
    }

    /// Returns the setting [`name_prefix`](LockConfigBuilder::name_prefix). Empty: there is none.
    ///
    /// ```
    /// assert_eq!(lockkeeper::LockConfig::default().name_prefix(), "");
    /// ```
    pub fn name_prefix(&self) -> &str {
        &self.0.name_prefix
    }

    /// Returns the setting [`identity`](LockConfigBuilder::identity). `None`: the program, the host and the process stand for it.
    ///
    /// ```
    /// assert_eq!(lockkeeper::LockConfig::default().identity(), None);
    /// ```
    pub fn identity(&self) -> Option<&str> {
        Some(&*self.0.identity).filter(|identity| !identity.is_empty())
    }

    /// Returns the setting [`diagnosis`](LockConfigBuilder::diagnosis).
    ///
    /// ```
    /// assert!(lockkeeper::LockConfig::default().diagnosis());
    /// ```
    pub const fn diagnosis(&self) -> bool {
        self.0.diagnosis
    }

    /// Returns the setting [`sharded_messages`](LockConfigBuilder::sharded_messages).
    ///
    /// ```
    /// assert!(lockkeeper::LockConfig::default().sharded_messages());
    /// ```
    pub const fn sharded_messages(&self) -> bool {
        self.0.sharded_messages
    }

    /// Returns the setting [`watchdog_thread`](LockConfigBuilder::watchdog_thread).
    ///
    /// ```
    /// assert!(lockkeeper::LockConfig::default().watchdog_thread());
    /// ```
    pub const fn watchdog_thread(&self) -> bool {
        self.0.watchdog_thread
    }
}

impl LockConfigBuilder {
    /// Sets the number of replicas that must have a hold before the call returns it. Default: 0, calls do not wait for replicas. Up
    /// to 16.
    ///
    /// With 1, a hold survives the failure of the master if the promoted replica has the hold. Each acquire also waits for the
    /// replication, so it is slower, and the throughput falls. A connection that waits runs nothing else, so acquires have as many
    /// connections of their own as [`connections`](Self::connections), to each master. Renewals, releases and re-entries do not wait.
    ///
    /// If too few replicas have the hold within `command_timeout` (at most a third of `watchdog_lease`), the client releases it and tries again. Another owner can acquire the lock in
    /// between. When the time limit of the call is up, it fails with [`TooFewReplicas`](crate::Error::TooFewReplicas).
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// let config = LockConfig::builder().sync_replicas(1).build()?;
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub const fn sync_replicas(mut self, sync_replicas: u32) -> Self {
        self.0.sync_replicas = sync_replicas;
        self
    }

    /// Sets the number of connections for commands. The name of a lock selects one. Default: 2. From 1 to 64.
    ///
    /// The masters of a cluster share them: each has `connections` divided by the number of masters, and at least one. A master keeps
    /// its number when others are added or removed.
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// let config = LockConfig::builder().connections(8).build()?;
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub const fn connections(mut self, connections: usize) -> Self {
        self.0.connections = connections;
        self
    }

    /// Sets a prefix of every lock's key. Default: none.
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// let config = LockConfig::builder().name_prefix("shop:").build()?; // the lock "a" has the key "shop:a"
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub fn name_prefix(mut self, name_prefix: impl Into<String>) -> Self {
        self.0.name_prefix = name_prefix.into();
        self
    }

    /// Sets how lists of locks and the server's `CLIENT LIST` name this client. Default: none, they name it `program@host:pid`.
    ///
    /// Up to 64 characters of printable ASCII, without spaces. Clients can have the same identity.
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// let config = LockConfig::builder().identity("billing-7").build()?;
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.0.identity = identity.into();
        self
    }

    /// Sets whether the client tells what it holds and waits for. Default: true.
    ///
    /// The client tells on the server which locks that it renews it has held for a second, and which calls have waited for a second. It reports
    /// calls that have waited for a lease, and deadlocks. With false, it does none of this, and
    /// [`recent_waits`](crate::LockClient::recent_waits) is empty. Other clients do not see its
    /// [`held_for`](crate::Holder::held_for) or its waits. Its own [`why`](crate::LockClient::why) shows those of other clients.
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// let config = LockConfig::builder().diagnosis(false).build()?;
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub const fn diagnosis(mut self, diagnosis: bool) -> Self {
        self.0.diagnosis = diagnosis;
        self
    }

    /// Sets whether messages stay in their slot of a cluster, if its servers support that. Default: true. Without a cluster, it has no effect.
    ///
    /// With true, messages are published with `SPUBLISH`. With false, they are published with `PUBLISH`, and each server passes them on to
    /// all others. All clients of a lock must agree, otherwise they do not wake each other. Redisson calls it `shardedSubscriptionMode`: set
    /// false if Java has `OFF`, or is older than Redisson 3.22.0.
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// let config = LockConfig::builder().sharded_messages(false).build()?;
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub const fn sharded_messages(mut self, sharded_messages: bool) -> Self {
        self.0.sharded_messages = sharded_messages;
        self
    }

    /// Sets whether the client renews its locks on a thread of its own, with a connection of its own to each master. Default: true.
    ///
    /// With true, a program that blocks its runtime keeps its locks: by a call that waits, or by a loop without an `await`. Such a program
    /// keeps them for as long as it lives, even if it never wakes up. So give such a lock a [`max_hold`](crate::LockOptionsBuilder::max_hold).
    /// [`connect`](crate::LockClient::connect) fails if the system starts no thread. With a paused clock, there is none.
    ///
    /// With false, the runtime of the caller renews, and a lock is lost if that runtime is blocked for a lease.
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// let config = LockConfig::builder().watchdog_thread(false).build()?;
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub const fn watchdog_thread(mut self, watchdog_thread: bool) -> Self {
        self.0.watchdog_thread = watchdog_thread;
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the first setting that is outside of its range.
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// let error = LockConfig::builder().connections(0).build().unwrap_err();
    /// assert_eq!(error.field(), "connections");
    /// ```
    pub fn build(self) -> Result<LockConfig, ConfigError> {
        self.0.try_into()
    }
}

impl TryFrom<Settings> for LockConfig {
    type Error = ConfigError;

    fn try_from(settings: Settings) -> Result<Self, ConfigError> {
        settings.check()?;
        Ok(Self(settings))
    }
}

impl From<LockConfig> for Settings {
    fn from(LockConfig(settings): LockConfig) -> Self {
        settings
    }
}

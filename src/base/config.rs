//! The settings of a client.

mod settings;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::config::settings::Settings;
use crate::base::error::ConfigError;

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

/// The settings of a [`LockClient`](crate::LockClient). An invalid value is an error of `build`, or of serde.
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
/// | `diagnosis` | `true` | whether the client writes to the server what it holds and waits for, and reports calls that wait for long |
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
        let replicas = self.sync_replicas();
        // The lease runs while an acquire waits for replicas. With this limit, most of the lease is left after the
        // wait.
        let timeout = self.command_timeout().min(self.watchdog_lease() / 3);
        (replicas > 0).then_some(Replication { replicas, timeout })
    }

    /// The shortest lease that Java's watchdog sets.
    pub(crate) fn java_watchdog(&self) -> Duration {
        self.watchdog_lease().min(JAVA_WATCHDOG)
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
}

impl LockConfigBuilder {
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

//! What must fit the settings of Redisson, where Java clients use the same locks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::config::durations::{DAY, HOUR, MINUTE, MS, SECOND, within};
use crate::base::config::sharded_messages::ShardedMessages;
use crate::base::config::text::Text;
use crate::base::error::ConfigError;

/// What must fit the settings of Redisson, where Java clients use the same locks. The names are those of Redisson.
///
/// The defaults are those of Redisson. Without Java clients, nothing here matters.
///
/// ```
/// # use std::time::Duration;
/// # use lockkeeper::{LockConfig, RedissonSettings};
/// let java = RedissonSettings::default().lock_watchdog_timeout(Duration::from_secs(10));
/// let config = LockConfig::builder().redisson(java).build()?;
/// # Ok::<(), lockkeeper::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until a client has them"]
pub struct RedissonSettings {
    pub(super) lock_watchdog_timeout: Duration,
    pub(super) fair_lock_wait_timeout: Duration,
    pub(super) sharded_subscription_mode: ShardedMessages,
    pub(super) clock_slack: Duration,
}

impl Default for RedissonSettings {
    fn default() -> Self {
        Self {
            lock_watchdog_timeout: 30 * SECOND,
            fair_lock_wait_timeout: 5 * MINUTE,
            sharded_subscription_mode: ShardedMessages::Auto,
            clock_slack: 500 * MS,
        }
    }
}

impl RedissonSettings {
    /// Sets the shortest `lockWatchdogTimeout` of Java clients that use the same read-write locks. Default: 30 s. From 100 ms to a
    /// day.
    ///
    /// Java's watchdog sets the lease of the whole lock to its `lockWatchdogTimeout`, even if a reader of this client has a
    /// longer lease. So this client restores the lease after each third of this time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::RedissonSettings;
    /// let java = RedissonSettings::default().lock_watchdog_timeout(Duration::from_secs(10));
    /// ```
    pub const fn lock_watchdog_timeout(mut self, shortest: Duration) -> Self {
        self.lock_watchdog_timeout = shortest;
        self
    }

    /// Sets the longest wait of any Java client for a fair lock: the time that is passed to Redisson's `tryLock`, or its
    /// `fairLockWaitTimeout`. Default: 5 minutes. From a second to a day.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::RedissonSettings;
    /// let java = RedissonSettings::default().fair_lock_wait_timeout(Duration::from_secs(600));
    /// ```
    pub const fn fair_lock_wait_timeout(mut self, longest: Duration) -> Self {
        self.fair_lock_wait_timeout = longest;
        self
    }

    /// Sets whether messages stay in their slots of a cluster: Redisson's `shardedSubscriptionMode`. Default:
    /// [`ShardedMessages::Auto`].
    ///
    /// ```
    /// # use lockkeeper::{RedissonSettings, ShardedMessages};
    /// let java = RedissonSettings::default().sharded_subscription_mode(ShardedMessages::On);
    /// ```
    pub const fn sharded_subscription_mode(mut self, mode: ShardedMessages) -> Self {
        self.sharded_subscription_mode = mode;
        self
    }

    /// Sets for how much the clock of a Java client that uses the same semaphores can be ahead of the server's clock. Default: 500 ms.
    /// Up to an hour.
    ///
    /// Redisson ends the lease of a permit by the clock of a Java client. So the server keeps a permit of this client for its lease and
    /// this time, and this client removes a permit that nobody renewed when it has ended for this time. A Java client whose clock is
    /// further ahead can remove a permit that is in use. Its holder notices at the next renewal.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::RedissonSettings;
    /// let java = RedissonSettings::default().clock_slack(Duration::from_secs(2));
    /// ```
    pub const fn clock_slack(mut self, slack: Duration) -> Self {
        self.clock_slack = slack;
        self
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        within("redisson.lock_watchdog_timeout", self.lock_watchdog_timeout, 100 * MS, DAY)?;
        within("redisson.fair_lock_wait_timeout", self.fair_lock_wait_timeout, SECOND, DAY)?;
        within("redisson.clock_slack", self.clock_slack, Duration::ZERO, HOUR)
    }
}

/// The settings as they are in a file.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Fields {
    lock_watchdog_timeout: Option<Text>,
    fair_lock_wait_timeout: Option<Text>,
    sharded_subscription_mode: Option<Text>,
    clock_slack: Option<Text>,
}

impl Fields {
    pub(super) fn read(self) -> Result<RedissonSettings, ConfigError> {
        let mut values = RedissonSettings::default();
        if let Some(text) = self.lock_watchdog_timeout {
            values.lock_watchdog_timeout = text.duration("redisson.lock_watchdog_timeout")?;
        }
        if let Some(text) = self.fair_lock_wait_timeout {
            values.fair_lock_wait_timeout = text.duration("redisson.fair_lock_wait_timeout")?;
        }
        if let Some(text) = self.sharded_subscription_mode {
            values.sharded_subscription_mode = ShardedMessages::parse(text)?;
        }
        if let Some(text) = self.clock_slack {
            values.clock_slack = text.duration("redisson.clock_slack")?;
        }
        Ok(values)
    }
}

impl From<RedissonSettings> for Fields {
    fn from(values: RedissonSettings) -> Self {
        let text = |time| Some(Text::new(humantime::format_duration(time).to_string()));
        Self {
            lock_watchdog_timeout: text(values.lock_watchdog_timeout),
            fair_lock_wait_timeout: text(values.fair_lock_wait_timeout),
            sharded_subscription_mode: Some(Text::new(values.sharded_subscription_mode.text())),
            clock_slack: text(values.clock_slack),
        }
    }
}

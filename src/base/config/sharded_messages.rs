//! How the clients of a cluster tell each other about releases.

use crate::base::config::text::Text;
use crate::base::error::ConfigError;

/// Whether messages stay in their slots of a cluster. Without a cluster, it means nothing.
///
/// All clients of a lock must agree, otherwise they do not wake each other. Redisson calls it `shardedSubscriptionMode`.
///
/// ```
/// # use lockkeeper::{LockConfig, RedissonSettings, ShardedMessages};
/// let java = RedissonSettings::default().sharded_subscription_mode(ShardedMessages::Off);
/// let config = LockConfig::builder().redisson(java).build()?;
/// # Ok::<(), lockkeeper::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardedMessages {
    /// They do if the servers support it. In a file: `auto`.
    #[default]
    Auto,
    /// Messages are published with `SPUBLISH`. Servers without it cannot be used. In a file: `on`.
    On,
    /// Messages are published with `PUBLISH`, and each server passes them on to all others of the cluster. In a file: `off`.
    Off,
}

impl ShardedMessages {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }

    pub(super) fn parse(text: Text) -> Result<Self, ConfigError> {
        let text = text.into_string();
        let found = [Self::Auto, Self::On, Self::Off].into_iter().find(|mode| mode.text() == text);
        found.ok_or_else(|| {
            let problem = format!("must be `auto`, `on` or `off`, not `{text}`");
            ConfigError::new("redisson.sharded_subscription_mode", problem)
        })
    }
}

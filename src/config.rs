//! What a client can be told.

use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

/// The settings of a [`LockClient`](crate::LockClient).
///
/// Made from [`LockConfig::default`] and the methods named after the fields, or read with serde, where durations are
/// text such as `"30s"` or `"1m 500ms"`, every field may be left out, and an unknown one is refused:
///
/// ```
/// # use std::time::Duration;
/// # use lockkeeper::LockConfig;
/// let config: LockConfig = toml::from_str(r#"
///     watchdog_lease = "20s"
///     name_prefix = "shop:"
/// "#)?;
/// assert_eq!(config, LockConfig::default().watchdog_lease(Duration::from_secs(20)).name_prefix("shop:"));
/// # Ok::<(), toml::de::Error>(())
/// ```
///
/// | field | default | what it sets |
/// |---|---|---|
/// | `watchdog_lease` | `30s` | lease of a lock that the watchdog renews (Redisson's `lockWatchdogTimeout`) |
/// | `margin` | `10ms` | how long before the end of its lease a hold counts as lost, at least; never less than a hundredth of the lease |
/// | `safety_poll` | `3s` | how long a waiter waits for a message before it looks for itself |
/// | `fair_allowance` | `6s` | how long a waiter for a fair lock counts as alive after it was last heard of |
/// | `fair_java_wait` | `5m` | the longest that a Java client waits for a fair lock |
/// | `java_watchdog` | `30s` | the shortest `lockWatchdogTimeout` of Java clients that read beside this one |
/// | `command_timeout` | `1s` | how long a command, or a new connection, may take |
/// | `retry_timeout` | `10s` | how long a call without a time limit of its own goes on through faults of server or network, from the first of them on |
/// | `connections` | `2` | connections for commands; the name of a lock picks one |
/// | `name_prefix` | none | put before every lock's name (Redisson's `NameMapper`) |
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
#[must_use]
pub struct LockConfig {
    #[serde(serialize_with = "as_text")]
    pub(crate) watchdog_lease: Duration,
    #[serde(serialize_with = "as_text")]
    pub(crate) margin: Duration,
    #[serde(serialize_with = "as_text")]
    pub(crate) safety_poll: Duration,
    #[serde(serialize_with = "as_text")]
    pub(crate) fair_allowance: Duration,
    #[serde(serialize_with = "as_text")]
    pub(crate) fair_java_wait: Duration,
    #[serde(serialize_with = "as_text")]
    pub(crate) java_watchdog: Duration,
    #[serde(serialize_with = "as_text")]
    pub(crate) command_timeout: Duration,
    #[serde(serialize_with = "as_text")]
    pub(crate) retry_timeout: Duration,
    pub(crate) connections: usize,
    pub(crate) name_prefix: String,
}

impl Default for LockConfig {
    fn default() -> Self {
        Self {
            watchdog_lease: Duration::from_secs(30),
            margin: Duration::from_millis(10),
            safety_poll: Duration::from_secs(3),
            fair_allowance: Duration::from_secs(6),
            fair_java_wait: Duration::from_secs(300),
            java_watchdog: Duration::from_secs(30),
            command_timeout: Duration::from_secs(1),
            retry_timeout: Duration::from_secs(10),
            connections: 2,
            name_prefix: String::new(),
        }
    }
}

/// A field, what a valid value of it is, and the value.
macro_rules! setters {
    ($( $(#[$doc:meta])* $field:ident: $type:ty; )*) => {
        impl LockConfig { $(
            $(#[$doc])*
            pub fn $field(mut self, $field: impl Into<$type>) -> Self {
                self.$field = $field.into();
                self
            }
        )* }
    };
}

setters! {
    /// The lease of a lock that the watchdog renews. It renews each third of it.
    ///
    /// The shorter, the sooner others go on when a holder dies, and the shorter the pause or outage that costs a
    /// live holder its lock. From 100 ms to a day.
    watchdog_lease: Duration;
    /// How long before the end of its lease a hold counts as lost, at least. Up to 10 s.
    ///
    /// It covers the time by which a timer may be late. It is never less than a hundredth of the lease.
    margin: Duration;
    /// How long a waiter waits for a message before it looks for itself. From 10 ms to an hour.
    ///
    /// What a lost message costs.
    safety_poll: Duration;
    /// How long a waiter in the queue of a fair lock counts as alive after it was last heard of, which is each third of
    /// this: so long, and a third more, a process that died holds up those behind it. From 100 ms to a minute.
    fair_allowance: Duration;
    /// The longest that any Java client waits for a fair lock: a waiting time given to Redisson's `tryLock`, or its
    /// `fairLockWaitTimeout`. From a second to a day.
    fair_java_wait: Duration;
    /// The shortest `lockWatchdogTimeout` of any Java client that reads under the same read-write locks. From 100 ms to a
    /// day.
    ///
    /// Java's watchdog sets the lease of the lock to this, also if others read for longer. So each third of it, the lease
    /// is raised again for the sake of each read hold here.
    java_watchdog: Duration;
    /// How long a command, or a new connection, may take. From 10 ms to a minute.
    ///
    /// Where the lease is at stake it is less, so that there is time for another try: a renewal may take a sixth of
    /// `watchdog_lease`, and so may a connection after the first, but always
    /// 500 ms.
    command_timeout: Duration;
    /// How long a call without a time limit of its own goes on through faults of server or network. Up to an hour.
    retry_timeout: Duration;
    /// Connections for commands, from 1 to 64. The name of a lock picks one.
    connections: usize;
    /// Put before every lock's name.
    name_prefix: String;
}

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

impl LockConfig {
    pub(crate) fn check(&self) -> Result<()> {
        within("watchdog_lease", self.watchdog_lease, 100 * MS, 24 * HOUR)?;
        within("margin", self.margin, Duration::ZERO, 10_000 * MS)?;
        if self.margin * 4 > self.watchdog_lease {
            return Err(problem("margin", "must be at most a quarter of `watchdog_lease`"));
        }
        within("safety_poll", self.safety_poll, 10 * MS, HOUR)?;
        within("fair_allowance", self.fair_allowance, 100 * MS, 60_000 * MS)?;
        within("fair_java_wait", self.fair_java_wait, 1_000 * MS, 24 * HOUR)?;
        within("java_watchdog", self.java_watchdog, 100 * MS, 24 * HOUR)?;
        within("command_timeout", self.command_timeout, 10 * MS, 60_000 * MS)?;
        within("retry_timeout", self.retry_timeout, Duration::ZERO, HOUR)?;
        if !(1..=64).contains(&self.connections) {
            return Err(problem("connections", "must be from 1 to 64"));
        }
        Ok(())
    }
}

fn within(field: &'static str, value: Duration, least: Duration, most: Duration) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let [value, least, most] = [value, least, most].map(humantime::format_duration);
    Err(problem(field, format!("must be from {least} to {most}, not {value}")))
}

fn problem(field: &'static str, problem: impl Into<String>) -> Error {
    Error::InvalidConfig { field, problem: problem.into() }
}

/// What stands in a file, taken as it comes, so that an error can name the field.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Raw {
    watchdog_lease: Option<Text>,
    margin: Option<Text>,
    safety_poll: Option<Text>,
    fair_allowance: Option<Text>,
    fair_java_wait: Option<Text>,
    java_watchdog: Option<Text>,
    command_timeout: Option<Text>,
    retry_timeout: Option<Text>,
    connections: Option<Text>,
    name_prefix: Option<Text>,
}

impl TryFrom<Raw> for LockConfig {
    type Error = Error;

    fn try_from(raw: Raw) -> Result<Self> {
        let default = Self::default();
        let config = Self {
            watchdog_lease: duration("watchdog_lease", raw.watchdog_lease, default.watchdog_lease)?,
            margin: duration("margin", raw.margin, default.margin)?,
            safety_poll: duration("safety_poll", raw.safety_poll, default.safety_poll)?,
            fair_allowance: duration("fair_allowance", raw.fair_allowance, default.fair_allowance)?,
            fair_java_wait: duration("fair_java_wait", raw.fair_java_wait, default.fair_java_wait)?,
            java_watchdog: duration("java_watchdog", raw.java_watchdog, default.java_watchdog)?,
            command_timeout: duration("command_timeout", raw.command_timeout, default.command_timeout)?,
            retry_timeout: duration("retry_timeout", raw.retry_timeout, default.retry_timeout)?,
            connections: number("connections", raw.connections, default.connections)?,
            name_prefix: raw.name_prefix.map_or(default.name_prefix, |Text(prefix)| prefix),
        };
        config.check()?;
        Ok(config)
    }
}

fn duration(field: &'static str, text: Option<Text>, default: Duration) -> Result<Duration> {
    let Some(Text(text)) = text else { return Ok(default) };
    humantime::parse_duration(&text)
        .map_err(|error| problem(field, format!("`{text}` is not a duration such as `30s`: {error}")))
}

fn number(field: &'static str, text: Option<Text>, default: usize) -> Result<usize> {
    let Some(Text(text)) = text else { return Ok(default) };
    text.parse().map_err(|error| problem(field, format!("`{text}` is not a number: {error}")))
}

fn as_text<S: Serializer>(time: &Duration, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*time))
}

/// A scalar of any type, as text.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Scalar;

        macro_rules! accept {
            ($($method:ident($type:ty))*) => {
                $(fn $method<E: de::Error>(self, value: $type) -> std::result::Result<Text, E> {
                    Ok(Text(value.to_string()))
                })*
            };
        }

        impl Visitor<'_> for Scalar {
            type Value = Text;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a duration such as \"30s\"")
            }

            accept! { visit_str(&str) visit_u64(u64) visit_i64(i64) visit_f64(f64) visit_bool(bool) }
        }

        deserializer.deserialize_any(Scalar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> std::result::Result<LockConfig, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read_again() {
        let config = LockConfig::default()
            .watchdog_lease(Duration::from_millis(1_500))
            .margin(20 * MS)
            .safety_poll(HOUR)
            .command_timeout(500 * MS)
            .retry_timeout(Duration::ZERO)
            .connections(3_usize)
            .name_prefix("a:");
        let json = serde_json::to_string(&config).expect("plain data");
        assert!(json.contains(r#""watchdog_lease":"1s 500ms""#), "{json}");
        assert_eq!(read(&json), Ok(config));
        assert_eq!(read("{}"), Ok(LockConfig::default()));
    }

    #[test]
    fn an_error_names_the_field() {
        for (json, field, detail) in [
            (r#"{"watchdog_lease": "3 bananas"}"#, "watchdog_lease", "3 bananas"),
            (r#"{"watchdog_lease": 30}"#, "watchdog_lease", "`30`"),
            (r#"{"watchdog_lease": "0s"}"#, "watchdog_lease", "from 100ms to 1day"),
            (r#"{"watchdog_lease": "200ms", "margin": "51ms"}"#, "margin", "a quarter of `watchdog_lease`"),
            (r#"{"margin": "1h"}"#, "margin", "not 1h"),
            (r#"{"safety_poll": true}"#, "safety_poll", "`true`"),
            (r#"{"safety_poll": "1ms"}"#, "safety_poll", "from 10ms"),
            (r#"{"command_timeout": -1.5}"#, "command_timeout", "`-1.5`"),
            (r#"{"command_timeout": "2h"}"#, "command_timeout", "to 1m"),
            (r#"{"retry_timeout": "1day"}"#, "retry_timeout", "to 1h"),
            (r#"{"connections": 0}"#, "connections", "from 1 to 64"),
            (r#"{"connections": "many"}"#, "connections", "`many` is not a number"),
            (r#"{"lease": "1s"}"#, "`lease`", "unknown field"),
        ] {
            let error = read(json).expect_err(json);
            assert!(error.contains(field) && error.contains(detail), "{json}: {error}");
        }
    }
}

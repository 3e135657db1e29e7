//! The options of one lock. No I/O and no clock.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::error::ConfigError;

/// The shortest lease that a watchdog can renew, as for `watchdog_lease`.
const SHORTEST_RENEWED: Duration = Duration::from_millis(100);

/// The shortest lease. Of a shorter one, the margin for clocks and round trips would leave nothing.
const SHORTEST: Duration = Duration::from_millis(10);

/// For how long a read hold can linger. A writer of another client can wait for so long although nobody reads.
const LINGERS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(1);

/// Long enough for every purpose, and short enough that no server overflows.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 31_557_600); // `10years`, as errors name it

const LONGEST_GROUP: usize = 64;

/// How a lock is held: its lease, its longest and shortest hold, and its group in metrics. `LockOptions` that exist are valid.
///
/// Build them once, with [`builder`](Self::builder) or with serde, and give them to each handle with [`Lock::with`](crate::Lock::with).
/// Without options, the watchdog renews the lease of the configuration until the guard is released.
///
/// ```
/// # use std::time::Duration;
/// # use lockkeeper::LockOptions;
/// let jobs: LockOptions = toml::from_str(r#"
///     renewed = "5s"
///     max_hold = "10m"
/// "#)?;
/// let same = LockOptions::builder().renewed(Duration::from_secs(5)).max_hold(Duration::from_secs(600)).build()?;
/// assert_eq!(jobs, same);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Fields", try_from = "Fields")]
pub struct LockOptions(Fields);

/// Builds [`LockOptions`].
///
/// ```
/// # use std::time::Duration;
/// # use lockkeeper::LockOptions;
/// let options = LockOptions::builder().fixed(Duration::from_secs(60)).group("reports").build()?;
/// # Ok::<(), lockkeeper::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a builder does nothing until `build`"]
pub struct LockOptionsBuilder(Fields);

/// The options as a builder collects them and a file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    renewed: Option<Duration>,
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    fixed: Option<Duration>,
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    max_hold: Option<Duration>,
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    min_hold: Option<Duration>,
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    linger: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<Cow<'static, str>>,
    #[serde(skip)]
    is_of_leader: bool,
}

/// How long the holds of a handle last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) lease: Lease,
    /// The longest hold, however the lease is renewed.
    pub(crate) max_hold: Option<Duration>,
    /// The shortest hold: the lock stays held for this time, even if it is released earlier.
    pub(crate) min_hold: Option<Duration>,
    /// The client keeps a read hold for so long after its last reader.
    pub(crate) linger: Option<Duration>,
    /// The hold is a leader's term, so its end at `max_hold` or of a fixed lease is no loss.
    pub(crate) is_of_leader: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The watchdog renews the lease of the configuration.
    #[default]
    Usual,
    /// The watchdog renews this lease.
    Renewed(Duration),
    /// Nobody renews this lease.
    Fixed(Duration),
}

impl LockOptions {
    /// Begins with the default options.
    ///
    /// ```
    /// # use lockkeeper::LockOptions;
    /// assert_eq!(LockOptions::builder().build()?, LockOptions::default());
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub fn builder() -> LockOptionsBuilder {
        LockOptionsBuilder::default()
    }

    /// Begins with these options, to change some of them. If they have `renewed`, then `fixed` is an error, and the reverse.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// let short = LockOptions::builder().renewed(Duration::from_secs(5)).build()?;
    /// let reports = short.to_builder().group("reports").build()?;
    /// assert_eq!(reports.renewed(), Some(Duration::from_secs(5)));
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub fn to_builder(&self) -> LockOptionsBuilder {
        LockOptionsBuilder(self.0.clone())
    }

    /// Returns the option [`renewed`](LockOptionsBuilder::renewed). `None`: it is not set.
    ///
    /// ```
    /// assert_eq!(lockkeeper::LockOptions::default().renewed(), None);
    /// ```
    pub const fn renewed(&self) -> Option<Duration> {
        self.0.renewed
    }

    /// Returns the option [`fixed`](LockOptionsBuilder::fixed). `None`: it is not set.
    ///
    /// ```
    /// assert_eq!(lockkeeper::LockOptions::default().fixed(), None);
    /// ```
    pub const fn fixed(&self) -> Option<Duration> {
        self.0.fixed
    }

    /// Returns the option [`max_hold`](LockOptionsBuilder::max_hold). `None`: it is not set.
    ///
    /// ```
    /// assert_eq!(lockkeeper::LockOptions::default().max_hold(), None);
    /// ```
    pub const fn max_hold(&self) -> Option<Duration> {
        self.0.max_hold
    }

    /// The same options for the terms of a leader: without a shortest hold, and with an end that is no loss.
    pub(crate) fn of_leader(&self) -> Self {
        let mut options = self.clone();
        options.0.min_hold = None;
        options.0.is_of_leader = self.max_hold().is_some() || self.fixed().is_some();
        options
    }

    /// Returns the option [`min_hold`](LockOptionsBuilder::min_hold). `None`: it is not set.
    ///
    /// ```
    /// assert_eq!(lockkeeper::LockOptions::default().min_hold(), None);
    /// ```
    pub const fn min_hold(&self) -> Option<Duration> {
        self.0.min_hold
    }

    /// Returns the option [`linger`](LockOptionsBuilder::linger). `None`: it is not set.
    ///
    /// ```
    /// assert_eq!(lockkeeper::LockOptions::default().linger(), None);
    /// ```
    pub const fn linger(&self) -> Option<Duration> {
        self.0.linger
    }

    /// Returns the option [`group`](LockOptionsBuilder::group). `None`: it is not set.
    ///
    /// ```
    /// assert_eq!(lockkeeper::LockOptions::default().group(), None);
    /// ```
    pub fn group(&self) -> Option<&str> {
        self.0.group.as_deref()
    }

    pub(crate) fn terms(&self) -> Terms {
        let Fields { max_hold, min_hold, linger, is_of_leader, .. } = self.0;
        let renewed = self.0.renewed.map_or(Lease::Usual, Lease::Renewed);
        Terms { lease: self.0.fixed.map_or(renewed, Lease::Fixed), max_hold, min_hold, linger, is_of_leader }
    }

    pub(crate) const fn shared_group(&self) -> Option<&Cow<'static, str>> {
        self.0.group.as_ref()
    }
}

impl LockOptionsBuilder {
    /// Sets the lease that the watchdog renews, instead of `watchdog_lease` of the configuration. From 100 ms to ten years.
    ///
    /// A shorter one frees the lock of a dead process sooner, and a short pause or outage costs a live process its lock. Owners of one
    /// client do not share such a lock ([guarantee 19](crate::guide::guarantees#19-owners-of-one-client-share-holds)).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// // If a worker dies, another one continues after five seconds.
    /// let jobs = LockOptions::builder().renewed(Duration::from_secs(5)).build()?;
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub const fn renewed(mut self, lease: Duration) -> Self {
        self.0.renewed = Some(lease);
        self
    }

    /// Sets a fixed lease: the lock is not renewed, and is lost at the end of the lease. From 10 ms to ten years. Not together with
    /// [`renewed`](Self::renewed).
    ///
    /// [`extend`](crate::LockGuard::extend) makes it longer.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// let minute = LockOptions::builder().fixed(Duration::from_secs(60)).build()?;
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub const fn fixed(mut self, lease: Duration) -> Self {
        self.0.fixed = Some(lease);
        self
    }

    /// Sets the longest hold: the watchdog renews the lock, but no longer than this. Then the hold is lost, and the lock is released.
    /// From 10 ms to ten years.
    ///
    /// Use this for work that can hang.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// let report = LockOptions::builder().max_hold(Duration::from_secs(600)).build()?;
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub const fn max_hold(mut self, most: Duration) -> Self {
        self.0.max_hold = Some(most);
        self
    }

    /// Sets the shortest hold: the lock stays held for this time after it was acquired, also if the guard is released or dropped before.
    /// From 10 ms to ten years, and no longer than a fixed lease or the longest hold.
    ///
    /// With [`try_lock`](crate::Lock::try_lock), this runs a job once for each tick of a schedule: the processes whose clocks are late
    /// find the lock held, although the job has ended. The time should be longer than the clocks differ, and shorter than the pause
    /// between two ticks.
    ///
    /// [`unlock`](crate::LockGuard::unlock) returns at once then. The client releases the lock when the time is over. Until then, this
    /// owner is refused like any other. If the process dies, the lock ends with its lease, which is never shorter than this time. A
    /// [`shutdown`](crate::LockClient::shutdown) waits for the time if half of `retry_timeout` is enough; otherwise it leaves the lock to
    /// its lease.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let once = LockOptions::builder().min_hold(Duration::from_secs(20)).build()?;
    /// let mut tick = locks.rlock("lock:cron:report").with(&once);
    /// if let Some(guard) = tick.try_lock().await? {
    ///     // … the job, on one replica …
    ///     guard.unlock().await?; // and no other replica runs it for 20 s
    /// }
    /// # Ok(()) }
    /// ```
    pub const fn min_hold(mut self, least: Duration) -> Self {
        self.0.min_hold = Some(least);
        self
    }

    /// Sets for how long the client keeps a read lock after its last reader has left. From 1 ms to 1 s; 20 to 50 ms suit a cache. Not
    /// together with [`renewed`](Self::renewed), [`fixed`](Self::fixed), [`max_hold`](Self::max_hold) or [`min_hold`](Self::min_hold). It has
    /// an effect only on a [`ReadLock`](crate::ReadLock), and none while the setting `sharing` is zero. A call of any lock that is not a
    /// side of a [`ReadWriteLock`](crate::ReadWriteLock), or that is a member of several, fails with [`Config`](crate::Error::Config).
    ///
    /// A read that begins meanwhile sends no command. At the end of the time, the client renews the lock with one command if somebody
    /// read meanwhile, and otherwise releases it. The price:
    ///
    /// - A writer of the same client waits for readers only, as without the option. A writer of another client waits up to `linger`
    ///   longer, and as long again for each writer in front of it. Its [`try_lock`](crate::Lock::try_lock) is refused although nobody
    ///   reads: next to busy readers, nearly each time.
    /// - If somebody deletes the lock on the server, readers still begin for up to 1.25 times `linger`.
    /// - A process that ends without [`shutdown`](crate::LockClient::shutdown) leaves the lock held until its lease ends.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let lingering = LockOptions::builder().linger(Duration::from_millis(50)).build()?;
    /// let mut prices = locks.read_write_lock("lock:prices").with(&lingering);
    /// let guard = prices.read().lock().await?;
    /// // … look the price up …
    /// guard.unlock().await?; // sends nothing, and the next read does not either
    /// # Ok(()) }
    /// ```
    pub const fn linger(mut self, time: Duration) -> Self {
        self.0.linger = Some(time);
        self
    }

    /// Sets the group: the label `group` of the lock's metrics, from 1 to 64 bytes. Without the feature `metrics`, it has no effect.
    ///
    /// Use a few fixed names, such as one for each kind of job. Each is a series of its own in the metrics, for as long as the client
    /// lives.
    ///
    /// ```
    /// # use lockkeeper::LockOptions;
    /// let orders = LockOptions::builder().group("orders").build()?;
    /// # Ok::<(), lockkeeper::ConfigError>(())
    /// ```
    pub fn group(mut self, group: impl Into<Cow<'static, str>>) -> Self {
        self.0.group = Some(group.into());
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the first option that is outside of its range, or that contradicts another one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// let error = LockOptions::builder().fixed(Duration::ZERO).build().unwrap_err();
    /// assert_eq!(error.field(), "fixed");
    /// ```
    pub fn build(self) -> Result<LockOptions, ConfigError> {
        self.0.try_into()
    }
}

impl Terms {
    /// Returns whether these are the usual terms: the watchdog renews the lease of the configuration, and the hold ends
    /// with the release.
    pub(crate) fn are_usual(&self) -> bool {
        *self == Self { linger: self.linger, ..Self::default() }
    }

    /// The lease that an attempt asks for.
    pub(crate) fn first_lease(&self, usual: Duration) -> Duration {
        let (Lease::Renewed(lease) | Lease::Fixed(lease)) = self.lease else { return self.bound(usual) };
        self.bound(lease)
    }

    fn bound(&self, lease: Duration) -> Duration {
        // The lease covers `min_hold`: if this process dies, the server still keeps the lock for that time.
        let lease = self.min_hold.map_or(lease, |least| least.max(lease));
        self.max_hold.map_or(lease, |most| most.min(lease))
    }
}

impl Fields {
    /// Rounds the durations to whole milliseconds, the unit of Redis. Refuses options that cannot be held or that contradict each other.
    fn check(&mut self) -> Result<(), ConfigError> {
        let (usual, renewed) = (SHORTEST..=LONGEST, SHORTEST_RENEWED..=LONGEST);
        for (field, time, range) in [
            ("renewed", &mut self.renewed, &renewed),
            ("fixed", &mut self.fixed, &usual),
            ("max_hold", &mut self.max_hold, &usual),
            ("min_hold", &mut self.min_hold, &usual),
            ("linger", &mut self.linger, &LINGERS),
        ] {
            *time = time.map(|time| within(field, time, range.clone())).transpose()?;
        }
        let end = self.fixed.into_iter().chain(self.max_hold).min();
        let (field, problem) = match (self.min_hold, end) {
            _ if self.renewed.is_some() && self.fixed.is_some() => {
                ("fixed", "contradicts `renewed`".to_owned())
            }
            (least, end) if self.linger.is_some() && self.renewed.or(least).or(end).is_some() => {
                ("linger", "contradicts `renewed`, `fixed`, `max_hold` and `min_hold`".to_owned())
            }
            (Some(least), Some(end)) if least > end => {
                let [least, end] = [least, end].map(humantime::format_duration);
                ("min_hold", format!("is {least}, but `fixed` or `max_hold` ends the hold after {end}"))
            }
            _ => match self.group.as_ref().map_or(1, |group| group.len()) {
                0 => ("group", "is empty".to_owned()),
                1..=LONGEST_GROUP => return Ok(()),
                _ => ("group", "is longer than 64 bytes".to_owned()),
            },
        };
        Err(ConfigError::new(field, problem))
    }
}

/// Returns a duration of this field in whole milliseconds.
pub(crate) fn within(
    field: &'static str,
    time: Duration,
    range: RangeInclusive<Duration>,
) -> Result<Duration, ConfigError> {
    whole_millis(time, range).map_err(|problem| ConfigError::new(field, problem))
}

/// Returns a lease in whole milliseconds, or what is wrong with it.
pub(crate) fn whole_millis(lease: Duration, range: RangeInclusive<Duration>) -> Result<Duration, String> {
    if range.contains(&lease) {
        return Ok(Duration::from_millis(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)));
    }
    let [lease, shortest, longest] = [lease, *range.start(), *range.end()].map(humantime::format_duration);
    Err(format!("must be from {shortest} to {longest}, not {lease}"))
}

/// A lease that a call asks for.
pub(crate) fn asked_lease(lease: Duration) -> Result<Duration, String> {
    whole_millis(lease, SHORTEST..=LONGEST)
}

impl TryFrom<Fields> for LockOptions {
    type Error = ConfigError;

    fn try_from(mut fields: Fields) -> Result<Self, ConfigError> {
        fields.check()?;
        Ok(Self(fields))
    }
}

impl From<LockOptions> for Fields {
    fn from(LockOptions(fields): LockOptions) -> Self {
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_lease_covers_the_shortest_hold_and_not_more_than_the_longest() {
        let terms = |lease: Option<u32>, max_hold: Option<u32>, min_hold: Option<u32>| {
            let lease = lease.map_or(Lease::Usual, |lease| Lease::Fixed(lease * SECOND));
            let [max_hold, min_hold] = [max_hold, min_hold].map(|time| time.map(|time| time * SECOND));
            Terms { lease, max_hold, min_hold, ..Terms::default() }.first_lease(30 * SECOND).as_secs()
        };
        assert_eq!(terms(None, None, None), 30);
        assert_eq!(terms(None, None, Some(5)), 30);
        assert_eq!(terms(None, None, Some(90)), 90);
        assert_eq!(terms(None, Some(100), Some(90)), 90);
        assert_eq!(terms(None, Some(20), Some(10)), 20);
        assert_eq!(terms(Some(60), None, Some(50)), 60);
    }

    #[test]
    fn what_cannot_be_held_is_refused_with_the_name_of_the_option() {
        let build = LockOptions::builder;
        let day = 24 * 3_600 * SECOND;
        for (builder, field) in [
            (build().renewed(Duration::from_millis(99)), "renewed"),
            (build().fixed(Duration::from_millis(9)), "fixed"),
            (build().fixed(Duration::MAX), "fixed"),
            (build().max_hold(Duration::ZERO), "max_hold"),
            (build().min_hold(5 * 366 * 24 * 3_600 * 3 * SECOND), "min_hold"),
            (build().fixed(SECOND).min_hold(2 * SECOND), "min_hold"),
            (build().fixed(SECOND).renewed(SECOND), "fixed"),
            (build().renewed(SECOND).fixed(SECOND), "fixed"),
            (build().max_hold(SECOND).min_hold(2 * SECOND), "min_hold"),
            (build().linger(Duration::from_micros(999)), "linger"),
            (build().linger(Duration::from_millis(1_001)), "linger"),
            (build().linger(SECOND).renewed(SECOND), "linger"),
            (build().linger(SECOND).fixed(SECOND), "linger"),
            (build().linger(SECOND).max_hold(SECOND), "linger"),
            (build().linger(SECOND).min_hold(SECOND), "linger"),
            (build().group(""), "group"),
            (build().group("g".repeat(65)), "group"),
        ] {
            assert_eq!(builder.clone().build().map_err(|error| error.field()), Err(field), "{builder:?}");
        }
        for builder in [
            build().renewed(SECOND).min_hold(day),
            build().renewed(2 * SECOND).renewed(SECOND),
            build().fixed(LONGEST).min_hold(LONGEST),
            build().linger(Duration::from_millis(1)),
            build().linger(SECOND).group("g"),
            build().group("g".repeat(64)),
        ] {
            builder.build().expect("valid");
        }
    }

    #[test]
    fn a_file_has_the_same_options_and_refuses_what_it_does_not_know() {
        let options = LockOptions::builder()
            .renewed(5 * SECOND)
            .max_hold(60 * SECOND)
            .group("a")
            .build()
            .expect("valid");
        let text = serde_json::to_string(&options).expect("serde");
        assert_eq!(text, r#"{"renewed":"5s","max_hold":"1m","group":"a"}"#);
        assert_eq!(serde_json::from_str::<LockOptions>(&text).expect("serde"), options);
        assert_eq!((options.renewed(), options.fixed()), (Some(5 * SECOND), None));
        assert_eq!((options.max_hold(), options.min_hold()), (Some(60 * SECOND), None));
        assert_eq!(options.group(), Some("a"));
        assert_eq!(options.to_builder().build().as_ref(), Ok(&options));
        let lingering: LockOptions = serde_json::from_str(r#"{"linger":"50ms"}"#).expect("serde");
        assert_eq!(lingering.linger(), Some(Duration::from_millis(50)));
        let both = options.to_builder().fixed(SECOND).build();
        assert_eq!(both.map_err(|error| error.field()), Err("fixed"));
        for (text, said) in [
            (r#"{"renewed":"1s","fixed":"1s"}"#, "`fixed` contradicts `renewed`"),
            (r#"{"fixed":7}"#, "expected a duration"),
            (r#"{"lease":"1s"}"#, "unknown field `lease`"),
        ] {
            let error = serde_json::from_str::<LockOptions>(text).expect_err("refused").to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}

//! When the diagnosis looks at the calls that wait, and the last ones that waited. No lock depends on it.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use tokio::sync::watch;

use crate::base::sync::lock;
use crate::base::timer::Instant;

/// A call that has waited for so long is shown to those who look.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// The most ended waits that are kept.
const MOST: usize = 1_000;

/// Of a longer name, only so many bytes are kept: the names must not cost much memory.
const LONGEST_NAME: usize = 1_000;

/// What the diagnosis is told of calls that wait. It finds those that wait now in the lines.
pub(crate) struct Waits {
    past: Mutex<VecDeque<RecentWait>>,
    orders: watch::Sender<Orders>,
}

/// What the diagnosis is asked to do.
#[derive(Default)]
pub(crate) struct Orders {
    /// When it looks.
    pub(crate) looks_at: Option<Instant>,
    /// It removes what the server knows, and ends.
    pub(crate) ends: bool,
}

impl Waits {
    pub(crate) fn new() -> (Arc<Self>, watch::Receiver<Orders>) {
        let (orders, receiver) = watch::channel(Orders::default());
        (Arc::new(Self { past: Mutex::default(), orders }), receiver)
    }

    /// Makes the diagnosis look at this time, or before.
    pub(crate) fn look_at(&self, at: Instant) {
        self.orders.send_if_modified(|orders| {
            let is_news = orders.looks_at.is_none_or(|before| at < before);
            if is_news {
                orders.looks_at = Some(at);
            }
            is_news
        });
    }

    /// Begins a look: waits that begin from here on ask for another.
    pub(crate) fn looks(&self) {
        self.orders.send_if_modified(|orders| {
            orders.looks_at = None;
            false
        });
    }

    pub(crate) fn ended(&self, mut wait: RecentWait) {
        let kept = (0..=LONGEST_NAME.min(wait.lock.len())).rfind(|end| wait.lock.is_char_boundary(*end));
        wait.lock.truncate(kept.unwrap_or(0));
        wait.lock.shrink_to_fit();
        let mut past = lock(&self.past);
        if past.len() == MOST {
            past.pop_front();
        }
        past.push_back(wait);
    }

    /// Returns the last calls that waited, the oldest first.
    pub(crate) fn past(&self) -> Vec<RecentWait> {
        lock(&self.past).iter().cloned().collect()
    }

    /// Ends the diagnosis, which removes what it wrote.
    pub(crate) async fn end(&self) {
        self.orders.send_modify(|orders| orders.ends = true);
        self.orders.closed().await;
    }
}

/// A call of this client that waited for another owner, see [`LockClient::recent_waits`](crate::LockClient::recent_waits). With serde,
/// times are text in UTC, such as `2026-01-31T12:00:00.000Z`.
///
/// ```no_run
/// # fn demo(locks: lockkeeper::LockClient) {
/// for wait in locks.recent_waits() {
///     println!("{} at {}: {:?}, {}", wait.lock, wait.waited_at, wait.to.duration_since(wait.from), wait.outcome);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecentWait {
    /// The name of the lock. Of a name with more than 1,000 bytes, the beginning.
    pub lock: String,
    /// Where in the program the call is.
    #[serde(serialize_with = "as_text")]
    pub waited_at: &'static Location<'static>,
    /// When the wait began.
    #[serde(serialize_with = "in_utc")]
    pub from: SystemTime,
    /// When the wait ended.
    #[serde(serialize_with = "in_utc")]
    pub to: SystemTime,
    /// How the wait ended.
    pub outcome: WaitOutcome,
    /// Who held the lock: their identities and owners, eight at most. Empty: the client did not look, or found nobody. It looks when a wait has
    /// lasted for a lease, but only for one of its waits in ten seconds.
    pub holders_seen: Vec<String>,
}

/// How a [`RecentWait`] ended. Its text, and its form with serde: `granted`, `timed_out`, `given_up`.
///
/// ```no_run
/// # fn demo(locks: lockkeeper::LockClient) {
/// use lockkeeper::WaitOutcome;
///
/// let in_vain = locks.recent_waits().iter().filter(|wait| wait.outcome != WaitOutcome::Granted).count();
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum WaitOutcome {
    /// The lock was acquired.
    Granted,
    /// The time limit of the call was up.
    TimedOut,
    /// The call failed, or its future was dropped.
    GivenUp,
}

impl fmt::Display for WaitOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

fn as_text<S: Serializer>(place: &&'static Location<'static>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(place)
}

fn in_utc<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_rfc3339_millis(*time))
}

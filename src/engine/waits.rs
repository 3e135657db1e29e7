//! The calls of a client that wait, and the last ones that waited. The diagnosis reads this list, and no lock depends on it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::sync::lock;
use crate::base::timer::Instant;
use crate::protocol::Call;

/// A call that has waited for so long is shown to those who look, and one that stands behind others of its client is listed.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// The most ended waits that are kept.
const MOST: usize = 1_000;

/// Of a longer name, only so many bytes are kept: the names must not cost much memory.
const LONGEST_NAME: usize = 1_000;

/// The calls of a client that wait.
pub(crate) struct Waits<G> {
    list: Mutex<List<G>>,
    orders: Sender<Order>,
}

struct List<G> {
    /// By their numbers: the oldest first.
    now: BTreeMap<u64, Arc<Wait<G>>>,
    past: VecDeque<RecentWait>,
    /// When the diagnosis looks at the list. `None`: it waits for an order.
    looks_at: Option<Instant>,
}

/// What the diagnosis is asked to do.
pub(crate) enum Order {
    Look,
    /// Remove what the server knows, reply, and end.
    End(oneshot::Sender<()>),
}

/// A call that waits: a server refused it, because another owner holds the lock, or it has stood behind others of its client for a second.
pub(crate) struct Wait<G> {
    pub(crate) number: u64,
    /// The name of the lock.
    pub(crate) name: Arc<str>,
    pub(crate) key: Arc<str>,
    /// When the call began.
    pub(crate) since: Moment,
    pub(crate) caller: Caller,
    /// After this time, the wait is reported. `None`: the call is that of a candidate, whose work is to wait.
    pub(crate) lease: Option<Duration>,
    /// The owner id of the call.
    pub(crate) owner: Option<Arc<str>>,
    /// The owner id with which the call stands in the queue of the server, and the command that asks for its place.
    pub(crate) place: Place,
    /// Reserves what the same `Owner` holds: from here on, no other owner of the client joins these holds or takes them over.
    pub(crate) reserve: Reserve<G>,
    /// Those who look are shown this wait.
    pub(crate) is_shown: AtomicBool,
    pub(crate) is_deadlock_reported: AtomicBool,
    /// Who held the lock when the client looked. It looks once, after a lease.
    pub(crate) holders_seen: OnceLock<Vec<String>>,
}

type Place = Box<dyn Fn() -> Option<(Arc<str>, Call)> + Send + Sync>;

pub(crate) type Reserve<G> = Box<dyn Fn(Moment) -> Vec<Arc<G>> + Send + Sync>;

/// A wait in the list. Dropping this value ends it.
pub(crate) struct Waiting<G> {
    waits: Arc<Waits<G>>,
    pub(crate) wait: Arc<Wait<G>>,
    is_refused: bool,
    /// How the call ended.
    pub(crate) outcome: WaitOutcome,
}

impl<G> Waits<G> {
    pub(crate) fn new() -> (Arc<Self>, Receiver<Order>) {
        let (orders, receiver) = channel(1);
        let list = List { now: BTreeMap::new(), past: VecDeque::new(), looks_at: None };
        (Arc::new(Self { list: Mutex::new(list), orders }), receiver)
    }

    /// `is_refused`: a server said that another owner holds the lock.
    pub(crate) fn begin(self: &Arc<Self>, wait: Wait<G>, is_refused: bool) -> Waiting<G> {
        let wait = Arc::new(wait);
        lock(&self.list).now.insert(wait.number, Arc::clone(&wait));
        self.look_at(Instant::now() + wait.until_due());
        Waiting { waits: Arc::clone(self), wait, is_refused, outcome: WaitOutcome::GivenUp }
    }

    /// Makes the diagnosis look at this time, or before.
    pub(crate) fn look_at(&self, at: Instant) {
        let is_news = {
            let mut list = lock(&self.list);
            let is_news = list.looks_at.is_none_or(|before| at < before);
            if is_news {
                list.looks_at = Some(at);
            }
            is_news
        };
        if is_news {
            // If the channel is full, an order is left, and the diagnosis reads the time after it.
            let _ = self.orders.try_send(Order::Look);
        }
    }

    /// When the diagnosis looks next.
    pub(crate) fn looks_at(&self) -> Option<Instant> {
        lock(&self.list).looks_at
    }

    /// Returns the calls that wait now, the oldest first. For a look of the diagnosis: waits that begin from here on ask for another.
    pub(crate) fn look(&self) -> Vec<Arc<Wait<G>>> {
        let mut list = lock(&self.list);
        list.looks_at = None;
        list.now.values().map(Arc::clone).collect()
    }

    /// Returns the last calls that waited, the oldest first.
    pub(crate) fn past(&self) -> Vec<RecentWait> {
        lock(&self.list).past.iter().cloned().collect()
    }
}

impl<G: Send + Sync> Waits<G> {
    /// Ends the diagnosis, which removes what it wrote.
    pub(crate) async fn end(&self) {
        let (done, ended) = oneshot::channel();
        if self.orders.send(Order::End(done)).await.is_ok() {
            let _ = ended.await;
        }
    }
}

impl<G> Wait<G> {
    /// How long it takes until the wait is long, or has lasted for a lease.
    fn until_due(&self) -> Duration {
        self.lease.map_or(LONG, |lease| LONG.min(lease)).saturating_sub(clock::now().since(self.since))
    }
}

impl<G> Drop for Waiting<G> {
    fn drop(&mut self) {
        let Wait { number, name, caller, since, is_shown, holders_seen, .. } = &*self.wait;
        // The age is taken before the wall clock is read. In the other order, the wait would seem to begin before its call.
        let (age, to) = (clock::now().since(*since), SystemTime::now());
        let ended = self.is_refused.then(|| RecentWait {
            lock: name
                [..(0..=LONGEST_NAME.min(name.len())).rfind(|end| name.is_char_boundary(*end)).unwrap_or(0)]
                .to_owned(),
            waited_at: caller,
            from: to - age,
            to,
            outcome: self.outcome,
            holders_seen: holders_seen.get().cloned().unwrap_or_default(),
        });
        {
            let mut list = lock(&self.waits.list);
            list.now.remove(number);
            if list.past.len() == MOST && ended.is_some() {
                list.past.pop_front();
            }
            list.past.extend(ended);
        }
        if is_shown.load(Ordering::Relaxed) {
            self.waits.look_at(Instant::now());
        }
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
        f.pad(match self {
            Self::Granted => "granted",
            Self::TimedOut => "timed_out",
            Self::GivenUp => "given_up",
        })
    }
}

fn as_text<S: Serializer>(place: &&'static Location<'static>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(place)
}

fn in_utc<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_rfc3339_millis(*time))
}

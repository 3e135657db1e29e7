//! Who leads, for those that do not.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use tokio::time::{Instant, sleep_until};

use super::announcements::Announcements;
use crate::{Holder, LockClient, Result};

/// How often the server is asked if no message comes.
const PACE: Duration = Duration::from_secs(10);

/// If a lease ends, the server is asked then, but not more often than this.
const FASTEST: Duration = Duration::from_secs(1);

/// Who leads, see [`LeaderWatch`].
///
/// ```no_run
/// # fn demo(leader: lockkeeper::leader::Leader) {
/// println!("{} leads, at {:?}", leader.holder, leader.announcement);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The owner of the leadership, and its process. `owner` and `identity` come from the leader, and can be out of date if it was cut off or
    /// has died. The other fields are as they were when this was returned.
    pub holder: Holder,
    /// What it announces, see [`Candidate::announce`](super::Candidate::announce). `None`: nothing, not yet, or no longer: the leader has
    /// died, and its lease is about to end.
    pub announcement: Option<Vec<u8>>,
}

/// Tells who leads, for followers of a [`Candidate`](super::Candidate).
///
/// ```no_run
/// # use lockkeeper::leader::LeaderWatch;
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut watch = LeaderWatch::new(&locks, "lock:leader:reports");
/// loop {
///     match watch.changed().await? {
///         Some(leader) => println!("{} leads, and announces {:?}", leader.holder, leader.announcement),
///         None => println!("nobody leads"),
///     }
/// }
/// # }
/// ```
#[must_use = "it asks only when `changed` is called"]
pub struct LeaderWatch {
    name: Arc<str>,
    announcements: Announcements,
    /// `None`: the server was not asked yet.
    last: Option<Option<Leader>>,
    /// When the server is asked, if no message comes before.
    next: Instant,
    /// It is not asked before this time: it failed to answer.
    not_before: Instant,
    /// The question under way, and when it was asked. If a call is dropped, the next call waits for its answer: otherwise a server that
    /// answers later than the calls are dropped would never be heard.
    question: Option<(Instant, Question)>,
}

/// Never locked: the mutex lets threads share what holds a question.
type Question = Mutex<BoxFuture<'static, Result<Option<Leader>>>>;

impl LeaderWatch {
    /// Watches the leadership with this name. No network call.
    ///
    /// ```no_run
    /// # use lockkeeper::leader::LeaderWatch;
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let leader = LeaderWatch::new(&locks, "lock:leader:reports").changed().await?;
    /// # Ok(()) }
    /// ```
    pub fn new(locks: &LockClient, name: impl AsRef<str>) -> Self {
        let (name, now) = (name.as_ref(), Instant::now());
        Self {
            name: name.into(),
            announcements: Announcements::new(&locks.fenced_lock(name)),
            last: None,
            next: now,
            not_before: now,
            question: None,
        }
    }

    /// Waits until the leader or its announcement differs from what the last call returned. Returns who leads. `None`:
    /// nobody leads.
    ///
    /// The first call returns who leads now. A leader that was just elected can be returned without its announcement first, and then with
    /// it. The term of a leader can be over by the time this returns: use it to find the leader, and the
    /// [term](super::Leadership::term) to refuse an earlier one.
    ///
    /// A message wakes the call when a candidate is elected, announces something, or steps down. There is no message when a process dies: then
    /// the call asks when the lease ends. Without messages, it asks the server about each ten seconds.
    ///
    /// # Errors
    ///
    /// As for [`inspect`](crate::LockClient::inspect): the next call asks again, a second later. Or [`Closed`](crate::Error::Closed) after a
    /// shutdown of the client, or [`RuntimeGone`](crate::Error::RuntimeGone): then each call fails at once.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time, also in each round of a `select!` loop: the next call continues with the question under
    /// way, if that is not older than ten seconds. No change is missed, unless it is undone before the next call.
    ///
    /// ```no_run
    /// # use lockkeeper::leader::LeaderWatch;
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let leader = LeaderWatch::new(&locks, "lock:leader:reports").changed().await?;
    /// # Ok(()) }
    /// ```
    pub async fn changed(&mut self) -> Result<Option<Leader>> {
        let ended = self.announcements.ended();
        tokio::select! {
            biased;
            error = ended => Err(error),
            leader = self.other_leader() => leader,
        }
    }

    async fn other_leader(&mut self) -> Result<Option<Leader>> {
        // If nobody called for a while, the answer to the last question is out of date. Such a question is dropped.
        self.question = self.question.take().filter(|(asked, _)| asked.elapsed() < PACE);
        let mut is_left = self.question.is_some();
        loop {
            let (asked, question) = match &mut self.question {
                Some(question) => question,
                none => {
                    sleep_until(self.not_before).await;
                    tokio::select! {
                        // `changed` is polled first, so the first call subscribes before it asks the server. A change
                        // in between is not missed.
                        biased;
                        () = self.announcements.changed() => {}
                        () = sleep_until(self.next) => {}
                    }
                    let last = self.last.iter().flatten().next().cloned();
                    let known = last.map(|leader| (leader.holder, leader.announcement));
                    let question = self.announcements.holder(known);
                    let leader = question
                        .map_ok(|found| found.map(|(holder, announcement)| Leader { holder, announcement }));
                    none.insert((Instant::now(), Mutex::new(leader.boxed())))
                }
            };
            let answer = question.get_mut().unwrap_or_else(PoisonError::into_inner).await;
            let (asked, was_left) = (*asked, std::mem::take(&mut is_left));
            self.question = None;
            let leader = match answer {
                Ok(leader) => leader,
                // An earlier call left this question. It perhaps timed out because nobody polled it, so it is asked
                // again.
                Err(_) if was_left => {
                    self.next = asked;
                    continue;
                }
                Err(error) => {
                    self.not_before = Instant::now() + FASTEST;
                    // The message that led to this question is consumed, so `next` makes the next call ask again.
                    self.next = self.not_before;
                    return Err(error);
                }
            };
            self.next = asked + until_next(leader.as_ref());
            let is_same = |last: &Option<Leader>| seen(last.as_ref()) == seen(leader.as_ref());
            if !self.last.as_ref().is_some_and(is_same) {
                self.last = Some(leader.clone());
                return Ok(leader);
            }
        }
    }
}

/// How long to wait for a message. There is none when a lease ends.
fn until_next(leader: Option<&Leader>) -> Duration {
    let lease = leader.and_then(|leader| leader.holder.remaining_lease.duration());
    let time = lease.map_or(PACE, |lease| lease.clamp(FASTEST, PACE));
    time.mul_f64(1.0 + 0.1 * fastrand::f64())
}

/// What makes a difference for those who watch.
fn seen(leader: Option<&Leader>) -> Option<(&str, Option<&[u8]>)> {
    leader.map(|leader| (&*leader.holder.owner, leader.announcement.as_deref()))
}

impl fmt::Debug for LeaderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderWatch")
            .field("name", &self.name)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

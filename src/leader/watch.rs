//! Who leads, for those that do not.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use crate::{Error, LockClient, Result};

/// How often the server is asked.
const PACE: Duration = Duration::from_secs(1);

/// Tells who leads, for followers of a [`Candidate`](super::Candidate).
///
/// ```no_run
/// # use lockkeeper::leader::LeaderWatch;
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut watch = LeaderWatch::new(&locks, "lock:leader:reports");
/// loop {
///     match watch.changed().await? {
///         Some(leader) if leader.starts_with(&locks.id()) => println!("this client leads"),
///         Some(leader) => println!("{leader} leads"),
///         None => println!("nobody leads"),
///     }
/// }
/// # }
/// ```
#[must_use = "it asks only when `changed` is called"]
pub struct LeaderWatch {
    locks: LockClient,
    name: Arc<str>,
    /// `None`: the server was not asked yet.
    last: Option<Option<String>>,
    next: Instant,
    /// The question under way. If a call is dropped, the next call waits for its answer: otherwise a server that answers later than the
    /// calls are dropped would never be heard.
    question: Option<Question>,
}

/// Never locked: the mutex lets threads share what holds a question.
type Question = Mutex<BoxFuture<'static, Result<Option<String>>>>;

impl LeaderWatch {
    /// Watches the leadership with this name. Asks no server.
    ///
    /// ```no_run
    /// # use lockkeeper::leader::LeaderWatch;
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let leader = LeaderWatch::new(&locks, "lock:leader:reports").changed().await?;
    /// # Ok(()) }
    /// ```
    pub fn new(locks: &LockClient, name: impl AsRef<str>) -> Self {
        let (locks, name) = (locks.clone(), name.as_ref().into());
        Self { locks, name, last: None, next: Instant::now(), question: None }
    }

    /// Waits until another owner leads than the last call returned, and returns it. `None`: nobody leads. Asks the server about once
    /// each second.
    ///
    /// The first call returns who leads now. An owner is the [id of its client](crate::LockClient::id), a colon and a number. A
    /// leader can be over by the time its id arrives: use this to find the leader, and its [term](super::Leadership::term) to refuse
    /// an earlier one.
    ///
    /// # Errors
    ///
    /// As for [`inspect`](crate::LockClient::inspect): the next call asks again, about a second later. Or [`Closed`](Error::Closed)
    /// after a shutdown of the client: then each call fails at once.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time, also in each round of a `select!` loop: the next call continues with the question under
    /// way. No change is missed, unless it is undone before the next call.
    ///
    /// ```no_run
    /// # use lockkeeper::leader::LeaderWatch;
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let leader = LeaderWatch::new(&locks, "lock:leader:reports").changed().await?;
    /// # Ok(()) }
    /// ```
    pub async fn changed(&mut self) -> Result<Option<String>> {
        let locks = self.locks.clone();
        tokio::select! {
            biased;
            () = locks.closed() => Err(Error::Closed),
            leader = self.other_leader() => leader,
        }
    }

    async fn other_leader(&mut self) -> Result<Option<String>> {
        loop {
            let question = match &mut self.question {
                Some(question) => question,
                none => {
                    sleep_until(self.next).await;
                    self.next = Instant::now() + PACE.mul_f64(0.9 + 0.2 * fastrand::f64());
                    none.insert(Mutex::new(Box::pin(leader(self.locks.clone(), Arc::clone(&self.name)))))
                }
            };
            let answer = question.get_mut().unwrap_or_else(PoisonError::into_inner).await;
            self.question = None;
            let leader = answer?;
            if self.last.as_ref() != Some(&leader) {
                self.last = Some(leader.clone());
                return Ok(leader);
            }
        }
    }
}

/// Asks who leads now.
async fn leader(locks: LockClient, name: Arc<str>) -> Result<Option<String>> {
    let info = locks.inspect(&*name).await?;
    Ok(info.and_then(|info| info.holders.into_iter().next()).map(|holder| holder.owner))
}

impl fmt::Debug for LeaderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderWatch")
            .field("name", &self.name)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

//! Who leads, for those that do not.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use crate::base::error::{Error, Result};
use crate::base::jitter;
use crate::engine::{Engine, inspect};
use crate::locks::info::LockInfo;

/// How often the server is asked.
const PACE: Duration = Duration::from_secs(1);

/// Tells who leads. See [`LockClient::watch_leader`](crate::LockClient::watch_leader).
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut watch = locks.watch_leader("lock:leader:reports");
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
    engine: Arc<Engine>,
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
    pub(crate) fn new(engine: Arc<Engine>, name: &str) -> Self {
        Self { engine, name: name.into(), last: None, next: Instant::now(), question: None }
    }

    /// Waits until another owner leads than the last call returned, and returns it. `None`: nobody leads. Asks the server about once
    /// each second.
    ///
    /// The first call returns who leads now. An owner is the [id of its client](crate::LockClient::id), a colon and a number. A
    /// leader can be over by the time its id arrives: use this to find the leader, and its [term](crate::Leadership::term) to refuse
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
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let leader = locks.watch_leader("lock:leader:reports").changed().await?;
    /// # Ok(()) }
    /// ```
    pub async fn changed(&mut self) -> Result<Option<String>> {
        let engine = Arc::clone(&self.engine);
        tokio::select! {
            biased;
            () = engine.closing() => Err(Error::Closed),
            leader = self.other_leader() => leader,
        }
    }

    async fn other_leader(&mut self) -> Result<Option<String>> {
        loop {
            let question = match &mut self.question {
                Some(question) => question,
                none => {
                    sleep_until(self.next).await;
                    self.next = Instant::now() + jitter::around(PACE);
                    none.insert(Mutex::new(Box::pin(leader(
                        Arc::clone(&self.engine),
                        Arc::clone(&self.name),
                    ))))
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
async fn leader(engine: Arc<Engine>, name: Arc<str>) -> Result<Option<String>> {
    let info = inspect(&engine, &name).await?.and_then(LockInfo::from_server);
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

//! What holders of a fenced lock announce.

use std::fmt;
use std::sync::Arc;

use crate::base::error::Result;
use crate::engine::{Listening, LockRef, announced};

/// What the holder of a [`FencedLock`](crate::FencedLock) announces, for those who do not hold it.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut announcements = locks.fenced_lock("lock:primary").announcements();
/// loop {
///     announcements.changed().await;
///     let info = locks.inspect("lock:primary").await?;
///     let holder = info.and_then(|info| info.holders.into_iter().next());
///     if let Some(holder) = holder {
///         println!("{} announces {:?}", holder.owner, announcements.of(&holder.owner).await?);
///     }
/// }
/// # }
/// ```
#[must_use = "it listens only when `changed` is called"]
pub struct Announcements {
    lock: Arc<LockRef>,
    /// `None`: `changed` was not called yet.
    listening: Option<Listening>,
}

impl Announcements {
    pub(crate) fn new(lock: &Arc<LockRef>) -> Self {
        Self { lock: Arc::clone(lock), listening: None }
    }

    /// Returns what this owner announced, if it still does. Asks the server.
    ///
    /// An owner is what [`Holder::owner`](crate::Holder::owner) says. Ask for the owner that holds the lock: what an earlier holder left
    /// behind can be there until its lease ends, and is never returned for another owner.
    ///
    /// # Errors
    ///
    /// [`InvalidName`](crate::Error::InvalidName), or a [fault of server or network](crate::Error#faults-of-server-and-network).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(announcements: lockkeeper::Announcements, owner: &str) -> lockkeeper::Result<()> {
    /// let address = announcements.of(owner).await?.and_then(|said| String::from_utf8(said).ok());
    /// # Ok(()) }
    /// ```
    pub async fn of(&self, owner: &str) -> Result<Option<Vec<u8>>> {
        announced(&self.lock, owner).await
    }

    /// Waits for a message: a holder announces something else, or ended its hold. The first call begins to listen, and returns at once.
    ///
    /// Also returns when messages were perhaps missed. There is no message when a lease ends, and none without the
    /// [right](crate::guide::deploy#users-and-rights) to the channel. So ask from time to time, too.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. The next call returns at once if a message came meanwhile.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) {
    /// let mut announcements = locks.fenced_lock("lock:primary").announcements();
    /// announcements.changed().await;
    /// # }
    /// ```
    pub async fn changed(&mut self) {
        match &mut self.listening {
            Some(listening) => listening.changed().await,
            none => *none = Some(Listening::start(&self.lock)),
        }
    }
}

impl fmt::Debug for Announcements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Announcements").field(&self.lock.name).finish()
    }
}

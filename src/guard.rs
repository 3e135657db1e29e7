//! What shows that a lock is held.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::clock;
use crate::engine::{Hold, Part, PerMember, Releasing, extend};
use crate::error::{Error, Result};

/// One hold on a lock.
///
/// It borrows nothing, so it can be kept, sent and returned. It gives no access to any data: what a lock in Redis
/// protects lies elsewhere.
///
/// # Release on drop is not immediate
///
/// Dropping a guard releases the lock in the background, a moment later. It never waits or fails, also without a
/// runtime; what goes wrong is a `tracing` event. Use [`unlock`](Self::unlock) to know when the lock is free, and
/// whether it was held until then.
///
/// `let _ = lock.lock().await?;` drops the guard at once. Bind it to a name.
///
/// # Lost
///
/// A lock in Redis is a lease. It is lost when the lease could not be renewed in time, when somebody removed it, or
/// when the server lost its data. The guard knows until when the lease can be relied on: from *before* the command
/// was sent that got or last renewed it, less a margin. From then on [`is_lost`](Self::is_lost) says so, and
/// [`lost`](Self::lost) and [`run`](Self::run) act on it, whether or not the server can be reached. Lost is final.
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    name: Arc<str>,
    hold: Arc<Hold>,
    token: Option<u64>,
    /// What makes up the hold. Empty once it was given back.
    parts: PerMember<Part>,
}

impl LockGuard {
    pub(crate) fn new(name: Arc<str>, hold: Arc<Hold>, parts: PerMember<Part>) -> Self {
        let token =
            if hold.members() == 1 { parts.first().and_then(|part| part.grant.token()) } else { None };
        Self { name, hold, token, parts }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the hold back. If it was the last of its owner, the lock is free and a waiter is woken.
    ///
    /// A release whose answer was lost is sent again; that it is done twice does no harm.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`]: the hold was gone, so the section was not protected for an unknown time before. What was
    /// done in it may have to be checked.
    ///
    /// Otherwise a fault of server or network that lasted for `retry_timeout`. The release goes on in the
    /// background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock all the same, in the background.
    pub async fn unlock(mut self) -> Result<()> {
        let was_lost = self.hold.is_lost(clock::now());
        let quorum = self.hold.quorum();
        let held =
            self.give_back().release(quorum).await.map_err(|fault| Error::of_lock(&self.name, fault))?;
        if was_lost || !held { Err(Error::NotHeld { name: self.name.to_string() }) } else { Ok(()) }
    }

    /// Waits until the hold is lost.
    ///
    /// It is told by a timer that waits for no server, no later than the lease can be relied on; or earlier, by an
    /// answer of the server. If the guard is given back, it still completes when the lease would have ended.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped and made anew at any time.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let hold = Arc::clone(&self.hold);
        async move { hold.lost().await }
    }

    /// Whether the hold is lost, to the nanosecond of this host's clock. Asks no server.
    pub fn is_lost(&self) -> bool {
        self.hold.is_lost(clock::now())
    }

    /// For how long the hold can be relied on if nothing renews it; zero if it is lost. Asks no server.
    pub fn remaining(&self) -> Duration {
        self.hold.deadline().since(clock::now())
    }

    /// Does work, as long as the lock is held.
    ///
    /// Before each step of `work` it is checked that the hold is not lost. Once it is, `work` is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the hold was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work. The guard stays.
    pub async fn run<T, W>(&self, work: W) -> Result<T>
    where
        W: Future<Output = T>,
    {
        let mut lost = pin!(self.hold.lost());
        let mut work = pin!(work);
        poll_fn(|context| {
            // By the clock, not only by the timer: after a pause of this process, both may be ready.
            if self.is_lost() || lost.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(Error::Lost { name: self.name.to_string() }));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Makes sure that the lease lasts at least this long from now. It never becomes shorter.
    ///
    /// For a lock with a fixed lease, this is how to keep it longer. What `max_hold` set as its end stays its end.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the hold is lost, [`Error::InvalidDuration`] for a lease that can not be held, or a fault of
    /// server or network that lasted for `retry_timeout`.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lease may have become longer or not.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        extend(&self.name, &self.hold, &self.parts, lease).await
    }

    /// How many holds the owner of this one has on the lock, by its own count. Asks no server.
    pub fn holds(&self) -> u32 {
        let now = clock::now();
        self.parts.iter().map(|part| part.grant.live(now)).max().unwrap_or(0)
    }

    /// The token of a [`FencedLock`](crate::FencedLock): greater than those of all earlier holders of the lock, and the
    /// same for all holds of this one. Other types of locks have none, nor has a lock of several members: these have each
    /// their own.
    pub fn fencing_token(&self) -> Option<u64> {
        self.token
    }

    /// Keeps the lock until its lease ends by itself: it is not renewed any more, and not released.
    ///
    /// Use this and not [`std::mem::forget`], which leaves a lock that is renewed as long as the process lives.
    pub fn leak(mut self) {
        for part in self.parts.drain(..) {
            part.grant.leak(&self.hold);
        }
    }

    /// Takes the hold off the books. What is returned does the rest.
    fn give_back(&mut self) -> Releasing {
        Releasing::new(self.parts.drain(..).map(|part| {
            part.grant.strike(&self.hold);
            part.grant
        }))
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        drop(self.give_back());
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", &self.name)
            .field("is_lost", &self.is_lost())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

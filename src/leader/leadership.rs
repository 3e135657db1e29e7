//! One term of a leader.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{FencingToken, HoldWatch, LockGuard};

/// One term of a leader: from its election until it steps down, or loses the leadership.
///
/// [`Candidate::run`](super::Candidate::run) gives it to the work. It is cheap to clone, and it does not prolong the term: give
/// clones to the tasks and threads that the work starts, so that they know when to stop.
///
/// Nobody waits for these tasks and threads. A step that one of them began before the end of the term can end after it, beside the
/// next leader. So make steps short, and send the [`term`](Self::term) with each write.
///
/// ```no_run
/// # fn next_page() -> bool { false }
/// # async fn demo(mut candidate: lockkeeper::leader::Candidate) -> lockkeeper::Result<()> {
/// candidate.run(|leadership| async move {
///     let export = tokio::task::spawn_blocking(move || {
///         while !leadership.is_over() && next_page() {} // a thread cannot be stopped from outside
///     });
///     let _ = export.await;
/// }).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Leadership(Arc<Term>);

struct Term {
    number: FencingToken,
    hold: HoldWatch,
    is_over: AtomicBool,
}

impl Leadership {
    /// Returns the number of this term. It is greater than those of all earlier terms, of whichever leader.
    /// [`FencedLock`](crate::FencedLock) says when a server that loses data breaks that. No network call.
    ///
    /// Send it with each write and each order of the leader, and refuse smaller numbers there: this stops a leader that was
    /// stopped for longer than its lease and does not know yet that its term is over.
    ///
    /// ```no_run
    /// # async fn demo(mut candidate: lockkeeper::leader::Candidate) -> lockkeeper::Result<()> {
    /// candidate.run(async |leadership: lockkeeper::leader::Leadership| println!("term {}", leadership.term())).await?;
    /// # Ok(()) }
    /// ```
    pub fn term(&self) -> FencingToken {
        self.0.number
    }

    /// Returns whether this term is over: another process can lead. No network call.
    ///
    /// It is true from the moment at which the lease can end, by this host's clock, and as soon as the candidate steps down.
    ///
    /// ```no_run
    /// # fn demo(leadership: &lockkeeper::leader::Leadership) {
    /// if !leadership.is_over() {
    ///     // … one more step …
    /// }
    /// # }
    /// ```
    pub fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Acquire) || self.0.hold.is_lost()
    }

    /// Returns how long the term lasts if nothing renews it. Zero: it is over. No network call.
    ///
    /// ```no_run
    /// # fn demo(leadership: &lockkeeper::leader::Leadership) {
    /// println!("leading for {:?}, and longer if it is renewed", leadership.remaining());
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        if self.0.is_over.load(Ordering::Acquire) { Duration::ZERO } else { self.0.hold.remaining() }
    }

    pub(super) fn begin(guard: &LockGuard<FencingToken>) -> Self {
        Self(Arc::new(Term { number: guard.token(), hold: guard.watch(), is_over: AtomicBool::new(false) }))
    }

    /// The result ends the term when it is dropped.
    pub(super) fn ends_with(&self) -> Ends {
        Ends(self.clone())
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("term", &self.term())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// Ends a term when it is dropped, also if the future of the candidate is.
pub(super) struct Ends(Leadership);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.0.is_over.store(true, Ordering::Release);
    }
}

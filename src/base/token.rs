//! Fencing tokens.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of one holder of a [`FencedLock`](crate::FencedLock). It is greater than the number of every earlier holder.
/// [`FencedLock`](crate::FencedLock) says when a server that loses data breaks that.
///
/// Store it with what the section writes, and refuse a write with a smaller token than the stored one. Tokens do not begin at 1:
/// they follow the server's clock in microseconds, so they are about 1.8 × 10¹⁵. Store them as 64-bit numbers (`BIGINT`).
///
/// ```
/// # use lockkeeper::FencingToken;
/// /// `stored` is a column of a database, and 0 at first.
/// fn accept(stored: &mut u64, offered: FencingToken) -> bool {
///     let is_late = offered < FencingToken::from(*stored);
///     if !is_late {
///         *stored = offered.get();
///     }
///     !is_late
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(u64);

impl FencingToken {
    /// Returns the number.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let guard = locks.fenced_lock("lock:orders:42").lock().await?;
    /// let column: i64 = guard.token().get().try_into().expect("tokens fit into 63 bits");
    /// # Ok(()) }
    /// ```
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A token that was stored as a number.
impl From<u64> for FencingToken {
    fn from(token: u64) -> Self {
        Self(token)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

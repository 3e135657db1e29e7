//! The types of locks. All that they have in common is in [`BaseLock`]; a file here says what is special.

/// The methods of [`BaseLock`]. Written once, for the trait and for each type itself.
macro_rules! base_lock_methods {
    ($($visibility:tt)?) => {
        /// The name, as it was given.
        $($visibility)? fn name(&self) -> &str {
            self.handle().name()
        }

        /// Acquires the lock. If somebody else holds it, waits as long as it takes.
        ///
        /// If this owner holds it already, it gets one more hold at once.
        ///
        /// # Errors
        ///
        /// - [`InvalidName`](crate::Error::InvalidName), [`InvalidDuration`](crate::Error::InvalidDuration) or
        ///   [`WrongKind`](crate::Error::WrongKind): the name, the lease or the key can not be used;
        /// - [`Upgrade`](crate::Error::Upgrade): the owner that wants to write reads;
        /// - what the server answered and another try would not change: that it has no memory left, or that this user
        ///   may not do this;
        /// - a fault of server or network that lasted for `retry_timeout`;
        /// - [`Closed`](crate::Error::Closed): the client was shut down, before or meanwhile.
        ///
        /// # Cancel safety
        ///
        /// Dropping the future leaves nothing behind: no hold, no subscription, no place in a line. What it may have
        /// acquired is released in the background.
        $($visibility)? fn lock(&mut self) -> impl Future<Output = Result<LockGuard>> + Send {
            $crate::locks::lock(self.handle_mut())
        }

        /// Acquires the lock if it is free now, or held by this owner. `None`: somebody else holds it.
        ///
        /// It does not wait for the lock, but it does wait for the server's answer.
        ///
        /// # Errors
        ///
        /// As [`lock`](Self::lock).
        ///
        /// # Cancel safety
        ///
        /// As [`lock`](Self::lock).
        $($visibility)? fn try_lock(&mut self) -> impl Future<Output = Result<Option<LockGuard>>> + Send {
            $crate::engine::acquire(self.handle_mut(), Patience::None)
        }

        /// Acquires the lock; if somebody else holds it, waits for it, but not longer than `wait`. `None`: it could
        /// not be had in that time.
        ///
        /// The server is asked at least once, by this call or by one that stands before it in the line of this
        /// client. If there is no answer, this takes up to `command_timeout`, also with a shorter `wait`.
        ///
        /// # Errors
        ///
        /// An unusable name, lease, wait or key, or an upgrade; or, at the end of `wait`, a fault of server or network that
        /// kept it from finding out.
        ///
        /// # Cancel safety
        ///
        /// As [`lock`](Self::lock).
        $($visibility)? fn try_lock_for(
            &mut self,
            wait: Duration,
        ) -> impl Future<Output = Result<Option<LockGuard>>> + Send {
            $crate::engine::acquire(self.handle_mut(), Patience::For(wait))
        }

        /// Whether anybody holds the lock; of a read-write lock, this side of it. Asks the server.
        ///
        /// # Errors
        ///
        /// An unusable name or key; or a fault of server or network that lasted for `retry_timeout`.
        ///
        /// # Cancel safety
        ///
        /// Changes nothing, so it can be dropped at any time.
        $($visibility)? fn is_locked(&self) -> impl Future<Output = Result<bool>> + Send {
            $crate::engine::is_locked(self.handle())
        }

        /// Whether this owner holds the lock, to its own knowledge. Asks no server.
        $($visibility)? fn is_held(&self) -> bool {
            self.hold_count() > 0
        }

        /// How many holds this owner has that are not lost, to its own knowledge. Asks no server.
        $($visibility)? fn hold_count(&self) -> u32 {
            self.handle().hold_count()
        }

        /// For how long the lock stays held if nobody renews or releases it; of a read-write lock, this side of it. `None`:
        /// it is free. Asks the server.
        ///
        /// A lock without expiry, which only somebody else's command can make, has [`Duration::MAX`].
        ///
        /// # Errors
        ///
        /// As [`is_locked`](Self::is_locked).
        ///
        /// # Cancel safety
        ///
        /// Changes nothing, so it can be dropped at any time.
        $($visibility)? fn remaining_lease(&self) -> impl Future<Output = Result<Option<Duration>>> + Send {
            $crate::engine::remaining_lease(self.handle())
        }

        /// Ends the hold there is on the lock, whose ever it is, and wakes a waiter; of a read lock, all holds there are.
        /// True: somebody held it when it was looked up. False: nobody did.
        ///
        /// Of a read-write lock, this ends the holds of this side. An owner that has the other as well keeps that.
        ///
        /// For repairs by hand. Whoever held the lock finds out when it renews or releases, and may be at work until
        /// then.
        ///
        /// # Errors
        ///
        /// As [`is_locked`](Self::is_locked).
        ///
        /// # Cancel safety
        ///
        /// If the future is dropped, those holds may have ended or not, or may yet. A later one does not.
        $($visibility)? fn force_unlock(&self) -> impl Future<Output = Result<bool>> + Send {
            $crate::engine::force_unlock(self.handle())
        }
    };
}

/// The terms on which a handle acquires, for a type or for what lends it.
macro_rules! terms_methods {
    ($($lock:ident)?) => {
        /// Takes the lock for a fixed time: it is not renewed, and lost at the end of it. From four times the
        /// `margin` of the configuration to ten years.
        ///
        /// Without this, the watchdog renews the lock until it is released.
        pub fn lease(mut self, lease: Duration) -> Self {
            self.$($lock.)?handle_mut().terms.lease = Some(lease);
            self
        }

        /// Takes the lock for no longer than this, although the watchdog renews it: then it is lost, and it is
        /// released, at once if this is no longer than a lease, and else a moment later.
        ///
        /// For work that may hang.
        pub fn max_hold(mut self, most: Duration) -> Self {
            self.$($lock.)?handle_mut().terms.max_hold = Some(most);
            self
        }
    };
}

/// What each type of lock has in common with the others, given that its one field is the handle.
macro_rules! lock_type {
    ($lock:ident) => {
        impl $lock {
            base_lock_methods!(pub);
            terms_methods!();
        }

        impl BaseLock for $lock {}

        impl Lock for $lock {
            fn handle(&self) -> &Handle {
                &self.0
            }

            fn handle_mut(&mut self) -> &mut Handle {
                &mut self.0
            }
        }
    };
}

/// What each type of lock on one server can become a part of.
macro_rules! member_type {
    ($lock:ident) => {
        impl From<$lock> for $crate::locks::Member {
            fn from(lock: $lock) -> Self {
                Self(lock.0)
            }
        }
    };
}

mod fair;
mod fenced;
mod joined;
mod lent;
mod read_write;
mod rlock;

use std::future::Future;
use std::time::Duration;

pub use fair::FairLock;
pub use fenced::FencedLock;
pub use joined::{Member, MultiLock, RedLock};
pub use lent::Lent;
pub use read_write::{ReadLock, ReadWriteLock, WriteLock};
pub use rlock::RLock;

use crate::engine::{Handle, Patience, acquire};
use crate::error::Result;
use crate::guard::LockGuard;

/// What every type of lock can do.
///
/// Each type has the same methods itself, so this trait is needed only by code that is generic over them. It can not
/// be implemented elsewhere: its methods carry what every lock shares, renewal by the watchdog and waking by messages,
/// and no type can leave that out.
///
/// Acquiring takes `&mut self`, because a handle is an owner: what it holds, it may acquire again. Two branches of a
/// program can not share one:
///
/// ```compile_fail,E0499
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut lock = locks.rlock("orders:42");
/// let _both = tokio::join!(lock.lock(), lock.lock()); // they would both get in
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0596
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let lock = std::sync::Arc::new(locks.rlock("orders:42"));
/// let _guard = lock.lock().await?; // so would all who have the `Arc`
/// # Ok(()) }
/// ```
pub trait BaseLock: sealed::Lock {
    base_lock_methods!();
}

pub(crate) mod sealed {
    use super::Handle;

    /// Gives [`BaseLock`](super::BaseLock) its data, and keeps others from implementing it.
    #[allow(unnameable_types, reason = "so that nobody else implements it")]
    pub trait Lock: Send + Sync {
        #[doc(hidden)]
        fn handle(&self) -> &Handle;
        #[doc(hidden)]
        fn handle_mut(&mut self) -> &mut Handle;
    }
}

async fn lock(handle: &mut Handle) -> Result<LockGuard> {
    let guard = acquire(handle, Patience::Forever).await?;
    Ok(guard.expect("BUG: waiting without a limit ends with a guard or with an error"))
}

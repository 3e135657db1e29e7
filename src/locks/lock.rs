//! The methods that all types of locks have themselves, so that users need not import [`BaseLock`](crate::BaseLock), which documents them.

use std::marker::PhantomData;

/// For how long a handle borrows the owner that lends it.
pub(super) type Lent<'a> = PhantomData<&'a mut ()>;

/// Gives a type of lock its methods: `methods!(Name, its type, its guard, what that has beside the hold, how it is made)`.
macro_rules! methods {
    ($name:ident, $lock:ty, $guard:ty, $extra:ty, $make:expr) => {
        impl $lock {
            /// Sets how the lock is held from the next acquire on. See [`BaseLock::with`](crate::BaseLock::with).
            pub fn with(self, options: &$crate::LockOptions) -> Self {
                $crate::BaseLock::with(self, options)
            }

            /// Acquires the lock. If another owner holds it, waits as long as it takes. See [`BaseLock::lock`](crate::BaseLock::lock).
            #[track_caller]
            #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
            pub fn lock(&mut self) -> impl Future<Output = $crate::Result<$guard>> + Send {
                $crate::BaseLock::lock(self)
            }

            /// Acquires the lock if it is free now, or held by this owner. `None`: another owner holds it. See
            /// [`BaseLock::try_lock`](crate::BaseLock::try_lock).
            #[track_caller]
            #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
            pub fn try_lock(
                &mut self,
            ) -> impl Future<Output = $crate::Result<Option<$guard>>> + Send {
                $crate::BaseLock::try_lock(self)
            }

            /// Acquires the lock, and waits no longer than `wait`. `None`: another owner held it all that time. See
            /// [`BaseLock::try_lock_for`](crate::BaseLock::try_lock_for).
            #[track_caller]
            #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
            pub fn try_lock_for(
                &mut self,
                wait: ::std::time::Duration,
            ) -> impl Future<Output = $crate::Result<Option<$guard>>> + Send {
                $crate::BaseLock::try_lock_for(self, wait)
            }

            /// Returns the name of the lock, as it was given. See [`BaseLock::name`](crate::BaseLock::name).
            pub fn name(&self) -> &str {
                $crate::BaseLock::name(self)
            }

            /// Checks whether this user of the server has the rights that the lock needs. See [`BaseLock::check`](crate::BaseLock::check).
            pub fn check(&self) -> impl Future<Output = $crate::Result<()>> + Send {
                $crate::BaseLock::check(self)
            }

            /// Returns whether anybody holds the lock. See [`BaseLock::is_locked`](crate::BaseLock::is_locked).
            pub fn is_locked(&self) -> impl Future<Output = $crate::Result<bool>> + Send {
                $crate::BaseLock::is_locked(self)
            }

            /// Returns whether this owner holds the lock. See [`BaseLock::is_held`](crate::BaseLock::is_held).
            pub fn is_held(&self) -> bool {
                $crate::BaseLock::is_held(self)
            }

            /// Returns how many holds of this owner are not lost. See [`BaseLock::hold_count`](crate::BaseLock::hold_count).
            pub fn hold_count(&self) -> u32 {
                $crate::BaseLock::hold_count(self)
            }

            /// Returns how long the lock stays held if nobody renews or releases it. `None`: it is free. See
            /// [`BaseLock::remaining_lease`](crate::BaseLock::remaining_lease).
            pub fn remaining_lease(
                &self,
            ) -> impl Future<Output = $crate::Result<Option<$crate::RemainingLease>>> + Send {
                $crate::BaseLock::remaining_lease(self)
            }

            /// Releases the lock, whoever holds it. Returns whether the lock was held. See
            /// [`BaseLock::force_unlock`](crate::BaseLock::force_unlock).
            pub fn force_unlock(&self) -> impl Future<Output = $crate::Result<bool>> + Send {
                $crate::BaseLock::force_unlock(self)
            }

            /// Acquires the lock, runs `work`, and releases the lock. Returns what `work` returns. See [`BaseLock::run`](crate::BaseLock::run).
            /// Here `work` need not be `Send`.
            #[track_caller]
            pub fn run<W: Future>(&mut self, work: W) -> impl Future<Output = $crate::Result<W::Output>> {
                $crate::locks::base::run(&mut self.handle, ::std::panic::Location::caller(), work)
            }

            /// As [`run`](Self::run), if the lock is free now, or held by this owner. `None`: `work` did not run. See
            /// [`BaseLock::try_run`](crate::BaseLock::try_run).
            #[track_caller]
            pub fn try_run<W: Future>(
                &mut self,
                work: W,
            ) -> impl Future<Output = $crate::Result<Option<W::Output>>> {
                let (limit, caller) = ($crate::engine::WaitLimit::None, ::std::panic::Location::caller());
                $crate::locks::base::try_run(&mut self.handle, limit, caller, work)
            }

            /// As [`run`](Self::run), if the lock is acquired within `wait`. `None`: `work` did not run. See
            /// [`BaseLock::try_run_for`](crate::BaseLock::try_run_for).
            #[track_caller]
            pub fn try_run_for<W: Future>(
                &mut self,
                wait: ::std::time::Duration,
                work: W,
            ) -> impl Future<Output = $crate::Result<Option<W::Output>>> {
                let (limit, caller) = ($crate::engine::WaitLimit::For(wait), ::std::panic::Location::caller());
                $crate::locks::base::try_run(&mut self.handle, limit, caller, work)
            }
        }

        impl $crate::BaseLock for $lock {
            type Extra = $extra;

            fn handle(&self) -> &$crate::locks::several::Locks {
                &self.handle
            }

            fn handle_mut(&mut self) -> &mut $crate::locks::several::Locks {
                &mut self.handle
            }

            fn guard(held: $crate::locks::held::Held) -> $guard {
                $make(held)
            }
        }

        /// Shows the name, and takes no mutex.
        impl ::std::fmt::Debug for $lock {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.handle).finish()
            }
        }
    };
}

/// Gives a type of lock of one member its constructor, and makes it a possible member of a lock of several: `single!(Name, its protocol)`.
macro_rules! single {
    ($name:ident, $protocol:expr) => {
        impl $name<'_> {
            pub(crate) fn new(
                engine: &::std::sync::Arc<$crate::engine::Engine>,
                name: &str,
                owner: ::std::sync::Arc<$crate::engine::OwnerGrants>,
            ) -> Self {
                let handle = $crate::engine::Handle::single(engine, $protocol, name, owner);
                Self { handle: $crate::locks::several::Locks::one(handle), lent: ::std::marker::PhantomData }
            }
        }

        impl From<$name<'static>> for $crate::Member {
            fn from(lock: $name<'static>) -> Self {
                Self(lock.handle)
            }
        }
    };
}

pub(super) use {methods, single};

//! The methods that all types of locks have, written once for [`BaseLock`](super::BaseLock) and for the types themselves.

/// The methods that acquire. They return a `$guard`, which is made from a [`LockGuard`](crate::LockGuard).
macro_rules! acquire_methods {
    ($guard:ty, $($visibility:tt)?) => {
        /// Acquires the lock. If another owner holds it, waits as long as it takes. Asks the server.
        ///
        /// An owner that holds the lock already gets one more hold at once.
        ///
        /// A `lock()` on a name that the *same client* holds through another handle waits for that handle. If the task with that
        /// handle waits for this call, neither continues. After one lease, a `tracing` warning says so.
        ///
        /// # Errors
        ///
        /// - [`InvalidName`](crate::Error::InvalidName) or [`WrongKind`](crate::Error::WrongKind): the name or the key cannot
        ///   be used.
        /// - [`UpgradeWouldDeadlock`](crate::Error::UpgradeWouldDeadlock): an owner that holds the read lock wants the write
        ///   lock.
        /// - [`OutOfMemory`](crate::Error::OutOfMemory) or [`Permission`](crate::Error::Permission): the server refuses, and
        ///   another try now would not change that.
        /// - A fault of server or network that lasted for `retry_timeout`.
        /// - [`Closed`](crate::Error::Closed) or [`RuntimeGone`](crate::Error::RuntimeGone): the client ended before the call or
        ///   during it.
        ///
        /// # Cancel safety
        ///
        /// Dropping the future leaves nothing behind: no hold, no subscription, no place in a queue. If the call acquired the
        /// lock, it is released in the background.
        ///
        /// ```no_run
        /// # async fn demo(mut lock: lockkeeper::RLock) -> lockkeeper::Result<()> {
        /// let guard = lock.lock().await?;
        /// // … the section …
        /// guard.unlock().await?;
        /// # Ok(()) }
        /// ```
        #[track_caller]
        #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
        $($visibility)? fn lock(
            &mut self,
        ) -> impl ::std::future::Future<Output = $crate::Result<$guard>> + Send {
            let (handle, caller) = ($crate::locks::base::Lock::handle_mut(self), ::std::panic::Location::caller());
            $crate::locks::base::lock(handle, caller)
        }

        /// Acquires the lock if it is free now, or held by this owner. `None`: another owner holds it. Asks the server.
        ///
        /// The call waits for the server's answer, but not for the lock.
        ///
        /// A guard that was *dropped* holds the lock until its release has reached the server, a moment later. Until then the
        /// `try_lock` of another handle is refused. Await [`unlock`](crate::LockGuard::unlock) where that matters.
        ///
        /// The statement `lock.try_lock().await?;` drops the guard, and so releases the lock at once. The compiler does not warn,
        /// because it allows an unused `Option`. Always bind the guard.
        ///
        /// # Errors
        ///
        /// As for [`lock`](Self::lock).
        ///
        /// # Cancel safety
        ///
        /// As for [`lock`](Self::lock).
        ///
        /// ```no_run
        /// # async fn demo(mut lock: lockkeeper::RLock) -> lockkeeper::Result<()> {
        /// if let Some(guard) = lock.try_lock().await? {
        ///     // … the section …
        ///     guard.unlock().await?;
        /// } else {
        ///     println!("busy");
        /// }
        /// # Ok(()) }
        /// ```
        #[track_caller]
        #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
        $($visibility)? fn try_lock(
            &mut self,
        ) -> impl ::std::future::Future<Output = $crate::Result<Option<$guard>>> + Send {
            let (handle, caller) = ($crate::locks::base::Lock::handle_mut(self), ::std::panic::Location::caller());
            $crate::locks::base::try_lock(handle, $crate::engine::WaitLimit::None, caller)
        }

        /// Acquires the lock. If another owner holds it, waits, but no longer than `wait`. `None`: another owner held it all
        /// that time. Asks the server.
        ///
        /// This call, or a call in front of it in the client's wait queue, asks the server at least once. If there is no answer,
        /// this call takes up to `command_timeout`, even if `wait` is shorter.
        ///
        /// # Errors
        ///
        /// As for [`lock`](Self::lock). At the end of `wait`, the fault of server or network that prevented an answer.
        /// [`InvalidDuration`](crate::Error::InvalidDuration) for a `wait` that is too long for the clock.
        ///
        /// # Cancel safety
        ///
        /// As for [`lock`](Self::lock).
        ///
        /// ```no_run
        /// # use std::time::Duration;
        /// # async fn demo(mut lock: lockkeeper::RLock) -> lockkeeper::Result<bool> {
        /// let Some(guard) = lock.try_lock_for(Duration::from_secs(2)).await? else {
        ///     return Ok(false); // busy for two seconds
        /// };
        /// // … the section …
        /// guard.unlock().await?;
        /// # Ok(true) }
        /// ```
        #[track_caller]
        #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
        $($visibility)? fn try_lock_for(
            &mut self,
            wait: ::std::time::Duration,
        ) -> impl ::std::future::Future<Output = $crate::Result<Option<$guard>>> + Send {
            let (handle, caller) = ($crate::locks::base::Lock::handle_mut(self), ::std::panic::Location::caller());
            $crate::locks::base::try_lock(handle, $crate::engine::WaitLimit::For(wait), caller)
        }
    };
}

/// The methods that ask, and the forced release.
macro_rules! query_methods {
    ($($visibility:tt)?) => {
        /// Returns the name of the lock, as it was given. For a lock of several members, all their names. Asks no server.
        ///
        /// ```no_run
        /// # fn demo(locks: lockkeeper::LockClient) {
        /// assert_eq!(locks.rlock("lock:orders:42").name(), "lock:orders:42");
        /// # }
        /// ```
        $($visibility)? fn name(&self) -> &str {
            $crate::locks::base::Lock::handle(self).name()
        }

        /// Checks whether this user of the server has the right to run every command that the lock needs. Asks the server and
        /// changes nothing.
        ///
        /// Call it once when a program starts. Then a missing right is an error at the start, and not a lock that cannot be
        /// released.
        ///
        /// # Errors
        ///
        /// [`Permission`](crate::Error::Permission) names every command and key that the user has no right to use. Otherwise as
        /// for [`is_locked`](Self::is_locked).
        ///
        /// # Cancel safety
        ///
        /// The call changes nothing, so it can be dropped at any time.
        ///
        /// ```no_run
        /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
        /// locks.fair_lock("lock:jobs").check().await?;
        /// # Ok(()) }
        /// ```
        $($visibility)? fn check(&self) -> impl ::std::future::Future<Output = $crate::Result<()>> + Send {
            $crate::engine::check_rights($crate::locks::base::Lock::handle(self))
        }

        /// Returns whether anybody holds the lock. For a side of a read-write lock: whether anybody holds this side. Asks the
        /// server.
        ///
        /// The answer can be outdated when it arrives. To act on a free lock, use [`try_lock`](Self::try_lock).
        ///
        /// # Errors
        ///
        /// An unusable name or key, or a fault of server or network that lasted for `retry_timeout`.
        ///
        /// # Cancel safety
        ///
        /// The call changes nothing, so it can be dropped at any time.
        ///
        /// ```no_run
        /// # async fn demo(lock: lockkeeper::RLock) -> lockkeeper::Result<()> {
        /// println!("held: {}", lock.is_locked().await?);
        /// # Ok(()) }
        /// ```
        $($visibility)? fn is_locked(
            &self,
        ) -> impl ::std::future::Future<Output = $crate::Result<bool>> + Send {
            $crate::engine::is_locked($crate::locks::base::Lock::handle(self))
        }

        /// Returns whether this owner holds the lock, as far as this client knows. Asks no server.
        ///
        /// ```no_run
        /// # async fn demo(mut lock: lockkeeper::RLock) -> lockkeeper::Result<()> {
        /// let guard = lock.lock().await?;
        /// assert!(lock.is_held());
        /// guard.unlock().await?;
        /// assert!(!lock.is_held());
        /// # Ok(()) }
        /// ```
        $($visibility)? fn is_held(&self) -> bool {
            self.hold_count() > 0
        }

        /// Returns how many holds of this owner are not lost, as far as this client knows. Asks no server.
        ///
        /// ```no_run
        /// # async fn demo(mut lock: lockkeeper::RLock) -> lockkeeper::Result<()> {
        /// let (_outer, _inner) = (lock.lock().await?, lock.lock().await?);
        /// assert_eq!(lock.hold_count(), 2);
        /// # Ok(()) }
        /// ```
        $($visibility)? fn hold_count(&self) -> u32 {
            $crate::locks::base::Lock::handle(self).hold_count()
        }

        /// Returns how long the lock stays held if nobody renews or releases it. For a side of a read-write lock: how long this
        /// side stays held. `None`: it is free. Asks the server.
        ///
        /// # Errors
        ///
        /// As for [`is_locked`](Self::is_locked).
        ///
        /// # Cancel safety
        ///
        /// The call changes nothing, so it can be dropped at any time.
        ///
        /// ```no_run
        /// # async fn demo(lock: lockkeeper::RLock) -> lockkeeper::Result<()> {
        /// match lock.remaining_lease().await?.and_then(|lease| lease.duration()) {
        ///     Some(left) => println!("held for {left:?} if nobody renews it"),
        ///     None => println!("free, or held without an end"),
        /// }
        /// # Ok(()) }
        /// ```
        $($visibility)? fn remaining_lease(
            &self,
        ) -> impl ::std::future::Future<Output = $crate::Result<Option<$crate::RemainingLease>>> + Send {
            $crate::locks::base::remaining_lease($crate::locks::base::Lock::handle(self))
        }

        /// Releases the lock, whoever holds it, and wakes a waiter. For a side of a read-write lock: releases all holds of this
        /// side. Returns whether the lock was held. Asks the server.
        ///
        /// This is for repairs by hand. The former holder notices at its next renewal or release, and can work on until then.
        ///
        /// # Errors
        ///
        /// As for [`is_locked`](Self::is_locked).
        ///
        /// # Cancel safety
        ///
        /// If the future is dropped, it is unknown whether the call releases the holds that it found, now or later. It never
        /// releases a hold that began afterwards.
        ///
        /// ```no_run
        /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
        /// let was_held = locks.rlock("lock:orders:42").force_unlock().await?;
        /// # Ok(()) }
        /// ```
        $($visibility)? fn force_unlock(
            &self,
        ) -> impl ::std::future::Future<Output = $crate::Result<bool>> + Send {
            $crate::engine::force_unlock($crate::locks::base::Lock::handle(self))
        }
    };
}

/// The methods that set the lease of a handle. The type is a lock type, or has a lock in its field `$inner`.
macro_rules! term_methods {
    ($($inner:ident)?) => {
        /// Sets a fixed lease: the lock is not renewed, and is lost at the end of the lease. Asks no server.
        ///
        /// Without this, the watchdog renews the lock until it is released. [`extend`](crate::LockGuard::extend) makes a fixed
        /// lease longer.
        ///
        /// # Errors
        ///
        /// [`InvalidDuration`](crate::Error::InvalidDuration) for a lease outside of the range: from four times the `margin` of
        /// the configuration to ten years.
        ///
        /// ```no_run
        /// # use std::time::Duration;
        /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
        /// let mut lock = locks.rlock("lock:orders:42").lease(Duration::from_secs(60))?;
        /// let guard = lock.lock().await?;
        /// # Ok(()) }
        /// ```
        pub fn lease(mut self, lease: ::std::time::Duration) -> $crate::Result<Self> {
            $crate::locks::base::Lock::handle_mut(&mut self$(.$inner)?).set_lease(lease)?;
            Ok(self)
        }

        /// Sets the longest hold: the watchdog renews the lock, but no longer than this. Then the hold is lost, and the lock is
        /// released. Asks no server.
        ///
        /// Use this for work that can hang.
        ///
        /// # Errors
        ///
        /// [`InvalidDuration`](crate::Error::InvalidDuration), as for [`lease`](Self::lease).
        ///
        /// ```no_run
        /// # use std::time::Duration;
        /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
        /// let mut lock = locks.rlock("lock:report").max_hold(Duration::from_secs(600))?;
        /// let guard = lock.lock().await?;
        /// # Ok(()) }
        /// ```
        pub fn max_hold(mut self, most: ::std::time::Duration) -> $crate::Result<Self> {
            $crate::locks::base::Lock::handle_mut(&mut self$(.$inner)?).set_max_hold(most)?;
            Ok(self)
        }

        /// Sets the minimum hold time: the lock stays held for this time after it was acquired, also if the guard is released or
        /// dropped before. Asks no server.
        ///
        /// With [`try_lock`](Self::try_lock), this runs a job once for each tick of a schedule: the replicas whose clocks are late
        /// find the lock held, although the job has ended. The time should be longer than the clocks differ, and shorter than the
        /// pause between two ticks.
        ///
        /// [`unlock`](crate::LockGuard::unlock) returns at once then. The client releases the lock when the time is over. Until
        /// then, this owner is refused like any other. If the process dies, the lock ends with its lease, which is never shorter
        /// than this time. A [`shutdown`](crate::LockClient::shutdown) waits for the time if half of `retry_timeout` is enough;
        /// otherwise it leaves the lock to its lease.
        ///
        /// # Errors
        ///
        /// [`InvalidDuration`](crate::Error::InvalidDuration), as for [`lease`](Self::lease), and for a time that is longer than
        /// the lease or the longest hold that was set.
        ///
        /// ```no_run
        /// # use std::time::Duration;
        /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
        /// let mut tick = locks.rlock("lock:cron:report").hold_at_least(Duration::from_secs(20))?;
        /// if let Some(guard) = tick.try_lock().await? {
        ///     // … the job, on one replica …
        ///     guard.unlock().await?; // and no other replica runs it for 20 s
        /// }
        /// # Ok(()) }
        /// ```
        pub fn hold_at_least(mut self, least: ::std::time::Duration) -> $crate::Result<Self> {
            $crate::locks::base::Lock::handle_mut(&mut self$(.$inner)?).set_least_hold(least)?;
            Ok(self)
        }

        /// Sets the group: the label `group` of this lock's metrics. Without the feature `metrics`, it has no effect.
        ///
        /// Use a few fixed names, such as one for each kind of job. Each is a series of its own in the metrics, for as long as the
        /// client lives.
        ///
        /// # Errors
        ///
        /// [`InvalidGroup`](crate::Error::InvalidGroup) for a group that is empty or longer than 64 bytes.
        ///
        /// ```no_run
        /// # fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
        /// let mut lock = locks.rlock("lock:orders:42").group("orders")?;
        /// # Ok(()) }
        /// ```
        pub fn group(mut self, group: impl Into<::std::borrow::Cow<'static, str>>) -> $crate::Result<Self> {
            $crate::locks::base::Lock::handle_mut(&mut self$(.$inner)?).set_group(group.into())?;
            Ok(self)
        }
    };
}

/// The traits of a type of lock whose one field is the handle.
macro_rules! lock_traits {
    ($lock:ident) => {
        impl $crate::locks::BaseLock for $lock {}

        impl $crate::locks::base::Lock for $lock {
            fn handle(&self) -> &$crate::engine::Handle {
                &self.0
            }

            fn handle_mut(&mut self) -> &mut $crate::engine::Handle {
                &mut self.0
            }
        }
    };
}

/// The methods and traits of a type of lock whose one field is the handle.
macro_rules! lock_type {
    ($lock:ident, $guard:ty) => {
        impl $lock {
            acquire_methods!($guard, pub);
            query_methods!(pub);
            term_methods!();
        }

        lock_traits!($lock);
    };
}

//! Claims: the first free one of many locks.

use std::fmt;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;

use super::guard::LockGuard;
use super::span::AcquireSpan;
use crate::base::error::Result;
use crate::base::options::LockOptions;
use crate::base::token::FencingToken;
use crate::diagnosis::check_rights;
use crate::engine::{self, Engine, Handle, LockRef, WaitLimit};
use crate::telemetry::inside;

/// A group of names, of which each call claims the first one that is free. For workers that share jobs.
///
/// One call looks at up to a hundred names, in their order, with one command. What it returns is a guard like any other: the client renews
/// it, and releases it when the guard is dropped. Its [`name`](crate::LockGuard::name) is the one that was claimed, and its
/// [`token`](LockGuard::token) is greater than those of all earlier claims of the group.
///
/// A group is no owner, so it is shared by `&self` and is cheap to clone. **Each claim is a new owner**: a task that has claimed a name and
/// calls again claims another one.
///
/// In Redis, the name `17` of the group `jobs` is the [`RLock`](crate::RLock) with the name `{jobs}:17`. So
/// [`inspect`](crate::LockClient::inspect) finds it by that name, an `RLock` of that name excludes it, in Java too, and a cluster keeps the
/// group in one slot. That `RLock` gets no token. A name leaves no key when it is free. The counter of the tokens, one for each group,
/// has no expiry, and stays.
///
/// A group keeps no jobs: your store does. [Workers that share jobs](crate::guide::getting_started#workers-that-share-jobs) shows both together.
///
/// ```no_run
/// # async fn open_jobs() -> Vec<u64> { Vec::new() }
/// # async fn do_job(job: &str, token: lockkeeper::FencingToken) {}
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let jobs = locks.claims("jobs");
/// match jobs.claim(open_jobs().await).await? {
///     Some(claim) => {
///         let (job, token) = (claim.name().to_owned(), claim.token());
///         claim.finish(do_job(&job, token)).await?; // does the job and releases the claim
///     }
///     None => println!("other workers do all of these jobs"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a group does nothing until a name is claimed"]
pub struct Claims(Arc<Handle>);

impl Claims {
    pub(crate) fn new(engine: &Arc<Engine>, group: &str) -> Self {
        Self(Arc::new(Handle::of(LockRef::group(engine, group), Arc::default())))
    }

    /// Sets how names are held from the next claim on: the lease, the longest and shortest hold, the group in metrics. No network call.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// # fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let options = LockOptions::builder().renewed(Duration::from_secs(6)).build()?;
    /// let jobs = locks.claims("jobs").with(&options); // the job of a dead worker waits for at most 6 s
    /// # Ok(()) }
    /// ```
    pub fn with(self, options: &LockOptions) -> Self {
        let mut handle = self.0.for_lock(Arc::clone(&self.0.lock));
        handle.set_options(options);
        Self(Arc::new(handle))
    }

    /// Returns the name of the group, as it was given. No network call.
    ///
    /// ```no_run
    /// # fn demo(locks: lockkeeper::LockClient) {
    /// assert_eq!(locks.claims("jobs").name(), "jobs");
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Claims the first of these names that is free. `None`: other owners hold all of them, or there are no names. One round trip.
    ///
    /// Two calls at the same time get the first and the second free name. The call does not wait for other owners. If all of a hundred names
    /// are in use, call again with the next hundred.
    ///
    /// A name that is in use as another kind of lock is not free.
    ///
    /// The statement `jobs.claim(names).await?;` drops the guard, and so releases the name at once. Always bind the guard.
    ///
    /// # Errors
    ///
    /// - [`InvalidName`](crate::Error::InvalidName): a name cannot be used, or is there twice, or the group has a brace in its name. Nothing was
    ///   sent.
    /// - [`Config`](crate::Error::Config): there are more than 100 names. Nothing was sent.
    /// - [`WrongKind`](crate::Error::WrongKind): the key of one of the names holds other data, or the counter of the group holds no number.
    ///   The error has that key. No name was claimed.
    /// - Otherwise as for [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind. If the call claimed a name, it is released in the background.
    ///
    /// ```no_run
    /// # async fn demo(jobs: lockkeeper::Claims) -> lockkeeper::Result<()> {
    /// let Some(claim) = jobs.claim([17, 18, 19]).await? else {
    ///     return Ok(()); // all are in use
    /// };
    /// println!("job {}, token {}", claim.name(), claim.token());
    /// claim.unlock().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the name at once"]
    pub fn claim<N>(
        &self,
        names: N,
    ) -> impl Future<Output = Result<Option<LockGuard<FencingToken>>>> + Send + use<N>
    where
        N: IntoIterator,
        N::Item: ToString,
    {
        let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
        let (group, caller) = (Arc::clone(&self.0), Location::caller());
        async move {
            let acquiring =
                AcquireSpan::begin((group.name(), group.lock_type(), &group.metrics), WaitLimit::None);
            let held = inside(&acquiring.span, pin!(engine::claim(&group, &names, caller))).await;
            let claimed = held.map(|held| held.map(LockGuard::one));
            acquiring.ends(&claimed);
            claimed
        }
    }

    /// Checks whether this user of the server has the right to run every command that claims need. Asks the server and changes nothing.
    ///
    /// # Errors
    ///
    /// As for [`Lock::check`](crate::Lock::check).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(jobs: lockkeeper::Claims) -> lockkeeper::Result<()> {
    /// jobs.check().await?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> impl Future<Output = Result<()>> + Send {
        check_rights(&self.0, false)
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claims").field(&self.name()).finish()
    }
}

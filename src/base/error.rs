//! Errors.

use std::fmt;

use crate::base::fault::{Fault, FaultKind, Sent};

/// The result of most calls.
///
/// ```
/// async fn sell(locks: &lockkeeper::LockClient) -> lockkeeper::Result<()> {
///     locks.rlock("lock:stock").lock().await?.unlock().await
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// So many permits can be acquired together. Each is 16 bytes of the command and some steps of its script, and other commands wait.
pub(crate) const MOST_PERMITS: u32 = 10_000;

/// Why a call failed.
///
/// A lock that another owner holds is not an error: `try_lock` and `try_lock_for` return `Ok(None)`.
///
/// The text of an error names the lock, its key, the address of the server and the cause, as far as they are known. It
/// never contains a password. An error has no [`source`](std::error::Error::source), because its text says it all.
///
/// # Faults of server and network
///
/// Every call that asks the server can return one of these. The documentation of a call names its other errors.
///
/// - [`Unreachable`](Self::Unreachable), [`TimedOut`](Self::TimedOut), [`Unavailable`](Self::Unavailable),
///   [`ReadOnly`](Self::ReadOnly), [`OutOfMemory`](Self::OutOfMemory): the call retried for `retry_timeout`, or until its own time limit. `connect` follows `start_timeout`;
///   [`servers`](crate::LockClient::servers) and what clients tell are asked for once.
/// - [`Authentication`](Self::Authentication), [`Permission`](Self::Permission), [`Server`](Self::Server): another try now would not
///   change the answer, so the call failed at once.
/// - [`RuntimeGone`](Self::RuntimeGone): the runtime of the client has ended.
/// - [`UnsupportedServer`](Self::UnsupportedServer): the server is a service that refuses what the call needs. Nothing was sent.
///
/// ```
/// # use lockkeeper::Error;
/// fn is_worth_a_retry(error: &Error) -> bool {
///     match error {
///         Error::NotHeld(lost) => {
///             eprintln!("the work under `{}` was not protected until its end", lost.lock.name);
///             false
///         }
///         error => error.is_transient(),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server refuses the user name or the password.
    Authentication(Cause),
    /// The client was shut down.
    Closed,
    /// A setting cannot be used, or an option, the address, the members of a lock, or the names to claim. Often nothing was sent; only `connect`
    /// can also learn it from the server.
    Config(ConfigError),
    /// A duration that was passed cannot be used. Nothing was sent.
    #[non_exhaustive]
    InvalidDuration {
        /// The parameter: `lease` or `wait`.
        argument: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The name cannot be used. Nothing was sent.
    #[non_exhaustive]
    InvalidName {
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A call wants no permit of a semaphore, or more permits than the semaphore has, or more than 10,000.
    #[non_exhaustive]
    InvalidPermits {
        /// The semaphore.
        lock: LockId,
        /// How many permits the call wants.
        wanted: u32,
        /// How many permits the semaphore has.
        total: u32,
    },
    /// The lock was lost while it was in use.
    Lost(Lost),
    /// The hold is already gone when it is released. The section has been without protection since an unknown time.
    NotHeld(Lost),
    /// The server has no memory left for a new lock. Releasing and renewing still work.
    OutOfMemory(Cause),
    /// The server does not allow this user one of the commands, keys or channels.
    Permission(Cause),
    /// The server is a replica, which does not write.
    ReadOnly(Cause),
    /// The tokio runtime on which the client was made is gone, and with it the tasks of the client.
    ///
    /// A client belongs to one runtime. If a program has several runtimes, a client in a `static` can outlive its own. For
    /// example, `#[tokio::test]` makes a runtime for each test.
    RuntimeGone,
    /// The server gave an answer that this crate does not understand.
    Server(Cause),
    /// The server did not answer in time.
    TimedOut(Cause),
    /// The server granted the lock, but too few replicas had the hold within `command_timeout`, or within a third of
    /// `watchdog_lease` if that is shorter. The lock was released. See
    /// [`LockConfigBuilder::sync_replicas`](crate::LockConfigBuilder::sync_replicas).
    #[non_exhaustive]
    TooFewReplicas {
        /// The lock.
        lock: LockId,
        /// How many replicas had the hold.
        acknowledged: u32,
        /// How many replicas need to have it: `sync_replicas`.
        wanted: u32,
    },
    /// The server cannot work now: it loads its data, runs a long script, or its cluster is down.
    Unavailable(Cause),
    /// No connection could be made, or it broke.
    Unreachable(Cause),
    /// The server is older than Redis 7.0 or Valkey 7.2, or lacks something that lockkeeper's scripts need, or a service refuses the
    /// scripts of this type of lock, or those that list all locks. Another try would not change that.
    #[non_exhaustive]
    UnsupportedServer {
        /// The version that the server reported, or `an unknown version`.
        version: String,
        /// The address of the server.
        server: String,
        /// What is missing or refused, and the words of the server.
        problem: String,
    },
    /// An owner that holds the read lock wants the write lock. It would wait for itself: it has to release the read lock
    /// first.
    UpgradeWouldDeadlock(LockId),
    /// The key is in use as another kind of lock, or holds other data. Nothing was changed. If the counter of a fenced lock or of
    /// claims holds no number or cannot grow, `lock` has the key of the counter.
    #[non_exhaustive]
    WrongKind {
        /// The lock.
        lock: LockId,
        /// What the key is in use as.
        found: &'static str,
    },
}

/// Why a configuration, the options of a lock, an address, the members of a lock, or the names to claim cannot be used.
///
/// ```
/// # use lockkeeper::LockConfig;
/// let error = LockConfig::builder().connections(0).build().unwrap_err();
/// assert_eq!(error.to_string(), "invalid configuration: `connections` must be from 1 to 64");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: &'static str,
    problem: String,
}

impl ConfigError {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }

    /// Returns the name of the setting or option; `url` for an address, `members` for the members of a lock, `names` for the
    /// names to claim.
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// assert_eq!(LockConfig::builder().connections(0).build().unwrap_err().field(), "connections");
    /// ```
    pub const fn field(&self) -> &'static str {
        self.field
    }

    /// Returns what is wrong with it.
    ///
    /// ```
    /// # use lockkeeper::LockConfig;
    /// assert_eq!(LockConfig::builder().connections(0).build().unwrap_err().problem(), "must be from 1 to 64");
    /// ```
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

/// The lock was lost while it was in use: its lease ended, or somebody removed the lock.
///
/// This is the only error of [`LockGuard::run`](crate::LockGuard::run).
///
/// ```
/// # async fn report() {}
/// # async fn demo(guard: lockkeeper::LockGuard) -> lockkeeper::Result<()> {
/// guard.run(report()).await?; // becomes `Error::Lost`
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The lock.
    pub lock: LockId,
    /// Why it was lost, as in the event "a lock was lost".
    pub cause: LossCause,
}

/// Why a lock was lost, as far as the client knows.
///
/// ```
/// # use lockkeeper::LossCause;
/// assert_eq!(LossCause::Removed.to_string(), "the server no longer has it");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// Renewals did not arrive in time: server or network failed, or the process was frozen. (A blocked runtime loses
    /// no locks, except with `watchdog_thread = false`.)
    NotRenewed,
    /// The server no longer has the hold: somebody deleted the key or called `force_unlock`, or the server lost its data. The client cannot
    /// tell these apart.
    Removed,
    /// The guard outlived its lease of the option `fixed`.
    LeaseEnded,
    /// The guard outlived its option `max_hold`.
    MaxHold,
}

/// Identifies the lock that an [`Error`] is about.
///
/// ```
/// # fn demo(error: lockkeeper::Error) {
/// if let lockkeeper::Error::NotHeld(lost) = error {
///     eprintln!("this lock was not held: {}", lost.lock); // lock `a`, key `shop:a`, server 127.0.0.1:6379
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockId {
    /// The name, as the program gave it. For a [`MultiLock`](crate::MultiLock) or [`RedLock`](crate::RedLock), the name of the one that failed, or all names if the
    /// whole lock is lost.
    pub name: String,
    /// The key on the server: the name with the `name_prefix` of the configuration in front of it.
    pub key: String,
    /// The address of the server.
    pub server: String,
}

/// The fault of server or network behind an [`Error`], and the lock that it happened to. The text of the error has both.
///
/// ```
/// # fn demo(error: lockkeeper::Error) {
/// if let lockkeeper::Error::Unreachable(_) = &error {
///     eprintln!("{error}"); // the server cannot be reached: …
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Cause {
    fault: Fault,
    lock: Option<Box<LockId>>,
}

impl Error {
    /// Returns whether the server possibly did what the call asked for, or will still do it.
    ///
    /// After a failed acquire you need not do anything: if the lock was acquired, it is released in the background. After a
    /// failed `unlock`, the release continues in the background.
    ///
    /// ```
    /// # fn demo(error: lockkeeper::Error) {
    /// if error.outcome_unknown() {
    ///     eprintln!("the lock may stay held for a moment: {error}");
    /// }
    /// # }
    /// ```
    pub const fn outcome_unknown(&self) -> bool {
        match self.cause() {
            Some(cause) => matches!(cause.fault.sent, Sent::Unknown),
            None => false,
        }
    }

    /// Returns the lock that the error is about. `None`: the error does not name one.
    ///
    /// ```
    /// # fn demo(error: lockkeeper::Error) {
    /// if let Some(lock) = error.lock() {
    ///     eprintln!("see the key {} on {}", lock.key, lock.server);
    /// }
    /// # }
    /// ```
    pub fn lock(&self) -> Option<&LockId> {
        match self {
            Self::Lost(Lost { lock, .. })
            | Self::NotHeld(Lost { lock, .. })
            | Self::InvalidPermits { lock, .. }
            | Self::TooFewReplicas { lock, .. }
            | Self::UpgradeWouldDeadlock(lock)
            | Self::WrongKind { lock, .. } => Some(lock),
            _ => self.cause()?.lock.as_deref(),
        }
    }

    /// Returns the address of the server that the error is about, if it is known. For a lock of several members, perhaps those of all.
    ///
    /// ```
    /// # fn demo(error: lockkeeper::Error) {
    /// eprintln!("{}: {error}", error.server().unwrap_or("no server"));
    /// # }
    /// ```
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::UnsupportedServer { server, .. } => Some(server),
            _ => {
                let of_fault = self.cause().and_then(|cause| cause.fault.server());
                of_fault.or_else(|| self.lock().map(|lock| &*lock.server))
            }
        }
    }

    /// Returns whether work ran, and the lock did not protect it until its end: [`Lost`](Self::Lost) or [`NotHeld`](Self::NotHeld).
    ///
    /// ```
    /// # async fn transfer() {}
    /// # async fn demo(mut lock: lockkeeper::RLock<'_>) {
    /// match lock.run(transfer()).await {
    ///     Err(error) if error.work_was_unprotected() => eprintln!("check what the transfer did: {error}"),
    ///     Err(error) => eprintln!("the transfer did not begin: {error}"),
    ///     Ok(()) => {}
    /// }
    /// # }
    /// ```
    pub const fn work_was_unprotected(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::NotHeld(_))
    }

    /// Returns why the lock was lost, if this is [`Lost`](Self::Lost) or [`NotHeld`](Self::NotHeld).
    ///
    /// ```
    /// # fn demo(error: lockkeeper::Error) {
    /// if error.loss_cause() == Some(lockkeeper::LossCause::Removed) {
    ///     eprintln!("did somebody delete the key? {error}");
    /// }
    /// # }
    /// ```
    pub const fn loss_cause(&self) -> Option<LossCause> {
        match self {
            Self::Lost(lost) | Self::NotHeld(lost) => Some(lost.cause),
            _ => None,
        }
    }

    /// Returns whether the same call can succeed later although nobody changes anything.
    ///
    /// ```
    /// # async fn demo(mut lock: lockkeeper::RLock<'_>) -> lockkeeper::Result<()> {
    /// match lock.lock().await {
    ///     Err(error) if error.is_transient() => eprintln!("try again later: {error}"),
    ///     other => drop(other?),
    /// }
    /// # Ok(()) }
    /// ```
    pub const fn is_transient(&self) -> bool {
        match self.cause() {
            Some(cause) => cause.fault.is_transient(),
            None => matches!(self, Self::TooFewReplicas { .. }),
        }
    }

    const fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Authentication(cause)
            | Self::OutOfMemory(cause)
            | Self::Permission(cause)
            | Self::ReadOnly(cause)
            | Self::Server(cause)
            | Self::TimedOut(cause)
            | Self::Unavailable(cause)
            | Self::Unreachable(cause) => Some(cause),
            _ => None,
        }
    }

    /// The error for a command about a lock that failed.
    pub(crate) fn of_lock(lock: LockId, fault: Fault) -> Self {
        match fault.kind {
            FaultKind::WrongType => Self::WrongKind { lock, found: found_type(&fault) },
            FaultKind::TooFewReplicas { acknowledged, wanted } => {
                Self::TooFewReplicas { lock, acknowledged, wanted }
            }
            _ => Self::new(Some(Box::new(lock)), fault),
        }
    }

    fn new(lock: Option<Box<LockId>>, fault: Fault) -> Self {
        use FaultKind as Kind;
        let variant = match fault.kind {
            Kind::Configuration => return ConfigError::new("url", format!("is refused: {fault}")).into(),
            Kind::RuntimeGone => return Self::RuntimeGone,
            Kind::Authentication => Self::Authentication,
            Kind::Broken | Kind::Unreachable => Self::Unreachable,
            Kind::OutOfMemory => Self::OutOfMemory,
            Kind::Permission => Self::Permission,
            Kind::ReadOnly => Self::ReadOnly,
            Kind::Rejected | Kind::WrongType => Self::Server,
            Kind::TimedOut => Self::TimedOut,
            _ => Self::Unavailable,
        };
        variant(Cause { fault, lock })
    }
}

/// How the text begins that names the rights which a user lacks.
pub(crate) const MISSING_RIGHTS: &str = "this user may not run";

/// What a key is whose type no script has named.
pub(crate) const OTHER_TYPE: &str = "a key of another type";

/// What the key is, if the script `inspect` found it.
fn found_type(fault: &Fault) -> &'static str {
    const TYPES: [(&str, &str); 5] = [
        ("string", "a string"),
        ("list", "a list"),
        ("set", "a set"),
        ("zset", "a sorted set"),
        ("stream", "a stream"),
    ];
    let text = fault.to_string();
    let named = text.split_whitespace().last().unwrap_or_default();
    TYPES.iter().find(|(name, _)| *name == named).map_or(OTHER_TYPE, |(_, found)| found)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authentication(cause) => cause.after("the server refuses the credentials", f),
            Self::Closed => f.write_str("the lock client was shut down"),
            Self::Config(wrong) => wrong.fmt(f),
            Self::InvalidDuration { argument, problem } => write!(f, "invalid duration: `{argument}` {problem}"),
            Self::InvalidName { name, problem } => write!(f, "invalid lock name `{name}`: {problem}"),
            Self::InvalidPermits { lock, wanted: 0, .. } => {
                write!(f, "a semaphore needs at least one permit, and a call has to want at least one ({lock})")
            }
            Self::InvalidPermits { lock, wanted, .. } if *wanted > MOST_PERMITS => {
                write!(f, "a call can acquire at most {MOST_PERMITS} permits together ({lock})")
            }
            Self::InvalidPermits { lock, wanted, total } => {
                let permits = if *wanted == 1 { "permit" } else { "permits" };
                write!(f, "a call wants {wanted} {permits} of a semaphore that has {total}: `resize` sets another number ({lock})")
            }
            Self::Lost(lost) => lost.fmt(f),
            Self::NotHeld(Lost { lock, cause }) => {
                write!(f, "the lock was no longer held when it was released ({lock}): {cause}")
            }
            Self::OutOfMemory(cause) => cause.after("the server has no memory left for a new lock", f),
            Self::Permission(cause) => {
                cause.after("the server does not allow this user what locking needs", f)?;
                // `check()` says which rights are missing. The server's own text mostly does not name the key.
                if cause.lock.is_some() && !cause.fault.to_string().contains(MISSING_RIGHTS) {
                    f.write_str("; `check()` of the lock and `lockkeeper doctor` name the missing rights")?;
                }
                Ok(())
            }
            Self::ReadOnly(cause) => cause.after("the server is a read-only replica", f),
            Self::RuntimeGone => f.write_str(
                "the tokio runtime on which this lock client was made is gone: make one client for each runtime (in tests, \
                 one for each test), or make it on a runtime that lives as long as the process",
            ),
            Self::Server(cause) => cause.after("the server gave an answer that is not understood", f),
            Self::TimedOut(cause) => cause.after("the server did not answer in time", f),
            Self::TooFewReplicas { lock, acknowledged, wanted } => {
                write!(f, "the lock was granted, but {acknowledged} of {wanted} replicas have it ({lock})")
            }
            Self::Unavailable(cause) => cause.after("the server cannot work now", f),
            Self::Unreachable(cause) => cause.after("the server cannot be reached", f),
            Self::UnsupportedServer { version, server, problem } => {
                write!(f, "the server {server}, which reports {version}, cannot be used: {problem}")
            }
            Self::UpgradeWouldDeadlock(lock) => {
                write!(f, "this owner holds the read lock, and has to release it before it can write ({lock})")
            }
            Self::WrongKind { lock, found } => write!(f, "the key is in use as {found} ({lock})"),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid configuration: `{}` {}", self.field, self.problem)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock was lost while it was in use ({}): {}", self.lock, self.cause)
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRenewed => "its lease was not renewed in time",
            Self::Removed => "the server no longer has it",
            Self::LeaseEnded => "its lease ended",
            Self::MaxHold => "the longest hold ended",
        })
    }
}

impl std::error::Error for ConfigError {}

impl std::error::Error for Lost {}

/// The text of the error has all that is known, so it has no source: a report of the whole chain would say it twice.
impl std::error::Error for Error {}

impl From<ConfigError> for Error {
    fn from(wrong: ConfigError) -> Self {
        Self::Config(wrong)
    }
}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::new(None, fault)
    }
}

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, key, server } = self;
        write!(f, "lock `{name}`")?;
        if name != key {
            write!(f, ", key `{key}`")?;
        }
        write!(f, ", server {server}")
    }
}

impl Cause {
    /// Continues a sentence: the lock and the server, and what the library or the server said.
    fn after(&self, sentence: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{sentence}{}: {}", self.place(), self.fault)
    }

    fn place(&self) -> String {
        match (&self.lock, self.fault.server()) {
            (Some(lock), _) => format!(" ({lock})"),
            (None, Some(server)) => format!(" (server {server})"),
            (None, None) => String::new(),
        }
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.fault, self.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(key: &str) -> LockId {
        LockId { name: "a".to_owned(), key: key.to_owned(), server: "127.0.0.1:6379".to_owned() }
    }

    fn all_kinds() -> Vec<FaultKind> {
        use FaultKind::*;
        let mut all =
            vec![Authentication, Broken, Configuration, Late, OutOfMemory, Permission, ReadOnly, Rejected];
        all.extend([RuntimeGone, SeveralSlots, Split, TimedOut, Unavailable, Unreachable, WrongType]);
        all.push(TooFewReplicas { acknowledged: 0, wanted: 1 });
        all
    }

    #[test]
    fn an_error_is_transient_if_the_engine_retries_its_fault() {
        for kind in all_kinds() {
            let fault = || Fault::new(kind, Sent::Refused, "the words of the server");
            let errors = [Error::from(fault()), Error::of_lock(lock("a"), fault())];
            assert!(errors.iter().all(|error| error.is_transient() == fault().is_transient()), "{kind:?}");
        }
    }

    #[test]
    fn each_text_stands_alone_and_says_its_cause_once() {
        assert_eq!(lock("a").to_string(), "lock `a`, server 127.0.0.1:6379");
        assert_eq!(lock("shop:a").to_string(), "lock `a`, key `shop:a`, server 127.0.0.1:6379");
        let lost = Lost { lock: lock("a"), cause: LossCause::LeaseEnded };
        assert_eq!(
            lost.to_string(),
            "the lock was lost while it was in use (lock `a`, server 127.0.0.1:6379): its lease ended"
        );
        assert_eq!(
            Error::NotHeld(lost).to_string(),
            "the lock was no longer held when it was released (lock `a`, server 127.0.0.1:6379): its lease ended"
        );
        for kind in all_kinds() {
            let words = "the words of the server";
            let error = Error::of_lock(lock("a"), Fault::new(kind, Sent::Refused, words));
            let text = error.to_string();
            assert!(text.matches(words).count() <= 1 && text.trim_start() == text, "{text}");
            assert!(std::error::Error::source(&error).is_none(), "{text}");
        }
        let fault = Fault::new(FaultKind::Unreachable, Sent::No, "Connection refused");
        assert_eq!(
            Error::of_lock(lock("a"), fault.clone()).to_string(),
            "the server cannot be reached (lock `a`, server 127.0.0.1:6379): Connection refused"
        );
        assert_eq!(Error::from(fault).to_string(), "the server cannot be reached: Connection refused");
    }
}

//! The client, from which locks are made.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::api::list_parts::ListParts;
use crate::api::owner::Owner;
use crate::base::config::LockConfig;
use crate::base::error::Result;
use crate::diagnosis::info::{HoldInfo, LockInfo, LockList};
use crate::diagnosis::waits::WaitChain;
use crate::diagnosis::{
    self, Chain, Clients, Scan, all_chains, chains, force_unlock_of, holds, info, inspect,
};
use crate::engine::{Engine, RecentWait};
use crate::locks::{Claims, FairLock, FencedLock, Lock, RLock, ReadWriteLock, Semaphore};
use crate::protocol;
use crate::store::Source;

/// A client of a Redis or Valkey server, of a master and its replicas, or of a cluster. Locks are made from it.
///
/// A client is cheap to clone, and all clones share their connections, subscription and watchdog. Share the *client* wherever
/// locks are needed, and make a handle where it is used: a handle is an owner, so each task that shares a handle could re-enter.
///
/// **The name of a lock is its key in Redis.** Give locks a prefix of their own, such as `lock:`, so that no lock has the name of a
/// key that holds data. A key that holds other data is [`Error::WrongKind`](crate::Error::WrongKind), and is never changed.
///
/// **Making a handle makes no network call and never fails.** That is so for every handle: locks, semaphores, claims, candidates and watches. If a name
/// or a number of permits cannot be used, each call that would send a command returns the error, such as
/// [`InvalidName`](crate::Error::InvalidName), and sends nothing.
///
/// The tasks of a client run on the tokio runtime on which it was made, except renewals, which have
/// [a thread](crate::LockConfigBuilder::watchdog_thread). They end when the client, its handles and its guards are gone. A client in a `static` must be made on a runtime that lives as long as the process. With `#[tokio::test]`, which makes a
/// runtime for each test, make one client for each test.
///
/// ```no_run
/// # use lockkeeper::LockClient;
/// # async fn demo() -> lockkeeper::Result<()> {
/// let locks = LockClient::connect("redis://127.0.0.1/").await?;
/// let guard = locks.rlock("lock:orders:42").lock().await?;
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockClient {
    engine: Arc<Engine>,
}

impl LockClient {
    /// Connects to a server, such as `redis://127.0.0.1/`, with the default settings. A few round trips.
    ///
    /// # Errors
    ///
    /// As for [`connect_with`](Self::connect_with).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// ```no_run
    /// # use lockkeeper::LockClient;
    /// # async fn demo() -> lockkeeper::Result<()> {
    /// let locks = LockClient::connect("redis://user:password@localhost:6379/0").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(source: impl Into<Source>) -> Result<Self> {
        Self::connect_with(source, LockConfig::default()).await
    }

    /// Connects to a server. A few round trips.
    ///
    /// The call tries once, or for as long as `start_timeout` says.
    ///
    /// # Errors
    ///
    /// - [`Config`](crate::Error::Config): the source is no address, names a database that the server does not have,
    ///   needs TLS without the feature, or has certificates that do not fit.
    /// - [`UnsupportedServer`](crate::Error::UnsupportedServer): the server is older than Redis 7.0 or Valkey 7.2, or lacks
    ///   something that the scripts need.
    /// - [`Authentication`](crate::Error::Authentication) or [`Permission`](crate::Error::Permission): the server refuses the
    ///   credentials, or does not allow this user to run scripts.
    /// - Another [fault of server or network](crate::Error#faults-of-server-and-network), after `start_timeout`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockkeeper::{LockClient, LockConfig};
    /// # async fn demo() -> lockkeeper::Result<()> {
    /// let config = LockConfig::builder().start_timeout(Duration::from_secs(60)).build()?;
    /// let locks = LockClient::connect_with("redis://127.0.0.1/", config).await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect_with(source: impl Into<Source>, config: LockConfig) -> Result<Self> {
        Ok(Self { engine: diagnosis::start(source.into(), config).await? })
    }

    /// Makes a handle for the reentrant lock with this name. The handle is a new owner. No network call.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let guard = locks.rlock("lock:orders:42").lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn rlock(&self, name: impl AsRef<str>) -> RLock<'static> {
        Lock::single(&protocol::Reentrant, &self.engine, name.as_ref(), Arc::default())
    }

    /// Makes a handle for the fair lock with this name. The handle is a new owner. No network call.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let guard = locks.fair_lock("lock:jobs").lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn fair_lock(&self, name: impl AsRef<str>) -> FairLock<'static> {
        Lock::single(&protocol::Fair, &self.engine, name.as_ref(), Arc::default())
    }

    /// Makes a handle for the fenced lock with this name. The handle is a new owner. No network call.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let guard = locks.fenced_lock("lock:orders:42").lock().await?;
    /// println!("write with token {}", guard.token());
    /// # Ok(()) }
    /// ```
    pub fn fenced_lock(&self, name: impl AsRef<str>) -> FencedLock<'static> {
        Lock::single(&protocol::Fenced, &self.engine, name.as_ref(), Arc::default())
    }

    /// Makes a handle for the read-write lock with this name. The handle is a new owner. No network call.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let guard = locks.read_write_lock("lock:cache").read().lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock<'static> {
        ReadWriteLock::new(&self.engine, name.as_ref(), Arc::default())
    }

    /// Makes a semaphore: at most `permits` holders at a time, over all processes. No network call.
    ///
    /// The number is used if the key does not exist yet. If the server has another number, the server's is used, and a `tracing` event says so.
    /// [`resize`](Semaphore::resize) changes it. With zero permits, each acquire is an
    /// [`InvalidPermits`](crate::Error::InvalidPermits).
    ///
    /// ```no_run
    /// # async fn call() {}
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let api = locks.semaphore("sem:api", 10);
    /// api.run(call()).await?;
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(&self.engine, name.as_ref(), permits)
    }

    /// Makes the group of claims with this name: each call claims the first of many names that is free. No network call.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let jobs = locks.claims("jobs");
    /// if let Some(claim) = jobs.claim(["17", "18", "19"]).await? {
    ///     println!("this worker does job {}", claim.name());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn claims(&self, group: impl AsRef<str>) -> Claims {
        Claims::new(&self.engine, group.as_ref())
    }

    /// Makes an owner, for nested sections that only know the name of a lock. No network call.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let mut me = locks.owner();
    /// let outer = me.rlock("lock:ledger").lock().await?;
    /// let inner = me.rlock("lock:ledger").lock().await?; // re-enters
    /// # Ok(()) }
    /// ```
    pub fn owner(&self) -> Owner {
        Owner::new(Arc::clone(&self.engine))
    }

    /// Returns who holds the lock with this name, of any type. `None`: it is free. One round trip then; two or more if it is held.
    ///
    /// It cannot distinguish fair and fenced locks from an `RLock`, and does not count waiters: [`list`](Self::list) does. A semaphore is returned
    /// while it exists, even if no permit is in use. Any key with a whole number
    /// up to 4,294,967,295 can be one.
    ///
    /// # Errors
    ///
    /// [`InvalidName`](crate::Error::InvalidName), [`WrongKind`](crate::Error::WrongKind) for a key that holds other data, or a
    /// [fault of server or network](crate::Error#faults-of-server-and-network).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// match locks.inspect("lock:orders:42").await? {
    ///     Some(info) => println!("{info}"),
    ///     None => println!("free"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<LockInfo>> {
        let name = name.as_ref();
        let Some(listing) = inspect(&self.engine, name).await? else { return Ok(None) };
        let clients = Clients::ask(&self.engine, [&listing]).await;
        Ok(LockInfo::from_server(name, None, listing, &clients))
    }

    /// Releases the holds or permits of these holders, as [`inspect`](Self::inspect) found them, of a lock of any type, and wakes the
    /// waiters. Returns whether one of the holders was still there. One round trip to find them, and one or two for each holder.
    ///
    /// To release only some, remove the others from [`LockInfo::holders`]. An owner that acquired the lock later keeps it. There are two
    /// exceptions, because the server cannot tell them from the holder that `inspect` found: a thread of Java that acquired the lock again, and an owner that
    /// took the hold over from another owner of its client ([`sharing`](crate::LockConfigBuilder::sharing), for 5 ms by default).
    ///
    /// This is for repairs by hand. The former holder can work on until it notices: mostly at once, and at the latest at its next
    /// renewal or release, or when a [`fixed`](crate::LockOptionsBuilder::fixed) lease ends.
    ///
    /// # Errors
    ///
    /// As for [`inspect`](Self::inspect), and [`Closed`](crate::Error::Closed): the client was shut down. After an error, some of the holders
    /// can have lost their holds, and others not.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is unknown whether the call releases the holds, now or later.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// if let Some(mut info) = locks.inspect("lock:orders:42").await? {
    ///     info.holders.retain(|holder| holder.is_connected == Some(false));
    ///     let was_held = locks.force_unlock(&info).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn force_unlock(&self, info: &LockInfo) -> Result<bool> {
        let owners = info.holders.iter().map(|holder| &*holder.owner).collect();
        force_unlock_of(&self.engine, &info.name, &owners).await
    }

    /// Lists the locks that are held and the semaphores in use, of all types and clients, sorted by name. Asks each master several times.
    ///
    /// `pattern` says which names: `*` stands for any text, `?` for one byte, `[ab]` for one of these bytes, and `\` goes before a
    /// byte that stands for itself. The call looks at all keys of the server, some hundred with each command, so that no command
    /// blocks the server for long. These locks can be missing: those that come or go meanwhile, in a cluster those whose slot
    /// moves or whose master is replaced meanwhile, and those to whose keys this user has no right. [`LockList::skipped`] names those that cannot be listed.
    ///
    /// # Errors
    ///
    /// [`InvalidName`](crate::Error::InvalidName) for an empty pattern, or a
    /// [fault of server or network](crate::Error#faults-of-server-and-network), mostly [`Permission`](crate::Error::Permission).
    /// Users need more [rights](crate::guide::deploy#users-and-rights) than for locking.
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// for lock in locks.list("lock:*").await?.locks {
    ///     println!("{lock}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, pattern: impl AsRef<str>) -> Result<LockList> {
        let (mut parts, mut all) = (self.list_parts(pattern), LockList::default());
        while let Some(part) = parts.next().await? {
            all.locks.extend(part.locks);
            all.skipped.extend(part.skipped);
        }
        all.locks.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all.skipped.sort_unstable();
        Ok(all)
    }

    /// Lists the same locks as [`list`](Self::list), a part at a time and in no order. No network call before
    /// [`ListParts::next`].
    ///
    /// For a server with very many locks: only their keys stay in memory.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let mut parts = locks.list_parts("lock:*");
    /// while let Some(part) = parts.next().await? {
    ///     part.locks.iter().for_each(|lock| println!("{}", lock.name));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn list_parts(&self, pattern: impl AsRef<str>) -> ListParts {
        ListParts {
            engine: Arc::clone(&self.engine),
            scan: Scan::new(pattern.as_ref()),
            clients: Clients::default(),
            part: None,
        }
    }

    /// Lists the holds that clients report, sorted by the name of the lock. Reads one key of each client, so it is fast even if the server has very
    /// many keys. If this user has no right to `CLIENT LIST`, or the server does not know the name of this client, it has to look through all keys.
    ///
    /// It shows only clients that are connected and have the `name_prefix` of this one. It misses what [`Holder::held_for`](crate::Holder::held_for)
    /// misses, and a hold can have ended up to a second ago. [`list`](Self::list) finds all.
    ///
    /// # Errors
    ///
    /// A [fault of server or network](crate::Error#faults-of-server-and-network), mostly [`Permission`](crate::Error::Permission).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// for hold in locks.list_holds().await? {
    ///     println!("{} at {}", hold.lock, hold.acquired_at);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn list_holds(&self) -> Result<Vec<HoldInfo>> {
        holds(&self.engine).await
    }

    /// Returns why this lock is not free: who holds it, what the holder waits for, who holds that, and so on. A chain for each holder: deadlocks
    /// first, then the longest, a hundred at most. Empty: the lock is free. Several round trips.
    ///
    /// A wait is known after a second, a link only through an [`Owner`], see [`WaitChain`], and both only of clients with the `name_prefix` of
    /// this one. A deadlock is looked at twice, with half a second in between: then the call takes longer.
    ///
    /// # Errors
    ///
    /// As for [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let is_deadlock = locks.why("lock:orders:42").await?.iter().any(|chain| chain.is_deadlock);
    /// # Ok(()) }
    /// ```
    pub async fn why(&self, name: impl AsRef<str>) -> Result<Vec<WaitChain>> {
        let found = chains(&self.engine, name.as_ref()).await?;
        Ok(self.shown(&found).await)
    }

    /// Returns all chains of more than one link, as [`why`](Self::why) does. Several round trips: it reads what each client
    /// tells, and asks for the locks of the owners that wait.
    ///
    /// # Errors
    ///
    /// As for [`list`](Self::list).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let deadlocks = locks.wait_chains().await?.into_iter().filter(|chain| chain.is_deadlock);
    /// # Ok(()) }
    /// ```
    pub async fn wait_chains(&self) -> Result<Vec<WaitChain>> {
        let found = all_chains(&self.engine).await?;
        Ok(self.shown(&found).await)
    }

    async fn shown(&self, chains: &[Chain]) -> Vec<WaitChain> {
        let holders: Vec<_> = chains.iter().map(Chain::holders).collect();
        let (prefix, clients) = (self.engine.name_prefix(), Clients::ask(&self.engine, &holders).await);
        chains.iter().map(|chain| WaitChain::from_server(chain, &clients, prefix)).collect()
    }

    /// Returns the last 1,000 calls of this client that waited for another owner, the oldest first: empty with
    /// [`diagnosis`](crate::LockConfigBuilder::diagnosis) switched off. No network call.
    ///
    /// ```no_run
    /// # fn demo(locks: lockkeeper::LockClient) {
    /// let waits = locks.recent_waits();
    /// # }
    /// ```
    pub fn recent_waits(&self) -> Vec<RecentWait> {
        self.engine.waits.as_ref().map_or_else(Vec::new, |waits| waits.past())
    }

    /// Returns the `INFO` of each master, by its address: version, memory, persistence, replicas. One round trip to each.
    /// The facts have the names that they have there.
    ///
    /// # Errors
    ///
    /// A [fault of server or network](crate::Error#faults-of-server-and-network). [`Permission`](crate::Error::Permission): the user has no right to
    /// call `INFO`.
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// for (address, facts) in locks.servers().await? {
    ///     println!("{address} runs {:?}", facts.get("redis_version"));
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn servers(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        let fact =
            |line: &str| line.split_once(':').map(|(name, fact)| (name.to_owned(), fact.trim().to_owned()));
        let facts = |(address, info): (Arc<str>, String)| {
            (address.to_string(), info.lines().filter_map(fact).collect())
        };
        Ok(info(&self.engine).await?.into_iter().map(facts).collect())
    }

    /// Ends the client and all its clones. Waits until everything that was dropped is released.
    ///
    /// Nothing can be acquired any more, and waiting calls return [`Closed`](crate::Error::Closed). Everything that was dropped,
    /// and everything that those calls leave behind, is released before `shutdown` returns.
    ///
    /// Guards that exist are not released, because their work still goes on. These guards can still be released. Nothing
    /// renews them, so they are lost when their leases end.
    ///
    /// Call `shutdown` before a process exits. Otherwise the locks that were dropped last stay held until their leases end.
    ///
    /// # Errors
    ///
    /// The fault that prevented a release, or [`TimedOut`](crate::Error::TimedOut) if no release was answered for
    /// `retry_timeout`, and at least for twice `command_timeout`, or `command_timeout` and two seconds if that is longer. The
    /// error names one of the locks that are left. Their releases continue in the background while the runtime lives, and each further
    /// `shutdown` asks the server again. What is not released ends with its lease.
    /// [`RuntimeGone`](crate::Error::RuntimeGone): nobody can release anything any more.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is unknown whether the client is closed. `shutdown` can be called again.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// locks.shutdown().await?;
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self) -> Result<()> {
        let last = async {
            if let Some(waits) = &self.engine.waits {
                waits.end().await;
            }
        };
        self.engine.shutdown(last).await
    }

    /// Waits for the [`shutdown`](Self::shutdown) of the client, by any of its clones. No network call.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped and made again at any time.
    ///
    /// ```no_run
    /// # async fn step() {}
    /// # async fn demo(locks: lockkeeper::LockClient) {
    /// loop {
    ///     tokio::select! {
    ///         () = locks.closed() => return,
    ///         () = step() => {}
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn closed(&self) {
        self.engine.closing().await;
    }

    /// Returns the id of this client. All its clones have the same id. No network call.
    ///
    /// The id is the part before the colon of every owner that [`inspect`](Self::inspect) shows for a hold of this client. Only permits have ids
    /// without it.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let guard = locks.rlock("lock:orders:42").lock().await?;
    /// assert!(guard.owner_id().starts_with(&locks.id()));
    /// # Ok(()) }
    /// ```
    pub fn id(&self) -> String {
        self.engine.id()
    }
}

/// Shows the id, and takes no mutex.
impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockClient({})", self.engine.id())
    }
}

#[cfg(all(test, feature = "unstable-simulation"))]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::FutureExt;
    use lockkeeper_memory::MemoryServer;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;
    use crate::base::clock::{self, Moment, ProcessClock};
    use crate::base::options::LockOptions;

    /// A service can use a stream, and a test beside it the feature `paused-clock`.
    #[tokio::test]
    async fn a_stream_has_the_real_clock_unless_a_test_pauses_it() {
        let server = MemoryServer::new();
        let locks = LockClient::connect(Source::stream(server.connector())).await.unwrap();
        let guard = locks.rlock("a").lock().await.unwrap();
        assert!(!clock::is_virtual());
        tokio::time::pause();
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock::is_virtual());
        guard.unlock().await.unwrap();
    }

    /// Timers stop while the host is suspended, and the clock of the leases does not.
    #[tokio::test(start_paused = true)]
    async fn a_loss_during_a_suspend_is_reported_within_a_second() {
        let server = MemoryServer::new();
        let locks = LockClient::connect(Source::stream(server.connector())).await.unwrap();
        let minute = LockOptions::builder().fixed(Duration::from_secs(60)).build().unwrap();
        let (mut renewed, mut fixed) = (locks.rlock("a"), locks.rlock("b").with(&minute));
        let guards = [renewed.lock().await.unwrap(), fixed.lock().await.unwrap()];
        let lost = [guards[0].ended(), guards[1].ended()].map(tokio::spawn);
        tokio::time::sleep(Duration::from_secs(5)).await; // by now both futures wait for a timer
        server.hold(true);
        let after = clock::now().since(Moment::PAST) + Duration::from_secs(61);
        let before = ProcessClock::start(after, 0).enter();
        for lost in lost {
            timeout(Duration::from_secs(1), lost).await.expect("in time").unwrap().unwrap_err();
        }
        ProcessClock::leave(before);
    }

    /// When a process goes on that stood still, the end of its work and that of its lease come together.
    #[tokio::test(start_paused = true)]
    async fn work_of_a_hold_that_has_ended_is_not_polled_again() {
        let server = MemoryServer::new();
        let locks = LockClient::connect(Source::stream(server.connector())).await.unwrap();
        let minute = LockOptions::builder().fixed(Duration::from_secs(60)).build().unwrap();
        let guard = locks.rlock("a").with(&minute).lock().await.unwrap();
        let (ends, work) = oneshot::channel();
        let mut work = pin!(guard.run(work));
        assert!(work.as_mut().now_or_never().is_none());
        let after = clock::now().since(Moment::PAST) + Duration::from_secs(61);
        let before = ProcessClock::start(after, 0).enter();
        ends.send(()).expect("the work waits");
        work.now_or_never().expect("an answer").unwrap_err();
        ProcessClock::leave(before);
    }

    /// A reader that only joins the holds of others never begins an acquire, which would forget them.
    #[tokio::test(start_paused = true)]
    async fn what_an_owner_joined_is_forgotten() {
        let server = MemoryServer::new();
        let locks = LockClient::connect(Source::stream(server.connector())).await.unwrap();
        let (mut reader, mut joined) = (locks.read_write_lock("a").into_read(), Vec::new());
        for _ in 0..5 {
            let other = locks.read_write_lock("a").into_read().lock().await.unwrap();
            let guard = reader.lock().await.unwrap();
            assert!(Arc::ptr_eq(guard.grant(), other.grant()), "the reader joins the other one");
            joined.push(Arc::downgrade(guard.grant()));
            guard.unlock().await.unwrap();
            other.unlock().await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await; // the next reader cannot join any more
        }
        assert_eq!(joined.iter().filter(|grant| grant.strong_count() > 0).count(), 1);
    }
}

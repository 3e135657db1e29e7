//! One lock on one server.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::shared::Engine;
use crate::base::error::{Error, LockId, Result};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::sync::{Watched, lock};
use crate::base::task;
use crate::base::timer::sleep;
use crate::engine::hold::Named;
use crate::engine::line::lines::Of;
use crate::engine::line::state::Kind;
use crate::protocol::{Arg, Call, Claim, HolderRef, LockKeys, Protocol, Reply, Semaphore};
use crate::store::{Connection, Route};

/// How often a client asks the server whether somebody waits for a lock.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(250);

/// One lock on one server.
#[derive(Clone)]
pub(crate) struct LockRef {
    pub(crate) engine: Arc<Engine>,
    pub(crate) protocol: &'static dyn Protocol,
    /// The name, as the user gave it.
    pub(crate) name: Arc<str>,
    pub(crate) keys: LockKeys,
    pub(crate) route: Route,
    /// The permits, if this is a semaphore.
    pub(crate) permits: Permits,
}

/// The permits that a hold of a semaphore has.
#[derive(Clone, Default)]
pub(crate) struct Permits {
    /// How many permits a hold has. 1 for every other type of lock.
    wanted: u32,
    /// How many permits there are if the server has no number. Only for a semaphore, so that other handles allocate
    /// nothing.
    total: Option<Arc<AtomicU32>>,
}

impl Permits {
    /// How many permits a hold has.
    pub(crate) fn count(&self) -> u32 {
        self.wanted.max(1)
    }

    /// How many permits there are if the server has no number.
    pub(crate) fn total(&self) -> u32 {
        self.total.as_ref().map_or(0, |total| total.load(Ordering::Relaxed))
    }

    pub(crate) fn set_total(&self, total: u32) {
        if let Some(known) = &self.total {
            known.store(total, Ordering::Relaxed);
        }
    }
}

impl LockRef {
    pub(crate) fn new(engine: &Arc<Engine>, protocol: &'static dyn Protocol, name: &str) -> Self {
        let key = engine.key(name);
        let name = if *key == *name { Arc::clone(&key) } else { name.into() };
        let route = engine.store.route(&key);
        let keys = protocol.keys(key);
        Self { engine: Arc::clone(engine), protocol, name, keys, route, permits: Permits::default() }
    }

    /// The semaphore with this name.
    pub(crate) fn semaphore(engine: &Arc<Engine>, name: &str, total: u32) -> Self {
        let mut lock = Self::new(engine, &Semaphore, name);
        lock.permits = Permits { wanted: 1, total: Some(Arc::new(total.into())) };
        lock
    }

    /// A group of claims. It is no lock itself: its key is the beginning of the keys of its locks.
    pub(crate) fn group(engine: &Arc<Engine>, name: &str) -> Self {
        let mut group = Self::new(engine, &Claim, &["{", name, "}"].concat());
        group.name = name.into();
        group
    }

    /// The lock with this name in the group. All locks of a group use one connection, so one answer settles what the
    /// server has of all of them.
    pub(crate) fn in_group(&self, name: &str) -> Self {
        Self { name: name.into(), keys: self.keys.in_group(name), ..self.clone() }
    }

    /// The same semaphore, for holds with this many permits.
    pub(crate) fn with_permits(self: &Arc<Self>, wanted: u32) -> Arc<Self> {
        if wanted == self.permits.count() {
            return Arc::clone(self);
        }
        let permits = Permits { wanted, ..self.permits.clone() };
        Arc::new(Self { permits, ..Self::clone(self) })
    }

    /// Whether a hold can be given to another owner of this client. Several permits are not: the next waiter perhaps
    /// wants fewer.
    pub(crate) fn can_be_passed_on(&self) -> bool {
        self.protocol.can_be_passed_on() && self.permits.count() == 1
    }

    /// Takes note of the number of permits on the server. If the user gave another number, warns once for the client,
    /// and not once for each handle.
    pub(crate) fn has_total(&self, found: u32) {
        let wanted = self.permits.total();
        if found != wanted && self.engine.reported_totals.is_new(&self.keys.lock, found) {
            let LockId { name, key, server } = self.id();
            tracing::warn!(
                lock = name,
                key,
                server,
                wanted,
                found,
                "a semaphore has another number of permits than this client was told: the server's number counts until it is resized"
            );
        }
    }

    /// The error for a call that wants more permits than there are.
    pub(crate) fn too_many_permits(&self, total: u32) -> Error {
        Error::InvalidPermits { lock: self.id(), wanted: self.permits.count(), total }
    }

    pub(crate) fn id(&self) -> LockId {
        LockId {
            name: self.name.to_string(),
            key: self.keys.lock.to_string(),
            server: self.engine.store.address(self.route).to_string(),
        }
    }

    /// Refuses a name that cannot be used.
    pub(crate) fn check_name(&self) -> Result<()> {
        check_name(&self.name)?;
        let invalid = |problem| Err(Error::InvalidName { name: self.name.to_string(), problem });
        let key = &self.keys.lock;
        if self.keys.can_be_intent() {
            return invalid(format!(
                "its key `{key}` can be that of a writer that stops the readers of another lock"
            ));
        }
        if self.engine.store.is_cluster() && !self.keys.are_in_one_slot() {
            return invalid(format!("a cluster has its key `{key}` in another slot than its channel"));
        }
        Ok(())
    }

    /// Refuses a type of lock whose scripts use keys that the server refuses.
    pub(crate) fn check_type(&self) -> Result<()> {
        match self.engine.store.refuses_undeclared() {
            Some(refusal) if self.protocol.is_read_write() => Err(self.engine.unsupported(
                &self.keys.lock,
                format!(
                    "it refuses the keys of readers, which only the script finds ({}): {refusal}",
                    self.id()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The error for a key that is another kind of lock.
    pub(crate) fn other_kind(&self) -> Error {
        let is_read_write = self.protocol.is_read_write();
        let found = if is_read_write { "a lock that is not a read-write lock" } else { "a read-write lock" };
        Error::WrongKind { lock: self.id(), found }
    }

    /// The error for a key that holds other data, and no lock.
    pub(crate) fn not_a_lock(&self) -> Error {
        let found = if self.protocol.has_permits() { NOT_A_SEMAPHORE } else { NOT_A_LOCK };
        Error::WrongKind { lock: self.id(), found }
    }

    /// The error for a fencing counter that cannot count.
    pub(crate) fn cannot_count(&self) -> Error {
        let counter = self.protocol.counter(&self.keys).unwrap_or(&self.keys.lock);
        Error::WrongKind { lock: LockId { key: counter.to_string(), ..self.id() }, found: NOT_A_COUNTER }
    }

    /// Refuses work that nothing would finish: the runtime on which the client was made is gone.
    pub(crate) fn check_runtime(&self) -> Result<(), Fault> {
        self.engine.check_runtime().map_err(|gone| Fault::new(FaultKind::RuntimeGone, Sent::No, gone))
    }

    pub(crate) fn error(&self, fault: Fault) -> Error {
        Error::of_lock(self.id(), fault)
    }

    /// The address of the server that has the lock now.
    pub(crate) fn server(&self) -> Arc<str> {
        self.engine.store.address(self.route)
    }

    /// The connection for commands about this lock.
    pub(crate) fn connection(&self) -> impl Future<Output = Result<Connection, Fault>> {
        self.engine.store.connection(self.route)
    }

    /// The connection for acquires that wait for replicas.
    pub(crate) async fn connection_of_acquires(&self) -> Result<Connection, Fault> {
        self.engine.store.connection_of_acquires(self.route).await
    }

    pub(crate) async fn run(&self, connection: &Connection, call: &Call) -> Result<Reply, Fault> {
        self.engine.store.run(connection, call).await
    }

    /// Whether somebody waits for the lock. Also false if the server does not tell.
    async fn has_waiters(&self) -> bool {
        let call = self.protocol.waiters(&self.keys);
        let reply = async { self.run(&self.connection().await?, &call).await }.await;
        matches!(reply, Ok(Reply::Int(1..)))
    }

    /// Becomes 1 when somebody waits for the lock. All who want to know that in this client share one question.
    pub(crate) fn wanted(self: &Arc<Self>) -> Arc<Watched> {
        let key = (Arc::clone(&self.keys.lock), self.protocol.lock_type());
        let mut all = lock(&self.engine.wanted);
        if let Some(wanted) = all.get(&key).and_then(Weak::upgrade) {
            return wanted;
        }
        let (wanted, of) = (Arc::<Watched>::default(), Arc::clone(self));
        let told = Arc::downgrade(&wanted);
        all.insert(key.clone(), Weak::clone(&told));
        drop(all);
        task::spawn_on(&self.engine.lines.runtime, async move {
            while told.strong_count() > 0 && !of.has_waiters().await {
                sleep(BETWEEN_QUESTIONS).await;
            }
            lock(&of.engine.wanted).remove(&key); // a later call makes its own question
            told.upgrade().into_iter().for_each(|told| told.modify(|_| 1));
        });
        wanted
    }

    /// Runs a release, and makes sure that the waiters get its message, even while the slot of the lock moves.
    pub(crate) async fn run_and_tell(&self, connection: &Connection, call: &Call) -> Result<Reply, Fault> {
        self.engine.store.run_and_tell(connection, call, &self.keys.channel).await
    }

    /// The command that asks for the place of the waiter that this channel wakes. `None`: the lock has no queue.
    pub(crate) fn place(&self, channel: &str) -> Option<Call> {
        let queue = self.protocol.queue()?;
        let waiter = channel.strip_prefix(&*self.keys.channel)?.strip_prefix(':')?;
        Some(queue.place(&self.keys, waiter))
    }

    /// The line of those who wait for this lock.
    pub(crate) fn line(&self) -> Of<'_> {
        let kind = match () {
            () if self.protocol.queue().is_some() => Kind::Place,
            () if self.protocol.has_permits() => Kind::Permits,
            () if self.protocol.is_shared() => Kind::Readers,
            () => Kind::Exclusive,
        };
        let Engine { config, store, .. } = &*self.engine;
        Of { keys: &self.keys, kind, safety_poll: config.safety_poll(), store }
    }

    pub(crate) fn holder<'a>(&'a self, owner: &'a Arg, grant: u64) -> HolderRef<'a> {
        HolderRef { keys: &self.keys, owner, grant, total: self.permits.total(), config: &self.engine.config }
    }
}

pub(crate) const NOT_A_LOCK: &str = "data that is no lock";

const NOT_A_SEMAPHORE: &str = "data that is no semaphore";

/// The set of permits has a member whose length is not that of a permit's id.
pub(crate) const OTHER_PERMITS: &str = "a semaphore among whose permits is other data";

const NOT_A_COUNTER: &str = "data that is no fencing counter, or a counter that cannot grow";

pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::InvalidName { name: name.to_owned(), problem: "it is empty".to_owned() });
    }
    Ok(())
}

impl Named for LockRef {
    fn lock_id(&self) -> LockId {
        self.id()
    }
}

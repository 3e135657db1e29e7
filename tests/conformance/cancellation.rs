//! Guarantees 11 and 12: a future that is dropped at any of its polls leaves nothing behind, and those who wait get the lock.

use std::fmt::Debug;
use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use lockkeeper::{BaseLock, Claims, Error, Lock, LockClient, LockGuard, MultiLock, Result, Semaphore};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use tokio_test::task;

use crate::conformance::Fixture;
use crate::support::{LIMIT, MS, SECOND, Scene, connect, eventually, patient, soon, source, tasks, woken};

/// More polls than any future here needs.
const MOST_POLLS: usize = 200;

/// If a future is not woken for this long, it waits for somebody else.
const IDLE: Duration = Duration::from_millis(10);

/// What happens between the last poll and the drop.
#[derive(Clone, Copy, Debug)]
enum Pause {
    /// The command may not be sent yet.
    No,
    /// The command is in flight.
    Sent,
    /// The future was woken, mostly by the reply, and has not seen it.
    Answered,
}

/// How an owner acquires.
#[derive(Clone, Copy, Debug)]
pub enum How {
    Waits,
    Tries,
    WaitsFor(Duration),
}

/// The future that is dropped.
#[derive(Clone, Copy, Debug)]
enum Dropped {
    Acquire(How),
    Reentry,
    Unlock,
    InnerUnlock,
    Extend,
    /// A question of the handle, by its number.
    Query(usize),
    /// A call of a client that has sent nothing yet, by its number.
    First(usize),
}

/// What other clients do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Others {
    Nothing,
    /// One holds the lock, and releases it when the future waits for that.
    Hold,
    /// The same, and others wait: since before the first poll if the owner of the future holds the lock, and since after it if not.
    Wait(Waiters),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Waiters {
    /// One in the client of the future, and one in another.
    Near,
    Far,
}

/// One owner.
pub trait Owning: Send {
    fn acquire(&mut self, how: How) -> BoxFuture<'_, Result<Option<LockGuard>>>;

    /// Calls that change nothing while nobody holds the lock.
    fn queries(&self) -> Vec<BoxFuture<'_, ()>>;
}

/// A type of lock whose futures are dropped.
pub trait Droppable: 'static {
    /// Whether its calls can wait.
    const WAITS: bool = true;
    /// Whether an owner can acquire it twice.
    const REENTERS: bool = false;

    fn owner(client: &LockClient) -> Box<dyn Owning>;
    /// An owner whose hold excludes all others.
    fn rival(client: &LockClient) -> Box<dyn Owning>;
}

impl<F: Fixture> Droppable for F {
    const REENTERS: bool = true;

    fn owner(client: &LockClient) -> Box<dyn Owning> {
        Box::new(F::lock(client, "a"))
    }

    fn rival(client: &LockClient) -> Box<dyn Owning> {
        Box::new(F::rival(client, "a"))
    }
}

impl<K: BaseLock> Owning for Lock<'static, K> {
    fn acquire(&mut self, how: How) -> BoxFuture<'_, Result<Option<LockGuard>>> {
        async move {
            let guard = match how {
                How::Waits => Some(self.lock().await?),
                How::Tries => self.try_lock().await?,
                How::WaitsFor(limit) => self.try_lock_for(limit).await?,
            };
            Ok(guard.map(LockGuard::into_plain))
        }
        .boxed()
    }

    fn queries(&self) -> Vec<BoxFuture<'_, ()>> {
        let (is_locked, lease) = (self.is_locked().map(drop), self.remaining_lease().map(drop));
        vec![is_locked.boxed(), lease.boxed(), self.force_unlock().map(drop).boxed()]
    }
}

/// Calls for this many of two permits.
pub struct Batch<const COUNT: u32>;

impl<const COUNT: u32> Droppable for Batch<COUNT> {
    fn owner(client: &LockClient) -> Box<dyn Owning> {
        Box::new((client.semaphore("a", 2), COUNT))
    }

    fn rival(client: &LockClient) -> Box<dyn Owning> {
        Box::new((client.semaphore("a", 2), 2))
    }
}

impl Owning for (Semaphore, u32) {
    fn acquire(&mut self, how: How) -> BoxFuture<'_, Result<Option<LockGuard>>> {
        let (semaphore, count) = &*self;
        async move {
            let guard = match how {
                How::Waits => Some(semaphore.acquire_many(*count).await?),
                How::Tries => semaphore.try_acquire_many(*count).await?,
                How::WaitsFor(limit) => semaphore.try_acquire_many_for(*count, limit).await?,
            };
            Ok(guard.map(LockGuard::into_plain))
        }
        .boxed()
    }

    fn queries(&self) -> Vec<BoxFuture<'_, ()>> {
        vec![self.0.available_permits().map(drop).boxed(), self.0.total().map(drop).boxed()]
    }
}

/// One of two jobs. Those who wait do so for both.
pub struct Jobs;

impl Droppable for Jobs {
    const WAITS: bool = false;

    fn owner(client: &LockClient) -> Box<dyn Owning> {
        Box::new(client.claims("a"))
    }

    fn rival(client: &LockClient) -> Box<dyn Owning> {
        Box::new(MultiLock::new([client.rlock("{a}:1"), client.rlock("{a}:2")]).unwrap())
    }
}

impl Owning for Claims {
    fn acquire(&mut self, _: How) -> BoxFuture<'_, Result<Option<LockGuard>>> {
        self.claim(["1", "2"]).map(|claim| Ok(claim?.map(LockGuard::into_plain))).boxed()
    }

    fn queries(&self) -> Vec<BoxFuture<'_, ()>> {
        vec![self.check().map(drop).boxed()]
    }
}

/// What is dropped, when, and what others do meanwhile.
#[derive(Clone, Copy, Debug)]
struct Case {
    dropped: Dropped,
    others: Others,
    pause: Pause,
    polls: usize,
}

/// Who else has the lock, or wants it.
struct Beside {
    holder: Option<LockGuard>,
    waiters: Vec<JoinHandle<()>>,
}

/// The scene, the client whose futures are dropped, and another one.
struct Sweep {
    scene: Scene,
    locks: LockClient,
    beside: LockClient,
    /// What is left when nobody holds the lock: a semaphore keeps its number of permits.
    keys: Vec<String>,
    tasks: usize,
}

impl Sweep {
    async fn new<D: Droppable>() -> Self {
        let scene = Scene::start();
        // Without polling, so that a lost wake-up shows.
        let config = || patient().safety_poll(3_600 * SECOND);
        let (locks, beside) = (scene.client_with(config()).await, scene.client_with(config()).await);
        // Make all connections, and use the subscribers once.
        for client in [&locks, &beside] {
            for name in 0..20 {
                client.rlock(format!("warm {name}")).lock().await.unwrap().unlock().await.unwrap();
            }
        }
        let held = D::rival(&locks).acquire(How::Waits).await.unwrap().unwrap();
        let waiting = [&locks, &beside].map(waits::<D>);
        eventually("they subscribe", || scene.server.channels(), |channels| !channels.is_empty()).await;
        held.unlock().await.unwrap();
        for waiter in waiting {
            soon(waiter).await.unwrap();
        }
        let channels = || scene.server.channels();
        eventually("no channel is left", channels, Vec::is_empty).await;
        let keys = scene.server.keys();
        Self { scene, locks, beside, keys, tasks: tasks() }
    }

    fn waiters<D: Droppable>(&self, others: Others) -> Vec<JoinHandle<()>> {
        let clients = match others {
            Others::Nothing | Others::Hold => &[][..],
            Others::Wait(Waiters::Near) => &[&self.locks, &self.beside],
            Others::Wait(Waiters::Far) => &[&self.beside],
        };
        clients.iter().map(|client| waits::<D>(client)).collect()
    }

    /// Returns the guard of the owner. If others are to wait, they do so when it returns.
    async fn held<D: Droppable>(&self, case: Case, owner: &mut dyn Owning, beside: &mut Beside) -> LockGuard {
        let guard = owner.acquire(How::Waits).await.unwrap().unwrap();
        beside.waiters = self.waiters::<D>(case.others);
        if !beside.waiters.is_empty() {
            eventually("they subscribe", || self.scene.server.channels(), |channels| !channels.is_empty())
                .await;
        }
        guard
    }

    /// Returns whether the future completed.
    async fn step<D: Droppable>(&self, case: Case) -> bool {
        let mut owner = D::owner(&self.locks);
        let mut beside = Beside { holder: None, waiters: Vec::new() };
        let is_done = match case.dropped {
            Dropped::Acquire(how) => {
                if case.others != Others::Nothing {
                    beside.holder = D::rival(&self.beside).acquire(How::Waits).await.unwrap();
                }
                let got = self.left::<D, _>(case, &mut beside, owner.acquire(how)).await;
                let is_done = got.map(|guard| drop(guard.unwrap())).is_some();
                if case.others == Others::Nothing && D::REENTERS {
                    let again = soon(owner.acquire(How::Tries)).await.unwrap();
                    again
                        .unwrap_or_else(|| panic!("{case:?}: its own call is in the way"))
                        .unlock()
                        .await
                        .unwrap();
                }
                is_done
            }
            Dropped::Reentry => {
                let outer = self.held::<D>(case, &mut *owner, &mut beside).await;
                let got = self.left::<D, _>(case, &mut beside, owner.acquire(How::Waits)).await;
                let is_done = got.map(|guard| drop(guard.unwrap())).is_some();
                self.is_held_once::<D>(case, &outer).await;
                outer.unlock().await.expect("the lock was held throughout");
                is_done
            }
            Dropped::Unlock => {
                let guard = self.held::<D>(case, &mut *owner, &mut beside).await;
                let released = self.left::<D, _>(case, &mut beside, guard.unlock()).await;
                released.map(Result::unwrap).is_some()
            }
            Dropped::InnerUnlock => {
                let outer = self.held::<D>(case, &mut *owner, &mut beside).await;
                let inner = owner.acquire(How::Waits).await.unwrap().unwrap();
                let released = self.left::<D, _>(case, &mut beside, inner.unlock()).await;
                // A re-entry before the release ran must not break the count.
                let again = owner.acquire(How::Waits).await.unwrap().unwrap();
                assert_eq!(self.shown().await, Some(2), "{case:?}");
                again.unlock().await.unwrap();
                self.is_held_once::<D>(case, &outer).await;
                outer.unlock().await.expect("the lock was held throughout");
                released.map(Result::unwrap).is_some()
            }
            Dropped::Extend => {
                let guard = self.held::<D>(case, &mut *owner, &mut beside).await;
                let extended = self.left::<D, _>(case, &mut beside, guard.extend(30 * SECOND)).await;
                guard.unlock().await.expect("the lock was not touched");
                extended.map(Result::unwrap).is_some()
            }
            Dropped::Query(number) => {
                let query = owner.queries().swap_remove(number);
                self.left::<D, _>(case, &mut beside, query).await.is_some()
            }
            Dropped::First(number) => {
                let fresh = self.scene.client().await;
                let first = first::<D>(&fresh, number, self.scene.server.url());
                self.left::<D, _>(case, &mut beside, first).await.is_some()
            }
        };
        drop(owner);
        if let Some(holder) = beside.holder {
            holder.unlock().await.expect("the lock was not touched");
        }
        self.is_clean::<D>(&case, beside.waiters).await;
        is_done
    }

    /// Polls a future this many times, each time after it was woken. Then leaves it for a while, and drops it. `None`: it was dropped.
    async fn left<D: Droppable, T>(
        &self,
        case: Case,
        beside: &mut Beside,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut future = task::spawn(future);
        for poll in 1..=case.polls {
            if let Poll::Ready(output) = future.poll() {
                return Some(output);
            }
            if poll == 1 && beside.waiters.is_empty() {
                beside.waiters = self.waiters::<D>(case.others);
            }
            if poll < case.polls {
                self.woken(case, beside, &mut future).await;
            }
        }
        match case.pause {
            Pause::No => {}
            Pause::Sent => yield_now().await,
            Pause::Answered => self.woken(case, beside, &mut future).await,
        }
        None
    }

    /// Waits until the future was woken. If it waits for the holder, that one releases the lock.
    async fn woken<F: Future>(&self, case: Case, beside: &mut Beside, future: &mut task::Spawn<F>) {
        let is_idle = timeout(IDLE, woken(future)).await.is_err();
        if is_idle {
            let gives_up = matches!(case.dropped, Dropped::Acquire(How::WaitsFor(limit)) if limit < SECOND);
            if let Some(holder) = beside.holder.take_if(|_| !gives_up) {
                holder.unlock().await.unwrap();
            }
            woken(future).await;
        }
    }

    /// The number of holds of a lock that the server shows.
    async fn shown(&self) -> Option<u64> {
        self.locks.inspect("a").await.unwrap().map(|found| found.holders[0].holds)
    }

    /// Only the outer hold is left of two, and nobody else has the lock. A drop shows no number.
    async fn is_held_once<D: Droppable>(&self, case: Case, outer: &LockGuard) {
        assert!(matches!(self.shown().await, Some(1 | 2)), "{case:?}");
        assert_eq!((outer.hold_count(), outer.is_lost()), (1, false), "{case:?}");
        let tried = D::rival(&self.beside).acquire(How::Tries).await.unwrap();
        assert!(tried.is_none(), "{case:?}: the outer hold must stay");
    }

    /// Those who wait acquire the lock at once, not after the lease of 30 s, and nothing is left.
    async fn is_clean<D: Droppable>(&self, what: &(dyn Debug + Sync), waiters: Vec<JoinHandle<()>>) {
        for waiter in waiters.into_iter().chain([waits::<D>(&self.beside)]) {
            let got = timeout(LIMIT / 2, waiter).await;
            got.unwrap_or_else(|_| panic!("{what:?}: the lock is still held, or nobody was woken")).unwrap();
        }
        let left = || (self.scene.server.keys(), self.scene.server.channels(), tasks());
        let is_nothing = |(keys, channels, tasks): &(Vec<String>, Vec<String>, usize)| {
            *keys == self.keys && channels.is_empty() && *tasks <= self.tasks
        };
        eventually(&format!("{what:?}: nothing is left"), left, is_nothing).await;
    }

    async fn end(self) {
        for client in [self.locks, self.beside] {
            soon(client.shutdown()).await.unwrap();
        }
        self.scene.server.run::<()>(&["FLUSHALL"]);
        self.scene.end(()).await;
    }
}

/// A waiter that acquires the lock, and releases it.
fn waits<D: Droppable>(client: &LockClient) -> JoinHandle<()> {
    let mut rival = D::rival(client);
    tokio::spawn(async move {
        rival.acquire(How::Waits).await.unwrap().unwrap().unlock().await.unwrap();
    })
}

/// A call of a client that has to connect first, or that connects or shuts down.
fn first<D: Droppable>(fresh: &LockClient, number: usize, url: String) -> BoxFuture<'_, ()> {
    match number {
        0 => {
            let mut owner = D::owner(fresh);
            async move { drop(owner.acquire(How::Waits).await.unwrap()) }.boxed()
        }
        1 => fresh.inspect("a").map(drop).boxed(),
        2 => fresh.shutdown().map(drop).boxed(),
        _ => LockClient::connect(source(&url)).map(drop).boxed(),
    }
}

/// Drops the future after 1, 2, 3 … polls, until it completes, and with each kind of pause before the drop.
async fn sweep<D: Droppable>(it: &Sweep, dropped: Dropped, others: Others) {
    for pause in [Pause::No, Pause::Sent, Pause::Answered] {
        let mut polls = 1;
        while !it.step::<D>(Case { dropped, others, pause, polls }).await {
            polls += 1;
            assert!(polls < MOST_POLLS, "the future did not complete in {polls} polls");
        }
        // An `unlock` hands the lock over to a waiter of the same client, and does not wait.
        assert!(
            polls > 1 || others == Others::Wait(Waiters::Near),
            "{dropped:?}, {others:?}: it never waited"
        );
    }
}

/// Guarantee 11.
pub async fn a_dropped_call_leaves_nothing<D: Droppable>() {
    let it = Sweep::new::<D>().await;
    let waiters = [Waiters::Near, Waiters::Far].map(Others::Wait);
    let acquires = [How::Tries, How::Waits, How::WaitsFor(10 * SECOND), How::WaitsFor(3 * IDLE)];
    for &how in &acquires[..if D::WAITS { 4 } else { 1 }] {
        for others in [Others::Nothing, Others::Hold].into_iter().chain(waiters) {
            sweep::<D>(&it, Dropped::Acquire(how), others).await;
        }
    }
    let of_holder = [Dropped::Unlock, Dropped::Extend, Dropped::Reentry, Dropped::InnerUnlock];
    for &dropped in &of_holder[..if D::REENTERS { 4 } else { 2 }] {
        for others in [Others::Nothing].into_iter().chain(waiters) {
            sweep::<D>(&it, dropped, others).await;
        }
    }
    let queries = (0..D::owner(&it.locks).queries().len()).map(Dropped::Query);
    for dropped in queries.chain((0..4).map(Dropped::First)) {
        sweep::<D>(&it, dropped, Others::Nothing).await;
    }
    it.end().await;
}

/// Guarantee 18.
pub async fn shutdown_reports_what_it_could_not_release<F: Fixture>() {
    let scene = Scene::start();
    let locks = connect(scene.user("~* &* +@all"), patient()).await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    scene.user("-hdel -del");
    drop(guard);
    let error = soon(locks.shutdown()).await.unwrap_err();
    assert!(matches!(error, Error::Permission(_)), "{error:?}");
    scene.server.run::<()>(&["FLUSHALL"]);
    scene.end(locks).await;
}

/// Guarantee 11.
pub async fn shutdown_releases_what_was_dropped<F: Fixture>() {
    let (scene, locks) = Scene::with_client().await;
    let mut guards = Vec::new();
    for name in 0..200 {
        guards.push(F::lock(&locks, &format!("{name}")).lock().await.unwrap());
    }
    drop(guards);
    locks.shutdown().await.unwrap();
    assert!(scene.server.keys().is_empty(), "every lock is released when `shutdown` returns");
    scene.end(locks).await;
}

/// Guarantees 11 and 12. A drop never waits and never panics, with or without a runtime.
pub async fn a_guard_can_be_dropped_anywhere<F: Fixture>() {
    let it = Sweep::new::<F>().await;
    let guard = F::leased(&it.locks, "a", LIMIT).lock().await.unwrap();
    assert!(guard.ended().now_or_never().is_none());
    assert!(guard.run(std::future::pending::<()>()).now_or_never().is_none());
    std::thread::spawn(move || drop(guard)).join().expect("dropped without a runtime");
    it.is_clean::<F>(&"a thread without a runtime", Vec::new()).await;

    let guard = F::lock(&it.locks, "a").lock().await.unwrap();
    let unwound = tokio::spawn(async move {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(unwound.await.is_err());
    it.is_clean::<F>(&"a panic", Vec::new()).await;

    // A future that was started here and is dropped elsewhere.
    let mut lock = F::lock(&it.locks, "a");
    let locks = it.locks.clone();
    let started = async move {
        let _guard = lock.lock().await;
        drop(locks);
        std::future::pending::<()>().await;
    };
    let mut started = Box::pin(started);
    assert!(timeout(50 * MS, &mut started).await.is_err());
    std::thread::spawn(move || drop(started)).join().expect("dropped without a runtime");
    it.is_clean::<F>(&"a future dropped on a thread without a runtime", Vec::new()).await;

    // A channel whose receiver is gone.
    let (sender, receiver) = tokio::sync::oneshot::channel();
    drop(receiver);
    drop(sender.send(F::lock(&it.locks, "a").lock().await.unwrap()));
    it.is_clean::<F>(&"a channel", Vec::new()).await;

    // A runtime that ends together with its client.
    let url = it.scene.server.url();
    let guard = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let locks = connect(url, patient()).await;
            F::leased(&locks, "b", SECOND).lock().await.unwrap()
        })
    })
    .join()
    .unwrap();
    drop(guard);
    eventually("the lease ends", || it.scene.server.run::<u32>(&["EXISTS", "b"]), |&keys| keys == 0).await;
    it.end().await;
}

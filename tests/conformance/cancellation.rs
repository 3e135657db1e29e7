//! Guarantees 11 and 12: dropping any future or guard, at any point, leaves nothing behind.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use lockkeeper::{BaseLock, Error, Lock, LockClient};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};
use tokio_test::task;

use crate::conformance::{Fixture, Subject};
use crate::support::fixture::Acquire;
use crate::support::{
    LIMIT, MS, SECOND, Scene, connect, eventually, patient, soon, source, tasks, timed, woken,
};

/// More polls than any future here needs.
const MOST_POLLS: usize = 200;

/// Polls a future this many times, each time after it was woken. Then leaves it for a while, and drops it. `None`: it
/// was dropped.
async fn left<F: Future>(times: usize, pause: Pause, future: F) -> Option<F::Output> {
    let mut future = task::spawn(future);
    for poll in 1..=times {
        if let Poll::Ready(output) = future.poll() {
            return Some(output);
        }
        if poll < times {
            woken(&mut future).await;
        }
    }
    match pause {
        Pause::No => {}
        Pause::Sent => yield_now().await,
        Pause::Answered => woken(&mut future).await,
    }
    None
}

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

impl Pause {
    const ALL: [Self; 3] = [Self::No, Self::Sent, Self::Answered];
}

/// A scene in which futures are dropped, and the check that nothing is left.
struct Sweep {
    scene: Scene,
    locks: LockClient,
    tasks: usize,
}

impl Sweep {
    async fn new() -> Self {
        let scene = Scene::start();
        // Without polling, so that a lost wake-up shows.
        let locks = scene.client_with(patient().safety_poll(Duration::from_secs(3_600))).await;
        // Make all connections, and use the subscriber once.
        for name in 0..20 {
            locks.rlock(format!("warm {name}")).lock().await.unwrap().unlock().await.unwrap();
        }
        let held = locks.rlock("warm").lock().await.unwrap();
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.rlock("warm").lock().await.unwrap().unlock().await }
        });
        eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
        held.unlock().await.unwrap();
        soon(waiting).await.unwrap().unwrap();
        scene.quiet().await;
        let tasks = tasks();
        Self { scene, locks, tasks }
    }

    /// Another owner acquires the lock at once, not after the lease of 30 s, and nothing is left.
    async fn is_clean<F: Subject>(&self, name: &str, what: &str) {
        let mut rival = F::rival(&self.locks, name);
        let guard = timeout(LIMIT / 2, rival.lock())
            .await
            .unwrap_or_else(|_| panic!("{what}: the lock is still held"));
        guard.unwrap().unlock().await.unwrap();
        self.scene.quiet().await;
        eventually(&format!("{what}: no task is left"), tasks, |&left| left <= self.tasks).await;
    }

    async fn end(self) {
        drop(self.locks);
        self.scene.end().await;
    }
}

/// Drops the future after 1, 2, 3 … polls, until it completes, and with each kind of pause before the drop.
async fn sweep(mut step: impl AsyncFnMut(usize, Pause) -> bool) {
    for pause in Pause::ALL {
        let mut polls = 1;
        while !step(polls, pause).await {
            polls += 1;
            assert!(polls < MOST_POLLS, "the future did not complete in {polls} polls");
        }
        assert!(polls > 1, "the future never waited");
    }
}

/// Guarantee 11.
pub async fn a_dropped_lock_leaves_nothing<F: Subject>() {
    let it = Sweep::new().await;
    sweep(async |polls, pause| {
        let mut lock = F::lock(&it.locks, "a");
        let done = left(polls, pause, lock.lock()).await.map(|guard| drop(guard.unwrap()));
        it.is_clean::<F>("a", &format!("lock, {polls} polls, {pause:?}")).await;
        done.is_some()
    })
    .await;
    // The same on a client that has to connect first.
    sweep(async |polls, pause| {
        let fresh = it.scene.client().await;
        let done = left(polls, pause, async { F::lock(&fresh, "b").lock().await.map(drop) }).await;
        drop(fresh);
        it.is_clean::<F>("b", &format!("lock of a new client, {polls} polls, {pause:?}")).await;
        done.is_some()
    })
    .await;
    it.end().await;
}

/// Guarantee 11.
pub async fn a_dropped_wait_leaves_nothing<F: Subject>() {
    let it = Sweep::new().await;
    // A waiter that acquires in the end, one that times out, and one with another waiter behind it.
    for (wait, released_after, behind) in
        [(10 * SECOND, 30 * MS, false), (30 * MS, 10 * SECOND, false), (10 * SECOND, 30 * MS, true)]
    {
        sweep(async |polls, pause| {
            let holder = F::lock(&it.locks, "a").lock().await.unwrap();
            let releasing = tokio::spawn(async move {
                let released = timeout(released_after, std::future::pending::<()>());
                released.await.unwrap_err();
                holder.unlock().await.unwrap();
            });
            let is_over = AtomicBool::new(false);
            let waiting = async {
                let mut lock = F::rival(&it.locks, "a");
                let got = left(polls, pause, lock.try_lock_for(wait)).await;
                is_over.store(true, Ordering::Relaxed);
                got.map(|got| drop(got.unwrap()))
            };
            let next = async {
                if behind {
                    let waits = || is_over.load(Ordering::Relaxed) || !it.scene.server.channels().is_empty();
                    eventually("the first waits, or was dropped before", waits, |&waits| waits).await;
                    let mut next = F::rival(&it.locks, "a");
                    let guard = soon(next.lock()).await.unwrap();
                    guard.unlock().await.unwrap();
                }
            };
            let (done, ()) = tokio::join!(waiting, next);
            if released_after > SECOND {
                releasing.abort(); // which drops its guard
            }
            let _ = soon(releasing).await;
            it.is_clean::<F>("a", &format!("wait of {wait:?}, {polls} polls, {pause:?}")).await;
            done.is_some()
        })
        .await;
    }
    it.end().await;
}

/// Guarantee 11.
pub async fn a_dropped_try_leaves_nothing<F: Subject>() {
    let it = Sweep::new().await;
    for held in [false, true] {
        sweep(async |polls, pause| {
            let holder = if held { Some(F::lock(&it.locks, "a").lock().await.unwrap()) } else { None };
            let mut lock = F::rival(&it.locks, "a");
            let done = left(polls, pause, lock.try_lock()).await.map(|got| drop(got.unwrap()));
            if let Some(holder) = holder {
                holder.unlock().await.expect("the lock was not touched");
            }
            it.is_clean::<F>("a", &format!("try_lock, held {held}, {polls} polls, {pause:?}")).await;
            done.is_some()
        })
        .await;
    }
    it.end().await;
}

/// Guarantee 11.
pub async fn a_dropped_reentry_leaves_the_outer_hold<F: Fixture>() {
    let it = Sweep::new().await;
    sweep(async |polls, pause| {
        let mut lock = F::lock(&it.locks, "a");
        let outer = lock.lock().await.unwrap();
        let done = left(polls, pause, lock.lock()).await.map(|guard| drop(guard.unwrap()));
        let holds = async || it.locks.inspect("a").await.unwrap().map(|found| found.holders[0].holds);
        let start = Instant::now();
        while holds().await != Some(1) {
            assert!(start.elapsed() < LIMIT / 2, "{polls} polls, {pause:?}: {:?} holds", holds().await);
            sleep(MS).await;
        }
        assert_eq!(
            (lock.hold_count(), outer.hold_count(), outer.is_lost()),
            (1, 1, false),
            "{polls} polls, {pause:?}"
        );
        outer.unlock().await.expect("the lock was held throughout");
        it.is_clean::<F>("a", &format!("re-entry, {polls} polls, {pause:?}")).await;
        done.is_some()
    })
    .await;
    it.end().await;
}

/// Guarantee 11.
pub async fn a_dropped_unlock_releases<F: Subject>() {
    let it = Sweep::new().await;
    sweep(async |polls, pause| {
        let guard = F::lock(&it.locks, "a").lock().await.unwrap();
        let done = left(polls, pause, guard.unlock()).await.map(Result::unwrap);
        it.is_clean::<F>("a", &format!("unlock, {polls} polls, {pause:?}")).await;
        done.is_some()
    })
    .await;
    it.end().await;
}

/// Guarantee 11.
pub async fn a_dropped_inner_unlock_releases_one<F: Fixture>() {
    let it = Sweep::new().await;
    sweep(async |polls, pause| {
        let mut lock = F::lock(&it.locks, "a");
        let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
        let done = left(polls, pause, inner.unlock()).await.map(Result::unwrap);
        assert_eq!(lock.hold_count(), 1);
        assert!(
            F::rival(&it.locks, "a").try_lock().await.unwrap().is_none(),
            "{polls} polls, {pause:?}: the outer hold must stay"
        );
        // A re-entry before the release ran must not break the count.
        let again = lock.lock().await.unwrap();
        assert_eq!(
            it.locks.inspect("a").await.unwrap().unwrap().holders[0].holds,
            2,
            "{polls} polls, {pause:?}"
        );
        again.unlock().await.unwrap();
        outer.unlock().await.expect("the lock was held throughout");
        it.is_clean::<F>("a", &format!("inner unlock, {polls} polls, {pause:?}")).await;
        done.is_some()
    })
    .await;
    it.end().await;
}

/// Guarantee 11.
pub async fn dropped_queries_leave_nothing<F: Fixture>() {
    let it = Sweep::new().await;
    for query in 0..7 {
        sweep(async |polls, pause| {
            let lock = F::lock(&it.locks, "a");
            let guard = F::lock(&it.locks, "b").lock().await.unwrap();
            let done = match query {
                0 => left(polls, pause, lock.is_locked()).await.is_some(),
                1 => left(polls, pause, lock.remaining_lease()).await.is_some(),
                2 => left(polls, pause, lock.force_unlock()).await.is_some(),
                3 => left(polls, pause, it.locks.inspect("b")).await.is_some(),
                4 => left(polls, pause, guard.extend(30 * SECOND)).await.is_some(),
                5 => left(polls, pause, LockClient::connect(source(&it.scene.server.url()))).await.is_some(),
                _ => {
                    let client = it.scene.client().await;
                    left(polls, pause, client.shutdown()).await.is_some()
                }
            };
            guard.unlock().await.expect("the lock was not touched");
            it.is_clean::<F>("a", &format!("query {query}, {polls} polls, {pause:?}")).await;
            done
        })
        .await;
    }
    // `ended` and `run`.
    let guard = F::leased(&it.locks, "a", LIMIT).lock().await.unwrap();
    assert!(left(1, Pause::No, guard.ended()).await.is_none());
    assert!(left(1, Pause::No, guard.run(std::future::pending::<()>())).await.is_none());
    guard.unlock().await.unwrap();
    it.is_clean::<F>("a", "ended and run").await;
    it.end().await;
}

/// Guarantee 11.
pub async fn drops_at_random_moments_under_load_leave_nothing<F: Fixture>() {
    const TASKS: usize = 12;
    const DROPS: usize = 60;
    let it = Sweep::new().await;
    let mut working = JoinSet::new();
    for task in 0..TASKS {
        let locks = it.locks.clone();
        working.spawn(async move {
            let lock = |round| F::rival(&locks, &format!("load {}", (task + round) % 3));
            // How long two holds take on this machine.
            let ((), whole) = timed(two_holds(lock(0))).await;
            let mut completed = 0;
            for round in 1..=DROPS {
                let work = two_holds(lock(round));
                // A timer is too coarse for some of the moments, so the others count polls.
                completed += usize::from(if round % 2 == 0 {
                    timeout(whole.mul_f64(moment(task, round)), work).await.is_ok()
                } else {
                    left(1 + round % 7, Pause::ALL[round % 3], work).await.is_some()
                });
            }
            completed
        });
    }
    let completed: usize = working.join_all().await.into_iter().sum();
    assert!(
        completed > 0 && completed < TASKS * DROPS,
        "{completed} of all futures completed: some must complete and some must be dropped"
    );
    for name in 0..3 {
        it.is_clean::<F>(&format!("load {name}"), "load").await;
    }
    it.end().await;
}

async fn two_holds(mut lock: Lock<'_, impl BaseLock>) {
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    yield_now().await;
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
}

/// Spread evenly from 0 to 2: up to twice the time that the work takes.
fn moment(task: usize, round: usize) -> f64 {
    ((task * 7_919 + round * 104_729) % 2_000) as f64 / 1_000.0
}

/// Guarantee 18.
pub async fn shutdown_reports_what_it_could_not_release<F: Fixture>() {
    let scene = Scene::start();
    scene.server.run::<()>(&["ACL", "SETUSER", "u", "on", ">s", "~*", "&*", "+@all"]);
    let locks = connect(format!("redis://u:s@127.0.0.1:{}/", scene.server.port()), patient()).await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    scene.server.run::<()>(&["ACL", "SETUSER", "u", "-hdel", "-del"]);
    drop(guard);
    let error = soon(locks.shutdown()).await.unwrap_err();
    assert!(matches!(error, Error::Permission(_)), "{error:?}");
    scene.server.run::<()>(&["FLUSHALL"]);
    drop(locks);
    scene.end().await;
}

/// Guarantee 11.
pub async fn shutdown_releases_what_was_dropped<F: Fixture>() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut guards = Vec::new();
    for name in 0..200 {
        guards.push(F::lock(&locks, &format!("{name}")).lock().await.unwrap());
    }
    drop(guards);
    locks.shutdown().await.unwrap();
    assert!(scene.server.keys().is_empty(), "every lock is released when `shutdown` returns");
    drop(locks);
    scene.end().await;
}

/// Guarantees 11 and 12. A drop never waits and never panics, with or without a runtime.
pub async fn a_guard_can_be_dropped_anywhere<F: Fixture>() {
    let it = Sweep::new().await;
    let guard = F::lock(&it.locks, "a").lock().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().expect("dropped without a runtime");
    it.is_clean::<F>("a", "a thread without a runtime").await;

    let guard = F::lock(&it.locks, "a").lock().await.unwrap();
    let unwound = tokio::spawn(async move {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(unwound.await.is_err());
    it.is_clean::<F>("a", "a panic").await;

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
    it.is_clean::<F>("a", "a future dropped on a thread without a runtime").await;

    // A channel whose receiver is gone.
    let (sender, receiver) = tokio::sync::oneshot::channel();
    drop(receiver);
    drop(sender.send(F::lock(&it.locks, "a").lock().await.unwrap()));
    it.is_clean::<F>("a", "a channel").await;

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

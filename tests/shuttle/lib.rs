//! Threads that use one or two clients. Shuttle runs them one at a time, and draws at each mutex which one goes on: a guard can be dropped
//! in the middle of another thread's release. Tokio's tasks, among them the server in memory, are one of these threads.
//!
//! `SHUTTLE_FROM` and `SHUTTLE_COUNT` choose the seeds. A failure names its seed, which repeats it. What happens between two mutexes is
//! one step here, so this sees no race between atomics, and no weak memory order: `tests/simulation/threads.rs` runs on real threads.

#![cfg(test)]

use std::cell::Cell;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use lockkeeper::{BaseLock, Error, Lock, LockClient, LockConfig, Source};
use lockkeeper_memory::MemoryServer;
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// Longer than all executions.
const LONG: Duration = Duration::from_secs(60);

/// The most steps of all threads together. A waiter that sleeps on needs more.
const STEPS: usize = 200_000;

/// Runs a scenario with many seeds.
fn explore(scenario: fn(&Scene)) {
    let number = |name: &str, usual| env::var(name).map_or(usual, |text| text.parse().expect("a number"));
    let (from, count) = (number("SHUTTLE_FROM", 0), number("SHUTTLE_COUNT", 2_000));
    for seed in from..from + count {
        fastrand::seed(seed);
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = MaxSteps::FailAfter(STEPS);
        config.failure_persistence = FailurePersistence::None;
        let runner = Runner::new(RandomScheduler::new_from_seed(seed, 1), config);
        let outcome = catch_unwind(AssertUnwindSafe(|| runner.run(move || execute(scenario))));
        // Tokio knows nothing of threads that end in the middle, so no other seed follows.
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

thread_local! {
    /// How probable it is at each mutex that another thread goes on.
    static SWITCHES: Cell<f64> = const { Cell::new(1.0) };
}

/// Runs a scenario once. Nothing of it may stay on the server.
fn execute(scenario: fn(&Scene)) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let _entered = runtime.enter();
    let runtime = Arc::new(runtime);
    // Some races need a thread that goes on for a while.
    SWITCHES.set([1.0, 0.3, 0.1][thread_rng().gen_range(0..3)]);
    lockkeeper::pause_by(|| {
        if thread_rng().gen_bool(SWITCHES.get()) {
            thread::yield_now();
        }
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let tasks = thread::spawn({
        let (runtime, is_over) = (Arc::clone(&runtime), Arc::clone(&is_over));
        move || {
            while !is_over.load(Ordering::Relaxed) {
                // Time passes only if no task can go on.
                if thread_rng().gen_bool(0.1) {
                    runtime.block_on(sleep(Duration::from_millis(1)));
                } else {
                    runtime.block_on(yield_now());
                }
                thread::yield_now();
            }
        }
    });
    let server = MemoryServer::new();
    // No message is lost, so nobody needs to poll.
    let config = LockConfig::builder().safety_poll(LONG * 10).command_timeout(LONG).build().unwrap();
    let connect = || LockClient::connect_with(Source::stream(server.connector()), config.clone());
    let [locks, other] = [(); 2].map(|()| block_on(connect()).unwrap());
    let scene = Scene { server, locks, other, inside: Inside::default() };
    scenario(&scene);
    for locks in [&scene.locks, &scene.other] {
        block_on(locks.shutdown()).unwrap();
    }
    assert!(scene.is_quiet(), "something is left");
    is_over.store(true, Ordering::Relaxed);
    tasks.join().unwrap();
}

struct Scene {
    server: MemoryServer,
    locks: LockClient,
    /// Another process.
    other: LockClient,
    inside: Inside,
}

impl Scene {
    /// Whether the server has nothing, except how many permits a semaphore has that nobody uses.
    fn is_quiet(&self) -> bool {
        let [keys, free] = [["KEYS", "*"], ["GET", "s"]].map(|words| self.server.execute(&words));
        keys == b"*0\r\n" || (keys == b"*1\r\n$1\r\ns\r\n" && free == b"$1\r\n2\r\n")
    }
}

/// The number of readers in the section, or -1 for a writer.
#[derive(Clone, Default)]
struct Inside(Arc<AtomicI32>);

impl Inside {
    fn write(&self) -> Entered {
        self.enter(-1)
    }

    fn read(&self) -> Entered {
        self.enter(1)
    }

    fn enter(&self, change: i32) -> Entered {
        let before = self.0.fetch_add(change, Ordering::Relaxed);
        assert!(before == 0 || (before > 0 && change > 0), "two are in the section");
        thread::yield_now();
        Entered(self.clone(), change)
    }
}

/// Dropping it leaves the section.
struct Entered(Inside, i32);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// Each scenario is a test.
macro_rules! scenarios {
    ($($scenario:ident),+ $(,)?) => {
        mod scenario {
            $(#[test]
            fn $scenario() {
                super::explore(super::$scenario);
            })+
        }
    };
}

scenarios!(
    two_guards_at_once,
    reentry_during_release,
    handed_to_one_that_leaves,
    last_reader_leaves,
    permits_together,
    shutdown_during_hand_over,
    shutdown_while_calls_wait,
    whatever,
);

fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    thread::spawn(move || block_on(work))
}

fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

fn up_to(most: u64) -> Duration {
    Duration::from_millis(thread_rng().gen_range(0..most))
}

/// Another call is cancelled at the same time.
fn two_guards_at_once(scene: &Scene) {
    let (mut lock, mut other) = (scene.locks.rlock("a"), scene.locks.rlock("a"));
    let guards = [block_on(lock.lock()).unwrap(), block_on(lock.lock()).unwrap()];
    let cancelled = spawn(async move { drop(timeout(up_to(2), other.lock()).await) });
    let dropping = guards.map(|guard| spawn(async { drop(guard) }));
    join(dropping.into_iter().chain([cancelled]));
    let guard = block_on(lock.lock()).unwrap();
    drop(scene.inside.write());
    drop(guard);
}

fn reentry_during_release(scene: &Scene) {
    let mut lock = scene.locks.rlock("a");
    let guard = block_on(lock.lock()).unwrap();
    let releasing = spawn(guard.unlock());
    let again = block_on(lock.lock()).unwrap();
    let entered = scene.inside.write();
    releasing.join().unwrap().unwrap();
    assert_eq!((lock.hold_count(), again.is_lost()), (1, false));
    drop(entered);
    block_on(again.unlock()).unwrap();
    assert_eq!(lock.hold_count(), 0);
}

fn handed_to_one_that_leaves(scene: &Scene) {
    let guard = block_on(scene.locks.rlock("a").lock()).unwrap();
    let entered = scene.inside.write();
    let waiting = [true, false, true].map(|leaves| {
        let (mut lock, inside) = (scene.locks.rlock("a"), scene.inside.clone());
        spawn(async move {
            let guard =
                if leaves { timeout(up_to(3), lock.lock()).await.ok() } else { Some(lock.lock().await) };
            if let Some(guard) = guard {
                drop(inside.write());
                guard.unwrap().unlock().await.unwrap();
            }
        })
    });
    drop(entered);
    drop(guard);
    join(waiting);
}

/// A writer of another process waits for them.
fn last_reader_leaves(scene: &Scene) {
    let reader = || scene.locks.read_write_lock("a").into_read();
    let guards = [block_on(reader().lock()).unwrap(), block_on(reader().lock()).unwrap()];
    let leaving = guards.map(|guard| {
        let entered = scene.inside.read();
        spawn(async move {
            drop(entered);
            guard.unlock().await.unwrap();
        })
    });
    let (mut writer, inside) = (scene.other.read_write_lock("a").into_write(), scene.inside.clone());
    let writing = spawn(async move {
        let guard = writer.lock().await.unwrap();
        drop(inside.write());
        guard.unlock().await.unwrap();
    });
    let guard = block_on(reader().lock()).unwrap();
    drop(scene.inside.read());
    block_on(guard.unlock()).unwrap();
    join(leaving.into_iter().chain([writing]));
}

fn permits_together(scene: &Scene) {
    let semaphore = || scene.locks.semaphore("s", 2);
    let permits = [block_on(semaphore().acquire()).unwrap(), block_on(semaphore().acquire()).unwrap()];
    let waiting = [1, 2, 1].map(|count| {
        let semaphore = semaphore();
        spawn(async move { drop(semaphore.acquire_many(count).await.unwrap()) })
    });
    let releasing = permits.map(|permit| spawn(async move { drop(permit) }));
    join(releasing.into_iter().chain(waiting));
}

/// Some calls are cancelled.
fn shutdown_during_hand_over(scene: &Scene) {
    let closes = Arc::new(AtomicBool::new(false));
    // Each returns whether it dropped a guard so late that the shutdown perhaps did not see that.
    let threads = [(); 3].map(|()| {
        let mut lock = scene.locks.rlock("a");
        let (inside, closes) = (scene.inside.clone(), Arc::clone(&closes));
        spawn(async move {
            loop {
                match timeout(up_to(5), lock.lock()).await {
                    Ok(Ok(guard)) => {
                        drop(inside.write());
                        drop(guard);
                        if closes.load(Ordering::Relaxed) {
                            return true;
                        }
                    }
                    Ok(Err(Error::Closed)) => return false,
                    Ok(Err(error)) => panic!("{error}"),
                    Err(_) => {}
                }
            }
        })
    });
    block_on(sleep(up_to(3)));
    closes.store(true, Ordering::Relaxed);
    block_on(scene.locks.shutdown()).unwrap();
    let is_quiet = scene.is_quiet();
    let is_late = threads.map(|thread| thread.join().unwrap());
    assert!(is_quiet || is_late.contains(&true), "something is left after the shutdown");
}

/// Another process has the lock.
fn shutdown_while_calls_wait(scene: &Scene) {
    let guard = block_on(scene.other.rlock("a").lock()).unwrap();
    let waiting = [(); 2].map(|()| {
        let mut lock = scene.locks.rlock("a");
        spawn(async move { assert!(matches!(lock.lock().await, Err(Error::Closed))) })
    });
    block_on(sleep(up_to(3)));
    block_on(scene.locks.shutdown()).unwrap();
    join(waiting);
    block_on(guard.unlock()).unwrap();
}

fn whatever(scene: &Scene) {
    let threads = [&scene.locks, &scene.locks, &scene.other].map(|locks| {
        let mut writer = locks.read_write_lock("a").into_write();
        let mut reader = locks.read_write_lock("a").into_read();
        let inside = scene.inside.clone();
        spawn(async move {
            for _ in 0..4 {
                if thread_rng().gen_bool(0.5) {
                    section(&mut reader, || inside.read()).await;
                } else {
                    section(&mut writer, || inside.write()).await;
                }
            }
        })
    });
    join(threads);
}

async fn section(lock: &mut Lock<'_, impl BaseLock>, enter: impl Fn() -> Entered) {
    let guard = match thread_rng().gen_range(0..3) {
        0 => lock.try_lock().await.unwrap(),
        1 => timeout(up_to(3), lock.lock()).await.ok().map(Result::unwrap),
        _ => Some(lock.lock().await.unwrap()),
    };
    let Some(guard) = guard else { return };
    let entered = enter();
    match thread_rng().gen_range(0..3) {
        0 => {
            drop(entered);
            guard.unlock().await.unwrap();
        }
        1 => {
            let again = lock.lock().await.unwrap();
            drop(entered);
            let other = thread::spawn(move || drop(again));
            drop(guard);
            other.join().unwrap();
        }
        _ => {
            drop(entered);
            let releasing = spawn(guard.unlock());
            let again = lock.lock().await.unwrap();
            let entered = enter();
            releasing.join().unwrap().unwrap();
            drop(entered);
            drop(again);
        }
    }
    assert_eq!(lock.hold_count(), 0);
}

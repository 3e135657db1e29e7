//! A worker: a process that acquires and releases locks, and writes down what it did.

use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{BaseLock, Lock, LockClient, LockGuard, LockOptions};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::history::{LOCKS, PERMITS, What, name_of};
use super::journal::{Journal, Phase, now};

use crate::args::{Connection, Examined};
use crate::connect::Settings;
use crate::exit::{Failure, OUTPUT};

/// How often a worker writes that it runs.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// What a worker does. It is the first line of its standard input. The worker ends when its input ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) connection: Connection,
    pub(super) process: u32,
    /// When the run began.
    pub(super) began: u64,
    /// What the names of the locks begin with.
    pub(super) beginning: String,
    pub(super) locks: Vec<Examined>,
    pub(super) lease: Duration,
    /// So many calls run together.
    pub(super) tasks: u32,
    /// The time from the begin of a call to that of the next one, of each task.
    pub(super) every: Duration,
    pub(super) journal: PathBuf,
    /// For tests: it works on after a loss.
    pub(super) ignores_losses: bool,
}

pub(crate) async fn work() -> ExitCode {
    try_to_work().await.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

async fn try_to_work() -> Result<(), Failure> {
    crate::run::end_with_parent();
    let mut input = BufReader::new(tokio::io::stdin());
    let mut line = String::new();
    input.read_line(&mut line).await.map_err(Failure::unavailable)?;
    let orders: Orders = serde_json::from_str(&line).map_err(Failure::unavailable)?;
    let settings = Settings::read(&orders.connection)?.with_short_leases(orders.lease)?;
    let journal = Journal::open(&orders.journal, orders.process).map_err(Failure::output)?;
    let locks = settings.connect().await?;
    let worker = Arc::new(Worker { orders, locks, journal, calls: AtomicU32::new(0) });
    worker.write(now(), What::Awake);
    let tasks = join_all((0..worker.orders.tasks).map(|_| worker.use_locks()));
    let mut rest = Vec::new();
    tokio::select! {
        biased;
        _ = input.read_to_end(&mut rest) => {}
        _ = tasks => {}
        () = worker.tick() => {}
    }
    // The `select!` has dropped the calls that were running, so they have given up.
    let _ = worker.locks.shutdown().await;
    worker.write(now(), What::Ended);
    Ok(())
}

struct Worker {
    orders: Orders,
    locks: LockClient,
    journal: Journal,
    calls: AtomicU32,
}

/// How a call goes.
struct Plan {
    wait: Duration,
    /// The call is cancelled after this time, if it still waits.
    cancelled_after: Option<Duration>,
    options: LockOptions,
    /// How many steps the section has, and how long each takes.
    steps: u32,
    step: Duration,
}

impl Plan {
    /// Most sections are short. Some need renewals, and some last for longer than their fixed lease.
    fn draw(phase: Phase, &Orders { lease, ignores_losses, .. }: &Orders) -> Result<Self, Failure> {
        let options = LockOptions::builder();
        let ms = |range: std::ops::RangeInclusive<u64>| Duration::from_millis(fastrand::u64(range));
        let (options, steps, step) = match fastrand::u32(0..if ignores_losses { 5 } else { 100 }) {
            0 => (options, 40, lease / 30),
            1 => (options.fixed(lease / 3), 60, lease / 60),
            _ => (options, fastrand::u32(1..=4), ms(2..=5)),
        };
        let options = options.build().map_err(Failure::unavailable)?;
        let cancelled_after = (fastrand::u32(0..100) < 5).then(|| ms(1..=100));
        // Most calls do not wait for the end of a lease. Otherwise no task would be left for the locks that are free.
        let waits_for_long = phase == Phase::Patient || fastrand::u32(0..100) < 7;
        let wait = if waits_for_long { lease * fastrand::u32(1..=4) } else { lease / 10 };
        Ok(Self { wait, cancelled_after, options, steps, step })
    }
}

/// When the guard was asked, and whether it was lost. The time is read first: a guard that is not lost afterwards was not lost at that time,
/// however long the process was stopped in between.
fn asked_after(clock: impl FnOnce() -> u64, is_lost: impl FnOnce() -> bool) -> (u64, bool) {
    let at = clock();
    (at, is_lost())
}

impl Worker {
    /// A worker whose history has gaps proves nothing, so it ends.
    fn write(&self, at: u64, what: What) {
        if let Err(error) = self.journal.write(at, what) {
            Failure::output(error).report();
            std::process::exit(OUTPUT.into());
        }
    }

    async fn tick(&self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.write(now(), What::Awake);
        }
    }

    async fn use_locks(&self) {
        sleep(self.orders.every.mul_f64(fastrand::f64())).await;
        let mut calls = interval(self.orders.every);
        calls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            calls.tick().await;
            let phase = Phase::of(self.orders.began, self.orders.lease);
            if phase == Phase::Quiet {
                continue;
            }
            let Some(kind) = fastrand::choice(&self.orders.locks) else { return };
            if let Ok(plan) = Plan::draw(phase, &self.orders) {
                self.call(*kind, &plan).await;
            }
        }
    }

    async fn call(&self, kind: Examined, plan: &Plan) {
        let number = fastrand::u32(0..LOCKS);
        let name = format!("{}{}", self.orders.beginning, name_of(kind, number));
        let (locks, call) = (&self.locks, self.calls.fetch_add(1, Ordering::Relaxed));
        self.write(now(), What::Asked { call, lock: kind, number });
        match kind {
            Examined::Rlock => self.hold(call, plan, locks.rlock(name)).await,
            Examined::Fair => self.hold(call, plan, locks.fair_lock(name)).await,
            Examined::Read => self.hold(call, plan, locks.read_write_lock(name).into_read()).await,
            Examined::Write => self.hold(call, plan, locks.read_write_lock(name).into_write()).await,
            Examined::Fenced => {
                let mut lock = locks.fenced_lock(name).with(&plan.options);
                if let Some(guard) = self.acquired(call, plan, lock.try_lock_for(plan.wait)).await {
                    let token = guard.token().get();
                    self.section(call, plan, guard, Some(token)).await;
                }
            }
            Examined::Semaphore => {
                let semaphore = locks.semaphore(name, PERMITS).with(&plan.options);
                if let Some(guard) = self.acquired(call, plan, semaphore.try_acquire_for(plan.wait)).await {
                    self.section(call, plan, guard, None).await;
                }
            }
        }
    }

    async fn hold<K: BaseLock>(&self, call: u32, plan: &Plan, lock: Lock<'_, K>) {
        let mut lock = lock.with(&plan.options);
        if let Some(guard) = self.acquired(call, plan, lock.try_lock_for(plan.wait)).await {
            self.section(call, plan, guard, None).await;
        }
    }

    /// Waits for a guard. `None`: the time was over, the call was cancelled, or it failed.
    async fn acquired<T>(
        &self,
        call: u32,
        plan: &Plan,
        acquire: impl Future<Output = lockkeeper::Result<Option<LockGuard<T>>>>,
    ) -> Option<LockGuard<T>> {
        let result = match plan.cancelled_after {
            Some(time) => timeout(time, acquire).await.unwrap_or(Ok(None)),
            None => acquire.await,
        };
        let guard = result.ok().flatten();
        if guard.is_none() {
            self.write(now(), What::GaveUp { call });
        }
        guard
    }

    /// Works while the lock is held.
    async fn section<T: Send + Sync>(&self, call: u32, plan: &Plan, guard: LockGuard<T>, token: Option<u64>) {
        let certified = |what: What| {
            let (at, is_lost) = asked_after(now, || guard.is_lost());
            if is_lost && !self.orders.ignores_losses {
                self.write(at, What::Told { call });
                return false;
            }
            self.write(at, what);
            true
        };
        if !certified(What::Entered { call, token }) {
            return;
        }
        let mut ended = pin!(guard.ended());
        let (mut steps, mut is_told) = (plan.steps, false);
        while steps > 0 {
            steps -= 1;
            tokio::select! {
                biased;
                _ = &mut ended, if !is_told => {
                    self.write(now(), What::Told { call });
                    if !self.orders.ignores_losses {
                        return;
                    }
                    (is_told, steps) = (true, steps + 60);
                }
                () = sleep(plan.step) => {}
            }
            if !certified(What::Worked { call }) {
                return;
            }
        }
        if certified(What::Leaving { call }) {
            let ok = guard.unlock().await.is_ok();
            self.write(now(), What::Left { call, ok });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::asked_after;

    /// The process is stopped between the two, and the hold is lost meanwhile. The time before the stop belongs to a lost guard then, and the
    /// time after it to none that is not lost.
    #[test]
    fn the_clock_is_read_before_the_guard_is_asked() {
        let time = Cell::new(1);
        let stopped = |now| {
            time.set(time.get() + 100);
            now
        };
        let found = asked_after(|| stopped(time.get()), || stopped(time.get()) > 100);
        assert_eq!(found, (1, true));
    }
}

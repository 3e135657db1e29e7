//! Work that nobody awaits: releases of dropped guards, and undos of attempts that were given up.
//!
//! A `drop` hands over a job and returns. One task for each client runs all jobs side by side.

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::fault::Fault;
use crate::task;

/// The task that runs jobs.
pub(super) struct Background(UnboundedSender<Order>);

/// A job. It retries by itself.
pub(super) type Job = BoxFuture<'static, Result<(), Failure>>;

/// Why a job failed.
pub(super) struct Failure {
    pub(super) fault: Fault,
    /// When the lease ends. From then on, the failure no longer matters.
    pub(super) ends: Instant,
}

enum Order {
    /// Reply when no job is left. If a job failed, the reply is its fault.
    Drain(oneshot::Sender<Result<(), Fault>>),
    Run(Job),
}

impl Background {
    pub(super) fn start() -> Self {
        let (sender, orders) = unbounded_channel();
        task::spawn(run(orders));
        Self(sender)
    }

    /// Hands over a job. Never waits, with or without a runtime. False: the runtime of the client is gone.
    pub(super) fn run(&self, job: Job) -> bool {
        self.0.send(Order::Run(job)).is_ok()
    }

    /// Whether the task is gone, and with it the runtime on which the client was made.
    pub(super) fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until no job is left. Returns the fault of a job that failed, if its lease has not ended.
    pub(super) async fn drain(&self) -> Result<(), Fault> {
        let (done, drained) = oneshot::channel();
        if self.0.send(Order::Drain(done)).is_err() {
            return Ok(());
        }
        drained.await.unwrap_or(Ok(()))
    }
}

async fn run(mut orders: UnboundedReceiver<Order>) {
    let mut running = FuturesUnordered::new();
    let mut draining: Vec<oneshot::Sender<Result<(), Fault>>> = Vec::new();
    // Of the jobs that failed, the one whose lease ends last.
    let mut failed: Option<Failure> = None;
    let mut open = true;
    while open || !running.is_empty() {
        tokio::select! {
            // Orders first: a job that was handed over before a `Drain` is running when the `Drain` comes.
            biased;
            order = orders.recv(), if open => match order {
                Some(Order::Run(job)) => running.push(job),
                Some(Order::Drain(done)) => draining.push(done),
                None => open = false,
            },
            Some(result) = running.next() => {
                failed = failed.into_iter().chain(result.err()).max_by_key(|failure| failure.ends);
            }
        }
        // A job that ended now has perhaps handed over another one.
        if running.is_empty() && orders.is_empty() {
            failed = failed.filter(|failure| Instant::now() < failure.ends);
            let result = failed.as_ref().map_or(Ok(()), |failure| Err(failure.fault.clone()));
            draining.drain(..).for_each(|done| _ = done.send(result.clone()));
        }
    }
}

//! Work that nobody awaits: releases of dropped guards, and undos of attempts that were given up.
//!
//! A `drop` hands over a job and returns. Each job is a task of its own. A job that the server refuses rests, and goes on
//! after a pause, and at once when the client shuts down.
//!
//! Many guards can end at once. Each release needs a [`Turn`] while its command is under way, and each server
//! has a limited number of turns. So a command does not wait in the client behind thousands of releases until its time limit,
//! and renewals pass between them. A silent server uses up only its own turns. A release begins with its first turn: until then
//! it is a small closure.

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use slab::Slab;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::error::{Error, Result};
use crate::base::limits::limits;
use crate::base::sync::{Watched, lock};
use crate::base::task::Spawner;
use crate::base::timer::{Instant, timeout};
use crate::engine::hold::Named;

/// Starts jobs, and knows those that have not ended.
pub(crate) struct Background {
    spawner: Spawner,
    /// Closed when the runtime of the client is gone.
    pub(crate) runtime: Sender<Infallible>,
    jobs: Arc<Jobs>,
    /// The turns of each server, by its address.
    turns: Arc<Mutex<HashMap<Arc<str>, Arc<Semaphore>>>>,
    /// Counts the answers to releases.
    pub(crate) answers: Watched,
}

#[derive(Default)]
struct Jobs {
    /// A job that the end of the runtime cut off stays here, so a drain does not take it for done.
    list: Mutex<Slab<Listed>>,
    /// Counts those that ended, or began to rest.
    ended: Watched,
    drains: Watched,
}

/// A job that has not ended.
struct Listed {
    /// What it releases.
    lock: Option<Weak<dyn Named>>,
    /// A drain waits for it.
    is_awaited: bool,
    /// The last refusal, and when the lease ends. From then on, the refusal no longer matters.
    refused: Option<(Instant, Error)>,
}

/// What a job knows of itself.
pub(crate) struct Job {
    jobs: Arc<Jobs>,
    key: usize,
}

/// The right to have one release under way at a server. It ends when this is dropped.
pub(crate) type Turn = OwnedSemaphorePermit;

impl Background {
    pub(crate) fn start() -> Self {
        let (spawner, (runtime, mut ended)) = (Spawner::here(), channel(1));
        spawner.spawn(async move { ended.recv().await });
        Self { spawner, runtime, jobs: Arc::default(), turns: Arc::default(), answers: Watched::default() }
    }

    /// Starts a job. Never waits, with or without a runtime.
    pub(crate) fn run(&self, job: impl Future<Output = ()> + Send + 'static) {
        self.spawn(None, |_| job);
    }

    /// Starts a release, which begins when it is its turn at this server. Otherwise as [`run`](Self::run).
    pub(crate) fn release<L: Named + 'static>(
        &self,
        lock: &Arc<L>,
        server: Arc<str>,
        start: impl FnOnce(Job, Turn) -> BoxFuture<'static, ()> + Send + 'static,
    ) {
        let turn = self.turn(&server);
        let lock: Weak<L> = Arc::downgrade(lock);
        self.spawn(Some(lock), |job| async move { start(job, turn.await).await });
    }

    fn spawn<F>(&self, of: Option<Weak<dyn Named>>, job: impl FnOnce(Job) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let jobs = Arc::clone(&self.jobs);
        let key = lock(&jobs.list).insert(Listed { lock: of, is_awaited: true, refused: None });
        // A panic in a job is one of the user's code, such as a `tracing` layer.
        let job = AssertUnwindSafe(job(Job { jobs: Arc::clone(&jobs), key })).catch_unwind();
        self.spawner.spawn(async move {
            let _ = job.await;
            let _ended = lock(&jobs.list).remove(key);
            jobs.ended.modify(|count| count + 1);
        });
    }

    /// Waits for the next turn of a release at this server. Only jobs may wait for it, because they are always polled.
    pub(crate) fn turn(&self, server: &Arc<str>) -> impl Future<Output = Turn> + Send + use<> {
        let mut all = lock(&self.turns);
        let turns =
            all.entry(Arc::clone(server)).or_insert_with(|| Arc::new(Semaphore::new(limits().releases)));
        Arc::clone(turns).acquire_owned().map(|turn| turn.expect("BUG: nobody closes the turns"))
    }

    /// What the jobs that have not ended release.
    pub(crate) fn left(&self) -> Vec<Arc<dyn Named>> {
        lock(&self.jobs.list).iter().filter_map(|(_, job)| job.lock.as_ref()?.upgrade()).collect()
    }

    /// Waits until no job is left, or until only jobs are left that the server refused again. In the second case,
    /// returns the error of the job whose lease ends last.
    pub(crate) async fn drain(&self) -> Result<()> {
        let Jobs { list, ended, drains } = &*self.jobs;
        lock(list).iter_mut().for_each(|(_, job)| job.is_awaited = true);
        drains.modify(|count| count + 1);
        tokio::select! {
            biased;
            () = self.runtime.closed() => return Err(Error::RuntimeGone),
            () = ended.until(|_| !lock(list).iter().any(|(_, job)| job.is_awaited)) => {}
        }
        let (list, now) = (lock(list), Instant::now());
        let refused = list.iter().filter_map(|(_, job)| job.refused.as_ref()).filter(|(ends, _)| now < *ends);
        refused.max_by_key(|(ends, _)| *ends).map_or(Ok(()), |(_, error)| Err(error.clone()))
    }
}

impl Job {
    /// Rests after the server refused the job, until the pause is over or the client shuts down. No drain waits meanwhile.
    pub(crate) async fn rest(&self, pause: Duration, refused: (Instant, Error)) {
        let Jobs { list, ended, drains } = &*self.jobs;
        let seen = drains.get(); // a drain that comes from here on ends the rest
        {
            let job = &mut lock(list)[self.key];
            (job.is_awaited, job.refused) = (false, Some(refused));
        }
        ended.modify(|count| count + 1);
        let _ = timeout(pause, drains.until(|count| count > seen)).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    use super::*;

    #[tokio::test]
    async fn a_job_that_panics_has_ended() {
        let background = Background::start();
        background.run(async { panic!("on purpose") });
        timeout(Duration::from_secs(10), background.drain()).await.expect("nothing is left").unwrap();
    }

    #[tokio::test]
    async fn a_server_has_a_thousand_turns_of_its_own() {
        let background = Background::start();
        let turn = |server: &str| unconstrained(background.turn(&Arc::from(server))).now_or_never();
        let mut turns: Vec<_> = (0..1_000).map(|_| turn("silent")).collect();
        assert!(turns.iter().all(Option::is_some) && turn("silent").is_none() && turn("well").is_some());
        drop(turns.pop());
        assert!(turn("silent").is_some());
    }
}

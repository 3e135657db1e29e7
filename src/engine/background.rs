//! Work that nobody awaits: releases of dropped guards, and undos of attempts that were given up.
//!
//! A `drop` hands over a job and returns. One task runs all jobs side by side. A job that the server refuses is run
//! again after a pause, and at once when the client shuts down or is dropped.
//!
//! Many guards can end at once. Each release needs a [`Turn`] while its command is under way, and each server
//! has a limited number of turns. So a command does not wait in the client behind thousands of releases until its time limit,
//! renewals pass between them, and the task has few futures to poll. A silent server uses up only its own turns. A
//! release begins with its first turn: until then it is a small closure.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::unconstrained;

use crate::base::error::{Error, Result};
use crate::base::limits::limits;
use crate::base::sync::{Watched, lock};
use crate::base::task;
use crate::base::timer::{Instant, elapsed};

/// The task that runs jobs.
pub(crate) struct Background {
    orders: UnboundedSender<Order>,
    turns: Arc<Turns>,
    /// How many releases the futures of callers send now.
    direct: AtomicUsize,
    /// Counts the answers to releases.
    answers: Watched,
}

/// A job. It retries after transient faults by itself, and ends with `Refused` if the server refuses.
pub(crate) type Job = BoxFuture<'static, std::result::Result<(), Refused>>;

/// Begins a job at its first turn.
type Start = Box<dyn FnOnce(Turn) -> Job + Send>;

/// The right to have one release under way at a server. It ends when this is dropped.
pub(crate) type Turn = OwnedSemaphorePermit;

/// The turns of each server, by its address.
#[derive(Default)]
struct Turns(Mutex<HashMap<Arc<str>, Arc<Semaphore>>>);

impl Turns {
    /// Waits for the next turn.
    async fn next(&self, server: &Arc<str>) -> Turn {
        let turns = {
            let mut all = lock(&self.0);
            let turns =
                all.entry(Arc::clone(server)).or_insert_with(|| Arc::new(Semaphore::new(limits().releases)));
            Arc::clone(turns)
        };
        // `unconstrained`: thousands of futures of one task can wait here. With the tokio budget, each poll would spend
        // the budget on futures that still have to wait.
        unconstrained(turns.acquire_owned()).await.expect("BUG: nobody closes the turns")
    }
}

/// Counts a release that the future of a caller sends. Such a future holds no turn: an unpolled future would block
/// others.
pub(crate) struct Direct<'a>(&'a AtomicUsize);

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A job that the server refused. The background runs `again` after a pause.
pub(crate) struct Refused {
    pub(crate) error: Box<Error>,
    /// When the lease ends. From then on, the refusal no longer matters.
    pub(crate) ends: Instant,
    /// How long the background waits before it runs the job again.
    pub(crate) pause: Duration,
    pub(crate) again: Job,
}

enum Order {
    /// Run every job once. Reply when no job is left, or when only jobs are left that the server refused again. In the
    /// second case, reply with their error.
    Drain(oneshot::Sender<Result<()>>),
    Run(Job),
    /// Begin a release when it is its turn at this server.
    Release(Arc<str>, Start),
}

impl Background {
    pub(crate) fn start() -> Self {
        let (sender, orders) = unbounded_channel();
        let turns = Arc::<Turns>::default();
        task::spawn(run(orders, Arc::clone(&turns)));
        Self { orders: sender, turns, direct: AtomicUsize::new(0), answers: Watched::default() }
    }

    /// Hands over a job. Never waits, with or without a runtime. False: the runtime of the client is gone.
    pub(crate) fn run(&self, job: Job) -> bool {
        self.orders.send(Order::Run(job)).is_ok()
    }

    /// Hands over a release, which begins when it is its turn at this server. Otherwise as [`run`](Self::run).
    pub(crate) fn release(&self, server: Arc<str>, start: impl FnOnce(Turn) -> Job + Send + 'static) -> bool {
        self.orders.send(Order::Release(server, Box::new(start))).is_ok()
    }

    /// Waits for the next turn of a release at this server. Only jobs may wait for it, because they are always polled.
    pub(crate) async fn turn(&self, server: &Arc<str>) -> Turn {
        self.turns.next(server).await
    }

    /// Lets the future of a caller send a release. `None`: as many futures as are allowed already do, so the background
    /// has to send this release.
    pub(crate) fn direct(&self) -> Option<Direct<'_>> {
        let direct = Direct(&self.direct);
        (self.direct.fetch_add(1, Ordering::Relaxed) < limits().releases).then_some(direct)
    }

    /// Counts an answer to a release.
    pub(crate) fn answered(&self) {
        self.answers.modify(|count| count + 1);
    }

    /// How many releases were answered.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.get()
    }

    /// Waits until another release was answered.
    pub(crate) async fn answers_more_than(&self, seen: u64) {
        self.answers.until(|count| count > seen).await;
    }

    /// Whether the task has ended, because the runtime on which the client was made is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.orders.is_closed()
    }

    /// Waits until the task is gone.
    pub(crate) async fn gone(&self) {
        self.orders.closed().await;
    }

    /// Waits until no job is left, or until only jobs are left that the server refused again. In the second case,
    /// returns their error.
    pub(crate) async fn drain(&self) -> Result<()> {
        let (done, drained) = oneshot::channel();
        let _ = self.orders.send(Order::Drain(done));
        drained.await.unwrap_or(Err(Error::RuntimeGone))
    }
}

/// The jobs that the server refused, by the time when they are run again.
#[derive(Default)]
struct Resting {
    jobs: BTreeMap<(Instant, u64), Refused>,
    /// Distinguishes jobs with the same time.
    next: u64,
}

impl Resting {
    fn add(&mut self, refused: Refused) {
        self.next += 1;
        self.jobs.insert((Instant::now() + refused.pause, self.next), refused);
    }

    /// Waits until a job is due.
    fn due(&self) -> impl Future<Output = ()> + use<> {
        elapsed(self.jobs.first_key_value().map(|((at, _), _)| *at))
    }

    /// Takes the jobs that are due until this time.
    fn take_until(&mut self, time: Instant) -> impl Iterator<Item = Job> {
        let later = self.jobs.split_off(&(time, u64::MAX));
        std::mem::replace(&mut self.jobs, later).into_values().map(|refused| refused.again)
    }

    fn take_all(&mut self) -> impl Iterator<Item = Job> {
        std::mem::take(&mut self.jobs).into_values().map(|refused| refused.again)
    }

    /// Returns the error of the job whose lease ends last, if that lease has not ended.
    fn result(&self) -> Result<()> {
        let last = self.jobs.values().max_by_key(|refused| refused.ends);
        match last.filter(|refused| Instant::now() < refused.ends) {
            Some(refused) => Err(Error::clone(&refused.error)),
            None => Ok(()),
        }
    }
}

async fn run(mut orders: UnboundedReceiver<Order>, turns: Arc<Turns>) {
    // The releases that have not begun, by server. For each of these servers, one future in `next` waits for the turn
    // of its first release.
    let mut waiting = HashMap::<Arc<str>, VecDeque<Start>>::new();
    let mut next = FuturesUnordered::new();
    let next_of = |server: Arc<str>| {
        let turns = Arc::clone(&turns);
        async move {
            let turn = turns.next(&server).await;
            (server, turn)
        }
    };
    let mut running = FuturesUnordered::new();
    // A panic in a job is one of the user's code, such as a `tracing` layer. It must not end what comes after.
    let guarded = |job: Job| AssertUnwindSafe(job).catch_unwind().map(|result| result.unwrap_or(Ok(())));
    let mut resting = Resting::default();
    let mut draining: Vec<oneshot::Sender<Result<()>>> = Vec::new();
    let mut open = true;
    while open || !running.is_empty() || !waiting.is_empty() {
        tokio::select! {
            // Take orders first, as they came: a job that was handed over before a `Drain` is running when the `Drain`
            // comes, so the drain waits for it.
            biased;
            order = orders.recv(), if open => match order {
                Some(Order::Run(job)) => running.push(guarded(job)),
                Some(Order::Release(server, start)) => {
                    let starts = waiting.entry(server).or_insert_with_key(|server| {
                        next.push(next_of(Arc::clone(server)));
                        VecDeque::new()
                    });
                    starts.push_back(start);
                }
                Some(Order::Drain(done)) => {
                    running.extend(resting.take_all().map(guarded));
                    draining.push(done);
                }
                None => {
                    open = false;
                    running.extend(resting.take_all().map(guarded));
                }
            },
            Some(result) = running.next() => {
                if let Err(refused) = result {
                    resting.add(refused);
                }
            }
            Some((server, turn)) = next.next() => {
                let Entry::Occupied(mut starts) = waiting.entry(server) else { continue };
                running.extend(starts.get_mut().pop_front().map(|start| guarded(start(turn))));
                if starts.get().is_empty() {
                    starts.remove();
                } else {
                    next.push(next_of(Arc::clone(starts.key())));
                }
            }
            // A drain has already run the resting jobs once. Those that the server refused again rest until the drain
            // is over, because it does not wait for them.
            () = resting.due(), if draining.is_empty() => running.extend(resting.take_until(Instant::now()).map(guarded)),
            () = given_up(&mut draining) => draining.retain(|done| !done.is_closed()),
        }
        // `orders` must be empty, too: a job that has just ended perhaps handed over another job, and the drain waits
        // for that job.
        if running.is_empty() && waiting.is_empty() && orders.is_empty() {
            draining.drain(..).for_each(|done| _ = done.send(resting.result()));
        }
    }
}

/// Waits until the caller of one of these drains has left.
async fn given_up(draining: &mut [oneshot::Sender<Result<()>>]) {
    poll_fn(|context| {
        let is_any = draining.iter_mut().any(|done| done.poll_closed(context).is_ready());
        if is_any { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use tokio::sync::Notify;

    use super::*;
    use crate::base::timer::timeout;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A job that counts its runs, and that the server refuses each time.
    fn refused(runs: Arc<(AtomicUsize, Notify)>) -> Job {
        async move {
            runs.0.fetch_add(1, Ordering::SeqCst);
            runs.1.notify_one();
            let error = Box::new(Error::RuntimeGone);
            Err(Refused { error, ends: Instant::now(), pause: HOUR, again: refused(runs) })
        }
        .boxed()
    }

    #[tokio::test]
    async fn a_server_has_a_thousand_turns_of_its_own_and_futures_as_many() {
        let background = Background::start();
        let turn = |server: &str| background.turn(&Arc::from(server)).now_or_never();
        let mut turns: Vec<_> = (0..1_000).map(|_| turn("silent")).collect();
        assert!(turns.iter().all(Option::is_some) && turn("silent").is_none() && turn("well").is_some());
        drop(turns.pop());
        assert!(turn("silent").is_some());
        let mut direct: Vec<_> = (0..1_001).map(|_| background.direct()).collect();
        assert!(direct.pop().unwrap().is_none() && direct.iter().all(Option::is_some));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_rests_is_run_once_more_when_the_client_is_dropped() {
        let (background, runs) = (Background::start(), Arc::new((AtomicUsize::new(0), Notify::new())));
        assert!(background.run(refused(Arc::clone(&runs))));
        runs.1.notified().await;
        drop(background);
        timeout(HOUR / 2, runs.1.notified()).await.expect("it is run again at once");
        assert_eq!(runs.0.load(Ordering::SeqCst), 2);
    }
}

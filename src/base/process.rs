//! Simulated processes: several of them run on one thread, each with its own clock, and can be stopped, suspended or killed.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::base::clock::ProcessClock;
use crate::base::limits::Limits;
use crate::base::sync::lock;
use crate::base::timer;

/// A process of a simulation. For lockkeeper's own tests.
///
/// What a future that runs in a process spawns, belongs to that process, too.
///
/// ```
/// # use std::time::Duration;
/// # use lockkeeper::Process;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// assert_eq!(Process::new(Duration::ZERO, 0).run(async { 1 }).await, 1);
/// # }
/// ```
#[derive(Clone)]
pub struct Process(Arc<Shared>);

struct Shared {
    clock: ProcessClock,
    state: Mutex<State>,
    network: OnceLock<Network>,
    /// For how many nanoseconds the host of this process was suspended.
    suspended: AtomicU64,
    limits: Mutex<Limits>,
}

/// An open connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Connects to a host and a port.
pub(crate) type Network =
    Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync>;

#[derive(Default)]
struct State {
    is_stopped: bool,
    is_killed: bool,
    /// Since when the host of this process is suspended.
    suspended_at: Option<Instant>,
    /// Tasks that would have been polled while the process was stopped.
    wakers: Vec<Waker>,
}

thread_local! {
    static CURRENT: RefCell<Option<Process>> = const { RefCell::new(None) };
}

/// The process in which this code runs.
pub(crate) fn current() -> Option<Process> {
    CURRENT.with_borrow(Clone::clone)
}

impl Process {
    /// Starts a process. Its clock shows `uptime` now, and is faster than tokio's by so many parts of a million.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::Process;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let process = Process::new(Duration::from_secs(60), -500);
    /// process.stop();
    /// process.go_on();
    /// # }
    /// ```
    pub fn new(uptime: Duration, drift: i32) -> Self {
        let (clock, state) = (ProcessClock::start(uptime, drift), Mutex::default());
        let (suspended, limits) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(Shared { clock, state, network: OnceLock::new(), suspended, limits }))
    }

    /// From now on, the process connects to servers that have an address by this function.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::Process;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let process = Process::new(Duration::ZERO, 0);
    /// process.connect_by(|_host, _port| async { Ok(tokio::io::duplex(64).0) });
    /// # }
    /// ```
    pub fn connect_by<C, F, S>(&self, connector: C)
    where
        C: Fn(String, u16) -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let network = move |host, port| {
            let opening = connector(host, port);
            async move { opening.await.map(|stream| Box::new(stream) as Box<dyn Stream>) }.boxed()
        };
        let _ = self.0.network.set(Arc::new(network));
    }

    /// How the process connects to servers that have an address, if it does not use the network of the host.
    pub(crate) fn network(&self) -> Option<Network> {
        self.0.network.get().cloned()
    }

    /// From now on, new clients of this process have these limits.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::{Limits, Process};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// Process::new(Duration::ZERO, 0).set_limits(Limits { batch: 2, ..Limits::default() });
    /// # }
    /// ```
    pub fn set_limits(&self, limits: Limits) {
        *lock(&self.0.limits) = limits;
    }

    pub(crate) fn limits(&self) -> Limits {
        *lock(&self.0.limits)
    }

    /// Runs a future in this process.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::Process;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let process = Process::new(Duration::ZERO, 0);
    /// assert_eq!(process.run(async { 1 }).await, 1);
    /// # }
    /// ```
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        Running { process: self.clone(), future: Box::pin(future) }
    }

    /// Runs a function in this process, so that it sees the clock of the process.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::Process;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// assert_eq!(Process::new(Duration::ZERO, 0).enter(|| 1), 1);
    /// # }
    /// ```
    pub fn enter<R>(&self, function: impl FnOnce() -> R) -> R {
        let _left = Entered { before: CURRENT.replace(Some(self.clone())), clock: self.0.clock.enter() };
        function()
    }

    /// Stops the process: nothing in it is polled, and its time goes on.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::Process;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// Process::new(Duration::ZERO, 0).stop();
    /// # }
    /// ```
    pub fn stop(&self) {
        lock(&self.0.state).is_stopped = true;
    }

    /// Suspends the host of the process: nothing in it is polled, and its timers stand still. Its clock goes on.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::Process;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let process = Process::new(Duration::ZERO, 0);
    /// process.suspend();
    /// process.go_on();
    /// # }
    /// ```
    pub fn suspend(&self) {
        let mut state = lock(&self.0.state);
        state.is_stopped = true;
        state.suspended_at = Some(Instant::now());
    }

    /// Lets a process continue that is stopped, or whose host is suspended.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::Process;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// Process::new(Duration::ZERO, 0).go_on();
    /// # }
    /// ```
    pub fn go_on(&self) {
        let mut state = lock(&self.0.state);
        state.is_stopped = false;
        if let Some(at) = state.suspended_at.take() {
            let nanos = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.0.suspended.fetch_add(nanos, Ordering::Relaxed);
        }
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Sleeps by a timer of this process, which stands still while its host is suspended.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::Process;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// Process::new(Duration::ZERO, 0).sleep(Duration::from_secs(1)).await;
    /// # }
    /// ```
    pub fn sleep(&self, time: Duration) -> impl Future<Output = ()> + use<> {
        let sleeping = self.enter(|| timer::sleep(time));
        self.run(sleeping)
    }

    /// Kills the process: nothing in it is polled again. Its connections stay open until its network is cut.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::Process;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// Process::new(Duration::ZERO, 0).kill();
    /// # }
    /// ```
    pub fn kill(&self) {
        lock(&self.0.state).is_killed = true;
    }

    /// Whether it can be polled. If it is stopped, it is woken when it continues.
    ///
    /// ```
    /// # use std::task::{Context, Waker};
    /// # use std::time::Duration;
    /// # use lockkeeper::Process;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let process = Process::new(Duration::ZERO, 0);
    /// assert!(process.is_running(&Context::from_waker(Waker::noop())));
    /// # }
    /// ```
    pub fn is_running(&self, context: &Context<'_>) -> bool {
        let mut state = lock(&self.0.state);
        if state.is_stopped && !state.is_killed {
            state.wakers.push(context.waker().clone());
        }
        !state.is_stopped && !state.is_killed
    }
}

/// For how long the host of the process that runs was suspended so far.
pub(crate) fn suspended() -> Duration {
    let of = |process: &Process| Duration::from_nanos(process.0.suspended.load(Ordering::Relaxed));
    CURRENT.with_borrow(|process| process.as_ref().map(of).unwrap_or_default())
}

struct Entered {
    before: Option<Process>,
    clock: Option<ProcessClock>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
        ProcessClock::leave(self.clock);
    }
}

struct Running<F> {
    process: Process,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Running<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if !self.process.is_running(context) {
            return Poll::Pending;
        }
        let process = self.process.clone();
        process.enter(|| self.future.as_mut().poll(context))
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Process").field(&self.0.clock).finish()
    }
}

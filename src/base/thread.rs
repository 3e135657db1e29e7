//! The thread on which a client renews its leases.
//!
//! A program can block all threads of its own runtime: by a call that waits, or by work without an `await`. Its locks are renewed all the
//! same, because what runs here never waits for that runtime. A `drop` only tells the thread to end.

use std::io;
use std::sync::Mutex;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::base::clock;
use crate::base::sync::lock;

/// A runtime for renewals, on a thread of its own or on that of the caller.
pub(crate) struct Thread {
    runtime: Handle,
    running: Mutex<Option<Running>>,
}

struct Running {
    /// Dropped, it ends the thread.
    end: oneshot::Sender<()>,
    /// Fails when the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl Thread {
    /// Starts a thread, except where time is simulated: a thread would make a simulation depend on the real time.
    pub(crate) fn start() -> io::Result<Self> {
        if clock::is_simulated() {
            return Ok(Self::of_caller());
        }
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let handle = runtime.handle().clone();
        let (end, told) = oneshot::channel::<()>();
        let (ending, ended) = oneshot::channel::<()>();
        // A test collects the events of its own thread.
        #[cfg(feature = "paused-clock")]
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        let run = move || {
            #[cfg(feature = "paused-clock")]
            let _subscribed = tracing::dispatcher::set_default(&subscriber);
            let _ending = ending;
            let _ = runtime.block_on(told);
            // Looking up a name cannot be cancelled, and nobody needs its result.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("lockkeeper".to_owned()).spawn(run)?;
        Ok(Self { runtime: handle, running: Mutex::new(Some(Running { end, ended })) })
    }

    /// Starts no thread: the runtime of the caller does the work.
    pub(crate) fn of_caller() -> Self {
        Self { runtime: Handle::current(), running: Mutex::new(None) }
    }

    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Whether there is a thread.
    pub(crate) fn is_own(&self) -> bool {
        lock(&self.running).is_some()
    }

    /// Ends the thread, and waits for its end.
    pub(crate) async fn end(&self) {
        let running = lock(&self.running).take();
        if let Some(Running { end, ended }) = running {
            drop(end);
            let _ = ended.await;
        }
    }
}

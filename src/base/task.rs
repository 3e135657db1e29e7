//! Starts tasks. A task belongs to the simulated process in which it was started, if there is one.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Starts tasks on one runtime, also where there is none.
pub(crate) struct Spawner {
    runtime: Handle,
    #[cfg(feature = "unstable-simulation")]
    process: Option<crate::base::process::Process>,
}

impl Spawner {
    /// Starts tasks on the runtime on which this is called.
    pub(crate) fn here() -> Self {
        Self::on(&Handle::current())
    }

    fn on(runtime: &Handle) -> Self {
        Self {
            runtime: runtime.clone(),
            #[cfg(feature = "unstable-simulation")]
            process: crate::base::process::current(),
        }
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        #[cfg(feature = "unstable-simulation")]
        if let Some(process) = &self.process {
            return self.runtime.spawn(process.run(future));
        }
        self.runtime.spawn(future)
    }
}

/// Starts a task on the runtime on which this is called.
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    Spawner::here().spawn(future)
}

/// Starts a task on a runtime.
pub(crate) fn spawn_on<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    Spawner::on(runtime).spawn(future)
}

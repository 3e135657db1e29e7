//! Starts tasks. A task belongs to the simulated process in which it was started, if there is one.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Starts a task on the runtime on which this is called.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    spawn_on(&Handle::current(), future)
}

/// Starts a task on a runtime.
pub(crate) fn spawn_on<F>(runtime: &Handle, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    #[cfg(feature = "unstable-simulation")]
    if let Some(process) = crate::base::process::current() {
        return runtime.spawn(process.run(future));
    }
    runtime.spawn(future)
}

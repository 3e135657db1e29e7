//! A task that ends with its owner.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::base::task;

/// A task. Dropping the value ends the task.
pub(super) struct Task<T = ()>(pub(super) JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    pub(super) fn spawn(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(task::spawn(work))
    }

    pub(super) fn spawn_on(runtime: &Handle, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(task::spawn_on(runtime, work))
    }

    /// Ends the task before its owner ends.
    pub(super) fn end(&self) {
        self.0.abort();
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

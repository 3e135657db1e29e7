//! A task that ends with its owner.

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::base::task;

/// A task. Dropping the value ends the task.
pub(super) struct Task(AbortHandle);

impl Task {
    pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(task::spawn(work).abort_handle())
    }

    pub(super) fn spawn_on(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(task::spawn_on(runtime, work).abort_handle())
    }

    /// Ends the task before its owner ends.
    pub(super) fn end(&self) {
        self.0.abort();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

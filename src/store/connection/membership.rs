//! What the servers of one source share, if another server can become the master.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

#[derive(Clone, Default)]
pub(crate) struct Membership {
    complaints: Arc<Notify>,
    /// Connections made so far, to all of these servers.
    pub(crate) made: Arc<AtomicU64>,
    is_sharded: Arc<AtomicBool>,
}

impl Membership {
    /// Whether messages stay in their slots.
    pub(crate) fn is_sharded(&self) -> bool {
        self.is_sharded.load(Ordering::Relaxed)
    }

    /// From now on, messages stay in their slots. Known before the first message.
    pub(crate) fn shard_messages(&self) {
        self.is_sharded.store(true, Ordering::Relaxed);
    }

    /// Something is wrong, so perhaps another server is the master now.
    pub(crate) fn complain(&self) {
        self.complaints.notify_one();
    }

    /// Waits for a complaint. A complaint while nobody waits counts, too.
    pub(crate) async fn complaint(&self) {
        self.complaints.notified().await;
    }
}

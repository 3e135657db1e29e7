//! Readers that keep coming.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::LockClient;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{MS, lingering};

/// Tasks of one client that read again and again, until this is stopped.
pub struct Readers {
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Readers {
    pub fn start(locks: &LockClient, linger: Duration, count: usize, section: Duration) -> Self {
        let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let lock = || locks.read_write_lock("a").into_read().with(&lingering(linger));
        let read = |number: usize| {
            let (mut lock, stop, reads) = (lock(), Arc::clone(&stop), Arc::clone(&reads));
            async move {
                sleep(MS * u32::try_from(number).unwrap()).await;
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.lock().await.unwrap();
                    sleep(section).await;
                    guard.unlock().await.unwrap();
                    reads.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        };
        Self { tasks: (0..count).map(|number| tokio::spawn(read(number))).collect(), stop, reads }
    }

    /// Returns how often they read.
    pub async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for ended in join_all(self.tasks).await {
            ended.unwrap();
        }
        self.reads.load(Ordering::Relaxed)
    }
}

//! A lock that is held all the time, and a waiter for it.

use std::time::Duration;

use lockkeeper::{Error, LockClient, LockGuard};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::Result;

/// A waiter that is woken attempts within this time. Without a message it would attempt after three seconds.
const WOKEN_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct Held {
    guard: LockGuard,
    waiting: JoinHandle<lockkeeper::Result<()>>,
}

impl Held {
    pub(crate) async fn start([holder, waiter]: &[LockClient; 2], name: &str) -> Result<Self> {
        let guard = holder.rlock(name).lock().await?;
        let mut lock = waiter.rlock(name);
        let waiting = tokio::spawn(async move { lock.lock().await?.unlock().await });
        Ok(Self { guard, waiting })
    }

    pub(crate) async fn end(self) -> Result<()> {
        let state = if self.guard.is_lost() { "lost" } else { "still held" };
        println!("the guard that was held all the time is {state}");
        let released = Instant::now();
        match self.guard.unlock().await {
            Ok(()) => {}
            Err(Error::NotHeld(_)) => {
                println!("its last write was lost with the old master, and the guard said so")
            }
            Err(error) => return Err(error.into()),
        }
        timeout(WOKEN_WITHIN, self.waiting).await.map_err(|_| "the waiter was not woken")???;
        println!("released it, and its waiter was woken after {:.1?}", released.elapsed());
        Ok(())
    }
}

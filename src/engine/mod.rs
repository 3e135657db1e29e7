//! The engine: all that is alike for every type of lock, once. The types differ in data, see [`kind`].

mod acquire;
mod background;
mod gather;
mod grant;
mod handle;
mod hold;
mod kind;
mod lease;
mod query;
mod release;
mod retry;
mod wakes;
mod watchdog;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

pub(crate) use acquire::{Patience, acquire};
pub(crate) use grant::{Part, Target};
pub(crate) use handle::{Handle, Holds, Quorum};
pub(crate) use hold::Hold;
pub(crate) use kind::{Kind, Queue, Whose};
pub(crate) use lease::millis;
pub(crate) use query::{force_unlock, inspect, is_locked, remaining_lease};
pub(crate) use release::{Releasing, extend};

use crate::config::LockConfig;
use crate::error::{Error, Result};
use crate::store::{Fault, FaultKind, Sent, Source, Store};
use background::Background;
use wakes::Lines;
use watchdog::{Duty, Watchdog};

/// One of something per member: most locks have one member.
pub(crate) type PerMember<T> = SmallVec<[T; 1]>;

/// What all handles and guards of one client share.
#[derive(Debug)]
pub(crate) struct Engine {
    id: Uuid,
    /// The number of the next grant, and of its owner.
    next_number: AtomicU64,
    pub(crate) config: LockConfig,
    pub(crate) store: Store,
    lines: Arc<Lines>,
    watchdog: Watchdog,
    /// Keeps the places of those who wait in a queue on the server.
    heart: Watchdog,
    background: Background,
    /// True once the client is being shut down.
    closing: watch::Sender<bool>,
}

impl Engine {
    pub(crate) async fn start(source: Source, config: LockConfig) -> Result<Arc<Self>> {
        config.check()?;
        let lines = Arc::new(Lines::default());
        let store = Store::open(source, &config, Arc::<Lines>::clone(&lines)).await?;
        Ok(Arc::new(Self {
            id: Uuid::new_v4(),
            next_number: AtomicU64::new(1),
            store,
            lines,
            watchdog: Watchdog::start(Duty::Holds, config.watchdog_lease, config.java_watchdog),
            heart: Watchdog::start(Duty::Places, config.fair_allowance, config.fair_allowance),
            background: Background::start(),
            closing: watch::Sender::new(false),
            config,
        }))
    }

    /// A number that was never used before, greater than those that were.
    fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// The key of a lock, which is what Redisson calls its raw name.
    fn key(&self, name: &str) -> Arc<str> {
        match &self.config.name_prefix[..] {
            "" => name.into(),
            prefix => [prefix, name].concat().into(),
        }
    }

    /// Refuses work that nothing would look after.
    fn check_open(&self) -> Result<()> {
        if self.is_closing() || self.background.is_gone() { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Waits until the client is being shut down.
    async fn closing(&self) {
        // Fails only without a sender, and that is here.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    pub(crate) async fn shutdown(&self) -> Result<()> {
        self.closing.send_replace(true);
        let drained = timeout(self.config.retry_timeout, self.background.drain()).await;
        self.watchdog.close();
        self.heart.close();
        let late = |elapsed| Err(Fault::new(FaultKind::TimedOut, Sent::Unknown, elapsed));
        drained.unwrap_or_else(late).map_err(Error::from)
    }
}

//! What goes on without a caller, beside the releases of the background: renewals, heartbeats, and what follows a
//! failover.
//!
//! A scheduler runs a duty in a task of its own: it takes what is due off a list, and serves up to a hundred grants
//! with one command. There are two duties, [`renewal`] and [`heartbeat`]. [`failover`] acts when another server became the master.
//!
//! Renewals run on the thread of the client (`base/thread.rs`), so a blocked program keeps its locks. Heartbeats run on the runtime of
//! the program: a waiter that is blocked must not keep its place.
//! What runs on the thread never waits for the runtime of the program.

mod failover;
mod heartbeat;
mod pulse;
mod renewal;

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::base::config::LockConfig;
use crate::base::error::Result;
use crate::base::task;
use crate::engine::shared::Engine;
use crate::engine::waits::Waits;
use crate::store::Source;

/// Connects, and starts the tasks of an engine. They end with the engine.
pub(crate) async fn start(
    source: Source,
    config: LockConfig,
    waits: Option<Arc<Waits>>,
) -> Result<Arc<Engine>> {
    let engine = Engine::connect(source, config, waits.clone()).await?;
    let (store, config) = (&engine.store, &engine.config);
    let upkeep = store.thread().runtime();
    engine.renewals.start(upkeep, renewal::Renewal::new(Arc::clone(store), config, waits));
    engine.heartbeats.start(&Handle::current(), heartbeat::Heartbeat::new(Arc::clone(store), config));
    if let Some(switches) = store.switches() {
        let seen = switches.get();
        task::spawn_on(upkeep, failover::renew_on_each(Arc::clone(&switches), seen, Arc::downgrade(&engine)));
        task::spawn(failover::act_on_each(switches, seen, Arc::downgrade(&engine)));
    }
    Ok(engine)
}

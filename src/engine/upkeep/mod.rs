//! What goes on without a caller, beside the releases of the background: renewals, heartbeats, and what follows a
//! failover.
//!
//! A scheduler runs a duty in a task of its own: it takes what is due off a list, and serves up to a hundred grants
//! with one command. There are three duties, [`renewal`], [`heartbeat`] and [`confirmation`]. [`failover`] acts when
//! another server became the master.

mod confirmation;
mod failover;
mod heartbeat;
mod renewal;

use std::sync::Arc;

use crate::base::config::LockConfig;
use crate::base::error::Result;
use crate::base::task;
use crate::engine::observer::Observer;
use crate::engine::shared::Engine;
use crate::store::Source;

/// Connects, and starts the tasks of an engine. They end with the engine.
pub(crate) async fn start(
    source: Source,
    config: LockConfig,
    observer: Option<Arc<dyn Observer>>,
) -> Result<Arc<Engine>> {
    let engine = Engine::connect(source, config, observer).await?;
    let (store, config) = (&engine.store, &engine.config);
    engine.renewals.start(renewal::Renewal::new(Arc::clone(store), config));
    engine.heartbeats.start(heartbeat::Heartbeat::new(Arc::clone(store), config));
    engine.confirmations.start(confirmation::Confirmations);
    if let Some(switches) = store.switches() {
        task::spawn(failover::act_on_each(switches, Arc::downgrade(&engine)));
    }
    Ok(engine)
}

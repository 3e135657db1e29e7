//! Diagnosis: what the clients and the servers know of holds and waits. No lock depends on it, and the engine does not know it.
//!
//! [`watch`] writes a [`snapshot`] of what a client holds and waits for, and reports long waits and deadlocks. A setting switches that off. The
//! rest asks servers: who holds a lock ([`inspect`]), all locks ([`list`]), the processes of holders ([`clients`]), who waits for whom
//! ([`why`]), and what a user may not do ([`rights`]).

pub(crate) mod clients;
pub(crate) mod info;
pub(crate) mod inspect;
pub(crate) mod list;
mod rights;
mod snapshot;
pub(crate) mod waits;
mod watch;
mod why;

use std::sync::Arc;

pub(crate) use clients::Clients;
pub(crate) use inspect::{force_unlock_of, inspect};
pub(crate) use list::{Part, Scan, holds, info};
pub(crate) use rights::check_rights;
use watch::Watch;
pub(crate) use why::{Chain, all_chains, chains};

use crate::base::config::LockConfig;
use crate::base::error::Result;
use crate::base::task;
use crate::engine::{self, Engine, Waits};
use crate::store::Source;

/// Starts an engine, and the task that looks at it, unless that is switched off.
pub(crate) async fn start(source: Source, config: LockConfig) -> Result<Arc<Engine>> {
    let (waits, orders) = config.diagnosis().then(Waits::new).unzip();
    let engine = engine::start(source, config, waits).await?;
    if let Some(orders) = orders {
        task::spawn(Watch::new(&engine).run(orders, Arc::downgrade(&engine)));
    }
    Ok(engine)
}

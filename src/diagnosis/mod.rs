//! Diagnosis: what the clients and the servers know of holds and waits. No lock depends on it, and the engine does not know it.
//!
//! A [`Diagnosis`] observes the engine of its client. It keeps [`records`] on the server of holds and waits that last, looks after
//! [`long_waits`], and remembers [`recent_waits`]. A setting switches that off. The rest asks servers: who holds a lock ([`inspect`]), all
//! locks ([`list`]), the processes of holders ([`clients`]), who waits for whom ([`why`]), and what a user may not do ([`rights`]).

pub(crate) mod clients;
pub(crate) mod info;
pub(crate) mod inspect;
pub(crate) mod list;
mod long_waits;
mod recent_waits;
mod records;
mod rights;
pub(crate) mod waits;
mod why;

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::select;

pub(crate) use clients::Clients;
pub(crate) use inspect::{force_unlock_of, inspect};
pub(crate) use list::{Part, Scan, info};
use long_waits::LongWaits;
use recent_waits::RecentWaits;
use records::{About, Orders, Records};
pub(crate) use rights::{check_leader, check_rights};
use waits::RecentWait;
pub(crate) use why::{Chain, all_chains, chains};

use crate::base::config::LockConfig;
use crate::base::error::Result;
use crate::base::task;
use crate::engine::{self, Engine, Observer, Outcome, SeenHold, SeenWait};
use crate::store::Source;

/// What a client knows of its own holds and waits.
pub(crate) struct Diagnosis {
    records: Records,
    waits: Arc<LongWaits>,
    recent: RecentWaits,
}

/// Starts an engine, and the diagnosis that observes it, unless that is switched off.
pub(crate) async fn start(
    source: Source,
    config: LockConfig,
) -> Result<(Arc<Engine>, Option<Arc<Diagnosis>>)> {
    let (diagnosis, orders) = config.diagnosis().then(Diagnosis::new).unzip();
    let observer = diagnosis.clone().map(|diagnosis| -> Arc<dyn Observer> { diagnosis });
    let engine = engine::start(source, config, observer).await?;
    if let Some((diagnosis, orders)) = diagnosis.as_ref().zip(orders) {
        diagnosis.begin(&engine, orders);
    }
    Ok((engine, diagnosis))
}

impl Diagnosis {
    fn new() -> (Arc<Self>, Orders) {
        let (records, orders) = Records::new();
        (Arc::new(Self { records, waits: Arc::default(), recent: RecentWaits::default() }), orders)
    }

    /// Starts the task. It ends with the records: at the shutdown, or after the client was dropped.
    fn begin(&self, engine: &Arc<Engine>, orders: Orders) {
        let recording = records::run(orders, &engine.store, engine.name_prefix(), &engine.id());
        let looking = Arc::clone(&self.waits).run(Arc::downgrade(engine));
        task::spawn(async move { _ = select(pin!(recording), pin!(looking)).await });
    }

    /// The last calls that waited, the oldest first.
    pub(crate) fn recent(&self) -> Vec<RecentWait> {
        self.recent.all()
    }

    /// Removes all records. From here on, nothing is recorded or reported.
    pub(crate) async fn end(&self) {
        self.records.end().await;
    }
}

impl Observer for Diagnosis {
    fn lasts(&self, &SeenHold { owner, key, since }: &SeenHold<'_>) {
        self.records.write(About::Hold, Arc::clone(owner), since, Arc::clone(key));
    }

    fn ended(&self, owner: &Arc<str>) {
        self.records.remove(About::Hold, Arc::clone(owner));
    }

    fn waits(&self, wait: SeenWait<'_>) {
        self.waits.begin(wait, &self.records);
    }

    fn waited(&self, number: u64, outcome: Option<Outcome>) {
        let ended = self.waits.end(number);
        if let Some((wait, outcome)) = ended.zip(outcome) {
            self.recent.add(wait, outcome);
        }
    }
}

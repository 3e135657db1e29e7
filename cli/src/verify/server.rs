//! The server, as the process that starts the workers sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::{Error, LockClient, Result};
use tokio::time::sleep;

use super::history::{MAIN, PERMITS, What, name_of};
use super::journal::Events;
use super::worker::TICK;
use crate::args::Examined;
use crate::exit::tell;

/// How often it asks who the masters are.
const LOOK: Duration = Duration::from_secs(1);
/// A longer time without an answer is told at once.
const SILENCE: Duration = Duration::from_secs(1);
/// How long it waits for a lock of its own, which an earlier attempt can still have.
const LIMIT: Duration = Duration::from_secs(5);

/// Checks the rights to all locks, before the first worker starts.
pub(super) async fn check_rights(locks: &LockClient, beginning: &str, kinds: &[Examined]) -> Result<()> {
    for kind in kinds {
        let name = format!("{beginning}{}", name_of(*kind, 0));
        match kind {
            Examined::Rlock => locks.rlock(name).check().await?,
            Examined::Fair => locks.fair_lock(name).check().await?,
            Examined::Fenced => locks.fenced_lock(name).check().await?,
            Examined::Read => locks.read_write_lock(name).read().check().await?,
            Examined::Write => locks.read_write_lock(name).write().check().await?,
            Examined::Semaphore => locks.semaphore(name, PERMITS).check().await?,
        }
    }
    Ok(())
}

/// Acquires locks of its own all the time, and adds an event for each answer, and for each new master.
pub(super) async fn observe(locks: &LockClient, beginning: &str, probes: usize, events: &Events) {
    let ask = async {
        let mut answered = Instant::now();
        loop {
            if join_all((0..probes).map(|number| can_lock(locks, beginning, number)))
                .await
                .iter()
                .all(Result::is_ok)
            {
                let silent = answered.elapsed();
                if silent > SILENCE {
                    tell(&format!("the server answers again, after {:.1} s", silent.as_secs_f64()));
                }
                answered = Instant::now();
                events.add(MAIN, What::Awake);
            }
            sleep(TICK).await;
        }
    };
    let look = async {
        let mut known: Option<BTreeSet<(String, String)>> = None;
        loop {
            match locks.servers().await {
                Ok(servers) => {
                    let found = identities(&servers);
                    for (address, _) in known.iter().flat_map(|known| found.difference(known)) {
                        tell(&format!("{address} is a new master, or was started again"));
                        events.add(MAIN, What::FailedOver { server: address.clone() });
                    }
                    // A known master stays known. If it comes back, it is not counted as a new one.
                    known.get_or_insert_default().extend(found);
                }
                Err(Error::Permission(_)) => {
                    tell("failovers cannot be counted: this user may not call INFO");
                    return;
                }
                Err(_) => {}
            }
            sleep(LOOK).await;
        }
    };
    futures_util::future::join(ask, look).await;
}

/// Each master, and which run of it answers.
fn identities(servers: &BTreeMap<String, BTreeMap<String, String>>) -> BTreeSet<(String, String)> {
    let run = |facts: &BTreeMap<String, String>| facts.get("run_id").cloned().unwrap_or_default();
    servers.iter().map(|(address, facts)| (address.clone(), run(facts))).collect()
}

/// Acquires and releases a lock that no worker uses: reads can work while no lock can be acquired.
async fn can_lock(locks: &LockClient, beginning: &str, number: usize) -> Result<()> {
    let mut probe = locks.rlock(format!("{beginning}probe-{number}"));
    match probe.try_lock_for(LIMIT).await? {
        Some(guard) => guard.unlock().await,
        None => Ok(()),
    }
}

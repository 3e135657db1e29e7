//! The record of what this client holds, for those who look at locks.
//!
//! A hold is recorded with its first renewal, and its record is removed when it ends. Nothing depends on a record: without the
//! right to write it, or after a fault, everything else works.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use uuid::Uuid;

use crate::base::clock::{self, Moment};
use crate::base::fault::{Fault, FaultKind};
use crate::base::sync::lock;
use crate::engine::grant::Grant;
use crate::engine::upkeep::background::Background;
use crate::protocol::{Call, HOLDS_RECORD, Reply, holds_forget, holds_key, millis};
use crate::store::{Route, Store};

/// The records of a client that recorded nothing for so long are removed.
const EXPIRY: Duration = Duration::from_secs(24 * 3_600);

/// A hold that lasts for longer is recorded again.
pub(crate) const RECORD_LASTS: Duration = Duration::from_secs(12 * 3_600);

/// The record of what this client holds.
pub(crate) struct Records {
    store: Arc<Store>,
    key: Arc<str>,
    route: Route,
    /// The owners whose holds have ended, and whose records are not removed yet.
    ended: Mutex<Vec<String>>,
    is_refused: AtomicBool,
}

/// What is recorded together.
pub(crate) struct Recording {
    grants: Vec<Arc<Grant>>,
    pub(crate) call: Call,
    at: Moment,
}

impl Records {
    pub(crate) fn new(store: &Arc<Store>, client: Uuid) -> Self {
        let key = holds_key(&client.to_string());
        Self {
            route: store.route(&key),
            store: Arc::clone(store),
            key,
            ended: Mutex::default(),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Begins to record those of these holds that are not recorded. `None`: there are none.
    pub(crate) fn begin<'a>(&self, grants: impl Iterator<Item = &'a Arc<Grant>>) -> Option<Recording> {
        if self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        let at = clock::now();
        let new = grants.filter_map(|grant| Some((Arc::clone(grant), grant.record(&self.key, at)?)));
        let (grants, rows): (Vec<_>, Vec<_>) = new.unzip();
        (!rows.is_empty()).then(|| Recording { grants, call: HOLDS_RECORD.call(millis(EXPIRY), rows), at })
    }

    /// Sends the call where the key is.
    pub(crate) async fn send(&self, recording: &Recording) {
        let reply = self.run(&recording.call).await;
        self.answered(recording, &reply);
    }

    /// Takes the reply to the call.
    pub(crate) fn answered(&self, Recording { grants, at, .. }: &Recording, reply: &Result<Reply, Fault>) {
        match reply {
            Ok(_) => grants.iter().for_each(|grant| grant.is_recorded(*at)),
            Err(fault) if fault.kind == FaultKind::Permission => {
                if !self.is_refused.swap(true, Ordering::Relaxed) {
                    tracing::info!(
                        %fault, server = &*self.store.address(self.route),
                        "the server refuses to record since when locks are held: lists do not show it"
                    );
                }
            }
            // The next renewal tries again.
            Err(_) => {}
        }
    }

    /// Removes the record of a hold that has ended, in the background.
    pub(crate) fn forget(self: &Arc<Self>, owner: &str, background: &Background) {
        let is_first = {
            let mut ended = lock(&self.ended);
            ended.push(owner.to_owned());
            ended.len() == 1
        };
        if is_first {
            let records = Arc::clone(self);
            let job = async move {
                let owners = std::mem::take(&mut *lock(&records.ended)).join(" ");
                // If this fails, the record expires.
                let _ = records.run(&holds_forget(&records.key, owners)).await;
                Ok(())
            };
            background.run(job.boxed());
        }
    }

    async fn run(&self, call: &Call) -> Result<Reply, Fault> {
        self.store.run(&self.store.connection(self.route).await?, call).await
    }
}

//! Confirmations of read holds that linger.
//!
//! If a confirmation fails, or is not answered soon, the hold ends with the readers that have it. So nobody waits for
//! long for a lock that nobody uses. The command itself keeps the usual time limit, so that a slow connection is not
//! taken for a silent one.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::base::clock;
use crate::base::timer::timeout;
use crate::engine::grant::{Confirmation, Grant};
use crate::engine::scheduler::{Duty, Key};

/// The least time for an answer to a confirmation, however short the lingering is.
const LEAST_PATIENCE: Duration = Duration::from_millis(10);

/// The duty of confirming holds that linger.
pub(crate) struct Confirmations;

impl Duty for Confirmations {
    type Item = Grant;
    type Group = Confirmation;

    fn ahead(&self) -> Duration {
        Duration::ZERO
    }

    fn together(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn begin(&self, item: &Arc<Grant>, key: Key) -> Option<Confirmation> {
        item.begin_confirmation(key, clock::now())
    }

    /// Sends a command for each hold: the store batches commands that come while a connection is busy.
    async fn run(&self, asked: Confirmation, items: Vec<Arc<Grant>>) {
        let patience = (asked.linger / 4).max(LEAST_PATIENCE);
        let confirm = async |item: &Arc<Grant>| {
            let mut confirming = pin!(item.confirm(asked));
            if timeout(patience, &mut confirming).await.is_err() {
                item.close(clock::now());
                confirming.await;
            }
        };
        join_all(items.iter().map(confirm)).await;
    }

    fn panicked(&self, item: &Arc<Grant>) {
        item.is_not_confirmed(clock::now());
    }
}

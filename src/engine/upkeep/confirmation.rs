//! Confirmations of read holds that linger.
//!
//! A hold whose confirmation fails, or is not answered soon, ends with the readers that are inside. So nobody waits for long for a lock that
//! nobody uses. The command itself has the time of every other one: a connection that is only slow must not be taken for a silent one.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::base::clock;
use crate::base::timer::timeout;
use crate::engine::grant::Grant;
use crate::engine::grant::lingering::Confirmation;
use crate::engine::scheduler::{Duty, Key};

/// A hold waits for the answer for at least so long, however short the time is for which it lingers.
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

    /// Each is a command of its own: the store sends those together that come while a connection is busy.
    async fn run(&self, asked: Confirmation, items: Vec<Arc<Grant>>) {
        let patience = (asked.linger / 4).max(LEAST_PATIENCE);
        let confirm = async |item: &Arc<Grant>| {
            let mut confirming = pin!(item.confirm(asked));
            if timeout(patience, &mut confirming).await.is_err() {
                item.close_to_readers(clock::now());
                confirming.await;
            }
        };
        join_all(items.iter().map(confirm)).await;
    }
}

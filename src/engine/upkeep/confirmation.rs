//! Confirmations of read holds that linger.
//!
//! A hold whose confirmation fails, or is not answered soon, ends with the readers that are inside. So nobody waits for long for a lock that
//! nobody uses.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::base::clock;
use crate::engine::grant::Grant;
use crate::engine::grant::lingering::Confirmation;
use crate::engine::scheduler::{Duty, Key};

/// The answer is waited for at least so long, however short the time is for which a hold lingers.
const SHORTEST_LIMIT: Duration = Duration::from_millis(10);

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
        let limit = (asked.linger / 4).max(SHORTEST_LIMIT);
        join_all(items.iter().map(|item| item.confirm(asked, limit))).await;
    }
}

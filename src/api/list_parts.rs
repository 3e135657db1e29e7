//! A list of locks, a part at a time.

use std::fmt;
use std::sync::Arc;

use crate::base::error::Result;
use crate::diagnosis::info::{LockInfo, LockList};
use crate::diagnosis::{Clients, Part, Scan};
use crate::engine::Engine;

/// The locks that [`LockClient::list_parts`](crate::LockClient::list_parts) finds, a part at a time.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut parts = locks.list_parts("*");
/// let mut count = 0;
/// while let Some(part) = parts.next().await? {
///     count += part.locks.len();
/// }
/// # Ok(()) }
/// ```
#[must_use = "nothing is listed before `next` is called"]
pub struct ListParts {
    pub(super) engine: Arc<Engine>,
    pub(super) scan: Scan,
    pub(super) clients: Clients,
    /// What was found and not yet returned.
    pub(super) part: Option<Part>,
}

impl ListParts {
    /// Returns the locks among the next keys, in no order. `None`: there are no more keys. Asks each master for some hundred keys.
    ///
    /// A part has no locks if none of those keys is one. No lock is returned twice. Each is returned as it was when it was found.
    ///
    /// # Errors
    ///
    /// As for [`LockClient::list`](crate::LockClient::list). After an error, the next call continues.
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time. The next call returns the same locks.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let some = locks.list_parts("*").next().await?.unwrap_or_default();
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Result<Option<LockList>> {
        if self.part.is_none() {
            self.part = self.scan.next(&self.engine).await?;
        }
        if let Some((found, _)) = &self.part {
            self.clients.ask_more(&self.engine, found.iter().map(|(_, list)| list)).await;
        }
        let Some((found, skipped)) = self.part.take() else { return Ok(None) };
        let (prefix, clients) = (self.engine.name_prefix(), &self.clients);
        let locks = found.into_iter().filter_map(|(found, list)| {
            LockInfo::from_server(found.key.strip_prefix(prefix)?, Some(&found), list, clients)
        });
        let skipped = skipped.iter().filter_map(|key| Some(key.strip_prefix(prefix)?.to_owned()));
        Ok(Some(LockList { locks: locks.collect(), skipped: skipped.collect() }))
    }
}

impl fmt::Debug for ListParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListParts").finish_non_exhaustive()
    }
}

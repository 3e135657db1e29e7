//! What a leader announces to all who listen, such as its address. This is the one file of this room that knows the engine.
//!
//! An announcement names its owner. So it is believed only while that owner holds the lock, and one that is left behind deceives nobody.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{ConfigError, Error, LossCause, Lost, Result};
use crate::base::sync::Watched;
use crate::base::timer::sleep;
use crate::diagnosis::info::{Holder, RemainingLease};
use crate::diagnosis::{self, Clients, inspect};
use crate::engine::{LockRef, run};
use crate::protocol::{
    AcquireReply, Announced, LeaseLeft, MOST_BYTES, announcement_key, announcement_read, announcement_remove,
    announcement_write, parse_announced,
};
use crate::store::identity;
use crate::{FencedLock, FencingToken, LockGuard};

/// A holder, and what it announces.
type Announcing = (Holder, Option<Vec<u8>>);

/// What the leader announces, for those who do not lead.
pub(super) struct Announcements {
    lock: Arc<LockRef>,
    /// Counts the messages on the channel, and how many there were until the last call. `None`: `changed` was not called yet.
    told: Option<(Arc<Watched>, u64)>,
}

impl Announcements {
    pub(super) fn new(lock: &FencedLock<'_>) -> Self {
        Self { lock: Arc::clone(lock.lock_ref()), told: None }
    }

    /// Waits for a message: a holder announces something else, or ended its hold. The first call begins to listen, and returns at once.
    ///
    /// Also returns when messages were perhaps missed. There is no message when a lease ends, and none without the right to the channel. So
    /// ask from time to time, too. If the future is dropped, the next call returns at once if a message came meanwhile.
    pub(super) async fn changed(&mut self) {
        if let Some((told, seen)) = &mut self.told {
            told.until(|count| count != *seen).await;
            *seen = told.get();
        } else {
            let engine = &self.lock.engine;
            let told = engine.listeners.listen(&announcement_key(&self.lock.keys.lock), &engine.store);
            self.told = Some((Arc::clone(&told), told.get()));
        }
    }

    /// Returns who holds the lock, and what it announces. `known`: what was returned last. If that has not changed, the process of the
    /// owner is not asked for again.
    pub(super) fn holder(
        &self,
        known: Option<Announcing>,
    ) -> impl Future<Output = Result<Option<Announcing>>> + Send + use<> {
        holder(Arc::clone(&self.lock), known)
    }

    /// Waits until calls cannot continue: the client is shut down, or its runtime has ended. Returns which.
    pub(super) fn ended(&self) -> impl Future<Output = Error> + Send + use<> {
        let engine = Arc::clone(&self.lock.engine);
        async move {
            engine.ended().await;
            engine.check_open().err().unwrap_or(Error::Closed)
        }
    }
}

/// Checks the rights of a leader: those to its lock, and to what it announces.
pub(super) fn check_rights(lock: &FencedLock<'_>) -> impl Future<Output = Result<()>> + Send {
    diagnosis::check_rights(&lock.0.each[0], true)
}

/// Refuses an announcement that is too long.
pub(super) fn check(said: &[u8]) -> Result<(), ConfigError> {
    let too_long = || ConfigError::new("announcement", format!("must be at most {MOST_BYTES} bytes long"));
    if said.len() > MOST_BYTES { Err(too_long()) } else { Ok(()) }
}

/// A candidate that was elected announces itself after about this time.
const MOMENT: Duration = Duration::from_millis(50);

async fn holder(lock: Arc<LockRef>, known: Option<Announcing>) -> Result<Option<Announcing>> {
    let engine = &lock.engine;
    let Some(mut listing) = inspect(engine, &lock.name).await? else { return Ok(None) };
    listing.holders.retain(|holding| holding.lease != LeaseLeft::Ended);
    listing.holders.truncate(1);
    let Some(holding) = listing.holders.first() else { return Ok(None) };
    let known = known.filter(|(holder, _)| holder.owner == holding.field);
    let mut answer = announced(&lock, &holding.field).await;
    if known.is_none() && matches!(answer, Ok(None)) {
        sleep(MOMENT).await;
        answer = announced(&lock, &holding.field).await;
    }
    let (identity, said) = match answer {
        Ok(Some(Announced { identity, said })) => (Some(identity), said),
        // A user without the right to announcements still learns who holds the lock.
        Ok(None) | Err(Error::Permission(_)) => (None, None),
        Err(error) => return Err(error),
    };
    let identity_before = match known {
        Some((holder, before)) if before == said => {
            let remaining_lease = RemainingLease::from_server(holding.lease);
            return Ok(Some((Holder { remaining_lease, ..holder }, said)));
        }
        known => known.and_then(|(holder, _)| holder.identity),
    };
    // With a known identity, the server is not asked for the list of all connections. That list is long, and after an
    // election all watchers would ask for it at the same moment.
    let mut clients = match (identity.or(identity_before), holding.field.split_once(':')) {
        (Some(identity), Some((client, _))) => Clients::of_one(client, identity),
        _ => Clients::default(),
    };
    clients.ask_more(engine, [&listing]).await;
    let holder = listing.holders.pop().map(|holding| Holder::from_server(holding, &clients));
    Ok(holder.map(|holder| (holder, said)))
}

impl Drop for Announcements {
    fn drop(&mut self) {
        if self.told.is_some() {
            let engine = &self.lock.engine;
            engine.listeners.leave(&announcement_key(&self.lock.keys.lock), &engine.store);
        }
    }
}

/// What a holder announces. Dropping it removes that from the server, in the background.
pub(super) struct Announcer {
    lock: Arc<LockRef>,
    owner: String,
    identity: String,
}

impl Announcer {
    pub(super) fn new(guard: &LockGuard<FencingToken>) -> Self {
        let grant = guard.grant();
        let lock = Arc::clone(&grant.lock);
        Self { owner: grant.field(), identity: identity(&lock.engine.config), lock }
    }

    /// Announces this instead of what was announced before.
    pub(super) async fn announce(&self, said: &[u8]) -> Result<()> {
        let Self { lock, owner, identity } = self;
        let call = announcement_write(&lock.keys.lock, owner, identity, said);
        let reply = run(&lock.engine, &lock.keys.lock, &call).await;
        match reply.and_then(|reply| AcquireReply::parse(&reply, false)).map_err(|fault| lock.error(fault))? {
            AcquireReply::Granted(_) => Ok(()),
            _ => Err(Error::NotHeld(Lost { lock: lock.id(), cause: LossCause::Removed })),
        }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        let (lock, owner) = (Arc::clone(&self.lock), std::mem::take(&mut self.owner));
        let engine = Arc::clone(&lock.engine);
        let job = async move {
            // If the removal fails, the announcement expires with the lease.
            let call = announcement_remove(&lock.keys.lock, &owner);
            if let Err(fault) = run(&lock.engine, &lock.keys.lock, &call).await {
                tracing::debug!(lock = &*lock.name, %fault, "an announcement was not removed");
            }
        };
        engine.background.run(job);
    }
}

/// Returns what this owner of a lock announced.
async fn announced(lock: &LockRef, owner: &str) -> Result<Option<Announced>> {
    lock.check_name()?;
    let reply = run(&lock.engine, &lock.keys.lock, &announcement_read(&lock.keys.lock)).await;
    reply.and_then(|reply| parse_announced(&reply, owner)).map_err(|fault| lock.error(fault))
}

#[cfg(all(test, feature = "unstable-simulation"))]
mod tests {
    use lockkeeper_memory::MemoryServer;

    use super::*;
    use crate::{LockClient, Source};

    #[tokio::test(start_paused = true)]
    async fn a_stale_leader_cannot_replace_what_the_next_one_announces() {
        let server = MemoryServer::new();
        let locks = LockClient::connect(Source::stream(server.connector())).await.unwrap();
        let (mut first, mut second) = (locks.fenced_lock("a"), locks.fenced_lock("a"));
        let stale = first.lock().await.unwrap();
        let stale_announcer = Announcer::new(&stale);
        stale_announcer.announce(b"stale").await.unwrap();
        assert!(second.force_unlock().await.unwrap());
        let guard = second.lock().await.unwrap();
        let announcer = Announcer::new(&guard);
        announcer.announce(b"new").await.unwrap();
        let refused = stale_announcer.announce(b"stale").await;
        assert!(matches!(refused, Err(Error::NotHeld(_))), "{refused:?}");
        drop((stale, stale_announcer));
        sleep(Duration::from_secs(1)).await; // by now the background has run both drops
        let found = announced(second.lock_ref(), &guard.owner_id()).await.unwrap();
        assert_eq!(found.and_then(|found| found.said), Some(b"new".to_vec()));
        assert!(announced(second.lock_ref(), "another owner").await.unwrap().is_none());
        guard.unlock().await.unwrap();
    }
}

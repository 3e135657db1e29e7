//! What the holder of a lock announces to all who listen, such as the address of a leader.
//!
//! An announcement names its owner. So it is believed only while that owner holds the lock, and one that is left behind deceives nobody.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::base::error::{Error, Result};
use crate::base::sync::{Watched, lock};
use crate::engine::grant::Grant;
use crate::engine::lock_ref::LockRef;
use crate::engine::query::run;
use crate::protocol::{
    Announced, announcement_key, announcement_read, announcement_remove, announcement_write, parse_announced,
    parse_announcing,
};
use crate::store::{Store, identity};
use futures_util::FutureExt;

/// What a holder announces. Dropping it removes that from the server, in the background.
pub(crate) struct Announcer {
    lock: Arc<LockRef>,
    owner: String,
    identity: String,
}

impl Announcer {
    pub(crate) fn new(grant: &Grant) -> Self {
        let lock = Arc::clone(&grant.lock);
        Self { owner: grant.field(), identity: identity(&lock.engine.config), lock }
    }

    /// Announces this instead of what was announced before.
    pub(crate) async fn announce(&self, said: &[u8]) -> Result<()> {
        let Self { lock, owner, identity } = self;
        let call = announcement_write(&lock.keys.lock, owner, identity, said);
        let reply = run(&lock.engine, &lock.keys.lock, &call).await;
        match reply.and_then(|reply| parse_announcing(&reply)).map_err(|fault| lock.error(fault))? {
            true => Ok(()),
            false => Err(Error::NotHeld(lock.id())),
        }
    }
}

impl fmt::Debug for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Announcer").field(&self.owner).finish()
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        let (lock, owner) = (Arc::clone(&self.lock), std::mem::take(&mut self.owner));
        let engine = Arc::clone(&lock.engine);
        let job = async move {
            // What is not removed expires with the lease.
            let call = announcement_remove(&lock.keys.lock, &owner);
            if let Err(fault) = run(&lock.engine, &lock.keys.lock, &call).await {
                tracing::debug!(lock = &*lock.name, %fault, "an announcement was not removed");
            }
            Ok(())
        };
        engine.beside.run(job.boxed());
    }
}

/// Returns what this owner of a lock announced.
pub(crate) async fn announced(lock: &LockRef, owner: &str) -> Result<Option<Announced>> {
    lock.check_name()?;
    let reply = run(&lock.engine, &lock.keys.lock, &announcement_read(&lock.keys.lock)).await;
    reply.and_then(|reply| parse_announced(&reply, owner)).map_err(|fault| lock.error(fault))
}

/// Those who listen for announcements, by the channel.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<HashMap<Arc<str>, OfChannel>>);

/// Those who listen on one channel: how many they are, and how often they were told something.
#[derive(Default)]
struct OfChannel {
    count: usize,
    told: Arc<Watched<u64>>,
}

/// Listens for the announcements of one lock.
pub(crate) struct Listening {
    lock: Arc<LockRef>,
    channel: Arc<str>,
    told: Arc<Watched<u64>>,
    /// How much it was told until the last call.
    seen: u64,
}

impl Listeners {
    /// Tells those who listen that perhaps something has changed.
    pub(crate) fn tell(&self, channel: &str) {
        let told = lock(&self.0).get(channel).map(|found| Arc::clone(&found.told));
        if let Some(told) = told {
            told.modify(|count| *count += 1);
        }
    }

    fn listen(&self, channel: &Arc<str>, store: &Store) -> Arc<Watched<u64>> {
        let mut all = lock(&self.0);
        let found = all.entry(Arc::clone(channel)).or_default();
        if found.count == 0 {
            store.subscribe(channel);
        }
        found.count += 1;
        Arc::clone(&found.told)
    }

    /// With the last one, the subscription ends.
    fn leave(&self, channel: &Arc<str>, store: &Store) {
        let mut all = lock(&self.0);
        let Some(found) = all.get_mut(channel) else { return };
        found.count -= 1;
        if found.count == 0 {
            all.remove(channel);
            store.unsubscribe(channel);
        }
    }
}

impl Listening {
    pub(crate) fn start(lock: &Arc<LockRef>) -> Self {
        let (engine, channel) = (&lock.engine, announcement_key(&lock.keys.lock));
        let told = engine.wait_queues.listeners.listen(&channel, &engine.store);
        Self { lock: Arc::clone(lock), channel, seen: told.get(), told }
    }

    /// Waits until perhaps something has changed since the last call, or since the start.
    pub(crate) async fn changed(&mut self) {
        self.told.until(|count| *count != self.seen).await;
        self.seen = self.told.get();
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let engine = &self.lock.engine;
        engine.wait_queues.listeners.leave(&self.channel, &engine.store);
    }
}

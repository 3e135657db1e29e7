//! What the server knows of the clients of holders: which are connected, by the names of their connections, and since when they hold
//! what they recorded.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream;

use crate::base::client_id;
use crate::base::fault::Fault;
use crate::engine::Engine;
use crate::protocol::{Listing, Reply, holds_key, record_ages};

/// How many records are asked for in one command, and how many of these commands are under way.
const TOGETHER: usize = 500;
const AT_ONCE: usize = 64;

/// What the server knows of the clients of holders.
#[derive(Default)]
pub(crate) struct Clients {
    /// By their ids: the identities of those whose connections have names.
    named: HashMap<String, String>,
    /// All masters told the names of their connections.
    is_complete: bool,
    /// By the owner: for how long it has held its lock.
    ages: HashMap<String, Duration>,
}

impl Clients {
    /// Knows the identity of one client, as that client itself told it.
    pub(crate) fn of_one(client: &str, identity: String) -> Self {
        Self { named: HashMap::from([(client.to_owned(), identity)]), ..Self::default() }
    }

    /// Asks each master once for the names, and for the records of each client that holds one of these locks. Without an answer, that
    /// is not known.
    pub(crate) async fn ask<'a>(engine: &Engine, listings: impl IntoIterator<Item = &'a Listing>) -> Self {
        let mut clients = Self::default();
        clients.ask_more(engine, listings).await;
        clients
    }

    /// Asks the same about other locks. Does not ask for names again if all clients of these locks are known. Those of permits are not:
    /// only a half of their ids is.
    pub(crate) async fn ask_more<'a>(
        &mut self,
        engine: &Engine,
        listings: impl IntoIterator<Item = &'a Listing>,
    ) {
        let mut owners = BTreeMap::<&str, Vec<&str>>::new();
        let mut has_permits = false;
        for holding in listings.into_iter().flat_map(|listing| &listing.holders) {
            match holding.field.split_once(':') {
                Some((client, owner)) => owners.entry(client).or_default().push(owner),
                None => has_permits = true,
            }
        }
        if owners.is_empty() && !has_permits {
            return;
        }
        let parts = owners.iter().flat_map(|(client, owners)| {
            owners.chunks(TOGETHER).map(move |owners| ages(engine, client, owners))
        });
        let asking = stream::iter(parts.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect::<Vec<_>>();
        let is_known = |client: &&str| self.named.contains_key(*client) || !client_id::has_name(client);
        if !has_permits && !self.named.is_empty() && owners.keys().all(is_known) {
            self.ages = asking.await.into_iter().flatten().flatten().collect();
            return;
        }
        let (lists, ages) = join(engine.store.named_clients(), asking).await;
        let all_told = lists.iter().all(Result::is_ok);
        self.named = lists.into_iter().flatten().flatten().collect();
        // A proxy can accept the name of a client without passing it on. Then the list also lacks the name of this
        // client, and a missing name proves nothing.
        let has_own = self.named.contains_key(&engine.id());
        self.is_complete = all_told && (has_own || !client_id::has_name(&engine.id()));
        self.ages = ages.into_iter().flatten().flatten().collect();
    }

    /// Whether the client with this id is connected, and its identity. `None`: that cannot be known. The first half of an id is enough,
    /// which is what is known of the holder of a permit.
    pub(crate) fn of(&self, client: &str) -> Option<Option<&str>> {
        let beginning =
            || self.named.iter().find(|(id, _)| id.starts_with(client)).map(|(_, identity)| identity);
        match self.named.get(client).or_else(beginning) {
            Some(identity) => Some(Some(identity)),
            None => (self.is_complete && client_id::has_name(client)).then_some(None),
        }
    }

    /// The client of an owner and the owner, for events.
    pub(crate) fn describe(&self, owner: &str) -> String {
        match owner.split_once(':').and_then(|(client, _)| self.of(client)) {
            Some(Some(identity)) => format!("{identity} ({owner})"),
            Some(None) => format!("not connected ({owner})"),
            None => owner.to_owned(),
        }
    }

    /// Whether the client of an owner has no connection: its process has perhaps ended, so that it waits for nothing.
    pub(crate) fn is_gone(&self, owner: &str) -> bool {
        owner.split_once(':').is_some_and(|(client, _)| self.of(client) == Some(None))
    }

    /// For how long an owner has held its lock, if its client recorded that.
    pub(crate) fn held_for(&self, owner: &str) -> Option<Duration> {
        self.ages.get(owner).copied()
    }
}

/// For how long these owners of a client have held their locks. Tries once.
async fn ages(engine: &Engine, client: &str, owners: &[&str]) -> Result<Vec<(String, Duration)>, Fault> {
    let (store, key) = (&engine.store, holds_key(engine.name_prefix(), client));
    let connection = store.connection(store.route(&key)).await?;
    let reply = store.run(&connection, &record_ages(&key, owners.join(" "))).await?;
    let Reply::List(found) = &reply else { return Err(Fault::unexpected(&reply)) };
    let age = |(owner, age): (&&str, &Reply)| {
        let Reply::Text(age) = age else { return None };
        Some((format!("{client}:{owner}"), Duration::from_millis(age.parse().ok()?)))
    };
    Ok(owners.iter().zip(found).filter_map(age).collect())
}

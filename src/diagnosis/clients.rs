//! What the server knows of the clients of holders: which are connected, by the names of their connections, and since when they hold
//! what they tell.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::join;

use crate::base::client_id;
use crate::diagnosis::snapshot::{Hold, Snapshot, read_all};
use crate::engine::Engine;
use crate::protocol::Listing;

/// What the server knows of the clients of holders.
#[derive(Default)]
pub(crate) struct Clients {
    /// By their ids: the identities of those whose connections have names.
    named: HashMap<String, String>,
    /// All masters told the names of their connections.
    is_complete: bool,
    /// By their ids: what those told whose holds were looked at.
    told: HashMap<String, Snapshot>,
}

impl Clients {
    /// Knows the identity of one client, as that client itself told it.
    pub(crate) fn of_one(client: &str, identity: String) -> Self {
        Self { named: HashMap::from([(client.to_owned(), identity)]), ..Self::default() }
    }

    /// Asks each master once for the names, and for what each client tells that holds one of these locks. Without an answer, that
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
        let (mut clients, mut has_permits) = (BTreeSet::new(), false);
        for holding in listings.into_iter().flat_map(|listing| &listing.holders) {
            match holding.field.split_once(':') {
                Some((client, _)) => _ = clients.insert(client),
                None => has_permits = true,
            }
        }
        let is_known = |client: &&str| self.named.contains_key(*client) || !client_id::has_name(client);
        let asks =
            has_permits || !clients.iter().all(is_known) || (self.named.is_empty() && !clients.is_empty());
        let unread: Vec<_> = clients
            .into_iter()
            .filter(|client| !self.told.contains_key(*client))
            .map(str::to_owned)
            .collect();
        let reading = read_all(engine, unread);
        let told = if asks {
            let (lists, told) = join(engine.store.named_clients(), reading).await;
            let all_told = lists.iter().all(Result::is_ok);
            self.named = lists.into_iter().flatten().flatten().collect();
            // A proxy can accept the name of a client without passing it on. Then the list also lacks the name of this
            // client, and a missing name proves nothing.
            let has_own = self.named.contains_key(&engine.id());
            self.is_complete = all_told && (has_own || !client_id::has_name(&engine.id()));
            told
        } else {
            reading.await
        };
        self.told.extend(told.into_iter().flatten());
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

    /// What the client of an owner told of its hold.
    pub(crate) fn hold(&self, owner: &str) -> Option<&Hold> {
        let (client, owner) = owner.split_once(':')?;
        self.told.get(client)?.holds.iter().find(|hold| hold.owner == owner)
    }
}

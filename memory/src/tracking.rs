//! `CLIENT TRACKING`: which connections have read which keys, and are told when somebody else changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use crate::channels::ClientId;
use crate::value::Bytes;
use crate::wire::Reply;

/// Everything has an order, so that a test can be repeated exactly.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    /// The connections that are told, and where to.
    clients: BTreeMap<ClientId, UnboundedSender<Vec<u8>>>,
    /// The keys that were read, and who has read them since they were changed.
    readers: BTreeMap<Bytes, BTreeSet<ClientId>>,
    /// The connection whose command runs. It is not told what it changes itself.
    pub(crate) running: Option<ClientId>,
}

impl Tracking {
    pub(crate) fn begin(&mut self, client: ClientId, outbox: UnboundedSender<Vec<u8>>) {
        self.clients.insert(client, outbox);
    }

    /// Tells a connection nothing more. As on a server, what it has read counts again if it begins again.
    pub(crate) fn end(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// A connection is closed.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.end(client);
        self.readers.retain(|_, readers| !(readers.remove(&client) && readers.is_empty()));
    }

    /// The command that runs has read a key.
    pub(crate) fn read(&mut self, key: &Bytes) {
        if let Some(running) = self.running.filter(|running| self.clients.contains_key(running)) {
            self.readers.entry(Arc::clone(key)).or_default().insert(running);
        }
    }

    /// A key has changed or is gone: tells those who have read it, and forgets it.
    pub(crate) fn changed(&mut self, key: &[u8]) {
        let Some((key, readers)) = self.readers.remove_entry(key) else { return };
        for reader in readers.into_iter().filter(|reader| self.running != Some(*reader)) {
            self.tell(reader, Reply::list([&key]));
        }
    }

    /// All keys are gone. Even the connection that removed them is told.
    pub(crate) fn flushed(&mut self) {
        self.readers.clear();
        self.clients.keys().for_each(|client| self.tell(*client, Reply::Nil));
    }

    fn tell(&self, client: ClientId, what: Reply) {
        if let Some(outbox) = self.clients.get(&client) {
            let mut bytes = Vec::new();
            Reply::Push(vec![Reply::bulk("invalidate"), what]).write(true, &mut bytes);
            // The send fails if the connection is about to be removed.
            let _ = outbox.send(bytes);
        }
    }

    /// The keys that a connection has read, if it is told of their changes.
    pub(crate) fn keys_of(&self, client: ClientId) -> impl Iterator<Item = &Bytes> {
        let readers = self.clients.contains_key(&client).then_some(&self.readers);
        readers
            .into_iter()
            .flatten()
            .filter(move |(_, readers)| readers.contains(&client))
            .map(|(key, _)| key)
    }
}

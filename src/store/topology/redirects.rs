//! Redirects: a node of a cluster says which node has the slot of a key.
//!
//! A node that says so did not run the command.

use std::sync::Arc;

use tokio::time::Instant;

use super::address::Address;
use super::{State, Topology};
use crate::config::Replication;
use crate::fault::{Fault, Redirect};
use crate::protocol::{Call, Reply};
use crate::store::connection::{Connection, Server};
use crate::sync::lock;

/// So many redirects of one call are followed.
const HOPS: usize = 5;

impl Topology {
    /// Runs a script that the server of this connection did not run, and sent on with this fault. `hops` learns each further connection
    /// before the script is sent on it.
    pub(crate) async fn follow(
        &self,
        mut fault: Fault,
        ends: Instant,
        connection: &Connection,
        call: &Call,
        hops: &mut (dyn FnMut(&Connection) + Send),
    ) -> Result<Reply, Fault> {
        let mut at = connection.clone();
        for _ in 0..HOPS {
            let Some(server) = self.heed(&at, &fault, call) else { return Err(fault) };
            let is_asking = fault.redirect.as_ref().is_some_and(|redirect| redirect.is_for_once);
            let next = server.connection(at.index()).await?.asking(is_asking);
            let limit = ends.saturating_duration_since(Instant::now());
            if limit.is_zero() {
                return Err(fault);
            }
            at = next;
            hops(&at);
            match at.run(limit, call).await {
                Err(next) if next.redirect.is_some() => fault = next,
                result => return result,
            }
        }
        Err(fault)
    }

    /// Runs a script, and waits for replicas. Redirects are only learned, so that the next try finds the right server.
    pub(crate) async fn run_on_replicas(
        &self,
        connection: &Connection,
        call: &Call,
        sync: Replication,
    ) -> Result<(Reply, u32), Fault> {
        let result = connection.used()?.run_on_replicas(connection, call, sync).await;
        result.inspect_err(|fault| _ = self.heed(connection, fault, call))
    }

    /// Learns from the fault of a call where its slot is. Returns the server to which the call can be sent instead.
    ///
    /// A slot that is under way from one node to another is at both, key by key. The old node sends a caller on, for once, if it
    /// has none of the keys. But with several keys, some may be at either node. Then nobody can run the script.
    fn heed(&self, from: &Connection, fault: &Fault, call: &Call) -> Option<Arc<Server>> {
        let Redirect { slot, address, is_for_once } = fault.redirect.as_deref()?;
        let asked = Address::of(from.server()?.dial.endpoint()?)?;
        let address = Address::of_redirect(address, &asked)?;
        if *is_for_once && call.keys.len() != 1 {
            return None;
        }
        Some(self.learn(*slot, address, *is_for_once))
    }

    /// A redirect led to this server.
    pub(super) fn learn(&self, slot: u16, address: Address, is_for_once: bool) -> Arc<Server> {
        let mut state = lock(&self.state);
        // A master is no guest: it has to be left as soon as another server takes its place.
        if !state.map.has(&address) {
            state.guests.insert(address.clone(), Instant::now());
        }
        let is_news = !is_for_once && state.map.master(slot) != Some(&address);
        if is_news {
            state.map.set(slot, address.clone());
        }
        let State { map, servers, .. } = &mut *state;
        let member =
            servers.entry(address).or_insert_with_key(|address| self.member(address, self.count(map)));
        let server = Arc::clone(&member.server);
        drop(state);
        if is_news {
            self.changes.modify(|changes| *changes += 1);
        }
        server
    }
}

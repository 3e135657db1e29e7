//! An attempt to acquire the first free one of several locks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Grant;
use super::copies::Answer;
use crate::base::clock::{self, Moment};
use crate::base::config::Replication;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::engine::hold;
use crate::protocol::{self, ClaimReply};
use crate::store::Connection;

impl Grant {
    /// Sends one attempt to acquire the first of these locks that is free. The grants have one owner id and one connection. Returns the
    /// reply, and the deadline of what it granted.
    ///
    /// A copy of the attempt can acquire any of the locks. So each grant records the attempt, and is undone until it has a hold or no copy can
    /// run. When the future is dropped the outcome is unknown, and the copies of each grant say so.
    pub(crate) async fn attempt_first(
        grants: &[Arc<Self>],
        lease: Duration,
    ) -> Result<(ClaimReply, Moment), Fault> {
        let first = &grants[0];
        let engine = &*first.lock.engine;
        let mut all = Vec::with_capacity(grants.len());
        for grant in grants {
            all.push((grant.copies().await?, 0));
            grant.switches.store(engine.store.switch_count(), Ordering::Relaxed);
            grant.forced.store(engine.forced(), Ordering::Relaxed);
        }
        let sync = engine.config.sync();
        let mut connection = match sync {
            None => first.lock.connection().await?,
            Some(_) => first.lock.connection_of_acquires().await?,
        };
        // Before anything is sent: the server counts the lease from a later time.
        let sent = clock::now();
        for (grant, (copies, order)) in grants.iter().zip(&mut all) {
            grant.asks_for(lease);
            *order = copies.attempts(connection.number(), 1);
        }
        let locks = grants.iter().map(|grant| Arc::clone(&grant.lock.keys.lock));
        let call = protocol::claim(&first.lock.keys, locks, &first.id, lease);
        let mut last_hop = None;
        let hops = &mut |hop: &Connection| {
            for (copies, order) in &mut all {
                *order = copies.attempts_again(*order, hop.number(), 1);
            }
            last_hop = Some(hop.clone());
        };
        let limit = engine.config.command_timeout();
        let reply = match sync {
            None => {
                engine.store.run_and_follow(limit, &connection, &call, hops).await.map(|reply| (reply, 0))
            }
            Some(sync) => engine.store.run_on_replicas(&connection, &call, sync, hops).await,
        };
        connection = last_hop.unwrap_or(connection);
        let reply =
            reply.and_then(|(reply, replicas)| Ok((ClaimReply::parse(&reply, grants.len())?, replicas)));
        for (place, (copies, order)) in all.iter_mut().enumerate() {
            let answer = match &reply {
                Ok((ClaimReply::Granted(granted, _), _)) => Answer::Has(u32::from(place == *granted)),
                Ok((ClaimReply::NoneFree, _)) => Answer::Has(0),
                // Perhaps an earlier attempt was granted a lock, and this one did not get as far as to find it.
                Ok((ClaimReply::NotALock(_), _)) => Answer::Unchanged,
                Ok((ClaimReply::CannotCount, _)) => Answer::Granted,
                Err(fault) => Answer::of_fault(fault.sent, false),
            };
            copies.ends(connection.number(), *order, answer);
        }
        let (reply, acknowledged) = reply?;
        if let ClaimReply::Granted(place, token) = reply {
            grants[place].token.store(token.get(), Ordering::Relaxed);
            if all[place].0.may_run_late() {
                grants[place].desired().lease.outlasts = true;
            }
            if let Some(Replication { replicas, .. }) = sync
                && acknowledged < replicas
            {
                let kind = FaultKind::TooFewReplicas { acknowledged, wanted: replicas };
                return Err(Fault::new(kind, Sent::Unknown, "too few replicas have the hold"));
            }
        }
        Ok((reply, hold::lease::deadline(sent, lease)))
    }
}

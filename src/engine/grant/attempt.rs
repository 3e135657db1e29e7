//! Attempts to acquire: of one grant, and of the first free one of several.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Grant;
use super::copies::Answer;
use crate::base::clock::{self, Moment};
use crate::base::config::Replication;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::engine::hold;
use crate::protocol::{self, AcquireReply, ClaimReply, Granted, IfHeld};
use crate::store::Connection;

impl Grant {
    /// Sends one attempt to hold `want` times. Returns the reply, and the deadline of what it granted.
    ///
    /// When the future is dropped the outcome is unknown, and the copies say so.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        want: u32,
        lease: Duration,
        if_held: IfHeld,
    ) -> Result<(AcquireReply, Moment), Fault> {
        let engine = &*self.lock.engine;
        let mut copies = self.copies().await?;
        self.switches.store(engine.store.switch_count(), Ordering::Relaxed);
        self.forced.store(engine.forced(), Ordering::Relaxed);
        let sync = engine.config.sync().filter(|_| want == 1);
        let mut connection = match sync {
            None => self.lock.connection().await?,
            Some(_) => self.lock.connection_of_acquires().await?,
        };
        // Before anything is sent: the server counts the lease from a later time.
        let sent = clock::now();
        let leaves_trace = self.lock.protocol.leaves_trace(if_held);
        let mut order = copies.attempts(connection.number(), want);
        self.asks_for(lease);
        if want > 1 {
            // Whatever the outcome is, the server can keep the lock for longer than the other holds last.
            self.is_outlasted(sent);
        }
        let call = self.lock.protocol.acquire(self.holder(), want, lease, if_held);
        let has_token = want == 1 && self.lock.protocol.counter(&self.lock.keys).is_some();
        let mut acknowledged = 0;
        let result = loop {
            let mut last_hop = None;
            let hops = &mut |hop: &Connection| {
                order = copies.attempts_again(order, hop.number(), want);
                last_hop = Some(hop.clone());
            };
            let reply = match sync {
                None => {
                    let limit = engine.config.command_timeout();
                    engine.store.run_and_follow(limit, &connection, &call, hops).await
                }
                // Boxed: this is rare, and its size would burden every call.
                Some(sync) => {
                    let running = Box::pin(engine.store.run_on_replicas(&connection, &call, sync, hops));
                    running.await.map(|(reply, replicas)| {
                        acknowledged = replicas;
                        reply
                    })
                }
            };
            connection = last_hop.unwrap_or(connection);
            match reply.and_then(|reply| AcquireReply::parse(&reply, has_token)) {
                Ok(AcquireReply::AttemptAgain) => {
                    order = copies.attempts_again(order, connection.number(), want);
                }
                result => break result,
            }
        };
        let answer = match &result {
            Ok(AcquireReply::Granted(_) | AcquireReply::CannotCount) => Answer::Granted,
            // This waiter perhaps has a place or an intent from an earlier attempt, so the count stays.
            Ok(AcquireReply::OtherKind | AcquireReply::NotALock) => Answer::Unchanged,
            Ok(AcquireReply::Held(_) | AcquireReply::Queued) => Answer::Has(leaves_trace.into()),
            Ok(_) => Answer::Has(0),
            Err(fault) => Answer::of_fault(fault.sent, leaves_trace),
        };
        copies.ends(connection.number(), order, answer);
        match &result {
            Ok(AcquireReply::Granted(granted)) => {
                if copies.may_run_late() {
                    self.desired().lease.outlasts = true;
                }
                match *granted {
                    Granted::Alone => {}
                    Granted::Token(token) => self.token.store(token.get(), Ordering::Relaxed),
                    Granted::Permits { total, .. } => self.lock.has_total(total),
                }
            }
            Ok(reply @ (AcquireReply::Lost | AcquireReply::Held(_) | AcquireReply::Queued)) => {
                let now = clock::now();
                if *reply == AcquireReply::Lost {
                    self.lose(self.desired(), now);
                } else if leaves_trace && self.lock.protocol.queue().is_some() {
                    self.has_place(*reply == AcquireReply::Queued, now);
                }
            }
            _ => {}
        }
        if let Ok(AcquireReply::Granted(_)) = &result {
            are_enough(acknowledged, sync)?;
        }
        result.map(|reply| (reply, hold::lease::deadline(sent, lease)))
    }

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
            are_enough(acknowledged, sync)?;
        }
        Ok((reply, hold::lease::deadline(sent, lease)))
    }
}

/// Fails if fewer replicas have the hold than are wanted.
fn are_enough(acknowledged: u32, sync: Option<Replication>) -> Result<(), Fault> {
    match sync {
        Some(Replication { replicas, .. }) if acknowledged < replicas => {
            let kind = FaultKind::TooFewReplicas { acknowledged, wanted: replicas };
            Err(Fault::new(kind, Sent::Unknown, "too few replicas have the hold"))
        }
        _ => Ok(()),
    }
}

//! Attempts to acquire: of one grant, and of the first free one of several.

use std::sync::Arc;
use std::time::Duration;

use super::Grant;
use super::copies::{Answer, Order};
use crate::base::clock::{self, Moment};
use crate::base::config::Replication;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::engine::hold;
use crate::engine::members::PerMember;
use crate::protocol::{self, AcquireReply, Call, ClaimReply, Granted, IfHeld, Reply};
use crate::store::Connection;

/// An attempt that is under way. Each grant that it can acquire counts it from before it is sent, so the future can be dropped at any time.
struct Attempt<'a> {
    grants: &'a [Arc<Grant>],
    want: u32,
    lease: Duration,
    sync: Option<Replication>,
    connection: Connection,
    /// Before anything was sent: the server counts the lease from a later time.
    sent: Moment,
    /// Its place among the commands of each grant.
    orders: PerMember<Order>,
    /// How many replicas have what it was granted.
    acknowledged: u32,
}

impl<'a> Attempt<'a> {
    /// Counts an attempt to hold each of these grants `want` times.
    async fn begin(grants: &'a [Arc<Grant>], want: u32, lease: Duration) -> Result<Self, Fault> {
        let lock = &grants[0].lock;
        let sync = lock.engine.config.sync().filter(|_| want == 1);
        // If these change from here on, the answer perhaps comes from a time before.
        let epoch = grants[0].epoch();
        let connection = match sync {
            None => lock.connection().await?,
            Some(_) => lock.connection_of_acquires().await?,
        };
        let sent = clock::now();
        let begin = |grant: &Arc<Grant>| {
            let (number, rules) = (connection.number(), grant.rules());
            grant.event(sent, |machine, _| machine.attempts(number, want, lease, epoch, rules))
        };
        let orders = grants.iter().map(begin).collect::<Option<_>>().ok_or_else(given_up)?;
        Ok(Self { grants, want, lease, sync, connection, sent, orders, acknowledged: 0 })
    }

    /// The attempt is sent again, on this connection. The server has not run the one that was sent before, and will not run it.
    fn again(&mut self, connection: &Connection) {
        self.connection = connection.clone();
        let (number, want) = (connection.number(), self.want);
        for (grant, order) in self.grants.iter().zip(&mut self.orders) {
            *order = grant.event(self.sent, |machine, _| machine.copies.attempts_again(*order, number, want));
        }
    }

    async fn send(&mut self, call: &Call) -> Result<Reply, Fault> {
        let engine = &*self.grants[0].lock.engine;
        let (connection, sync) = (self.connection.clone(), self.sync);
        let hops = &mut |hop: &Connection| self.again(hop);
        match sync {
            None => {
                let limit = engine.config.command_timeout();
                engine.store.run_and_follow(limit, &connection, call, hops).await
            }
            // Boxed: this is rare, and its size would burden every call.
            Some(sync) => {
                let running = Box::pin(engine.store.run_on_replicas(&connection, call, sync, hops));
                let (reply, acknowledged) = running.await?;
                self.acknowledged = acknowledged;
                Ok(reply)
            }
        }
    }

    /// The attempt on one of the grants has ended.
    fn ends(&self, index: usize, answer: Answer) {
        let number = self.connection.number();
        let now = self.sent; // no end of a hold matters here
        self.grants[index].event(now, |machine, _| machine.answered(number, self.orders[index], answer));
    }

    /// Fails if fewer replicas have what it was granted than are wanted.
    fn are_enough(&self) -> Result<(), Fault> {
        match self.sync {
            Some(Replication { replicas, .. }) if self.acknowledged < replicas => {
                let kind = FaultKind::TooFewReplicas { acknowledged: self.acknowledged, wanted: replicas };
                Err(Fault::new(kind, Sent::Unknown, "too few replicas have the hold"))
            }
            _ => Ok(()),
        }
    }

    fn deadline(&self) -> Moment {
        hold::lease::deadline(self.sent, self.lease)
    }
}

impl Grant {
    /// Sends one attempt to hold `want` times. Returns the reply, and the deadline of what it granted.
    ///
    /// When the future is dropped the outcome is unknown, and the grant knows so.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        want: u32,
        lease: Duration,
        if_held: IfHeld,
    ) -> Result<(AcquireReply, Moment), Fault> {
        let protocol = self.lock.protocol;
        let mut attempt = Attempt::begin(std::slice::from_ref(self), want, lease).await?;
        let call = protocol.acquire(self.holder(), want, lease, if_held);
        let has_token = want == 1 && protocol.counter(&self.lock.keys).is_some();
        let reply = loop {
            let reply = attempt.send(&call).await;
            match reply.and_then(|reply| AcquireReply::parse(&reply, has_token)) {
                Ok(AcquireReply::AttemptAgain) => attempt.again(&attempt.connection.clone()),
                reply => break reply,
            }
        };
        let leaves_trace = protocol.leaves_trace(if_held);
        let answer = match &reply {
            Ok(AcquireReply::Granted(_) | AcquireReply::CannotCount) => Answer::Granted,
            // This waiter perhaps has a place or an intent from an earlier attempt, so the count stays.
            Ok(AcquireReply::OtherKind | AcquireReply::NotALock) => Answer::Unchanged,
            Ok(AcquireReply::Held(_) | AcquireReply::Queued) => Answer::Has(leaves_trace.into()),
            Ok(_) => Answer::Has(0),
            Err(fault) => Answer::of_fault(fault.sent, leaves_trace),
        };
        attempt.ends(0, answer);
        let reply = reply?;
        match &reply {
            AcquireReply::Granted(granted) => {
                match *granted {
                    Granted::Alone => {}
                    Granted::Token(token) => self.sets_token(token.get()),
                    Granted::Permits { total, .. } => self.lock.has_total(total),
                }
                attempt.are_enough()?;
            }
            AcquireReply::Lost => self.event(clock::now(), |machine, effects| machine.loses(effects)),
            AcquireReply::Held(_) | AcquireReply::Queued if leaves_trace && protocol.queue().is_some() => {
                self.gets_place(reply == AcquireReply::Queued, clock::now());
            }
            _ => {}
        }
        Ok((reply, attempt.deadline()))
    }

    /// Sends one attempt to acquire the first of these locks that is free. The grants have one owner id and one connection. Returns the
    /// reply, and the deadline of what it granted.
    ///
    /// A copy of the attempt can acquire any of the locks. So each grant counts the attempt, and is undone until it has a hold or no copy can
    /// run. When the future is dropped the outcome is unknown, and each grant knows so.
    pub(crate) async fn attempt_first(
        grants: &[Arc<Self>],
        lease: Duration,
    ) -> Result<(ClaimReply, Moment), Fault> {
        let first = &grants[0];
        let mut attempt = Attempt::begin(grants, 1, lease).await?;
        let locks = grants.iter().map(|grant| Arc::clone(&grant.lock.keys.lock));
        let call = protocol::claim(&first.lock.keys, locks, &first.id, lease);
        let reply = attempt.send(&call).await.and_then(|reply| ClaimReply::parse(&reply, grants.len()));
        for index in 0..grants.len() {
            let answer = match &reply {
                Ok(ClaimReply::Granted(granted, _)) => Answer::Has(u32::from(index == *granted)),
                Ok(ClaimReply::NoneFree) => Answer::Has(0),
                // Perhaps an earlier attempt was granted a lock, and this one did not get as far as to find it.
                Ok(ClaimReply::NotALock(_)) => Answer::Unchanged,
                Ok(ClaimReply::CannotCount) => Answer::Granted,
                Err(fault) => Answer::of_fault(fault.sent, false),
            };
            attempt.ends(index, answer);
        }
        let reply = reply?;
        if let ClaimReply::Granted(place, token) = reply {
            grants[place].sets_token(token.get());
            attempt.are_enough()?;
        }
        Ok((reply, attempt.deadline()))
    }
}

/// A shutdown gave the acquire up.
fn given_up() -> Fault {
    Fault::new(FaultKind::TimedOut, Sent::No, "the client was shut down")
}

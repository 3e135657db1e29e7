//! Attempts to acquire: of one grant, and of the first free one of several.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::Grant;
use super::copies::{Answer, Order};
use crate::base::clock::{self, Moment};
use crate::base::config::Replication;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::engine::hold;
use crate::protocol::{self, AcquireReply, Call, ClaimReply, Granted, IfHeld, Reply};
use crate::store::Connection;

/// An attempt that is under way. Each grant that the attempt can acquire counts it before the command is sent, so the
/// future can be dropped at any time.
struct Attempt<'a> {
    grants: &'a [Arc<Grant>],
    lease: Duration,
    sync: Option<Replication>,
    connection: Connection,
    /// A time before the command was sent. The server counts the lease from a later time.
    sent: Moment,
    /// The place of the attempt among the commands of each grant.
    orders: SmallVec<[Order; 1]>,
    /// How many replicas confirmed the hold.
    acknowledged: u32,
}

impl<'a> Attempt<'a> {
    /// Counts an attempt for each of these grants.
    async fn begin(grants: &'a [Arc<Grant>], lease: Duration) -> Result<Self, Fault> {
        let lock = &grants[0].lock;
        let sync = lock.engine.config.sync();
        // Read the epoch before sending. If a switch to another master or a forced release follows, the answer perhaps
        // describes the state before, and then nobody shares the hold.
        let epoch = grants[0].epoch();
        let connection = match sync {
            None => lock.connection().await?,
            Some(_) => lock.connection_of_acquires().await?,
        };
        // Before the attempt counts: otherwise it could be sent after its undo.
        connection.know_time().await?;
        let sent = clock::now();
        let begin = |grant: &Arc<Grant>| {
            let (number, rules) = (connection.number(), grant.rules());
            grant.ask(|machine| machine.attempts(number, lease, epoch, rules))
        };
        let orders = grants.iter().map(begin).collect::<Option<_>>().ok_or_else(given_up)?;
        Ok(Self { grants, lease, sync, connection, sent, orders, acknowledged: 0 })
    }

    /// Records that the attempt is sent again, on this connection. The command that was sent before acquired nothing,
    /// and will not.
    fn again(&mut self, connection: &Connection) {
        self.connection = connection.clone();
        let number = connection.number();
        for (grant, order) in self.grants.iter().zip(&mut self.orders) {
            *order = grant.event(self.sent, |machine, _| machine.copies.attempts_again(*order, number));
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
            // Boxed: this branch is rare, and its future would make the future of every call larger.
            Some(sync) => {
                let running = Box::pin(engine.store.run_on_replicas(&connection, call, sync, hops));
                let (reply, acknowledged) = running.await?;
                self.acknowledged = acknowledged;
                Ok(reply)
            }
        }
    }

    /// Tells one of the grants how the attempt ended.
    fn ends(&self, index: usize, answer: Answer) {
        let (grant, number) = (&self.grants[index], self.connection.number());
        let becomes_hold = grant.ask(|machine| {
            machine.answered(number, self.orders[index], answer);
            matches!(answer, Answer::Granted) && machine.is_wanted()
        });
        // What was granted becomes a hold or is given up next, and that is an event, too.
        if !becomes_hold {
            grant.look(self.sent); // the answer ends no hold, so no newer time is needed
        }
    }

    /// Fails if fewer replicas have the hold than the configuration wants.
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
    /// Re-enters: shows this hold count, and makes the lease longer. Returns the reply, and the deadline of the hold.
    pub(crate) async fn reenter(
        self: &Arc<Self>,
        count: u32,
        lease: Duration,
    ) -> Result<(AcquireReply, Moment), Fault> {
        let epoch = self.epoch();
        let connection = self.lock.connection().await?;
        let (sent, rules) = (clock::now(), self.rules());
        if !self.event(sent, |machine, _| machine.shows(count, lease, epoch, rules)) {
            return Err(given_up());
        }
        let call = self.lock.protocol.show(self.holder(), count, lease);
        let reply = AcquireReply::parse(&self.lock.run(&connection, &call).await?, false)?;
        if reply == AcquireReply::Lost {
            self.event(clock::now(), |machine, effects| machine.loses(effects));
        }
        Ok((reply, hold::lease::deadline(sent, lease)))
    }

    /// Sends one attempt. Returns the reply, and the deadline of the hold that it granted.
    ///
    /// If the future is dropped, the outcome is unknown, and the grant counts it as such.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        lease: Duration,
        if_held: IfHeld,
    ) -> Result<(AcquireReply, Moment), Fault> {
        let protocol = self.lock.protocol;
        let mut attempt = Attempt::begin(std::slice::from_ref(self), lease).await?;
        let call = protocol.acquire_first(self.holder(), lease, if_held);
        let has_token = protocol.counter(&self.lock.keys).is_some();
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
            // The server changed nothing. A place or an intent of an earlier attempt can still exist there, so the
            // count stays.
            Ok(AcquireReply::OtherKind | AcquireReply::NotALock) => Answer::Unchanged,
            Ok(AcquireReply::Held(_) | AcquireReply::Queued) => Answer::Has(leaves_trace),
            Ok(_) => Answer::Has(false),
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

    /// Sends one attempt to acquire the first of these locks that is free. The grants have one owner id and one
    /// connection. Returns the reply, and the deadline of the hold that it granted.
    ///
    /// A copy of the attempt can acquire any of the locks. So each grant counts the attempt, and the background undoes
    /// each grant until it has a hold or no copy can run. If the future is dropped, the outcome is unknown, and each
    /// grant counts it as such.
    pub(crate) async fn attempt_first(
        grants: &[Arc<Self>],
        lease: Duration,
    ) -> Result<(ClaimReply, Moment), Fault> {
        let first = &grants[0];
        let mut attempt = Attempt::begin(grants, lease).await?;
        let locks = grants.iter().map(|grant| Arc::clone(&grant.lock.keys.lock));
        let call = protocol::claim(&first.lock.keys, locks, &first.id, lease);
        let reply = attempt.send(&call).await.and_then(|reply| ClaimReply::parse(&reply, grants.len()));
        for index in 0..grants.len() {
            let answer = match &reply {
                Ok(ClaimReply::Granted(granted, _)) => Answer::Has(index == *granted),
                Ok(ClaimReply::NoneFree) => Answer::Has(false),
                // The script stopped at a key that is no lock. An earlier attempt perhaps acquired a lock behind that
                // key, so the count stays.
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

/// Returns the fault of an acquire that a shutdown gave up.
fn given_up() -> Fault {
    Fault::new(FaultKind::TimedOut, Sent::No, "the client was shut down")
}

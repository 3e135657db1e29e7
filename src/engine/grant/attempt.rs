//! Attempts to acquire: of one grant, and of the first free one of several.

use std::sync::Arc;
use std::time::Duration;

use super::Grant;
use super::state::State;
use crate::base::clock::{self, Moment};
use crate::base::config::Replication;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::engine::hold;
use crate::protocol::{self, AcquireReply, Call, ClaimReply, Granted, IfHeld, Reply};
use crate::store::Connection;

/// An attempt that is under way. Each grant that the attempt can acquire records it before the command is sent, so the
/// future can be dropped at any time.
struct Attempt<'a> {
    grants: &'a [Arc<Grant>],
    lease: Duration,
    sync: Option<Replication>,
    connection: Connection,
    /// A time before the command was sent. The server counts the lease from a later time.
    sent: Moment,
    /// How many replicas confirmed the hold.
    acknowledged: u32,
}

impl<'a> Attempt<'a> {
    /// Records an attempt for each of these grants.
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
        // Before the attempt is recorded: otherwise it could be sent after its release.
        connection.know_time().await?;
        let sent = clock::now();
        for grant in grants {
            let (number, rules, late) = (connection.number(), grant.rules(), grant.late_until(sent));
            let begins = |state: &mut State| {
                state.acquires(lease, epoch, rules) && {
                    state.on_server.sends(number, late);
                    true
                }
            };
            if !grant.ask(begins) {
                return Err(given_up());
            }
        }
        Ok(Self { grants, lease, sync, connection, sent, acknowledged: 0 })
    }

    /// Records that the attempt did not run, and is sent on to another server.
    fn sends_on(&mut self, connection: &Connection) {
        self.connection = connection.clone();
        let (number, now) = (connection.number(), clock::now());
        for grant in self.grants {
            grant.ask(|state| state.on_server.sends_on(number, grant.late_until(now)));
        }
    }

    async fn send(&mut self, call: &Call) -> Result<Reply, Fault> {
        let engine = &*self.grants[0].lock.engine;
        let (connection, sync) = (self.connection.clone(), self.sync);
        let hops = &mut |hop: &Connection| self.sends_on(hop);
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

    /// Records for one of the grants whether the server has something of it, from whether it had something before. `fault`: the
    /// attempt failed.
    fn ends(&self, grant: &Grant, fault: Option<&Fault>, now: Moment, has: impl FnOnce(bool) -> bool) {
        let number = self.connection.number();
        grant.ask(|state| {
            match fault.map(|fault| fault.sent) {
                None | Some(Sent::Refused) => state.on_server.answered(number, has),
                // In theory, the server still ran it before the connection ended. But it can no longer arrive.
                Some(Sent::No) => state.on_server.waits_no_more(self.sent),
                Some(Sent::Unknown) => state.on_server.waits_no_more(grant.late_until(now)),
            }
            // Perhaps an earlier attempt runs after this one, and makes the lease longer.
            state.lease.outlasts |= state.on_server.late_until().is_some();
        });
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
    /// Re-enters: shows this hold count, and makes the lease longer. Returns the reply, when it came, and the deadline of the hold.
    pub(crate) async fn reenter(
        self: &Arc<Self>,
        count: u32,
        lease: Duration,
    ) -> Result<(AcquireReply, Moment, Moment), Fault> {
        let epoch = self.epoch();
        let connection = self.lock.connection().await?;
        let (sent, rules) = (clock::now(), self.rules());
        if !self.event(sent, |state| state.acquires(lease, epoch, rules)) {
            return Err(given_up());
        }
        let call = self.lock.protocol.show(self.holder(), count, lease);
        let reply = AcquireReply::parse(&self.lock.run(&connection, &call).await?, false)?;
        let now = clock::now();
        if reply == AcquireReply::Lost {
            self.event(now, State::loses);
        }
        Ok((reply, now, hold::lease::deadline(sent, lease)))
    }

    /// Sends one attempt. Returns the reply, when it came, and the deadline of the hold that it granted.
    ///
    /// If the outcome is unknown, this grant must not attempt again, see [`keeps_place`](Self::keeps_place).
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        lease: Duration,
        if_held: IfHeld,
    ) -> Result<(AcquireReply, Moment, Moment), Fault> {
        let protocol = self.lock.protocol;
        let call = protocol.acquire_first(self.holder(), lease, if_held);
        let has_token = protocol.counter(&self.lock.keys).is_some();
        let leaves_trace = protocol.leaves_trace(if_held);
        let (attempt, reply, now) = loop {
            let mut attempt = Attempt::begin(std::slice::from_ref(self), lease).await?;
            let reply = attempt.send(&call).await;
            let (reply, now) = (reply.and_then(|reply| AcquireReply::parse(&reply, has_token)), clock::now());
            if !matches!(reply, Ok(AcquireReply::AttemptAgain)) {
                break (attempt, reply, now);
            }
            attempt.ends(self, None, now, |before| before);
        };
        attempt.ends(self, reply.as_ref().err(), now, |before| match &reply {
            Ok(AcquireReply::Granted(_)) => true,
            Ok(AcquireReply::Held(_) | AcquireReply::Queued) => leaves_trace,
            // The server changed nothing. A place or an intent of an earlier attempt can still exist there.
            Ok(AcquireReply::OtherKind | AcquireReply::NotALock) => before,
            Ok(_) => false,
            // Perhaps a part of the script ran.
            Err(_) => before || leaves_trace,
        });
        let reply = reply?;
        match &reply {
            AcquireReply::Granted(granted) => {
                self.ask(|state| state.lease.is_granted(attempt.deadline(), now));
                match *granted {
                    Granted::Alone => {}
                    Granted::Token(token) => self.ask(|state| state.token = token.get()),
                    Granted::Permits { total, .. } => self.lock.has_total(total),
                }
                attempt.are_enough()?;
            }
            AcquireReply::Held(_) | AcquireReply::Queued if leaves_trace && protocol.queue().is_some() => {
                self.gets_place(reply == AcquireReply::Queued, now);
            }
            _ => {}
        }
        Ok((reply, now, attempt.deadline()))
    }

    /// Whether the server can have something of this id.
    pub(crate) fn may_exist(&self) -> bool {
        self.ask(|state| state.on_server.may_exist())
    }

    /// Whether the server has a place of this id, which a new id would not have.
    pub(crate) fn keeps_place(&self) -> bool {
        self.ask(|state| state.has_place)
    }

    /// Sends one attempt to acquire the first of these locks that is free. The grants have one owner id and one
    /// connection. Returns the reply, and the deadline of the hold that it granted.
    pub(crate) async fn attempt_first(
        grants: &[Arc<Self>],
        lease: Duration,
    ) -> Result<(ClaimReply, Moment), Fault> {
        let first = &grants[0];
        let mut attempt = Attempt::begin(grants, lease).await?;
        let locks = grants.iter().map(|grant| Arc::clone(&grant.lock.keys.lock));
        let call = protocol::claim(&first.lock.keys, locks, &first.id, lease);
        let reply = attempt.send(&call).await.and_then(|reply| ClaimReply::parse(&reply, grants.len()));
        let now = clock::now();
        for (index, grant) in grants.iter().enumerate() {
            attempt.ends(grant, reply.as_ref().err(), now, |before| match &reply {
                Ok(ClaimReply::Granted(granted, _)) => index == *granted,
                _ => before,
            });
        }
        let reply = reply?;
        if let ClaimReply::Granted(place, token) = reply {
            grants[place].ask(|state| {
                state.lease.is_granted(attempt.deadline(), now);
                state.token = token.get();
            });
            attempt.are_enough()?;
        }
        Ok((reply, attempt.deadline()))
    }
}

/// Returns the fault of an acquire that a shutdown gave up.
fn given_up() -> Fault {
    Fault::new(FaultKind::TimedOut, Sent::No, "the client was shut down")
}

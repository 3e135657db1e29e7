//! The release of a grant: its count on the server is lowered to what is wanted.

use std::sync::Arc;

use super::Grant;
use super::machine::{End, Releasing};
use super::sharing::Offer;
use crate::base::clock;
use crate::base::error::LockId;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::timer::timeout;
use crate::engine::lock_ref::LockRef;
use crate::engine::wait::queue::{Receivers, WaitQueue};
use crate::protocol::{Call, ReleaseReply, Reply};
use crate::store::Connection;

impl Grant {
    /// Lowers the count on the server to the target, if the server can have more. Other commands about this grant can
    /// be under way meanwhile.
    pub(crate) async fn release_owed(self: &Arc<Self>) -> Result<(), Fault> {
        if !self.is_owed(clock::now()) {
            return Ok(());
        }
        let mut connection = self.lock.connection().await?;
        let now = clock::now();
        let Some(releasing) = self.event(now, |machine, _| machine.releases(now)) else { return Ok(()) };
        let mut sent = SentRelease { grant: self, releasing, end: End::Unknown };
        let call = self.lock.protocol.release(self.holder(), releasing.keep());
        let is_gone = match self.send_release(&mut connection, &call, releasing).await {
            Ok(reply) => {
                report_release(reply, &self.lock);
                reply == ReleaseReply::Gone
            }
            // Another client overwrote the key, so the hold is gone.
            Err(fault) if fault.kind == FaultKind::WrongType => true,
            Err(fault) => {
                if fault.sent != Sent::Unknown {
                    sent.end = End::NotRun;
                }
                return Err(fault);
            }
        };
        if releasing.keep() == 0 {
            // A master that is promoted later can lack this release, and would keep the lock until its lease ends. So a
            // full release is kept for a repetition. After a partial release, the lock stays held in any case.
            self.lock.engine.releases.keep(self.lock.route, call);
        }
        sent.end = End::Answered { connection: connection.number(), is_gone };
        Ok(())
    }

    /// Sends a release, and tells the waiters of this client. Sets `connection` to the one on which the release was
    /// answered.
    async fn send_release(
        &self,
        connection: &mut Connection,
        call: &Call,
        releasing: Releasing,
    ) -> Result<ReleaseReply, Fault> {
        let waiters = if releasing.ends_hold { self.waiters() } else { None };
        if let Some((queue, _)) = &waiters {
            queue.with(|machine| machine.release_begins(clock::now()));
        }
        let behind = match releasing.is_repeated && self.lock.engine.config.sync().is_some() {
            // Boxed: this branch is rare, and its future would make the future of every call larger.
            true => Box::pin(self.release_behind_acquire(call)).await,
            false => None,
        };
        let reply = match behind {
            Some((behind, reply)) => {
                *connection = behind;
                Ok(reply)
            }
            None => self.lock.run_and_tell(connection, call).await,
        };
        let reply = reply.and_then(|reply| ReleaseReply::parse(&reply));
        if let Some((queue, has_others)) = &waiters {
            // The reply counts who got the message. In a cluster it counts only those that listen at the same server,
            // so the number is not exact there.
            let is_exact = !has_others && !self.lock.engine.store.is_cluster();
            queue.release_ended(match reply {
                Ok(ReleaseReply::Released { receivers }) if is_exact => Some(Receivers::Exactly(receivers)),
                Ok(ReleaseReply::Released { .. }) => Some(Receivers::PerhapsOthers),
                _ => None,
            });
        }
        reply
    }

    /// Repeats a release on the connection of an acquire that waits for replicas, if the acquire was not answered. The
    /// server runs the acquire before the release, or never. The first release uses the other connection: here it would
    /// wait for replicas, too.
    async fn release_behind_acquire(&self, call: &Call) -> Option<(Connection, Reply)> {
        let engine = &self.lock.engine;
        let connection = engine.store.opened_connection_of_acquires(self.lock.route)?;
        if !self.ask(|machine| machine.copies.may_run_late_on(connection.number())) {
            return None;
        }
        // While replicas are away, this connection waits for them. After this limit, the release is repeated on the
        // other connection instead.
        let limit = engine.config.command_timeout() / 4;
        let reply = timeout(limit, self.lock.run_and_tell(&connection, call)).await.ok()?.ok()?;
        Some((connection, reply))
    }

    /// Returns the queue of this client's waiters to which a hold of this grant can be handed over, and whether a
    /// release also wakes other queues of the client.
    pub(super) fn waiters(&self) -> Option<(Arc<WaitQueue<Offer>>, bool)> {
        let LockRef { engine, keys, row, .. } = &*self.lock;
        let can_be = self.lock.can_be_passed_on() && !engine.config.sharing().is_zero();
        can_be.then(|| engine.wait_queues.exclusive_queue_of(keys, *row)).flatten()
    }
}

/// A release that the machine has counted. Dropping this value tells the machine how the release ended.
struct SentRelease<'a> {
    grant: &'a Arc<Grant>,
    releasing: Releasing,
    end: End,
}

impl Drop for SentRelease<'_> {
    fn drop(&mut self) {
        let Self { grant, releasing, end } = *self;
        let says_more = grant.event(clock::now(), |machine, effects| {
            let was_open = machine.was_perhaps_lost();
            machine.ends_release(releasing, end, effects);
            was_open && !machine.was_perhaps_lost()
        });
        if says_more {
            grant.lock.engine.background.answered();
        }
    }
}

/// Reports what a user should know about a release that succeeded.
pub(crate) fn report_release(reply: ReleaseReply, lock: &LockRef) {
    let is_silent = match reply {
        ReleaseReply::ReleasedInSilence => true,
        ReleaseReply::ReleasedBesideData => false,
        _ => return,
    };
    let LockId { name, key, server, .. } = lock.id();
    if is_silent {
        tracing::warn!(
            lock = name,
            key,
            server,
            "released a lock without a message to its waiters: this user may not publish on its channel"
        );
    } else {
        tracing::warn!(
            lock = name,
            key,
            server,
            "released a lock in whose key somebody else keeps data: the data was left there"
        );
    }
}

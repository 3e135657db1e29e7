//! The release of a grant, and of an inner hold: that only shows the hold count, and learns whether the hold is there.

use std::sync::Arc;

use super::Grant;
use super::lease::SHORTEST;
use super::machine::{End, Releasing};
use super::sharing::Offer;
use crate::base::clock;
use crate::base::error::LockId;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::timer::timeout;
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;
use crate::engine::wait::queue::{Receivers, WaitQueue};
use crate::protocol::{AcquireReply, Call, ReleaseReply, Reply};
use crate::store::Connection;

impl Grant {
    /// Releases the hold if it is not needed, or shows the count after an inner release. Other commands about this grant
    /// can be under way meanwhile.
    pub(crate) async fn release_owed(self: &Arc<Self>) -> Result<(), Fault> {
        if !self.is_owed(clock::now()) {
            return Ok(());
        }
        let mut connection = self.lock.connection().await?;
        let now = clock::now();
        let Some(releasing) = self.event(now, |machine, _| machine.releases(now)) else { return Ok(()) };
        let (shows, kind) = (releasing.shows, (releasing.ends_hold, releasing.is_repeated));
        let mut sent = SentRelease { grant: self, releasing: Some(releasing), end: End::Unknown };
        let call = match shows {
            None => self.lock.protocol.release(self.holder()),
            Some((_, count)) => {
                let left = self.ask(|machine| machine.left(now)).max(SHORTEST);
                self.lock.protocol.show(self.holder(), count, left)
            }
        };
        let reply = match shows {
            None => self.send_release(&mut connection, &call, kind).await.map(|reply| {
                report_release(reply, &self.lock);
                reply == ReleaseReply::Gone
            }),
            Some(_) => self
                .lock
                .run(&connection, &call)
                .await
                .and_then(|reply| Ok(AcquireReply::parse(&reply, false)? == AcquireReply::Lost)),
        };
        let is_gone = match reply {
            Ok(is_gone) => is_gone,
            // Another client overwrote the key, so the hold is gone.
            Err(fault) if fault.kind == FaultKind::WrongType => true,
            Err(fault) => {
                if fault.sent != Sent::Unknown {
                    sent.end = End::NotRun;
                }
                return Err(fault);
            }
        };
        if shows.is_none() {
            // A master that is promoted later can lack this release, and would keep the lock until its lease ends. So
            // the release is kept for a repetition.
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
        (ends_hold, is_repeated): (bool, bool),
    ) -> Result<ReleaseReply, Fault> {
        let waiters = if ends_hold { self.waiters() } else { None };
        if let Some((queue, _)) = &waiters {
            queue.with(|machine| machine.release_begins(clock::now()));
        }
        let behind = match is_repeated && self.lock.engine.config.sync().is_some() {
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
    releasing: Option<Releasing<Arc<Hold>>>,
    end: End,
}

impl Drop for SentRelease<'_> {
    fn drop(&mut self) {
        let Self { grant, end, .. } = *self;
        let Some(releasing) = self.releasing.take() else { return };
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

//! The release of a grant: its count on the server is lowered to the desired count.

use std::sync::Arc;

use super::Grant;
use super::copies::Copies;
use super::sharing::Offer;
use crate::base::clock::{self, Moment};
use crate::base::error::LockId;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::timer::timeout;
use crate::engine::lock_ref::LockRef;
use crate::engine::wait::queue::{Receivers, WaitQueue};
use crate::protocol::{Call, ReleaseReply, Reply};
use crate::store::Connection;

impl Grant {
    /// Lowers the count on the server to the desired count, if the server can have more. `None`: there was nothing to do.
    pub(crate) async fn reconcile(self: &Arc<Self>) -> Result<Option<ReleaseReply>, Fault> {
        let mut copies = match self.copies.try_lock() {
            Ok(copies) => copies,
            Err(_) if self.desired().is_given_up => {
                return self.release_beside_attempt().await.map(Some);
            }
            Err(_) => self.copies().await?,
        };
        let (keep, given_back, is_release) = {
            let mut desired = self.desired();
            // Most grants have no holds by now, and need not read the clock.
            let now = if desired.depends_on_time() { clock::now() } else { Moment::PAST };
            let keep = desired.target_count(now);
            if copies.at_most() <= keep {
                // A re-entry or another owner took over the count of the holds that were given back, so the server is not asked about
                // those.
                desired.forget_given_back(usize::MAX);
                return Ok(None);
            }
            // An undo of an attempt is no release.
            (keep, desired.given_back.len(), keep == 0 && desired.was_held())
        };
        let mut connection = self.lock.connection().await?;
        let call = self.lock.protocol.release(self.holder(), keep);
        let is_repeated = self.lock.engine.config.sync().is_some() && !copies.owes_release(keep);
        let release = copies.releases(keep);
        let behind = is_repeated.then_some(&*copies);
        let reply = self.send_release(&mut connection, &call, is_release, behind).await;
        let reply = match reply {
            Ok(reply) => reply,
            // Another client overwrote the key, so the hold is gone.
            Err(fault) if fault.kind == FaultKind::WrongType => ReleaseReply::Gone,
            Err(fault) => {
                if fault.sent != Sent::Unknown {
                    copies.not_released(release);
                }
                return Err(fault);
            }
        };
        self.keep_release(keep, call);
        report_release(reply, &self.lock);
        let is_gone = reply == ReleaseReply::Gone;
        copies.released(connection.number(), release, is_gone);
        let mut desired = self.desired();
        if keep == 0 {
            desired.no_longer_lasts();
        }
        if is_gone && release.is_first {
            // One event for the lock, however many nested holds were given back.
            let (state, effects) = desired.with_effects();
            if state.holds().next().is_none()
                && let Some((hold, member)) = state.given_back.pop()
            {
                effects.was_gone(hold, member);
            }
            desired.forget_given_back(usize::MAX);
            self.lose(desired, clock::now());
            return Ok(Some(ReleaseReply::Gone));
        }
        desired.forget_given_back(given_back);
        Ok(Some(if is_gone { ReleaseReply::Released { receivers: 0 } } else { reply }))
    }

    /// Sends a release, and tells the waiters of this client of it. `behind`: repeats the release behind an acquire, and returns on which
    /// connection.
    async fn send_release(
        &self,
        connection: &mut Connection,
        call: &Call,
        is_release: bool,
        behind: Option<&Copies>,
    ) -> Result<ReleaseReply, Fault> {
        let waiters = if is_release { self.waiters() } else { None };
        if let Some((queue, _)) = &waiters {
            queue.with(|machine| machine.release_begins(clock::now()));
        }
        let behind = match behind {
            // Boxed: this is rare, and its size would burden every call.
            Some(copies) => Box::pin(self.release_behind_acquire(copies, call)).await,
            None => None,
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
            // In a cluster, only those are counted that listen at the same server.
            let is_exact = !has_others && !self.lock.engine.store.is_cluster();
            queue.release_ended(match reply {
                Ok(ReleaseReply::Released { receivers }) if is_exact => Some(Receivers::Exactly(receivers)),
                Ok(ReleaseReply::Released { .. }) => Some(Receivers::PerhapsOthers),
                _ => None,
            });
        }
        reply
    }

    /// Repeats a release on the connection of an acquire that waits for replicas, if the acquire was not answered. The server runs the
    /// acquire before the release, or never. The first release uses the other connection: here it would wait for replicas, too.
    async fn release_behind_acquire(&self, copies: &Copies, call: &Call) -> Option<(Connection, Reply)> {
        let engine = &self.lock.engine;
        let connection = engine.store.opened_connection_of_acquires(self.lock.route)?;
        if !copies.may_run_late_on(connection.number()) {
            return None;
        }
        // Others wait for the copies meanwhile. While replicas are away, the release is repeated on the other connection.
        let limit = engine.config.command_timeout() / 4;
        let reply = timeout(limit, self.lock.run_and_tell(&connection, call)).await.ok()?.ok()?;
        Some((connection, reply))
    }

    /// The waiters of this client to which a hold of this grant can be handed over.
    pub(super) fn waiters(&self) -> Option<(Arc<WaitQueue<Offer>>, bool)> {
        let LockRef { engine, keys, row, .. } = &*self.lock;
        let can_be = self.lock.can_be_passed_on() && !engine.config.sharing().is_zero();
        can_be.then(|| engine.wait_queues.exclusive_queue_of(keys, *row)).flatten()
    }

    /// Lowers the count on the server to the desired count while an attempt that nobody polls keeps the copies locked.
    async fn release_beside_attempt(&self) -> Result<ReleaseReply, Fault> {
        let connection = self.lock.connection().await?;
        let target = self.target_count(clock::now());
        let call = self.lock.protocol.release(self.holder(), target);
        let reply = ReleaseReply::parse(&self.lock.run_and_tell(&connection, &call).await?)?;
        self.keep_release(target, call);
        Ok(reply)
    }

    /// Keeps a full release that was confirmed, in case another master lacks it. After a partial one, the lock stays held.
    fn keep_release(&self, keep: u32, call: Call) {
        if keep == 0 {
            self.lock.engine.releases.keep(self.lock.route, call);
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

//! Lowering the count on the server to the desired count.

use std::sync::Arc;

use super::Grant;
use crate::base::error::LockId;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::sync::lock;
use crate::engine::lock_ref::LockRef;
use crate::engine::wait::line::Told;
use crate::engine::wait::queue::WaitQueue;
use crate::protocol::{Call, ReleaseReply};

impl Grant {
    /// Lowers the count on the server to the desired count, if the server can have more. `None`: there was nothing to do.
    pub(crate) async fn reconcile(self: &Arc<Self>) -> Result<Option<ReleaseReply>, Fault> {
        let mut observed = match self.observed.try_lock() {
            Ok(observed) => observed,
            Err(_) if lock(&self.desired).is_given_up => {
                return self.release_beside_attempt().await.map(Some);
            }
            Err(_) => self.observed().await?,
        };
        let (keep, given_back, is_release) = {
            let mut desired = lock(&self.desired);
            desired.leave_share();
            let keep = desired.keep();
            if observed.at_most <= keep {
                // A re-entry took over the count of the holds that were given back, so the server is not asked about those.
                desired.given_back.clear();
                return Ok(None);
            }
            // An undo of an attempt is no release.
            (keep, desired.given_back.len(), keep == 0 && desired.was_held)
        };
        let connection = self.lock.connection().await?;
        let line = if is_release { self.line() } else { None };
        if let Some((line, _)) = &line {
            line.releases();
        }
        let call = self.lock.protocol.release(self.holder(), keep);
        let was_released = std::mem::replace(&mut observed.was_released, keep == 0);
        let reply = self.lock.run(&connection, &call).await.and_then(|reply| ReleaseReply::parse(&reply));
        if let Some((line, has_others)) = &line {
            // In a cluster, only those are counted that listen at the same server.
            let is_exact = !has_others && !self.lock.engine.store.is_cluster();
            line.release_ended(match reply {
                Ok(ReleaseReply::Released { told }) if is_exact => Some(Told::Exactly(told)),
                Ok(ReleaseReply::Released { .. }) => Some(Told::PerhapsOthers),
                _ => None,
            });
        }
        let reply = match reply {
            Ok(reply) => reply,
            // Another client overwrote the key, so the hold is gone.
            Err(fault) if fault.kind == FaultKind::WrongType => ReleaseReply::Gone,
            Err(fault) => {
                observed.was_released = was_released || (keep == 0 && fault.sent == Sent::Unknown);
                return Err(fault);
            }
        };
        self.keep_release(keep, call);
        report_release(reply, &self.lock);
        let is_gone = reply == ReleaseReply::Gone;
        observed.released(&connection, keep, is_gone);
        let mut desired = lock(&self.desired);
        if is_gone && !was_released {
            // One event for the lock, however many nested holds were given back.
            let last = desired.given_back.drain(..).next_back();
            if let Some((hold, member)) = last.filter(|_| desired.holds.is_empty()) {
                hold.report_gone(member);
            }
            self.lose(desired);
            return Ok(Some(ReleaseReply::Gone));
        }
        desired.given_back.drain(..given_back);
        Ok(Some(if is_gone { ReleaseReply::Released { told: 0 } } else { reply }))
    }

    /// The waiters of this client to which a hold of this grant can be passed on.
    fn line(&self) -> Option<(Arc<WaitQueue>, bool)> {
        let LockRef { engine, protocol, keys, .. } = &*self.lock;
        let can_be = protocol.can_be_passed_on() && !engine.config.pass_time().is_zero();
        can_be.then(|| engine.wait_queues.line_of(keys)).flatten()
    }

    /// Lowers the count on the server to the desired count while an attempt that nobody polls keeps the observed state locked.
    async fn release_beside_attempt(&self) -> Result<ReleaseReply, Fault> {
        let connection = self.lock.connection().await?;
        let target = {
            let mut desired = lock(&self.desired);
            desired.leave_share();
            desired.keep()
        };
        let call = self.lock.protocol.release(self.holder(), target);
        let reply = ReleaseReply::parse(&self.lock.run(&connection, &call).await?)?;
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

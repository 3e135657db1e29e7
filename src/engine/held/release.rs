//! Sends the release of a hold to its server, and retries after faults.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use smallvec::{SmallVec, smallvec};
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use crate::base::clock;
use crate::base::fault::Fault;
use crate::base::timer::timeout;
use crate::engine::background::Turn;
use crate::engine::grant::Grant;
use crate::engine::grant::undo::Listed;
use crate::engine::retry::Tries;

/// Grants that a future releases. Until this value is dropped, the background leaves them to that future. Then the
/// background continues with those that are left.
#[derive(Default)]
pub(crate) struct PendingRelease(SmallVec<[Arc<Grant>; 1]>);

impl PendingRelease {
    pub(crate) fn new(grants: SmallVec<[Arc<Grant>; 1]>) -> Self {
        grants.iter().for_each(|grant| grant.attended());
        Self(grants)
    }

    /// Wraps a grant that is already counted as attended.
    pub(crate) fn of_attended(grant: Arc<Grant>) -> Self {
        Self(smallvec![grant])
    }

    /// Adds a grant that is already counted as attended.
    pub(crate) fn add_attended(&mut self, grant: Arc<Grant>) {
        self.0.push(grant);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tries once to release each grant.
    pub(crate) async fn try_once(&self) {
        join_all(self.0.iter().map(|grant| grant.release_owed())).await;
    }

    /// Releases the grant. Returns whether the server still had the hold.
    pub(crate) async fn release(self) -> Result<bool, Fault> {
        release(&self.0[0]).await
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        for grant in &self.0 {
            // Usually the grant is released by now. Then nothing is left to do, and the clock is not read.
            if !grant.no_longer_attended() {
                grant.look(clock::now());
            }
        }
    }
}

/// Releases what is owed of one grant, and retries after faults. Returns whether the server still had the hold.
///
/// If many futures send releases already, the background sends this one in its turn. Otherwise its command would wait
/// in the client behind theirs, while its time limit counts.
async fn release(grant: &Arc<Grant>) -> Result<bool, Fault> {
    grant.lock.check_runtime()?;
    let background = &grant.lock.engine.background;
    let Some(_direct) = background.direct() else { return release_in_background(grant).await };
    let mut tries = Tries::new(grant.lock.engine.config.retry_timeout());
    loop {
        match grant.release_owed().await {
            Ok(()) => return Ok(was_held(grant).await),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

/// Whether the server still had a hold that was released. If the release found nothing, another release of the same
/// hold was perhaps faster, as when an owner acquires anew and first releases what it held before. Then this waits for
/// the answer to the other release.
async fn was_held(grant: &Grant) -> bool {
    let engine = &grant.lock.engine;
    let others = async {
        loop {
            let seen = engine.background.answers();
            if !grant.is_perhaps_gone() {
                return;
            }
            engine.background.answers_more_than(seen).await;
        }
    };
    if grant.is_perhaps_gone() {
        let _ = timeout(engine.config.command_timeout(), others).await;
    }
    !grant.is_gone()
}

/// Releases as [`release`] does, but lets the background send the command in its turn.
async fn release_in_background(grant: &Arc<Grant>) -> Result<bool, Fault> {
    let (done, released) = oneshot::channel();
    let (handed_over, listed) = (Arc::clone(grant), Listed::new(grant));
    grant.lock.engine.background.release(grant.lock.server(), move |turn| {
        async move {
            // If the caller's future was dropped, nobody receives this result, and that is fine.
            let _ = done.send(release_in_turn(&handed_over, turn).await);
            drop(listed);
            Ok(())
        }
        .boxed()
    });
    // `unconstrained`: a task that awaits thousands of releases spends its tokio budget on the first ones. With the
    // budget, it would poll the others in vain, again and again.
    unconstrained(released).await.unwrap_or_else(|_| Err(grant.lock.runtime_gone()))
}

async fn release_in_turn(grant: &Arc<Grant>, turn: Turn) -> Result<bool, Fault> {
    let (mut turn, mut tries) = (Some(turn), Tries::new(grant.lock.engine.config.retry_timeout()));
    loop {
        match grant.release_owed_in_turn(turn.take()).await {
            Ok(()) => return Ok(was_held(grant).await),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

//! How holds are given back to the servers.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use crate::base::clock;
use crate::base::fault::Fault;
use crate::base::timer::timeout;
use crate::engine::background::Turn;
use crate::engine::grant::Grant;
use crate::engine::grant::part::OwnerKey;
use crate::engine::grant::undo::Listed;
use crate::engine::members::{PerMember, gather, vote};
use crate::engine::retry::Tries;

/// What one member contributes to a hold.
pub(crate) struct MemberHold {
    pub(crate) grant: Arc<Grant>,
    /// Whose hold it is.
    pub(crate) owner: OwnerKey,
    pub(crate) member: usize,
}

/// Grants that are being released. They are attended to until this value is dropped. Then the background continues with those that are left.
#[derive(Default)]
pub(crate) struct PendingRelease(PerMember<Arc<Grant>>);

impl PendingRelease {
    pub(crate) fn new(grants: impl IntoIterator<Item = Arc<Grant>>) -> Self {
        let mut pending = Self::default();
        pending.extend(grants);
        pending
    }

    /// For grants that are attended to already.
    pub(crate) fn of_attended(grants: impl IntoIterator<Item = Arc<Grant>>) -> Self {
        Self(grants.into_iter().collect())
    }

    pub(crate) fn extend(&mut self, grants: impl IntoIterator<Item = Arc<Grant>>) {
        self.0.extend(grants.into_iter().inspect(|grant| grant.attended()));
    }

    /// Adds a grant that is attended to already.
    pub(crate) fn add_attended(&mut self, grant: Arc<Grant>) {
        self.0.push(grant);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tries once for each grant. Does not wait for the last `spare` of them.
    pub(crate) async fn try_but(&self, spare: usize) {
        let all = self.0.len();
        gather(self.0.iter().map(|grant| grant.release_owed()), |done| done.len() + spare >= all).await;
    }

    /// Releases on all servers. Returns whether at least `quorum` of them still had the hold.
    pub(crate) async fn release(self, quorum: usize) -> Result<bool, Fault> {
        if let [grant] = &self.0[..] {
            return release(grant).await; // the common case, without the cost of waiting for several
        }
        vote(self.0.iter().map(release), quorum).await
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        for grant in &self.0 {
            // Mostly it is released by now, and the clock is not read.
            if !grant.no_longer_attended() {
                grant.look(clock::now());
            }
        }
    }
}

/// Releases what is owed of one grant, and retries after faults. Returns whether the server still had the hold.
///
/// If many futures send releases already, the background sends this one in its turn. Otherwise its command would wait in the client
/// behind theirs, while its time limit counts.
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

/// Whether the server still had a hold that was released. If the release found nothing, perhaps another release of the same hold was faster:
/// an owner that acquires anew releases what it held before. Then its answer is waited for.
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

/// The same, sent by the background.
async fn release_in_background(grant: &Arc<Grant>) -> Result<bool, Fault> {
    let (done, released) = oneshot::channel();
    let (handed_over, listed) = (Arc::clone(grant), Listed::new(grant));
    grant.lock.engine.background.release(grant.lock.server(), move |turn| {
        async move {
            // Nobody awaits it if the caller has left.
            let _ = done.send(release_in_turn(&handed_over, turn).await);
            drop(listed);
            Ok(())
        }
        .boxed()
    });
    // Without the budget of the task: a task that awaits thousands of these would poll all of them again and again.
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

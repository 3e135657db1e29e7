//! Sends the release of a hold to its server, and retries after faults.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use crate::base::fault::Fault;
use crate::engine::background::Turn;
use crate::engine::grant::Grant;
use crate::engine::grant::owed::{Listed, Owed};
use crate::engine::retry::Tries;

/// Releases, and retries after faults.
///
/// If many futures send releases already, the background sends this one in its turn. Otherwise its command would wait
/// in the client behind theirs, while its time limit counts.
pub(super) async fn release(owed: Owed) -> Result<(), Fault> {
    let grant = Arc::clone(owed.grant());
    grant.lock.check_runtime()?;
    let background = &grant.lock.engine.background;
    match background.direct() {
        Some(_direct) => release_in_turn(owed, None).await,
        // Boxed: this branch is rare, and its future would make the future of every unlock larger.
        None => Box::pin(release_in_background(&grant, owed)).await,
    }
}

/// Releases as [`release`] does, but lets the background send the command in its turn.
async fn release_in_background(grant: &Arc<Grant>, owed: Owed) -> Result<(), Fault> {
    let (done, released) = oneshot::channel();
    let listed = Listed::new(grant);
    grant.lock.engine.background.release(grant.lock.server(), move |turn| {
        async move {
            // If the caller's future was dropped, nobody receives this result, and that is fine.
            let _ = done.send(release_in_turn(owed, Some(turn)).await);
            drop(listed);
            Ok(())
        }
        .boxed()
    });
    // `unconstrained`: a task that awaits thousands of releases spends its tokio budget on the first ones. With the
    // budget, it would poll the others in vain, again and again.
    unconstrained(released).await.unwrap_or_else(|_| Err(grant.lock.runtime_gone()))
}

async fn release_in_turn(mut owed: Owed, turn: Option<Turn>) -> Result<(), Fault> {
    let grant = Arc::clone(owed.grant());
    let (engine, is_direct) = (&grant.lock.engine, turn.is_none());
    let (mut turn, mut tries) = (turn, Tries::new(engine.config.retry_timeout()));
    loop {
        let fault = {
            let next = match turn.take() {
                None if !is_direct && !owed.is_taken_over() => {
                    Some(engine.background.turn(&grant.lock.server()).await)
                }
                turn => turn,
            };
            // What was taken over waits for the background, which needs a turn.
            let _turn = next.filter(|_| !owed.is_taken_over());
            match owed.release().await {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            }
        };
        tries.again(fault).await?;
    }
}

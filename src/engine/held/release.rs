//! Sends the release of a hold to its server, and retries after faults.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use crate::base::fault::Fault;
use crate::engine::background::Turn;
use crate::engine::grant::Grant;
use crate::engine::grant::owed::Owed;
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
    let lock = &grant.lock;
    lock.engine.background.release(lock, lock.server(), |_, turn| {
        // If the caller's future was dropped, nobody receives this result, and that is fine.
        release_in_turn(owed, Some(turn)).map(|result| _ = done.send(result)).boxed()
    });
    // `unconstrained`: a task that awaits thousands of releases spends its tokio budget on the first ones. With the
    // budget, it would poll the others in vain, again and again.
    match unconstrained(released).await {
        Ok(result) => result,
        // Code of the user panicked, and another job goes on with the release. Or the runtime is gone.
        Err(_) => {
            let result = grant.is_released_in_time().await;
            lock.check_runtime().and(result)
        }
    }
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

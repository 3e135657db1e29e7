//! How holders learn that they lost a lock. Rule b: before their work does anything, and soon after their process runs.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{LockGuard, Lost};
use tokio::time::timeout;

use crate::plan::MS;
use crate::world::World;

/// How often somebody looks at a guard.
const LOOK: Duration = Duration::from_millis(100);

/// Does a work that must not go on when the hold is lost.
pub async fn steps(world: &World, guard: &LockGuard, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    poll_fn(|context| {
        if guard.is_lost() {
            world.oracle().violate(world.now(), "b", "the work of a lost hold goes on");
        }
        work.as_mut().poll(context)
    })
    .await;
}

/// Checks that a guard tells of its loss while its process runs, although timers stood still while its host was suspended.
pub fn told(
    world: Arc<World>,
    worker: usize,
    is_fixed: bool,
    guard: &Arc<LockGuard>,
) -> impl Future<Output = ()> + use<> {
    let ended: Pin<Box<dyn Future<Output = Result<(), Lost>> + Send>> = Box::pin(guard.ended());
    let guard = Arc::downgrade(guard);
    // A second. If a renewal is under way, also its time limit, and the pause before the next one.
    let most = 1_300 * MS + if is_fixed { Duration::ZERO } else { world.plan.lease / 4 };
    async move {
        let (mut ended, mut untold) = (ended, Duration::ZERO);
        loop {
            match timeout(LOOK, &mut ended).await {
                Ok(Ok(())) => return,
                Ok(Err(_)) => break,
                Err(_) => {}
            }
            let Some(guard) = guard.upgrade() else { return };
            // Not the time since the first look: the process did not run all the time.
            // And not `is_lost`, which tells by itself.
            untold += if guard.remaining().is_zero() { LOOK } else { Duration::ZERO };
            if untold > most {
                let text = format!("worker {worker} was not told that its hold is lost");
                return world.oracle().violate(world.now(), "b", text);
            }
        }
        world.oracle().count("told of a loss");
    }
}

//! From the options of `run` to a lock that is held.

use lockkeeper::{LockClient, LockGuard};

use crate::args::{Kind, Run};
use crate::exit::Failure;

/// A lock that was acquired.
pub(super) struct Held {
    pub(super) guard: LockGuard,
    pub(super) token: Option<u64>,
}

/// `None`: the lock is busy.
pub(super) async fn acquire(locks: &LockClient, run: &Run) -> Result<Option<Held>, Failure> {
    /// Calls the methods of the type itself: those of `BaseLock` return no token.
    macro_rules! acquire {
        ($lock:expr) => {{
            let mut lock = $lock;
            if let Some(lease) = run.lease {
                lock = lock.lease(lease)?;
            }
            if let Some(most) = run.max_hold {
                lock = lock.max_hold(most)?;
            }
            if let Some(least) = run.at_least {
                lock = lock.hold_at_least(least)?;
            }
            match (run.only_try, run.wait) {
                (true, _) => lock.try_lock().await?,
                (false, Some(wait)) => lock.try_lock_for(wait).await?,
                (false, None) => Some(lock.lock().await?),
            }
        }};
    }
    let plain = |guard| Held { guard, token: None };
    Ok(match run.kind {
        Kind::Rlock => acquire!(locks.rlock(&run.name)).map(plain),
        Kind::Fair => acquire!(locks.fair_lock(&run.name)).map(plain),
        Kind::Read => acquire!(locks.read_write_lock(&run.name).into_read()).map(plain),
        Kind::Write => acquire!(locks.read_write_lock(&run.name).into_write()).map(plain),
        Kind::Fenced => acquire!(locks.fenced_lock(&run.name))
            .map(|guard| Held { token: Some(guard.token().get()), guard: guard.into() }),
    })
}

//! From the options of `run` to a lock that is held.

use std::env;
use std::time::Duration;

use lockkeeper::{BaseLock, Error, FencingToken, Lock, LockClient, LockGuard, LockOptions};
use tokio::time::timeout;

use super::command::OWNERS;
use crate::args::{Kind, Run};
use crate::exit::Failure;

/// How long to wait for the number of permits.
const ANSWER: Duration = Duration::from_secs(1);

/// What to tell the user if the server has another number of permits than the user gave.
pub(super) async fn other_number(locks: &LockClient, run: &Run) -> Option<String> {
    let wanted = run.permits?;
    let semaphore = locks.semaphore(&run.name, wanted);
    // If the server does not answer, there is no notice: the acquire reports what is wrong.
    let found = timeout(ANSWER, semaphore.total()).await.ok()?.ok()?;
    let (name, permits) = (&run.name, if found == 1 { "permit" } else { "permits" });
    let notice = format!(
        "`{name}` has {found} {permits} on the server, and not {wanted}: the server's number counts until `lockkeeper resize` sets another one"
    );
    (found != wanted).then_some(notice)
}

/// Returns the guard, and the token of a fenced lock. `None`: the lock is busy.
pub(super) async fn acquire(
    locks: &LockClient,
    run: &Run,
) -> Result<Option<(LockGuard, Option<FencingToken>)>, Failure> {
    let options = options(run)?;
    if let Some(permits) = run.permits {
        let semaphore = locks.semaphore(&run.name, permits).with(&options);
        let permit = match (run.only_try, run.wait) {
            (true, _) => semaphore.try_acquire().await?,
            (false, Some(wait)) => semaphore.try_acquire_for(wait).await?,
            (false, None) => Some(semaphore.acquire().await?),
        };
        return Ok(permit.map(|permit| (permit.into_plain(), None)));
    }
    let guard = match run.kind {
        Kind::Fenced => {
            let fenced = wait(locks.fenced_lock(&run.name), run, &options).await?;
            return Ok(fenced.map(|guard| {
                let token = guard.token();
                (guard.into_plain(), Some(token))
            }));
        }
        Kind::Rlock => wait(locks.rlock(&run.name), run, &options).await,
        Kind::Fair => wait(locks.fair_lock(&run.name), run, &options).await,
        Kind::Read => wait(locks.read_write_lock(&run.name).into_read(), run, &options).await,
        Kind::Write => wait(locks.read_write_lock(&run.name).into_write(), run, &options).await,
    };
    Ok(guard?.map(|guard| (guard, None)))
}

/// Whether the lock cannot become free: a `lockkeeper run` around this one holds it, and ends after this one.
pub(super) async fn waits_for_itself(locks: &LockClient, run: &Run) -> Result<bool, Failure> {
    let around = env::var(OWNERS).unwrap_or_default();
    if around.is_empty() || run.permits.is_some() {
        return Ok(false);
    }
    let Some(info) = locks.inspect(&run.name).await? else { return Ok(false) };
    let is_shared = matches!(info.kind, lockkeeper::LockKind::Read | lockkeeper::LockKind::Write);
    let excludes = |owner: &str| run.kind != Kind::Read || !is_shared || owner.ends_with(":write");
    let is_around = |owner: &str| around.split(' ').any(|one| one == owner);
    Ok(info.holders.iter().any(|holder| is_around(&holder.owner) && excludes(&holder.owner)))
}

async fn wait<K: BaseLock>(
    lock: Lock<'_, K>,
    run: &Run,
    options: &LockOptions,
) -> lockkeeper::Result<Option<LockGuard<K::Extra>>> {
    let mut lock = lock.with(options);
    Ok(match (run.only_try, run.wait) {
        (true, _) => lock.try_lock().await?,
        (false, Some(wait)) => lock.try_lock_for(wait).await?,
        (false, None) => Some(lock.lock().await?),
    })
}

fn options(run: &Run) -> Result<LockOptions, Error> {
    let mut options = LockOptions::builder();
    if let Some(lease) = run.lease {
        options = options.fixed(lease);
    }
    if let Some(most) = run.max_hold {
        options = options.max_hold(most);
    }
    if let Some(least) = run.at_least {
        options = options.min_hold(least);
    }
    Ok(options.build()?)
}

//! Questions about a semaphore, and changes of it as a whole.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{in_parts, run};
use crate::base::error::{Error, Result};
use crate::base::fault::Fault;
use crate::engine::grant::owed::report_release;
use crate::engine::handle::Handle;
use crate::engine::lock_ref::LockRef;
use crate::engine::shared::Engine;
use crate::protocol::{
    Arg, Call, Listing, LockKeys, PermitIds, PermitInUse, PermitsReply, Protocol, ReleaseReply, Reply,
    Semaphore, parse_holders,
};

/// Asks how many permits are available, and how many there are.
pub(crate) async fn state(handle: &Handle) -> Result<(u32, u32)> {
    let lock = opened(handle)?;
    let call = Semaphore::state(&lock.keys, lock.permits.total());
    let PermitsReply::Permits { available, total } = permits(lock, &call).await? else { return Ok((0, 0)) };
    lock.has_total(total);
    Ok((available, total))
}

/// Lists the permits in use of the semaphore with this key. `None`: the key is no semaphore.
pub(crate) async fn list(engine: &Engine, key: &Arc<str>) -> Result<Option<Listing>, Fault> {
    let keys = Semaphore.keys(Arc::clone(key));
    if engine.store.is_cluster() && !keys.are_in_one_slot() {
        return Ok(None);
    }
    let state = run(engine, key, &Semaphore::state(&keys, 0)).await?;
    let PermitsReply::Permits { total, .. } = PermitsReply::parse(&state)? else { return Ok(None) };
    let (found, has_other_data) = in_use(engine, &keys).await?;
    Ok(Some(Listing { has_other_data, ..Listing::of_permits(total, found) }))
}

/// Lists the permits in use. Also returns whether the set has other data.
async fn in_use(engine: &Engine, keys: &LockKeys) -> Result<(Vec<PermitInUse>, bool), Fault> {
    // A map: a permit that is renewed between two parts of the list can be in both, and must count once.
    type Found = (HashMap<[u8; 16], Option<Duration>>, bool);
    let part = |cursor| Semaphore::holders(keys, cursor);
    let add = |(found, has_other_data): &mut Found, reply: &Reply| {
        let part = parse_holders(reply)?;
        *has_other_data |= part.has_other_data;
        found.extend(part.in_use);
        Ok(part.next)
    };
    let (found, has_other_data) = in_parts(engine, || engine.store.route(&keys.lock), part, add).await?;
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|(id, left)| (left.unwrap_or(Duration::MAX), *id));
    Ok((found, has_other_data))
}

/// Releases a permit, whoever has it. False: nobody has it.
pub(crate) async fn force_release(handle: &Handle, id: [u8; 16]) -> Result<bool> {
    let lock = opened(handle)?;
    let ids = Arg::Permits(PermitIds::one(id));
    lock.engine.forces();
    let reply = asked(lock, &lock.protocol.release(lock.holder(&ids, 0))).await?;
    let reply = ReleaseReply::parse(&reply).map_err(|fault| lock.error(fault))?;
    report_release(reply, lock);
    Ok(reply != ReleaseReply::Gone)
}

/// Sets how many permits there are.
pub(crate) async fn resize(handle: &Handle, total: u32) -> Result<()> {
    let lock = opened(handle)?;
    if total == 0 {
        return Err(Error::InvalidPermits { lock: lock.id(), wanted: 0, total: 0 });
    }
    permits(lock, &Semaphore::resize(&lock.keys, total)).await?;
    lock.permits.set_total(total);
    Ok(())
}

/// Deletes the semaphore. False: there was none.
pub(crate) async fn delete(handle: &Handle) -> Result<bool> {
    let lock = opened(handle)?;
    match asked(lock, &Semaphore::delete(&lock.keys, lock.permits.total())).await? {
        Reply::Int(deleted @ 0..) => Ok(deleted > 0),
        other => parsed(lock, &other).map(|_| true),
    }
}

/// Returns the semaphore of a handle, if its client is open.
fn opened(handle: &Handle) -> Result<&LockRef> {
    handle.check()?;
    Ok(&handle.lock)
}

async fn asked(lock: &LockRef, call: &Call) -> Result<Reply> {
    run(&lock.engine, &lock.keys.lock, call).await.map_err(|fault| lock.error(fault))
}

async fn permits(lock: &LockRef, call: &Call) -> Result<PermitsReply> {
    parsed(lock, &asked(lock, call).await?)
}

fn parsed(lock: &LockRef, reply: &Reply) -> Result<PermitsReply> {
    let parsed = PermitsReply::parse(reply).map_err(|fault: Fault| lock.error(fault))?;
    match parsed {
        PermitsReply::NotASemaphore => return Err(lock.not_a_lock()),
        PermitsReply::Silent => report_release(ReleaseReply::ReleasedInSilence, lock),
        PermitsReply::Permits { .. } => {}
    }
    Ok(parsed)
}

//! Who holds a lock of any type, and the release of these holders.

use std::collections::HashSet;
use std::sync::Arc;

use crate::base::error::{Error, LockId, Result};
use crate::base::fault::{Fault, FaultKind};
use crate::engine::{
    Engine, Handle, LockRef, NOT_A_LOCK, OTHER_PERMITS, check_name, force_all, list, permits,
};
use crate::protocol::{Listing, Protocol, Read, Reentrant, Write};

/// Lists the holders of a lock of any type. `None`: the lock is free. A semaphore is listed as long as it exists.
pub(crate) async fn inspect(engine: &Engine, name: &str) -> Result<Option<Listing>> {
    check_name(name)?;
    engine.check_runtime()?;
    let key = engine.key(name);
    let lock = || lock_id(engine, name, &key);
    let listing = list_any(engine, &key).await.map_err(|fault| match engine.store.refuses_undeclared() {
        Some(_) if fault.kind == FaultKind::Rejected => engine.unsupported(
            &key,
            format!("it refuses the keys of readers, which only the script finds ({}): {fault}", lock()),
        ),
        _ => Error::of_lock(lock(), fault),
    })?;
    if listing.has_other_data {
        let found = if listing.permits.is_some() { OTHER_PERMITS } else { NOT_A_LOCK };
        return Err(Error::WrongKind { lock: lock(), found });
    }
    Ok(Some(listing).filter(|listing| listing.lease().is_some() || listing.permits.is_some()))
}

/// Identifies a lock, at the server that has it now.
fn lock_id(engine: &Engine, name: &str, key: &str) -> LockId {
    let server = engine.store.address(engine.store.route(key)).to_string();
    LockId { name: name.to_owned(), key: key.to_owned(), server }
}

/// Lists the holders of a lock or of a semaphore.
pub(crate) async fn list_any(engine: &Engine, key: &Arc<str>) -> Result<Listing, Fault> {
    match list(engine, key).await {
        Err(fault) if fault.kind == FaultKind::WrongType => match permits::list(engine, key).await {
            Ok(listing) => listing.ok_or(fault),
            // The key is neither a lock nor a semaphore. Only the first fault names the type of the key.
            Err(other) if other.kind == FaultKind::WrongType => Err(fault),
            Err(other) => Err(other),
        },
        listing => listing,
    }
}

/// Releases what these holders have of a lock of any type. False: none of them was still there.
pub(crate) async fn force_unlock_of(
    engine: &Arc<Engine>,
    name: &str,
    owners: &HashSet<&str>,
) -> Result<bool> {
    let Some(mut listing) = inspect(engine, name).await? else { return Ok(false) };
    listing.holders.retain(|holding| owners.contains(&*holding.field));
    if let Some(total) = listing.permits {
        let handle = Handle::of(LockRef::semaphore(engine, name, total), Arc::default());
        let mut was_held = false;
        for id in listing.holders.iter().filter_map(|holding| u128::from_str_radix(&holding.field, 16).ok()) {
            was_held |= permits::force_release(&handle, id.to_be_bytes()).await?;
        }
        return Ok(was_held);
    }
    let protocols: &[&'static dyn Protocol] =
        if listing.is_read_write { &[&Read, &Write] } else { &[&Reentrant] };
    for protocol in protocols {
        let handle = Handle::of(LockRef::new(engine, *protocol, name), Arc::default());
        handle.check()?;
        let lock = &handle.lock;
        force_all(lock, &listing).await.map_err(|fault| lock.error(fault))?;
    }
    Ok(listing.lease().is_some())
}

//! Questions to the server, and the forced release.

pub(crate) mod permits;

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::grant::owed::report_release;
use super::handle::Handle;
use super::lock_ref::LockRef;
use super::retry::retried;
use super::shared::Engine;
use crate::base::clock;
use crate::base::error::{Error, OTHER_TYPE, Result};
use crate::base::fault::{Fault, FaultKind};
use crate::protocol::{
    self, AcquireReply, Arg, Call, Fair, Holding, Listing, Protocol, Queue, ReleaseReply, Reply,
};
use crate::store::{Connection, Route};

/// Adds to the error which type the key has, if the key holds no lock: an acquire script only notices that the type is
/// another one.
pub(crate) async fn with_type(lock: &LockRef, error: Error) -> Error {
    if !matches!(error, Error::WrongKind { found: OTHER_TYPE, .. }) {
        return error;
    }
    match list(&lock.engine, &lock.keys.lock).await {
        Err(fault) if fault.kind == FaultKind::WrongType => lock.error(fault),
        _ => error,
    }
}

pub(crate) async fn is_locked(handle: &Handle) -> Result<bool> {
    let Handle { lock, .. } = handle;
    handle.check()?;
    let reply = run(&lock.engine, &lock.keys.lock, &lock.protocol.state(&lock.keys)).await;
    match reply.and_then(|reply| AcquireReply::parse(&reply, false)) {
        Ok(AcquireReply::OtherKind) => Err(lock.other_kind()),
        Ok(AcquireReply::NotALock) => Err(lock.not_a_lock()),
        Ok(reply) => Ok(reply != AcquireReply::Free),
        Err(fault) => Err(with_type(lock, lock.error(fault)).await),
    }
}

/// Lists the holders of the handle's type of lock.
pub(crate) async fn holders(handle: &Handle) -> Result<Listing> {
    let Handle { lock, .. } = handle;
    handle.check()?;
    let mut listing = list(&lock.engine, &lock.keys.lock).await.map_err(|fault| lock.error(fault))?;
    if listing.has_other_data {
        return Err(lock.not_a_lock());
    }
    if !listing.holders.is_empty() && listing.is_read_write != lock.protocol.is_read_write() {
        return Err(lock.other_kind());
    }
    listing.holders.retain(|holding| lock.protocol.owner(&holding.field).is_some());
    Ok(listing)
}

/// Releases every listed hold of this type of lock, whoever holds it.
///
/// The holders are looked up first and then named, so that a late copy of the command cannot end the hold of a later
/// owner.
pub(crate) async fn force_all(lock: &LockRef, listing: &Listing) -> Result<(), Fault> {
    let forcing = listing.holders.iter().filter_map(|holding| {
        let owner = lock.protocol.owner(&holding.field)?;
        Some(force(lock, owner.to_owned(), holding))
    });
    let was_held = !try_join_all(forcing).await?.is_empty();
    if was_held && !lock.protocol.is_read_write() && lock.protocol.queue().is_none() {
        wake_fair_waiter(lock).await;
    }
    Ok(())
}

/// Wakes the first waiter if the lock is a fair one. On the server its hold looks like that of an `RLock`, and its
/// waiters listen on channels of their own.
async fn wake_fair_waiter(lock: &LockRef) {
    let keys = Fair.keys(Arc::clone(&lock.keys.lock));
    // A heartbeat makes the server notify the first waiter if the lock is free. The name `nobody` has no place, so this
    // heartbeat keeps none.
    let call = Fair.heartbeat(&keys, &lock.engine.config, "nobody".to_owned());
    // The lock is released already, so a fault of this heartbeat does not make the release fail. The waiter's own next
    // heartbeat notifies it, too.
    let _ = async { lock.run(&lock.connection().await?, &call).await }.await;
}

async fn force(lock: &LockRef, owner: String, holding: &Holding) -> Result<(), Fault> {
    let owner = Arg::Text(owner.into());
    let call = lock.protocol.release(lock.holder(&owner, holding.grant));
    lock.engine.forces();
    lock.engine.read_grants.end_lingering(&lock.keys.lock, clock::now());
    let release = || async { lock.run_and_tell(&lock.connection().await?, &call).await };
    let reply = retried(lock.engine.config.retry_timeout(), release).await?;
    // This release is not kept for a repetition after a failover: a Java thread uses the same owner again, and the
    // repetition could end its next hold.
    report_release(ReleaseReply::parse(&reply)?, lock);
    Ok(())
}

/// Lists all holders, a part at a time, so that a lock with many readers does not block the server.
pub(crate) async fn list(engine: &Engine, key: &Arc<str>) -> Result<Listing, Fault> {
    in_parts(engine, || engine.store.route(key), |at| protocol::inspect([key], at), Listing::add).await
}

/// Builds a list from its parts. `add` returns the cursor of the next part.
///
/// A cursor is valid only on the server that returned it. So the list begins again if a part came on another
/// connection, as when the slot of the lock moved.
async fn in_parts<T: Default>(
    engine: &Engine,
    route: impl Fn() -> Route + Send + Sync,
    part: impl Fn(Arg) -> Call,
    add: impl Fn(&mut T, &Reply) -> Result<Option<Arg>, Fault>,
) -> Result<T, Fault> {
    let mut list = T::default();
    let (mut cursor, mut before) = (Arg::Text("0".into()), None);
    loop {
        let (reply, connection) = run_at(engine, &route, &part(cursor)).await?;
        if before.replace(connection).is_some_and(|before| before != connection) {
            (list, cursor, before) = (T::default(), Arg::Text("0".into()), None);
            continue;
        }
        match add(&mut list, &reply)? {
            Some(next) => cursor = next,
            None => return Ok(list),
        }
    }
}

/// Runs a command, and retries after faults.
pub(crate) async fn run(engine: &Engine, key: &str, call: &Call) -> Result<Reply, Fault> {
    run_at(engine, || engine.store.route(key), call).await.map(|(reply, _)| reply)
}

/// Runs a command, and retries after faults. Also returns the number of the connection on which the reply came.
pub(crate) async fn run_at(
    engine: &Engine,
    route: impl Fn() -> Route + Send + Sync,
    call: &Call,
) -> Result<(Reply, u64), Fault> {
    let (store, config) = (&engine.store, &engine.config);
    let ask = || async {
        let connection = store.connection(route()).await?;
        let mut number = connection.number();
        let hops = &mut |hop: &Connection| number = hop.number();
        let reply = store.run_and_follow(config.command_timeout(), &connection, call, hops).await?;
        Ok((reply, number))
    };
    retried(config.retry_timeout(), ask).await
}

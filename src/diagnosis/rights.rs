//! Which rights a user lacks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::error::{MISSING_RIGHTS, Result};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::engine::{Handle, LockRef, run};
use crate::protocol::{self, Arg, Call, Reply};

/// Fails if this user lacks a right that the lock needs with its options. A leader also announces something, and listens to what others
/// announce.
pub(crate) async fn check_rights(handle: &Handle, is_leader: bool) -> Result<()> {
    handle.check()?;
    let lock = &handle.lock;
    let refused = refused(handle, is_leader).await.map_err(|fault| lock.error(fault))?;
    if refused.is_empty() {
        return Ok(());
    }
    let each = refused.iter().map(|(name, commands)| format!("{} on `{name}`", commands.join(", ")));
    let cause = format!("{MISSING_RIGHTS} {}", each.collect::<Vec<_>>().join("; "));
    Err(lock.error(Fault::new(FaultKind::Permission, Sent::Refused, cause)))
}

/// The commands that this user may not run, by their keys and channels.
async fn refused(handle: &Handle, is_leader: bool) -> Result<BTreeMap<Arc<str>, Vec<String>>, Fault> {
    let (lock, mut refused) = (&handle.lock, BTreeMap::<_, Vec<_>>::new());
    let (keys, is_sharded) = (&lock.keys, lock.engine.store.is_sharded());
    let mut rights = lock.protocol.rights(keys);
    if is_leader {
        rights.extend(protocol::announcements(&keys.lock));
    }
    if is_sharded {
        rights = protocol::sharded(rights);
    }
    if lock.engine.store.is_cluster() {
        // While a slot moves, the client sends `ASKING` before a command about a key that has already moved.
        rights.push((Arc::clone(&keys.lock), "asking"));
    }
    for (name, commands) in rights {
        let call = protocol::check([&keys.lock], &name, Arg::Text(commands.into()));
        let reply = ask(lock, call).await?;
        let Reply::List(commands) = &reply else { return Err(Fault::unexpected(&reply)) };
        for command in commands {
            let Reply::Text(command) = command else { return Err(Fault::unexpected(&reply)) };
            refused.entry(Arc::clone(&name)).or_default().push(format!("`{command}`"));
        }
    }
    if handle.terms.linger.is_some() {
        // The command that asks whether somebody waits has no key, so it is run: it changes nothing.
        match run(&lock.engine, &keys.lock, &lock.protocol.waiters(keys)).await {
            Err(fault) if fault.kind == FaultKind::Permission => {
                let command = if is_sharded { "`pubsub|shardnumsub`" } else { "`pubsub|numsub`" };
                refused.entry(Arc::clone(&keys.channel)).or_default().push(command.to_owned());
            }
            reply => drop(reply?),
        }
    }
    Ok(refused)
}

/// A user without the right to the lock's own key can ask without keys, except on a server that wants one.
async fn ask(lock: &LockRef, call: Call) -> Result<Reply, Fault> {
    match run(&lock.engine, &lock.keys.lock, &call).await {
        Err(fault) if fault.kind == FaultKind::Permission => {
            match run(&lock.engine, &lock.keys.lock, &call.without_keys()).await {
                Err(other) if other.kind == FaultKind::Rejected => Err(fault),
                reply => reply,
            }
        }
        reply => reply,
    }
}

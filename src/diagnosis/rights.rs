//! Which rights a user lacks.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::engine::{Handle, LockRef, Member, run};
use crate::protocol::{self, Arg, Call, Reply};

/// Checks whether this user has all rights that the lock needs, on all of its members.
pub(crate) async fn check_rights(handle: &Handle) -> Result<()> {
    handle.check()?;
    for Member { lock, .. } in &handle.members {
        let refused = refused_rights(lock).await.map_err(|fault| lock.error(fault))?;
        if !refused.is_empty() {
            let cause = format!("this user may not run {}", refused.join(", "));
            return Err(lock.error(Fault::new(FaultKind::Permission, Sent::Refused, cause)));
        }
    }
    Ok(())
}

async fn refused_rights(lock: &LockRef) -> Result<Vec<String>, Fault> {
    let mut refused = Vec::new();
    let mut rights = lock.protocol.rights(&lock.keys);
    if lock.engine.store.is_sharded() {
        rights = protocol::sharded(rights);
    }
    if lock.engine.store.is_cluster() {
        // While a slot moves, the client sends `ASKING` before a command about a key that has already moved.
        rights.push((Arc::clone(&lock.keys.lock), "asking"));
    }
    for (name, commands) in rights {
        let call = protocol::check(&lock.keys.lock, Arg::Text(Arc::clone(&name)), Arg::Text(commands.into()));
        let reply = ask_for_rights(lock, call).await?;
        let Reply::List(commands) = &reply else { return Err(Fault::unexpected(&reply)) };
        for command in commands {
            let Reply::Text(command) = command else { return Err(Fault::unexpected(&reply)) };
            refused.push(format!("`{command}` on `{name}`"));
        }
    }
    Ok(refused)
}

/// A user without the right to the lock's own key can ask without keys, except on a server that wants one.
async fn ask_for_rights(lock: &LockRef, call: Call) -> Result<Reply, Fault> {
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

//! Which rights a user lacks.

use std::sync::Arc;

use crate::base::error::{MISSING_RIGHTS, Result};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::engine::{Handle, LockRef, run};
use crate::protocol::{self, Arg, Call, Reply, Right};

/// Checks whether this user has all rights that the lock needs with its options.
pub(crate) async fn check_rights(handle: &Handle) -> Result<()> {
    check(handle, false).await
}

/// The same for a leader, which also announces something and listens to what others announce.
pub(crate) async fn check_leader(handle: &Handle) -> Result<()> {
    check(handle, true).await
}

async fn check(handle: &Handle, announces: bool) -> Result<()> {
    handle.check()?;
    let (lock, mut refused) = (&handle.lock, Refused::default());
    let missing = async {
        let mut rights = lock.protocol.rights(&lock.keys);
        if announces {
            rights.extend(protocol::announcements(&lock.keys.lock));
        }
        refused.ask(lock, rights).await?;
        if handle.terms.linger.is_some() {
            refused.ask_for_listeners(lock).await?;
        }
        Ok(())
    };
    missing.await.map_err(|fault| lock.error(fault))?;
    refused.end(lock)
}

/// The commands that this user may not run, by their keys and channels.
#[derive(Default)]
struct Refused(Vec<(Arc<str>, Vec<String>)>);

impl Refused {
    fn add(&mut self, name: &Arc<str>, command: &str) {
        let command = format!("`{command}`");
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some((_, commands)) if commands.contains(&command) => {}
            Some((_, commands)) => commands.push(command),
            None => self.0.push((Arc::clone(name), vec![command])),
        }
    }

    /// Fails if anything was refused.
    fn end(self, lock: &LockRef) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let each = self.0.iter().map(|(name, commands)| format!("{} on `{name}`", commands.join(", ")));
        let cause = format!("{MISSING_RIGHTS} {}", each.collect::<Vec<_>>().join("; "));
        Err(lock.error(Fault::new(FaultKind::Permission, Sent::Refused, cause)))
    }

    /// `linger` asks the server whether somebody waits. That command has no key, so it is run: it changes nothing.
    async fn ask_for_listeners(&mut self, lock: &LockRef) -> Result<(), Fault> {
        match run(&lock.engine, &lock.keys.lock, &lock.protocol.waiters(&lock.keys)).await {
            Err(fault) if fault.kind == FaultKind::Permission => {
                let command =
                    if lock.engine.store.is_sharded() { "pubsub|shardnumsub" } else { "pubsub|numsub" };
                self.add(&lock.keys.channel, command);
                Ok(())
            }
            reply => reply.map(drop),
        }
    }

    async fn ask(&mut self, lock: &LockRef, mut rights: Vec<Right>) -> Result<(), Fault> {
        if lock.engine.store.is_sharded() {
            rights = protocol::sharded(rights);
        }
        if lock.engine.store.is_cluster() {
            // While a slot moves, the client sends `ASKING` before a command about a key that has already moved.
            rights.push((Arc::clone(&lock.keys.lock), "asking"));
        }
        for (name, commands) in rights {
            let call =
                protocol::check(&lock.keys.lock, Arg::Text(Arc::clone(&name)), Arg::Text(commands.into()));
            let reply = ask_for_rights(lock, call).await?;
            let Reply::List(commands) = &reply else { return Err(Fault::unexpected(&reply)) };
            for command in commands {
                let Reply::Text(command) = command else { return Err(Fault::unexpected(&reply)) };
                self.add(&name, command);
            }
        }
        Ok(())
    }
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

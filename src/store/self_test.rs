//! What a client asks a server before it uses the server.

use std::collections::HashMap;
use std::sync::Arc;

use redis::{FromRedisValue, Value, cmd};

use super::error::OpenError;
use super::server::Server;
use crate::fault::{Fault, FaultKind, Sent};
use crate::protocol::{self, Arg, Reply};

/// The first version with `#!lua` script flags. Every Valkey has them.
const OLDEST_MAJOR: u64 = 7;

/// With any other policy, the server deletes keys when its memory is full, and a held lock can be among them.
const SAFE_POLICY: &str = "noeviction";

/// The key of the self-test, after the prefix of all locks. Nothing creates it.
const KEY: &str = "lockkeeper:self-test";

/// What a server tells about itself.
pub(super) struct Facts {
    /// Identifies this run of the server. `None`: this user has no right to ask.
    pub(super) run_id: Option<Box<str>>,
}

/// Checks that the server can run the scripts, and that this user may run scripts.
pub(super) async fn examine(server: &Arc<Server>, prefix: &str) -> Result<Facts, OpenError> {
    let version = version(server).await.map_err(OpenError::Fault)?;
    let major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    let unsupported = |problem: String| OpenError::Unsupported {
        version: version.clone(),
        server: server.address().to_owned(),
        problem,
    };
    if major < OLDEST_MAJOR {
        return Err(unsupported("Redis 7.0, Valkey 7.2 or newer is needed".to_owned()));
    }
    let key = Arg::Text([prefix, KEY].concat().into());
    match server.run_first(&protocol::self_test(key)).await {
        Ok(Reply::Text(error)) => {
            return Err(unsupported(format!("it lacks the option GT of PEXPIRE: {error}")));
        }
        Ok(_) => {}
        Err(fault) if was_rejected(&fault) => {
            return Err(unsupported(format!(
                "it cannot run a script that begins with `#!lua flags=allow-oom`: {fault}"
            )));
        }
        Err(fault) => return Err(OpenError::Fault(fault)),
    }
    let run_id = info(server, "server", "run_id").await.map_err(OpenError::Fault)?;
    let policy = info(server, "memory", "maxmemory_policy").await.map_err(OpenError::Fault)?;
    if let Some(policy) = policy.filter(|policy| **policy != *SAFE_POLICY) {
        tracing::warn!(
            server = server.address(),
            policy = &*policy,
            "the server deletes keys when its memory is full, and held locks can be among them: set `maxmemory-policy` to \
             `noeviction`"
        );
    }
    Ok(Facts { run_id })
}

/// The version that the server reports.
async fn version(server: &Arc<Server>) -> Result<String, Fault> {
    let reply = match server.ask(&cmd("HELLO")).await {
        // Redis 5 and older do not know the command.
        Err(fault) if was_rejected(&fault) => Value::Nil,
        reply => reply?,
    };
    let facts: HashMap<String, Value> = FromRedisValue::from_redis_value(reply).unwrap_or_default();
    let version = facts.get("version").and_then(|version| String::from_redis_value_ref(version).ok());
    Ok(version.unwrap_or_else(|| "an unknown version".to_owned()))
}

/// A fact of a section of `INFO`. `None`: the server does not tell it, or this user has no right to ask.
async fn info(server: &Arc<Server>, section: &str, fact: &str) -> Result<Option<Box<str>>, Fault> {
    let facts = match server.ask(cmd("INFO").arg(section)).await {
        Err(fault) if fault.sent == Sent::Refused => return Ok(None),
        reply => String::from_redis_value(reply?).unwrap_or_default(),
    };
    let found = facts.lines().find_map(|line| line.strip_prefix(fact)?.strip_prefix(':'));
    Ok(found.filter(|value| !value.is_empty()).map(Into::into))
}

/// Whether the server understood the request, and refused it for a reason that lockkeeper does not know.
fn was_rejected(fault: &Fault) -> bool {
    fault.kind == FaultKind::Rejected && fault.sent == Sent::Refused
}

//! What a client asks a server before it uses the server.

use std::sync::Arc;

use redis::{FromRedisValue, Value, cmd};

use super::identity::Identity;
use crate::base::config::{LockConfig, ShardedMessages};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::protocol::{self, Arg, Reply};
use crate::store::connection::{Server, wire};
use crate::store::error::{OpenError, SourceError};

/// The first version with `#!lua` script flags. Every Valkey has them.
const OLDEST_MAJOR: u64 = 7;

/// With any other policy, the server deletes keys when its memory is full, and a held lock can be among them.
const SAFE_POLICY: &str = "noeviction";

/// The key of the self-test, after the prefix of all locks. Nothing creates it.
const KEY: &str = "lockkeeper:self-test";

/// What a client learns about a server before it uses the server.
pub(crate) struct Examined {
    pub(crate) identity: Identity,
    /// Whether messages stay in their slots.
    pub(crate) is_sharded: bool,
}

/// Checks that the server can run the scripts, and that this user may run scripts.
pub(crate) async fn examine(
    server: &Arc<Server>,
    config: &LockConfig,
    is_cluster: bool,
) -> Result<Examined, OpenError> {
    let hello = hello(server).await.map_err(OpenError::Fault)?;
    if !is_cluster && wire::hello_fact(&hello, "mode").as_deref() == Some("cluster") {
        let problem = format!(
            "{} is a node of a cluster: use `Source::cluster`, or in a file `kind = \"cluster\"`",
            server.address()
        );
        return Err(SourceError::field("url", problem).into());
    }
    let version = wire::hello_fact(&hello, "version").unwrap_or_else(|| "an unknown version".to_owned());
    let major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    let unsupported = |problem: String| OpenError::Unsupported {
        version: version.clone(),
        server: server.address().to_string(),
        problem,
    };
    if major < OLDEST_MAJOR {
        return Err(unsupported("Redis 7.0, Valkey 7.2 or newer is needed".to_owned()));
    }
    match server.run_first(&protocol::self_test(Arg::Text(key(config)))).await {
        Ok(Reply::Text(error)) => {
            return Err(match wire::caught(&error) {
                FaultKind::Rejected => unsupported(format!("it lacks the option GT of PEXPIRE: {error}")),
                // The server cannot run any script now.
                kind => OpenError::Fault(Fault::new(kind, Sent::Refused, error).at(server.address())),
            });
        }
        Ok(_) => {}
        Err(fault) if wire::was_rejected(&fault) => {
            return Err(unsupported(format!(
                "it cannot run a script that begins with `#!lua flags=allow-oom`: {fault}"
            )));
        }
        Err(fault) => return Err(OpenError::Fault(fault)),
    }
    let wanted = if is_cluster { config.sharded_messages() } else { ShardedMessages::Off };
    let is_sharded = match wanted {
        ShardedMessages::Off => false,
        _ => has_sharded_messages(server, config).await.map_err(OpenError::Fault)?,
    };
    if wanted == ShardedMessages::On && !is_sharded {
        let problem = "it lacks SPUBLISH: set `redisson.sharded_subscription_mode` to `off` in all clients";
        return Err(unsupported(problem.to_owned()));
    }
    if config.sync().is_some() {
        match server.ask(cmd("WAIT").arg(0).arg(1)).await {
            Err(fault) if wire::was_rejected(&fault) => {
                return Err(unsupported(format!("it lacks WAIT, which `sync_replicas` needs: {fault}")));
            }
            reply => drop(reply.map_err(OpenError::Fault)?),
        }
    }
    let data = info(server, "replication", "master_replid").await.map_err(OpenError::Fault)?;
    let run = info(server, "server", "run_id").await.map_err(OpenError::Fault)?;
    let policy = info(server, "memory", "maxmemory_policy").await.map_err(OpenError::Fault)?;
    if let Some(policy) = policy.filter(|policy| **policy != *SAFE_POLICY) {
        tracing::warn!(
            server = %server.address(),
            policy = &*policy,
            "the server deletes keys when its memory is full, and held locks can be among them: set `maxmemory-policy` to \
             `noeviction`"
        );
    }
    let nodes = if is_cluster { nodes(server).await.map_err(OpenError::Fault)? } else { Vec::new() };
    Ok(Examined { identity: Identity::new(nodes.into_iter().chain(data).chain(run)), is_sharded })
}

/// Whether the server knows messages that stay in their slots. Whether this user may publish them does not matter here.
async fn has_sharded_messages(server: &Arc<Server>, config: &LockConfig) -> Result<bool, Fault> {
    match server.run_first(&protocol::check(Arg::Text(key(config)), Arg::Text("spublish".into()))).await {
        Err(fault) if wire::was_rejected(&fault) => Ok(false),
        reply => reply.map(|_| true),
    }
}

/// The key of the self-test.
pub(crate) fn key(config: &LockConfig) -> Arc<str> {
    [config.name_prefix(), KEY].concat().into()
}

/// What the server tells about itself.
async fn hello(server: &Arc<Server>) -> Result<Value, Fault> {
    match server.ask(&cmd("HELLO")).await {
        // Redis 5 and older do not know the command.
        Err(fault) if wire::was_rejected(&fault) => Ok(Value::Nil),
        reply => reply,
    }
}

/// The ids of all nodes of a cluster, always in the same order.
async fn nodes(server: &Arc<Server>) -> Result<Vec<Box<str>>, Fault> {
    let nodes = String::from_redis_value(server.ask(cmd("CLUSTER").arg("NODES")).await?).unwrap_or_default();
    let mut ids: Vec<Box<str>> =
        nodes.lines().filter_map(|node| node.split(' ').next()).map(Into::into).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// A fact of a section of `INFO`. `None`: the server does not tell it, or this user has no right to ask.
async fn info(server: &Arc<Server>, section: &str, fact: &str) -> Result<Option<Box<str>>, Fault> {
    let facts = match server.ask(cmd("INFO").arg(section)).await {
        Err(fault) if fault.sent == Sent::Refused => return Ok(None),
        reply => String::from_redis_value(reply?).unwrap_or_default(),
    };
    Ok(wire::info_fact(&facts, fact))
}

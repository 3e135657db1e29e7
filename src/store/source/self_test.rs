//! What a client asks a server before it uses the server.

use std::sync::Arc;

use redis::{FromRedisValue, Value, cmd};

use super::identity::Identity;
use crate::base::config::LockConfig;
use crate::base::error::{ConfigError, Error};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::protocol::{self, Arg, Call, Reply};
use crate::store::connection::{Server, wire};
use crate::store::error::OpenError;

/// The first version with `#!lua` script flags. Every Valkey has them.
const OLDEST_MAJOR: u64 = 7;

/// With any other policy, the server deletes keys when its memory is full, and a held lock can be among them.
const SAFE_POLICY: &str = "noeviction";

/// What a client learns about a server before it uses the server.
pub(crate) struct Examined {
    pub(crate) identity: Identity,
    /// Whether messages stay in their slots.
    pub(crate) is_sharded: bool,
    /// The version that it reports.
    pub(crate) version: String,
    /// How the server refuses a key that a script uses and `KEYS` does not have. `None`: it allows that.
    pub(crate) refuses_undeclared: Option<String>,
}

/// Checks that the server can run the scripts, and that this user may run scripts.
pub(crate) async fn examine(
    server: &Arc<Server>,
    config: &LockConfig,
    is_cluster: bool,
) -> Result<Examined, OpenError> {
    let hello = hello(server).await?;
    if !is_cluster && wire::hello_fact(&hello, "mode").as_deref() == Some("cluster") {
        let problem = format!(
            "{} is a node of a cluster: use `Source::cluster`, or in a file `kind = \"cluster\"`",
            server.address()
        );
        return Err(ConfigError::new("url", problem).into());
    }
    let version = wire::hello_fact(&hello, "version").unwrap_or_else(|| "an unknown version".to_owned());
    let major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    let unsupported = |problem: String| {
        let (version, server) = (version.clone(), server.address().to_string());
        OpenError::Lasting(Error::UnsupportedServer { version, server, problem })
    };
    if major < OLDEST_MAJOR {
        return Err(unsupported("Redis 7.0, Valkey 7.2 or newer is needed".to_owned()));
    }
    let keys = protocol::self_test_keys(config.name_prefix());
    let refuses_undeclared = match run_self_test(server, &keys).await {
        Ok(refusal) => refusal,
        Err(fault) if wire::was_rejected(&fault) => {
            return Err(unsupported(format!("{}: {fault}", lacking(&fault.to_string()))));
        }
        Err(fault) => return Err(fault.into()),
    };
    if let Some(refusal) = &refuses_undeclared {
        tracing::warn!(
            server = %server.address(), refusal,
            "the server refuses keys that a script finds while it runs: read-write locks and lists of all locks do not work there"
        );
    }
    let is_sharded =
        is_cluster && config.sharded_messages() && has_sharded_messages(server, &keys[0]).await?;
    if config.sync().is_some() {
        match server.ask(cmd("WAIT").arg(0).arg(1)).await {
            Err(fault) if wire::was_rejected(&fault) => {
                return Err(unsupported(format!("it lacks WAIT, which `sync_replicas` needs: {fault}")));
            }
            reply => drop(reply?),
        }
    }
    let data = info(server, "replication", "master_replid").await?;
    let run = info(server, "server", "run_id").await?;
    let policy = info(server, "memory", "maxmemory_policy").await?;
    if let Some(policy) = policy.filter(|policy| **policy != *SAFE_POLICY) {
        tracing::warn!(
            server = %server.address(),
            policy = &*policy,
            "the server deletes keys when its memory is full, and held locks can be among them: set `maxmemory-policy` to \
             `noeviction`"
        );
    }
    let nodes = if is_cluster { nodes(server).await? } else { Vec::new() };
    let identity = Identity::new(nodes.into_iter().chain(data).chain(run));
    Ok(Examined { identity, is_sharded, version, refuses_undeclared })
}

/// Runs the self-test. Returns how the server refuses a key that `KEYS` does not have; `None`: it allows that, or this user has no
/// right to these keys, so the test looks at none.
async fn run_self_test(server: &Arc<Server>, [key, other]: &[Arc<str>; 2]) -> Result<Option<String>, Fault> {
    let test = async |other| match ask(server, protocol::self_test([key], Arg::Text(other))).await? {
        Reply::Text(error) => Err(Fault::new(wire::caught(&error), Sent::Refused, error)),
        _ => Ok(()),
    };
    // A cluster would refuse a key of another slot because of its slot, so the test does not look at such a key.
    let other = if protocol::slot(key) == protocol::slot(other) { Arc::clone(other) } else { "".into() };
    match test(other).await {
        Err(refusal) if wire::was_rejected(&refusal) => {
            test("".into()).await?;
            Ok(Some(refusal.to_string()))
        }
        result => result.map(|()| None),
    }
    .map_err(|fault| fault.at(server.address()))
}

/// Runs a script that also works without its key. If the user has no right to the key, or the slot of the key is
/// elsewhere, runs the script without it.
async fn ask(server: &Arc<Server>, call: Call) -> Result<Reply, Fault> {
    let fault = match server.run_first(&call).await {
        Err(fault) if fault.kind == FaultKind::Permission || fault.redirect.is_some() => fault,
        reply => return reply,
    };
    match server.run_first(&call.clone().without_keys()).await {
        Err(other) if wire::was_rejected(&other) => {
            let cause =
                format!("the server wants a key for each script, and refuses `{}`: {fault}", call.keys[0]);
            Err(Fault::new(fault.kind, Sent::Refused, cause))
        }
        reply => reply,
    }
}

/// What a server lacks that refuses the self-test with these words. What the servers say is quoted from them, or from their manuals.
fn lacking(words: &str) -> &'static str {
    const NO_SCRIPTS: &str = "it runs no scripts";
    const NO_FLAGS: &str = "it cannot run a script that begins with `#!lua flags=allow-oom`";
    const NO_GT: &str = "it lacks the option GT of PEXPIRE";
    const KNOWN: [(&str, &str); 9] = [
        // Valkey 9.1 and newer say this.
        ("Could not find scripting engine", "it has no Lua: load its Lua module"),
        ("unknown command", NO_SCRIPTS),
        ("not support for normal user", NO_SCRIPTS), // ApsaraDB
        (
            "should be passed using the KEYS array", // Tair
            "it wants `KEYS` in the text of each command of a script: set its `script_check_enable` to 0",
        ),
        ("near '#'", NO_FLAGS),
        ("script shebang", NO_FLAGS),
        ("Unsupported option", NO_GT),
        ("syntax error", NO_GT),
        ("wrong number of arg", NO_GT),
    ];
    let known = KNOWN.iter().find(|(part, _)| words.contains(part));
    known.map_or("it refuses the script with which a client examines a server", |(_, lacks)| lacks)
}

/// Whether the server knows messages that stay in their slots. Whether this user may publish them does not matter here.
async fn has_sharded_messages(server: &Arc<Server>, key: &Arc<str>) -> Result<bool, Fault> {
    let name = Arg::Text(Arc::clone(key));
    match ask(server, protocol::check([key], name, Arg::Text("spublish".into()))).await {
        Err(fault) if wire::was_rejected(&fault) => Ok(false),
        reply => reply.map(|_| true),
    }
}

/// What the server tells about itself.
async fn hello(server: &Arc<Server>) -> Result<Value, Fault> {
    match server.ask(&cmd("HELLO")).await {
        // Redis 5 and older do not know `HELLO`.
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

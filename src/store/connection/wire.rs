//! Calls, replies and errors in the terms of the `redis` crate.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, Value};
use smallvec::SmallVec;

use super::outbox::{Group, Way};
use crate::base::config::Replication;
use crate::base::fault::{Fault, FaultKind, Redirect, Sent};
use crate::protocol::{Arg, Call, Form, Reply, millis, owner_text};

/// Runs a script by its hash. `None`: the server does not know the hash.
///
/// If messages are sharded, the script publishes those. If it waits for replicas, the reply is a list: that of the script, and the
/// number of replicas that have what this connection wrote.
pub(crate) async fn evaluate_by_hash(
    connection: &mut MultiplexedConnection,
    call: &Call,
    with: With,
    is_sharded: bool,
) -> RedisResult<Option<Value>> {
    let script = command("EVALSHA", hash(call.script.form(is_sharded)), [call], with.valid_until);
    // Boxed: `ASKING` and `WAIT` are rare, and the size of their future would burden every call.
    let sent = match with {
        With { is_asking: false, sync: None, .. } => {
            connection.send_packed_command(&script).await.and_then(Value::extract_error)
        }
        _ => Box::pin(send_with(connection, &script, with)).await,
    };
    match sent {
        Err(error) if is_unknown_script(&error) => Ok(None),
        result => result.map(Some),
    }
}

/// Runs a script by its text, which loads the script.
pub(crate) async fn evaluate_by_text(
    connection: &mut MultiplexedConnection,
    call: &Call,
    with: With,
    is_sharded: bool,
) -> RedisResult<Value> {
    let text = command("EVAL", &call.script.form(is_sharded).source, [call], with.valid_until);
    send_with(connection, &text, with).await
}

/// Sends groups of calls in one write. Returns the reply to each group. It can be an error.
pub(crate) async fn send_groups<A: Sync>(
    connection: &mut MultiplexedConnection,
    groups: &[Group<A>],
    is_sharded: bool,
    valid_until: u64,
) -> RedisResult<Vec<Value>> {
    if let [group] = groups
        && group.mode.way != Way::Asking
    {
        let reply = connection.send_packed_command(&group_command(group, is_sharded, valid_until)).await?;
        return Ok(vec![reply]);
    }
    let mut all = redis::Pipeline::with_capacity(groups.len());
    for group in groups {
        if group.mode.way == Way::Asking {
            all.cmd("ASKING");
        }
        all.add_command(group_command(group, is_sharded, valid_until));
    }
    let replies = connection.send_packed_commands(&all, 0, all.len()).await?;
    let mut replies = replies.into_iter();
    // Skips the reply to `ASKING`, which says nothing about a call.
    let reply = |group: &Group<A>| replies.nth(usize::from(group.mode.way == Way::Asking));
    Ok(groups.iter().map_while(reply).collect())
}

/// Returns the command that runs the calls of a group.
fn group_command<A>(Group { mode, calls }: &Group<A>, is_sharded: bool, valid_until: u64) -> Cmd {
    let script = calls[0].place.call.script;
    let form = match script.batch_form(is_sharded) {
        Some(batch) if calls.len() > 1 => batch,
        _ => script.form(is_sharded),
    };
    let (name, script) = if mode.is_text { ("EVAL", &*form.source) } else { ("EVALSHA", hash(form)) };
    command(name, script, calls.iter().map(|waiting| &waiting.place.call), valid_until)
}

/// What the batch form of a script replies for one call.
pub(crate) fn reply_in_batch(value: Value) -> Result<Value, Fault> {
    match &value {
        // The script returns the error of one call as a list of one text.
        Value::Array(list) if let [Value::BulkString(error)] = &list[..] => {
            let error = String::from_utf8_lossy(error).replace(['\r', '\n'], " ");
            let error = redis::parse_redis_value(format!("-{error}\r\n").as_bytes());
            Err(fault(error.and_then(Value::extract_error).err().unwrap_or_else(|| broken("no error"))))
        }
        _ => value.extract_error().map_err(fault),
    }
}

/// Whether a command with several calls did not run, and each of these can run by itself.
pub(crate) fn is_to_be_divided(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOPERM" | "CROSSSLOT" | "MOVED" | "ASK" | "TRYAGAIN"))
}

/// Whether the server does not know a script.
pub(crate) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Translates the error of a command with several calls. Perhaps some of them ran, except if the code says why the server ran none.
pub(crate) fn fault_of_all(error: RedisError) -> Fault {
    let is_known = error.code().is_some_and(|code| code != "ERR");
    let mut fault = fault(error);
    if !is_known || fault.kind == FaultKind::Rejected {
        fault.sent = Sent::Unknown;
    }
    fault
}

/// What is sent in the same write as a script.
#[derive(Clone, Copy)]
pub(crate) struct With {
    /// `ASKING` before the script: the node can run the script, although the slot of its key is still moving to that
    /// node.
    pub(crate) is_asking: bool,
    /// `WAIT` after the script: the server answers when this many replicas have what the script wrote.
    pub(crate) sync: Option<Replication>,
    /// Until when the server may run the script, if the call [expires](Call::expires).
    pub(crate) valid_until: u64,
}

async fn send_with(connection: &mut MultiplexedConnection, script: &Cmd, with: With) -> RedisResult<Value> {
    let mut all = redis::pipe();
    if with.is_asking {
        all.cmd("ASKING");
    }
    all.add_command(script.clone());
    if let Some(sync) = with.sync {
        all.cmd("WAIT").arg(sync.replicas).arg(millis(sync.timeout));
    }
    let mut replies = connection.send_packed_commands(&all, 0, all.len()).await?;
    // An error of `WAIT` must not hide that the script ran.
    let replicas = with.sync.map(|_| match replies.pop() {
        Some(Value::Int(replicas)) => Value::Int(replicas),
        _ => Value::Int(0),
    });
    let reply = replies.pop().unwrap_or(Value::Nil).extract_error()?;
    Ok(match replicas {
        Some(replicas) => Value::Array(vec![reply, replicas]),
        None => reply,
    })
}

pub(crate) async fn send(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    connection.send_packed_command(command).await?.extract_error()
}

/// Sends commands in one write. What a server has read at once, it runs before it turns to others.
pub(crate) async fn send_together(
    connection: &mut MultiplexedConnection,
    commands: &[&Cmd],
) -> RedisResult<Vec<Value>> {
    let mut all = redis::Pipeline::with_capacity(commands.len());
    commands.iter().for_each(|command| _ = all.add_command((*command).clone()));
    let replies = connection.send_packed_commands(&all, 0, commands.len()).await?;
    replies.into_iter().map(Value::extract_error).collect()
}

/// A fact in the reply of `HELLO`.
pub(crate) fn hello_fact(reply: &Value, fact: &str) -> Option<String> {
    let facts: HashMap<String, Value> = FromRedisValue::from_redis_value_ref(reply).ok()?;
    String::from_redis_value_ref(facts.get(fact)?).ok()
}

/// A fact in a text of `INFO`. `None`: the server does not tell it.
pub(crate) fn info_fact(info: &str, fact: &str) -> Option<Box<str>> {
    let found = info.lines().find_map(|line| line.strip_prefix(fact)?.strip_prefix(':'));
    found.filter(|value| !value.is_empty()).map(Into::into)
}

fn hash(form: &Form) -> &str {
    form.hash.get_or_init(|| redis::Script::new(&form.source).get_hash().to_owned())
}

/// Returns the command that runs calls of one script.
fn command<'a>(
    name: &str,
    script: &str,
    calls: impl IntoIterator<Item = &'a Call, IntoIter: Clone>,
    valid_until: u64,
) -> Cmd {
    let calls = calls.into_iter();
    let sum = |(keys, args), call: &Call| (keys + call.keys.len(), args + call.args.len());
    let (keys, args) = calls.clone().fold((0, 0), sum);
    let mut command = Cmd::with_capacity(3 + keys + args, script.len() + 48 * (keys + args));
    command.arg(name).arg(script).arg(keys);
    calls.clone().flat_map(|call| &call.keys).for_each(|key| _ = command.arg(key.as_bytes()));
    calls.flat_map(|call| &call.args).for_each(|arg| {
        _ = match arg {
            Arg::Number(number) => command.arg(number),
            Arg::Owner(client, number) => command.arg(owner_text(*client, *number, &mut [0; 57])),
            Arg::Permits(permits) => {
                let mut ids = SmallVec::<[u8; 16]>::new();
                permits.each().for_each(|id| ids.extend_from_slice(&id));
                command.arg(&ids[..])
            }
            Arg::Text(text) => command.arg(text.as_bytes()),
            Arg::ValidUntil => command.arg(valid_until),
        };
    });
    command
}

/// What a call replied. A call that came too late is a fault.
pub(crate) fn reply_to(call: &Call, value: Value) -> Result<Reply, Fault> {
    let reply = reply(value)?;
    if call.expires() && reply.is_late() {
        return Err(Fault::new(
            FaultKind::Late,
            Sent::Refused,
            "by the server's clock, the call came after its time",
        ));
    }
    Ok(reply)
}

pub(crate) fn reply(value: Value) -> Result<Reply, Fault> {
    match value {
        Value::Nil => Ok(Reply::Nil),
        Value::Int(number) => Ok(Reply::Int(number)),
        Value::BulkString(bytes) => Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned())),
        Value::SimpleString(text) => Ok(Reply::Text(text)),
        Value::Array(values) => values.into_iter().map(reply).collect::<Result<_, _>>().map(Reply::List),
        other => Err(Fault::unexpected(&other)),
    }
}

/// Translates the error of a command that a connection took.
pub(crate) fn fault(error: RedisError) -> Fault {
    let redirect = error.redirect_node().map(|(address, slot)| Redirect {
        slot,
        address: address.to_owned(),
        is_for_once: error.code() == Some("ASK"),
    });
    let (kind, sent) = match (error.kind(), error.code()) {
        // The slot moves, and the node lacks a key that the script looked for after it had begun. So it is unknown what
        // the script changed.
        (_, Some("ERR")) if is_split(error.detail().unwrap_or_default()) => (FaultKind::Split, Sent::Unknown),
        (_, Some(code)) => (refusal(code, error.detail().unwrap_or_default()), Sent::Refused),
        (ErrorKind::AuthenticationFailed, _) => (FaultKind::Authentication, Sent::Refused),
        (ErrorKind::Io, _) if error.is_timeout() => (FaultKind::TimedOut, Sent::Unknown),
        _ if is_broken(&error) => (FaultKind::Broken, Sent::Unknown),
        _ => (FaultKind::Rejected, Sent::Unknown),
    };
    let mut fault = Fault::new(kind, sent, with_advice(&error));
    fault.redirect = redirect.map(Arc::new);
    fault
}

/// Whether the connection is gone.
pub(crate) fn is_broken(error: &RedisError) -> bool {
    error.code().is_none() && !error.is_timeout() && matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse)
}

/// The error of a connection that is given up.
pub(crate) fn broken(cause: &'static str) -> RedisError {
    io::Error::new(io::ErrorKind::BrokenPipe, cause).into()
}

/// Translates the error of a connection that could not be made.
pub(crate) fn connect_fault(error: RedisError) -> Fault {
    // If the server refuses a command that sets up a connection, the library's error has no code, and the refusal is
    // its detail.
    let detail = error.detail().unwrap_or_default();
    let kind = match fault(error.clone()).kind {
        _ if error.kind() == ErrorKind::InvalidClientConfig => FaultKind::Configuration,
        _ if detail.contains("DB index") || detail.contains(ONE_DATABASE) => FaultKind::Configuration,
        _ if detail.contains("no permissions") || detail.contains("protected mode") => FaultKind::Permission,
        _ if detail.contains(FULL) => FaultKind::Unavailable,
        kind @ (FaultKind::Authentication | FaultKind::Permission) => kind,
        _ if is_tls_refusal(&error.to_string()) => FaultKind::Configuration,
        _ => FaultKind::Unreachable,
    };
    Fault::new(kind, Sent::No, with_advice(&error))
}

/// Translates what a server says, without the `-`, when it refuses a client before the first command.
pub(crate) fn refused_contact(error: &str) -> Fault {
    // Only the first sentence says what is wrong. The rest is long.
    let words = error.split(['.', '\r']).next().unwrap_or_default();
    Fault::new(caught(error), Sent::No, advised(words))
}

/// The fault of a connection that leads to a server with another role.
pub(crate) fn not_a_master(role: &str) -> Fault {
    let words = format!("the server is a {role}: {TO_MASTER}");
    Fault::new(FaultKind::ReadOnly, Sent::No, words)
}

/// Whether the server understood the request, and refused it for a reason that lockkeeper does not know.
pub(crate) fn was_rejected(fault: &Fault) -> bool {
    fault.kind == FaultKind::Rejected && fault.sent == Sent::Refused
}

/// The text of an error of the library. As text: such an error repeats its source, and its type must not be visible to users.
fn with_advice(error: &RedisError) -> String {
    advised(&words(error))
}

/// What the server said, or what the library found, without the names that only the library knows.
pub(crate) fn words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) if error.kind() == ErrorKind::Parse && !error.to_string().contains("end of input") => {
            NO_REDIS.to_owned()
        }
        (None, _) => error.to_string().replacen(&format!(" - {:?}", error.kind()), "", 1),
    }
}

/// What answers is no reply. An incomplete reply is none either: then the connection broke.
const NO_REDIS: &str = "what answers is no Redis server";

/// Whether the first bytes of a server were no reply.
pub(crate) fn is_no_redis(fault: &Fault) -> bool {
    fault.to_string() == NO_REDIS
}

/// How a node of a cluster refuses any other database than 0. Valkey from 9.0 on refuses only those that it does not have.
const ONE_DATABASE: &str = "SELECT is not allowed in cluster mode";

/// How a server says that it has no place for another client.
const FULL: &str = "max number of clients";

/// Puts what to do in front of words that do not say it. Users search for the words, so they stay.
fn advised(words: &str) -> String {
    const ADVICE: [(&str, &str); 10] = [
        ("NOAUTH", "the server wants a password, and the URL has none"),
        ("'time' command", "each lock needs the right `+time`"),
        (
            "protected mode",
            "the server is in protected mode: set a password (`requirepass`), or `protected-mode no` in a network that you trust",
        ),
        (FULL, "the server has no place for another client: close some, or raise `maxclients`"),
        ("read only replica", TO_MASTER),
        (
            ONE_DATABASE,
            "the URL names a database, and this cluster has only database 0: name none, or use Valkey 9.0 with `cluster-databases`",
        ),
        (
            "CaUsedAsEndEntity",
            "the server shows the certificate of an authority: give it one of its own that the authority signed, and pass the \
             authority's to `Source::with_root_cert`",
        ),
        ("UnknownIssuer", UNKNOWN_AUTHORITY),
        ("certificate verify failed", UNKNOWN_AUTHORITY),
        ("self-signed certificate", UNKNOWN_AUTHORITY),
    ];
    let known = ADVICE.iter().find(|(part, _)| words.contains(part));
    known.map_or_else(|| words.to_owned(), |(_, advice)| format!("{advice} ({words})"))
}

const TO_MASTER: &str = "connect to the master; `Source::sentinel` and `Source::cluster` find it";

const UNKNOWN_AUTHORITY: &str = "an authority signed the server's certificate that this client does not know: pass its certificate to `Source::with_root_cert`";

/// Whether client and server do not accept each other's certificates, or only one of them uses TLS. The library hides the types of
/// these errors, so their text decides.
fn is_tls_refusal(text: &str) -> bool {
    const RUSTLS: [&str; 2] = ["invalid peer certificate", "received corrupt message"];
    const OPENSSL: [&str; 2] = ["certificate verify failed", "wrong version number"];
    // The alerts with which a server refuses the client's certificate, or the lack of one.
    const ALERTS: [&str; 6] =
        ["certificate", "unknownca", "unknown ca", "accessdenied", "handshake", "protocol version"];
    let small = text.to_ascii_lowercase();
    RUSTLS.iter().chain(&OPENSSL).any(|words| text.contains(words))
        || (small.contains("alert") && ALERTS.iter().any(|words| small.contains(words)))
}

/// Translates the panic of a connection that could not be made.
pub(crate) fn panic_fault(panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    match text {
        Some(text) if text.contains("CryptoProvider") => Fault::new(
            FaultKind::Configuration,
            Sent::No,
            "rustls does not know which crypto provider to use: call `install_default` of one when the program starts",
        ),
        _ => Fault::new(FaultKind::Unreachable, Sent::No, "the pool panicked"),
    }
}

/// How a server says that the user may not run a command of a script. The error has no code of its own.
const SCRIPT_REFUSALS: [&str; 2] = [
    "user executing the script can't", // Redis 7, Valkey 7
    "ACL failure in script",           // Redis 8, Valkey 8
];

/// How a server says that a script needs keys which the server lacks while their slot moves.
const SPLIT: [&str; 2] = [
    "non local key",                 // Redis 7, Valkey
    "undeclared keys were accessed", // Redis 8
];

fn is_split(detail: &str) -> bool {
    SPLIT.iter().any(|words| detail.contains(words))
}

/// What an error says that a script caught and returned as text.
pub(crate) fn caught(error: &str) -> FaultKind {
    let (code, detail) = error.split_once(' ').unwrap_or((error, ""));
    if is_split(detail) { FaultKind::Split } else { refusal(code, detail) }
}

/// Translates an error reply. After an error reply the server has changed nothing: the scripts run every command that can be
/// refused before they write, or take back what they wrote.
fn refusal(code: &str, detail: &str) -> FaultKind {
    match code {
        // A script that already runs gets this error. Before a script runs, the code is CLUSTERDOWN.
        "ERR" if detail.contains("while the cluster is down") => FaultKind::Unavailable,
        "ERR" if detail.contains(FULL) => FaultKind::Unavailable,
        "ERR" if SCRIPT_REFUSALS.iter().any(|words| detail.contains(words)) => FaultKind::Permission,
        "NOAUTH" | "WRONGPASS" => FaultKind::Authentication,
        "DENIED" | "NOPERM" => FaultKind::Permission,
        "OOM" => FaultKind::OutOfMemory,
        "READONLY" => FaultKind::ReadOnly,
        "WRONGTYPE" => FaultKind::WrongType,
        "ASK" | "TRYAGAIN" => FaultKind::Split,
        "CROSSSLOT" => FaultKind::SeveralSlots,
        "BUSY" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "MISCONF" | "MOVED" | "NOREPLICAS" => {
            FaultKind::Unavailable
        }
        _ => FaultKind::Rejected,
    }
}

#[cfg(test)]
mod tests {
    use redis::{Value, parse_redis_value};

    use super::*;

    #[test]
    fn errors_say_what_the_server_said_and_no_names_of_the_library() {
        let said = |line: &str| {
            let reply = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            words(&Value::extract_error(reply).unwrap_err())
        };
        for line in [
            "NOPERM no permissions to run the 'scan' command",
            "ERR a b",
            "OOM c",
            "LOADING d",
            "WRONGTYPE e",
        ] {
            assert_eq!(said(line), line);
        }
        let found = |detail: Option<&str>| match detail {
            None => words(&(ErrorKind::AuthenticationFailed, "refused").into()),
            Some(detail) => words(&(ErrorKind::InvalidClientConfig, "refused", detail.to_owned()).into()),
        };
        assert_eq!([found(None), found(Some("so"))], ["refused", "refused: so"]);
    }

    #[test]
    fn an_unclear_error_of_many_calls_leaves_open_which_ran() {
        let sent = |line: &str| {
            let reply = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            fault_of_all(Value::extract_error(reply).unwrap_err()).sent
        };
        for line in
            ["OOM a", "LOADING b", "BUSY c", "READONLY d", "MASTERDOWN e", "CLUSTERDOWN f", "MISCONF g"]
        {
            assert_eq!(sent(line), Sent::Refused, "{line}");
        }
        for line in ["ERR a", "ERR max number of clients reached", "UNKNOWN b"] {
            assert_eq!(sent(line), Sent::Unknown, "{line}");
        }
    }

    #[test]
    fn an_error_in_a_batch_is_that_of_one_call() {
        let error =
            |text: &str| reply_in_batch(Value::Array(vec![Value::BulkString(text.into())])).unwrap_err();
        let kinds = [
            "WRONGTYPE a",
            "ERR user executing the script can't b",
            "ERR non local key",
            "ERR user_script:3: c",
        ]
        .map(|text| (error(text).kind, error(text).sent));
        assert_eq!(
            kinds,
            [
                (FaultKind::WrongType, Sent::Refused),
                (FaultKind::Permission, Sent::Refused),
                (FaultKind::Split, Sent::Unknown),
                (FaultKind::Rejected, Sent::Refused),
            ]
        );
        for reply in [Value::Nil, Value::Int(1), Value::Array(vec![Value::Int(1), Value::Int(2)])] {
            assert_eq!(reply_in_batch(reply.clone()).unwrap(), reply);
        }
    }

    #[test]
    fn a_script_whose_keys_are_under_way_is_told_apart() {
        for words in [
            "Script attempted to access a non local key in a cluster node",
            "Unable to execute command 'exists' in script because undeclared keys were accessed during rehashing of the slot",
        ] {
            let reply = parse_redis_value(format!("-ERR {words} script: 58adf597\r\n").as_bytes()).unwrap();
            let fault = fault(Value::extract_error(reply).unwrap_err());
            assert_eq!((fault.kind, fault.sent), (FaultKind::Split, Sent::Unknown), "{words}");
        }
    }
}

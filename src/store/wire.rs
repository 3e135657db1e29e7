//! Calls, replies and errors in the terms of the `redis` crate.

use std::any::Any;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, RedisWrite, ServerErrorKind, Value};

use crate::fault::{Fault, FaultKind, Sent};
use crate::protocol::{Arg, Call, Reply, Script};

/// Runs a script by its hash. If the server does not know the hash, sends the text, which loads the script.
pub(super) async fn evaluate(connection: &mut MultiplexedConnection, call: &Call) -> RedisResult<Value> {
    match send(connection, &command("EVALSHA", hash(call.script), call)).await {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            // Boxed: this is rare, and its size would burden every call.
            Box::pin(async { send(connection, &command("EVAL", call.script.source, call)).await }).await
        }
        result => result,
    }
}

pub(super) async fn send(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    connection.send_packed_command(command).await?.extract_error()
}

fn hash(script: &'static Script) -> &'static str {
    script.hash.get_or_init(|| redis::Script::new(script.source).get_hash().to_owned())
}

fn command(name: &str, script: &str, call: &Call) -> Cmd {
    let bytes = script.len() + call.keys.iter().map(|key| key.len()).sum::<usize>() + 48 * call.args.len();
    let mut command = Cmd::with_capacity(3 + call.keys.len() + call.args.len(), bytes);
    command.arg(name).arg(script).arg(call.keys.len());
    for key in &call.keys {
        command.arg(key.as_bytes());
    }
    for arg in &call.args {
        match arg {
            Arg::Number(number) => command.arg(number),
            Arg::Owner(..) => {
                command.write_arg_fmt(arg);
                &mut command
            }
            Arg::Text(text) => command.arg(text.as_bytes()),
        };
    }
    command
}

pub(super) fn reply(value: Value) -> Result<Reply, Fault> {
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
pub(super) fn fault(error: RedisError) -> Fault {
    let (kind, sent) = match (error.kind(), error.code()) {
        (_, Some(code)) => (refusal(code, error.detail().unwrap_or_default()), Sent::Refused),
        (ErrorKind::AuthenticationFailed, _) => (FaultKind::Authentication, Sent::Refused),
        (ErrorKind::Io, _) if error.is_timeout() => (FaultKind::TimedOut, Sent::Unknown),
        _ if is_broken(&error) => (FaultKind::Broken, Sent::Unknown),
        _ => (FaultKind::Rejected, Sent::Unknown),
    };
    // As text: an error of the library repeats its source, and its type must not be visible to users.
    Fault::new(kind, sent, error.to_string())
}

/// Whether the connection is gone.
pub(super) fn is_broken(error: &RedisError) -> bool {
    error.code().is_none() && !error.is_timeout() && matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse)
}

/// Translates the error of a connection that could not be made.
pub(super) fn connect_fault(error: RedisError) -> Fault {
    // If the server refuses a command that sets up a connection, the library's error has no code, and the refusal is its detail.
    let detail = error.detail().unwrap_or_default();
    let kind = match fault(error.clone()).kind {
        _ if error.kind() == ErrorKind::InvalidClientConfig => FaultKind::Configuration,
        _ if detail.contains("DB index") => FaultKind::Configuration,
        _ if detail.contains("no permissions") => FaultKind::Permission,
        kind @ (FaultKind::Authentication | FaultKind::Permission) => kind,
        _ if is_tls_refusal(&error.to_string()) => FaultKind::Configuration,
        _ => FaultKind::Unreachable,
    };
    Fault::new(kind, Sent::No, error.to_string())
}

/// Whether client and server do not accept each other's certificates, or only one of them uses TLS. The library hides the types of
/// these errors, so their text decides.
fn is_tls_refusal(text: &str) -> bool {
    const RUSTLS: [&str; 2] = ["invalid peer certificate", "received corrupt message"];
    const OPENSSL: [&str; 2] = ["certificate verify failed", "wrong version number"];
    // How a server refuses the client's certificate, or the lack of one.
    const ALERTS: [&str; 6] =
        ["certificate", "unknownca", "unknown ca", "accessdenied", "handshake", "protocol version"];
    let small = text.to_ascii_lowercase();
    RUSTLS.iter().chain(&OPENSSL).any(|words| text.contains(words))
        || (small.contains("alert") && ALERTS.iter().any(|words| small.contains(words)))
}

/// Translates the panic of a connection that could not be made.
pub(super) fn panic_fault(panic: &(dyn Any + Send)) -> Fault {
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

/// Translates an error reply. After an error reply the server has changed nothing: the scripts run every command that can be
/// refused before they write.
fn refusal(code: &str, detail: &str) -> FaultKind {
    match code {
        "ERR" if SCRIPT_REFUSALS.iter().any(|words| detail.contains(words)) => FaultKind::Permission,
        "NOAUTH" | "WRONGPASS" => FaultKind::Authentication,
        "NOPERM" => FaultKind::Permission,
        "OOM" => FaultKind::OutOfMemory,
        "READONLY" => FaultKind::ReadOnly,
        "WRONGTYPE" => FaultKind::WrongType,
        "ASK" | "BUSY" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "MISCONF" | "MOVED" | "NOREPLICAS"
        | "TRYAGAIN" => FaultKind::Unavailable,
        _ => FaultKind::Rejected,
    }
}

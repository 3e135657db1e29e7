//! Whether the server tells a client at once when somebody else changes a key.

use std::time::Duration;

use lockkeeper::{LockClient, LockOptions};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisResult, cmd};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout_at};

use super::finding::Finding;
use crate::connect::Settings;

const CHECK: &str = "tracking";

/// As a renewal does: the server must track what scripts read.
const READ: &str = "return redis.call('exists', KEYS[1])";

/// A server that tells nothing in this time does not tell.
const LONGEST: Duration = Duration::from_secs(2);

/// If the lock cannot be released, nobody needs to.
const LEASE: Duration = Duration::from_secs(10);

/// Changes a key, and waits until a master tells of it. `address`: of the master; without one, that of the URL. `names`: for locks of which
/// at least one is on this master.
pub(super) async fn tracking(
    locks: &LockClient,
    settings: &Settings,
    address: Option<&str>,
    names: &[String],
) -> Finding {
    let unknown = |reason| Finding::unknown(CHECK, reason, "repair that first");
    let finding = ask(locks, settings, address, names).await.unwrap_or_else(unknown);
    match address {
        Some(address) => finding.at(address),
        None => finding,
    }
}

async fn ask(
    locks: &LockClient,
    settings: &Settings,
    address: Option<&str>,
    names: &[String],
) -> Result<Finding, String> {
    const RIGHT: &str = "grant this user `+client|tracking`";
    const PROXY: &str = "check whether a proxy changes commands or replies: the server has to answer `HELLO 3` and `CLIENT TRACKING ON NOLOOP`";
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (sender, mut pushes) = unbounded_channel();
    let mut server = match settings.raw(address, Some(sender)).await {
        Ok(server) => server,
        Err(reason) => {
            // Without pushes, this fails, too, if the fault is another one.
            settings.raw(address, None).await?;
            return Ok(silent(&reason, PROXY));
        }
    };
    let tracked: RedisResult<()> =
        cmd("CLIENT").arg("TRACKING").arg("ON").arg("NOLOOP").query_async(&mut server).await;
    if let Err(error) = tracked {
        let advice = if error.code() == Some("NOPERM") { RIGHT } else { PROXY };
        return Ok(silent(&text(&error), advice));
    }
    let Some(name) = read_one(&mut server, settings.locks().name_prefix(), names).await? else {
        return Err("no name of a lock is on this master".to_owned());
    };
    let start = Instant::now();
    let options = LockOptions::builder().fixed(LEASE).build().map_err(|error| text(&error))?;
    let guard = locks.rlock(name).with(&options).try_lock_for(LONGEST).await.map_err(|error| text(&error))?;
    let Some(guard) = guard else { return Err("somebody holds the lock of this check".to_owned()) };
    let told = wait(&mut pushes).await;
    guard.unlock().await.map_err(|error| text(&error))?;
    Ok(match told {
        Some(at) => {
            let ms = at.saturating_duration_since(start).as_secs_f64() * 1_000.0;
            Finding::ok(CHECK, format!("the server told of a changed key after {ms:.1} ms"))
        }
        None => silent("no message came for a key that had changed", PROXY),
    })
}

/// Reads a key of this master in a script. Returns the name of its lock. `None`: all keys are on other masters.
async fn read_one<'a>(
    server: &mut MultiplexedConnection,
    prefix: &str,
    names: &'a [String],
) -> Result<Option<&'a str>, String> {
    for name in names {
        let read: RedisResult<i64> =
            cmd("EVAL").arg(READ).arg(1).arg(format!("{prefix}{name}")).query_async(server).await;
        match read {
            Ok(_) => return Ok(Some(name)),
            Err(error) if error.code() == Some("MOVED") => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(None)
}

/// Returns when the server told of a change. `None`: it did not.
async fn wait(pushes: &mut UnboundedReceiver<PushInfo>) -> Option<Instant> {
    let limit = Instant::now() + LONGEST;
    loop {
        let push = timeout_at(limit, pushes.recv()).await.ok()??;
        if push.kind == PushKind::Invalidate {
            return Some(Instant::now());
        }
    }
}

/// The server refused to tell, or told nothing.
fn silent(reason: &str, advice: &str) -> Finding {
    let text = format!(
        "the server does not tell when a lock is deleted, so a guard learns it at its next renewal: {reason}"
    );
    Finding::warning(CHECK, text, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_change_of_a_key_counts() {
        let (sender, mut pushes) = unbounded_channel();
        let push = |kind| sender.send(PushInfo { kind, data: Vec::new() }).expect("a receiver");
        push(PushKind::Message);
        assert_eq!(wait(&mut pushes).await, None);
        push(PushKind::Message);
        push(PushKind::Invalidate);
        assert!(wait(&mut pushes).await.is_some());
    }
}

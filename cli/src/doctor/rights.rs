//! What this user may do.

use futures_util::future::try_join_all;
use lockkeeper::{Error, LockClient, Result};

use super::finding::Finding;
use crate::args::Examined;
use crate::exit::{Failure, USAGE};

const ADVICE: &str = "grant the rights that docs/deploy.md names for this type";

/// Checks whether this user may use a type of lock, with each of these names.
pub(super) async fn rights(locks: &LockClient, kind: Examined, names: &[String]) -> Vec<Finding> {
    let result = try_join_all(names.iter().map(|name| check(locks, kind, name))).await;
    judge(kind, result.map(drop), &locks.id())
}

async fn check(locks: &LockClient, kind: Examined, name: &str) -> Result<()> {
    match kind {
        Examined::Rlock => locks.rlock(name).check().await,
        Examined::Fair => locks.fair_lock(name).check().await,
        Examined::Fenced => locks.fenced_lock(name).check().await,
        Examined::Read => locks.read_write_lock(name).read().check().await,
        Examined::Write => locks.read_write_lock(name).write().check().await,
        Examined::Semaphore => locks.semaphore(name, 1).check().await,
    }
}

fn judge(kind: Examined, result: Result<()>, id: &str) -> Vec<Finding> {
    let check = match kind {
        Examined::Rlock => "rights-rlock",
        Examined::Fair => "rights-fair",
        Examined::Fenced => "rights-fenced",
        Examined::Read | Examined::Write => "rights-read-write",
        Examined::Semaphore => "rights-semaphore",
    };
    match result {
        Ok(()) => vec![Finding::ok(check, "this user has all rights that the lock needs")],
        Err(error @ Error::Permission(_)) => {
            let texts = missing(&error.to_string(), id).into_iter();
            texts.map(|text| Finding::error(check, text, ADVICE)).collect()
        }
        Err(error) => vec![Finding::unknown(check, error.to_string(), "repair that first")],
    }
}

/// Returns what this user lacks: a text for each right. The ids of the probes are replaced by `*`, so no right is named twice.
fn missing(text: &str, id: &str) -> Vec<String> {
    const MARK: &str = "this user may not run ";
    let Some((_, pairs)) = text.split_once(MARK) else { return vec![text.to_owned()] };
    let mut all: Vec<String> = Vec::new();
    for pair in pairs.split(", ") {
        let right = format!("{MARK}{}", any_name(pair, id));
        if !all.contains(&right) {
            all.push(right);
        }
    }
    all
}

/// Puts a `*` in the place of the id of the probe and the number behind it, as in the pattern of a right.
fn any_name(key: &str, id: &str) -> String {
    let Some((before, after)) = key.split_once(id) else { return key.to_owned() };
    let after = after
        .strip_prefix('-')
        .map_or(after, |rest| rest.trim_start_matches(|char: char| char.is_ascii_digit()));
    format!("{before}*{after}")
}

/// What to do, by words of the error. The same kind of error can have several causes.
const BY_WORDS: [(&str, &str); 7] = [
    ("protected mode", "set a password on the server, or `protected-mode no` in a network that you trust"),
    ("max number of clients", "close clients that nobody needs, or raise `maxclients` of the server"),
    ("does not speak TLS", "begin the URL with `redis://`"),
    ("wants TLS", "begin the URL with `rediss://`"),
    (
        "wants a password",
        "name the password in the URL: redis://user:password@host, or redis://:password@host",
    ),
    (
        "certificate of an authority",
        "give the server a certificate that the authority signed, and name the authority's as `root_cert` in a file",
    ),
    ("an authority signed", "name the certificate of the authority as `root_cert` in a file"),
];

/// Why a client could not be made. Bad arguments end the command.
pub(super) fn refused(error: Error) -> std::result::Result<Finding, Failure> {
    let text = error.to_string();
    let known = BY_WORDS.iter().find(|(words, _)| text.contains(words)).map(|(_, advice)| *advice);
    let advice = known.unwrap_or(match error {
        Error::Authentication(_) => "check the user and the password of the URL",
        Error::Permission(_) => "grant the rights of docs/deploy.md",
        Error::Unreachable(_) | Error::TimedOut(_) => {
            "check the address, the network, and whether the server runs"
        }
        Error::ReadOnly(_) => "connect to the master, or use the kind `sentinel` or `cluster`",
        Error::UnsupportedServer { .. } => {
            "use Redis 7.0, Valkey 7.2 or newer, without a proxy that changes commands"
        }
        _ => "look at the log of the server",
    });
    let failure = Failure::from(error);
    let is_usage = failure.code == USAGE && known.is_none();
    if is_usage { Err(failure) } else { Ok(Finding::error("connection", text, advice)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_right_is_shown_once() {
        let text = "refused (lock `d:ID-1`): this user may not run `get` on `d:ID-1`, `get` on `d:ID-2`, `time` on `q:{d:ID-1}`";
        let rights = ["this user may not run `get` on `d:*`", "this user may not run `time` on `q:{d:*}`"];
        assert_eq!(missing(text, "ID"), rights);
        assert_eq!(missing("something else", "ID"), ["something else"]);
        assert_eq!(any_name("`{d:ID}:0:x:1`", "ID"), "`{d:*}:0:x:1`");
    }
}

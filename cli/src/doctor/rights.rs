//! What this user may do.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::leader::Candidate;
use lockkeeper::{Error, LockClient, LockOptions, Result};

use super::finding::Finding;
use crate::args::Use as Kind;
use crate::exit::{Failure, USAGE};

const ADVICE: &str = "grant the rights that docs/deploy.md names for this type";
const ADVICE_OF_NAMES: &str = "if this user may only use some names, give the beginning of one with `--name`, such as `--name shop:doctor:`; `--kind` \
                               selects the types that it uses";
const ADVICE_OF_OTHERS: &str = "take these patterns from the user: send `ACL SETUSER USER resetkeys resetchannels` together with the rules of \
                                docs/deploy.md";

/// How the key and the channel begin of what a leader announces.
const ANNOUNCEMENT: &str = "lockkeeper_announcement:";

const SILENT_LEADER: &str =
    "a candidate can lead, but others learn late who leads, and not what it announces";
const SHORT_LINGER: &str = "the client releases the lock at the end of each `linger`, even if reads still come, and `wanted()` notices no waiters";

/// Any that is allowed.
const LINGER: Duration = Duration::from_millis(20);

/// The rights of this user to a type of lock.
pub(super) struct Examined {
    kind: Kind,
    /// Those that it lacks. `Err`: nobody knows.
    missing: Result<Vec<Right>>,
}

/// A command, and the key or channel on which it runs. A `*` stands for the id of the probe.
type Right = (String, String);

/// Examines whether this user may use a type of lock, with each of these names.
pub(super) async fn examine(locks: &LockClient, kind: Kind, names: &[String]) -> Examined {
    let results = join_all(names.iter().map(|name| check(locks, kind, name))).await;
    let rights = results.into_iter().map(|result| match result {
        Ok(()) => Ok(Vec::new()),
        Err(error) => rights_in(&error.to_string(), &locks.id()).ok_or(error),
    });
    let once = |all: Vec<Vec<Right>>| {
        let mut known = HashSet::new();
        all.into_iter().flatten().filter(|right| known.insert(right.clone())).collect()
    };
    Examined { kind, missing: rights.collect::<Result<_>>().map(once) }
}

async fn check(locks: &LockClient, kind: Kind, name: &str) -> Result<()> {
    match kind {
        Kind::Rlock => locks.rlock(name).check().await,
        Kind::Fair => locks.fair_lock(name).check().await,
        Kind::Fenced => locks.fenced_lock(name).check().await,
        Kind::Read => locks.read_write_lock(name).read().check().await,
        Kind::Write => locks.read_write_lock(name).write().check().await,
        Kind::Semaphore => locks.semaphore(name, 1).check().await,
        Kind::Claim => locks.claims(name).check().await,
        Kind::Leader => Candidate::new(locks, name).check().await,
        Kind::Linger => {
            let lingering = LockOptions::builder().linger(LINGER).build()?;
            locks.read_write_lock(name).into_read().with(&lingering).check().await
        }
    }
}

impl Examined {
    /// Judges the rights to own names. They begin with `name`, after the `name_prefix`.
    pub(super) fn own(&self, name_prefix: &str, name: &str) -> Finding {
        let check = match self.kind {
            Kind::Rlock => "rights-rlock",
            Kind::Fair => "rights-fair",
            Kind::Fenced => "rights-fenced",
            Kind::Read | Kind::Write => "rights-read-write",
            Kind::Semaphore => "rights-semaphore",
            Kind::Claim => "rights-claim",
            Kind::Leader => "rights-leader",
            Kind::Linger => "rights-linger",
        };
        let missing = match &self.missing {
            Ok(missing) => missing,
            Err(error @ Error::UnsupportedServer { .. }) => {
                return Finding::unknown(check, error.to_string(), "use no lock of this type on this server");
            }
            // Some services refuse every question of a user about its own rights.
            Err(error @ Error::Permission(_)) => return Finding::error(check, error.to_string(), ADVICE),
            Err(error) => return Finding::unknown(check, error.to_string(), "repair that first"),
        };
        let key = match self.kind {
            Kind::Claim => format!("{name_prefix}{{{name}*}}:0"),
            _ => format!("{name_prefix}{name}*"),
        };
        let lacks = |command: &str| missing.iter().any(|right| *right == (command.to_owned(), key.clone()));
        if missing.is_empty() {
            return Finding::ok(check, "this user has all rights that the lock needs");
        }
        if lacks("exists") && lacks("pttl") {
            let text = format!("this user may not use names that begin with `{name_prefix}{name}`");
            return Finding::error(check, text, ADVICE_OF_NAMES);
        }
        let text = format!("this user may not run {}", by_key(missing));
        let is_only =
            |part: &str| missing.iter().all(|(command, key)| command.contains(part) || key.starts_with(part));
        match self.kind {
            Kind::Leader if is_only(ANNOUNCEMENT) => {
                Finding::warning(check, format!("{text}: {SILENT_LEADER}"), ADVICE)
            }
            Kind::Linger if is_only("numsub") => {
                Finding::warning(check, format!("{text}: {SHORT_LINGER}"), ADVICE)
            }
            _ => Finding::error(check, text, ADVICE),
        }
    }

    /// The keys and channels to which this user has a right, if these are its rights to names of others.
    fn granted(&self) -> Vec<&'static str> {
        let Ok(missing) = &self.missing else { return Vec::new() };
        let is_refused = |(name, command): &(&str, &str)| {
            missing.iter().any(|(other, key)| other.ends_with(command) && key.starts_with(name))
        };
        probes(self.kind).iter().filter(|probe| !is_refused(probe)).map(|(name, _)| *name).collect()
    }
}

/// The keys and channels of a type of lock, and a command on each. Patterns of the server's users do not distinguish commands.
const fn probes(kind: Kind) -> &'static [(&'static str, &'static str)] {
    match kind {
        Kind::Rlock => &[("*", "exists"), ("redisson_lock__channel:{*}", "publish")],
        Kind::Fair => &[
            ("redisson_lock_queue:{*}", "exists"),
            ("redisson_lock_timeout:{*}", "zscore"),
            ("lockkeeper_fair:{*}", "hget"),
            ("lockkeeper_fair_tickets:{*}", "exists"),
            ("redisson_lock__channel:{*}", "exists"),
            ("redisson_lock__channel:{*}", "publish"),
        ],
        Kind::Fenced => &[("redisson_lock_token:{*}", "get"), ("redisson_lock__channel:{*}", "publish")],
        Kind::Claim => &[("lockkeeper_claims:{*}", "get"), ("redisson_lock__channel:{*}", "publish")],
        Kind::Leader => &[
            ("redisson_lock_token:{*}", "get"),
            ("redisson_lock__channel:{*}", "publish"),
            ("lockkeeper_announcement:{*}", "get"),
            ("lockkeeper_announcement:{*}", "publish"),
        ],
        Kind::Read | Kind::Write | Kind::Linger => {
            &[("{*}:", "get"), ("redisson_rwlock:{*}", "exists"), ("redisson_rwlock:{*}", "publish")]
        }
        Kind::Semaphore => &[("{*}:timeout", "zscore"), ("redisson_sc:{*}", "publish")],
    }
}

/// Judges the rights of this user to locks of others. `own`: those to its own. `locks` has no `name_prefix`, and the names begin with its id:
/// no rule of a user names them, except one that is too wide.
pub(super) async fn others(locks: &LockClient, own: &[Examined], names: &[String]) -> Finding {
    const CHECK: &str = "rights-others";
    let may_use = |examined: &&Examined| matches!(&examined.missing, Ok(missing) if missing.is_empty());
    let kinds: Vec<Kind> = own.iter().filter(may_use).map(|examined| examined.kind).collect();
    if kinds.is_empty() {
        let text =
            "whether this user has rights to locks with other names is not known: it lacks rights to its own";
        return Finding::unknown(CHECK, text, "repair that first");
    }
    let examine = |kind| examine(locks, kind, names);
    let foreign = join_all(kinds.iter().chain([&Kind::Rlock]).map(|kind| examine(*kind))).await;
    if let Some(Err(error)) =
        foreign.iter().map(|examined| &examined.missing).find(|missing| missing.is_err())
    {
        return Finding::unknown(CHECK, error.to_string(), "repair that first");
    }
    let mut granted: Vec<&str> = foreign.iter().flat_map(Examined::granted).collect();
    granted.sort_unstable();
    granted.dedup();
    match granted[..] {
        [] => Finding::ok(CHECK, "this user has no rights to locks with other names"),
        ["*", ..] => Finding::ok(CHECK, "this user may use locks with any names"),
        _ => {
            let text = format!("this user also has rights to {} of all other locks", quoted(&granted));
            Finding::warning(CHECK, text, ADVICE_OF_OTHERS)
        }
    }
}

/// The rights in the text of an error. The ids of the probes are replaced by `*`. `None`: it names none.
fn rights_in(text: &str, id: &str) -> Option<Vec<Right>> {
    let (_, keys) = text.split_once("this user may not run ")?;
    let bare = |word: &str| word.trim_matches('`').to_owned();
    let rights = keys.split("; ").filter_map(|part| part.rsplit_once(" on ")).flat_map(|(commands, key)| {
        let key = bare(&any_name(key, id));
        commands.split(", ").map(move |command| (bare(command), key.clone()))
    });
    Some(rights.collect())
}

/// The commands for each key or channel, in the order in which the keys come first.
fn by_key(rights: &[Right]) -> String {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (command, key) in rights {
        match all.iter_mut().find(|(other, _)| other == key) {
            Some((_, commands)) => commands.push(command),
            None => all.push((key, vec![command])),
        }
    }
    let each = all.iter().map(|(key, commands)| format!("{} on `{key}`", quoted(commands)));
    each.collect::<Vec<_>>().join("; ")
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
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
const BY_WORDS: [(&str, &str); 8] = [
    ("is no Redis server", "name the host and the port of a Redis or Valkey server"),
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
            "use Redis 7.0, Valkey 7.2 or newer, with Lua and without a proxy that changes commands; docs/errors.md explains the words"
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
    fn missing_rights_are_shown_by_key() {
        let text = "refused (lock `d:ID-1`): this user may not run `get` on `d:ID-1`; `time` on `q:{d:ID-1}`; `set` on `d:ID-2`";
        assert_eq!(
            by_key(&rights_in(text, "ID").expect("rights")),
            "`get`, `set` on `d:*`; `time` on `q:{d:*}`"
        );
        assert_eq!(any_name("`{d:ID}:0:x:1`", "ID"), "`{d:*}:0:x:1`");
    }

    #[test]
    fn an_error_that_names_no_rights_says_nothing_of_them() {
        assert_eq!(rights_in("something else", "ID"), None);
    }
}

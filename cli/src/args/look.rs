//! The arguments of the commands that look at many locks, or at the server.

use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use super::duration;
pub(crate) use crate::verify::history::Examined;

const PATTERN: &str = "Which names: * is any text, ? one byte, [ab] one of these";

const LISTED: &str = "JSON: an array with an object for each lock:
  name           the name, without the `name_prefix`
  kind           rlock, fair, fenced, read, write or semaphore. A fair lock for
                 which nobody waits looks like an rlock
  holders        an object for each holder, or for each permit in use
  permits        of a semaphore, how many permits it has. null: it is a lock
  expires_in_ms  after how many milliseconds the lock ends if nobody renews it.
                 null: never, because its key has no expiry
  queued         how many waiters are in the queue of a fair lock
  listeners      of other types, how many clients have waiters

A holder:
  owner          its id. Of a permit, the id of the permit
  client         the id of its client. Of a permit, the first 18 characters of
                 that id. null: Java acquired the permit
  holds          how many holds the owner has. Of a permit, 1
  expires_in_ms  as above, for this holder
  identity       its process: program@host:pid, or its setting `identity`.
                 null: not connected, or unknown
  is_connected   false: its client has no connection, so its process has perhaps
                 ended. null: unknown
  held_for_ms    for how long it has held the lock. null: unknown
  acquired_at    where in its program: file and line. null: unknown

identity and is_connected are unknown if Redisson or an older version of
lockkeeper holds the lock, if the server does not name its connections, or if
this user may not call CLIENT LIST. held_for_ms and acquired_at are unknown for
the first one or two seconds, beyond the 500 oldest holds of a client, for a fixed lease without
the right CLIENT TRACKING, for Redisson, and for a client with another
`name_prefix`.

The number of locks goes to standard error, except with JSON. Names that are not
UTF-8 are left out. If a lock cannot be read, for example while a cluster moves
its slot, a line on standard error names it, and the exit code is 69.";

/// Which locks to list.
#[derive(Args, Debug, Default)]
#[command(after_long_help = LISTED)]
pub(crate) struct Ls {
    /// Which names.
    #[arg(default_value = "*", help = PATTERN, value_parser = pattern)]
    pub(crate) pattern: String,
    /// Only this type: rlock, fair, read, write, fenced, semaphore. Can be repeated
    #[arg(long, value_enum, hide_possible_values = true)]
    pub(crate) kind: Vec<Examined>,
    /// Only those that are held for this time already, such as 10m, if that is known
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) older: Option<Duration>,
    /// Sorts by name, as at a terminal
    ///
    /// Without this, each lock is printed as soon as it is found. With it, all of them must fit into memory
    #[arg(long)]
    pub(crate) sort: bool,
    /// Lists only what clients tell, without a look at each key of the server
    ///
    /// A line on standard error says what they do not tell. In JSON, a hold has lock, kind, owner, identity, held_for_ms and acquired_at
    #[arg(long, conflicts_with = "pattern")]
    pub(crate) fast: bool,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which locks to show.
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Which names.
    #[arg(default_value = "*", help = PATTERN, value_parser = pattern)]
    pub(crate) pattern: String,
    /// How often it looks at the server
    ///
    /// The time between two looks at the locks on the screen, such as 5s. If there are thousands of locks, a look at
    /// all of them takes longer: the server spends at most 4 % of its time on it
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = pause)]
    pub(crate) every: Duration,
}

/// Which lock to explain.
#[derive(Args, Debug)]
pub(crate) struct Why {
    /// The name of the lock. Without it: all locks whose holders wait for other locks, or that there are none
    pub(crate) name: Option<String>,
    /// Prints JSON
    ///
    /// An array of objects with `is_deadlock` and `links`. A link has `lock`, `holder` (with the fields that
    /// `lockkeeper ls --help` lists), `waits_for` and `client_waits`. `waits_for` is null, or an object with `lock`,
    /// `age_ms` and `at`: the file and the line of the program where the holder waits. `client_waits` is an array of
    /// such objects: what the holder's client waits for, if it is not known whether the holder waits
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which locks to follow.
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// Which names.
    #[arg(default_value = "*", help = PATTERN, value_parser = pattern)]
    pub(crate) patterns: Vec<String>,
    /// How often it looks at the server
    ///
    /// The time between two looks at the server, such as 500ms. What begins and ends between two looks is not seen
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = pause)]
    pub(crate) every: Duration,
    /// Prints JSON, one object a line
    ///
    /// The fields are `at`, `name`, `change` and `lock`. `change` is present at first, and then held, free, holders,
    /// holds, permits, expiry or waiters. `lock` has the fields that `lockkeeper ls --help` lists, or is null if the
    /// lock is free
    #[arg(long)]
    pub(crate) json: bool,
}

/// The shortest time between two looks: each of them reads all keys.
const SHORTEST: Duration = Duration::from_millis(10);

fn pause(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time < SHORTEST { Err(format!("must be at least {SHORTEST:?}")) } else { Ok(time) }
}

/// An empty pattern is mostly a variable of a shell that is not set.
fn pattern(text: &str) -> Result<String, &'static str> {
    if text.is_empty() { Err("a pattern must not be empty: * means all names") } else { Ok(text.to_owned()) }
}

const EXIT_CODES: &str = "Exit codes:
  0   all is well, except what is ignored
  1   warnings, or something could not be found out
  2   errors
  64  bad arguments or settings";

/// The checks that can be ignored. Without a connection, nothing was examined.
const CHECKS: [&str; 20] = [
    "facts",
    "deployment",
    "version",
    "memory-policy",
    "memory",
    "persistence",
    "replicas",
    "rights-rlock",
    "rights-fair",
    "rights-fenced",
    "rights-read-write",
    "rights-semaphore",
    "rights-claim",
    "rights-leader",
    "rights-linger",
    "rights-others",
    "tracking",
    "round-trip",
    "messages",
    "clock",
];

/// What to examine.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Doctor {
    /// The names of the locks that it acquires begin with this: for a user that may only use some names
    #[arg(long, value_name = "PREFIX", default_value = "lockkeeper:doctor:")]
    pub(crate) name: String,
    /// Only checks the rights for this type or use of locks. Can be repeated
    ///
    /// `claim`: claims; `leader`: candidates for a leadership, and what they announce; `linger`: read locks with this option
    #[arg(long, value_enum)]
    pub(crate) kind: Vec<Use>,
    /// Only prints the rights to names that begin with this
    ///
    /// It needs no server, and prints the command that makes a user. This one has the rights for the types of `--kind`, or for all. Replace
    /// PASSWORD, and send the command in `redis-cli`. From Redis 7.2 on, also grant `+client|setinfo`
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["ignore", "json"])]
    pub(crate) acl: Option<String>,
    /// Reports this check, such as persistence, but does not count it. Can be repeated
    ///
    /// The checks connection and scripts cannot be ignored
    #[arg(long, value_name = "CHECK", value_parser = CHECKS, hide_possible_values = true)]
    pub(crate) ignore: Vec<String>,
    /// Prints JSON
    ///
    /// An array of objects with `check`, `level` (ok, unknown, warning or error), `server` (or null), `text`, `advice`
    /// (or null) and `ignored`
    #[arg(long)]
    pub(crate) json: bool,
}

/// For what `doctor` can check the rights: the types of locks, and what needs further rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Use {
    Rlock,
    Fair,
    Read,
    Write,
    Fenced,
    Semaphore,
    Claim,
    Leader,
    Linger,
}

impl ValueEnum for Examined {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Rlock, Self::Fair, Self::Read, Self::Write, Self::Fenced, Self::Semaphore]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Rlock => "rlock",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Fenced => "fenced",
            Self::Semaphore => "semaphore",
        }))
    }
}

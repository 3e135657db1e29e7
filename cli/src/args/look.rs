//! The arguments of the commands that look at many locks, or at the server.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::duration;

const PATTERN: &str = "Which names: * is any text, ? one byte, [ab] one of these";

/// Which locks to list.
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Which names.
    #[arg(default_value = "*", help = PATTERN, value_parser = pattern)]
    pub(crate) pattern: String,
    /// Only this type: rlock, fair, read, write, fenced, semaphore. Can be repeated
    #[arg(long, value_enum, hide_possible_values = true)]
    pub(crate) kind: Vec<Examined>,
    /// Only those that are held for this time already, such as 10m, if that is recorded
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) older: Option<Duration>,
    /// Sorts by name, as at a terminal
    #[arg(long)]
    pub(crate) sort: bool,
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
    /// The time between two looks at the locks on the screen, such as 5s. If there are thousands of locks, a look at all of them takes
    /// longer: the server spends at most a 25th of its time on it
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = pause)]
    pub(crate) every: Duration,
}

/// Which lock to explain.
#[derive(Args, Debug)]
pub(crate) struct Why {
    /// The name of the lock. Without it: all locks whose holders wait for other locks
    pub(crate) name: Option<String>,
    /// Prints JSON
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
const CHECKS: [&str; 16] = [
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
    "rights-others",
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
    /// Only checks the rights for this type of lock. Can be repeated
    #[arg(long, value_enum)]
    pub(crate) kind: Vec<Examined>,
    /// Reports this check, such as persistence, but does not count it. Can be repeated
    #[arg(long, value_name = "CHECK", value_parser = CHECKS, hide_possible_values = true)]
    pub(crate) ignore: Vec<String>,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The types of locks, and semaphores, as `ls` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Examined {
    Rlock,
    Fair,
    Read,
    Write,
    Fenced,
    Semaphore,
}

//! The arguments of the commands that look at many locks, or at the server.

use std::time::Duration;

use clap::{Args, ValueEnum};

const PATTERN: &str = "Which names: * is any text, ? one character, [ab] one of these";

/// Which locks to list.
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Which names.
    #[arg(default_value = "*", help = PATTERN)]
    pub(crate) pattern: String,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
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
    #[arg(default_value = "*", help = PATTERN)]
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
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time < SHORTEST { Err(format!("must be at least {SHORTEST:?}")) } else { Ok(time) }
}

const EXIT_CODES: &str = "Exit codes:
  0   all is well
  1   warnings, or something could not be found out
  2   errors
  64  bad arguments or settings";

/// What to examine.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Doctor {
    /// The names of the locks that it acquires begin with this
    #[arg(long, value_name = "PREFIX", default_value = "lockkeeper:doctor:")]
    pub(crate) name: String,
    /// Only checks the rights for this type of lock. Can be repeated
    #[arg(long, value_enum)]
    pub(crate) kind: Vec<Examined>,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The types of locks whose rights differ, or have names of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Examined {
    Rlock,
    Fair,
    Read,
    Write,
    Fenced,
    Semaphore,
}

//! The arguments of the command.

mod look;
mod verify;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use lockkeeper::PermitId;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

pub(crate) use look::{Doctor, Examined, Ls, Top, Use, Watch, Why};
pub(crate) use verify::Verify;

/// Runs commands under distributed locks on Redis and Valkey, and shows locks.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the locks are.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Connection {
    /// The server, such as redis://host [env: LOCKKEEPER_URL]
    #[arg(long, global = true)]
    pub(crate) url: Option<String>,
    /// The settings, in a TOML file [env: LOCKKEEPER_CONFIG]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a command while a lock is held
    Run(Run),
    /// Lists the locks that somebody holds
    Ls(Ls),
    /// Shows the locks that somebody holds, as they change
    ///
    /// The last line names the keys. If you press the key of a column again, the order is reversed. Esc removes the
    /// filter. If the server does not answer, the last line says so, and the table stays as it is. If the output is no
    /// terminal, this prints the table of `lockkeeper ls --sort` once
    Top(Top),
    /// Shows who holds a lock
    Show(Show),
    /// Shows why a lock is not free, and finds deadlocks
    ///
    /// With a name, deadlocks come first, then the longest chains, a hundred at most. Without one, the longest chains
    /// come first. A deadlock is reported only if a second look, a second later, sees it again. It is not reported if
    /// one of its owners is not connected, because then a lease ends soon. That one `lockkeeper run` is inside another
    /// is not known
    Why(Why),
    /// Prints a line for each change of locks, until Ctrl-C
    ///
    /// First it prints a line for each lock that is held. Then it prints a line if a lock becomes held or free, or if
    /// its holders, holds, permits, waiters or expiry change. Times are UTC. If the server fails later, a line on
    /// stderr says so, and this continues
    Watch(Watch),
    /// Releases a lock or permits, whoever holds them
    #[command(visible_alias = "unlock")]
    Release(Release),
    /// Sets how many permits a semaphore has
    Resize(Resize),
    /// Examines the server, and the rights of this user
    ///
    /// In a cluster, it examines all masters, but measures round trips and messages of only one. It does not check the
    /// right to tell what a client holds and waits for
    Doctor(Doctor),
    /// Tests on your servers that locks exclude, while processes die
    Verify(Verify),
    /// Prints the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Prints the man page of lockkeeper, or of one of these commands
    Man {
        /// The command
        command: Option<String>,
    },
    /// Holds the lock for `run`, which starts this
    #[command(name = crate::KEEP, hide = true)]
    Keep {
        /// The name of the lock: for those who look at processes.
        name: Option<String>,
    },
    /// Uses locks for `verify`, which starts this
    #[command(name = crate::WORK, hide = true)]
    Work,
    /// Becomes the command of `run`, which starts this
    #[command(name = crate::EXEC, hide = true)]
    Exec {
        /// The process that waits for the command.
        parent: i32,
        /// The file descriptor of the gate.
        gate: i32,
        /// The command and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

const EXIT_CODES: &str = "Exit codes: the command's, 128 + its signal, 64 bad arguments, 69 no server,
75 busy, 76 lost, 126 and 127 cannot run. `lockkeeper run --help` tells more.";

const ALL_EXIT_CODES: &str = "Exit codes:
  the command's own, or 128 + the number of the signal that ended it
  64   bad arguments or settings, or the key of the lock has other data
  69   the server cannot be reached, or refuses
  75   the lock is busy, and nothing was run
  76   the lock was lost: the command was stopped, or it ended well but was not protected to its end
  126  the command cannot be executed
  127  the command was not found";

/// How to run a command under a lock.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
#[command(override_usage = "lockkeeper run [OPTIONS] <NAME> -- <COMMAND>...", after_help = EXIT_CODES, after_long_help = ALL_EXIT_CODES)]
pub(crate) struct Run {
    /// rlock, fair, read, write or fenced
    #[arg(long, value_enum, default_value_t = Kind::Rlock, hide_possible_values = true)]
    pub(crate) kind: Kind,
    /// Runs at most N commands at a time, by a semaphore
    ///
    /// Runs at most so many commands at a time, over all machines, instead of one: the name is that of a semaphore. The number counts if the
    /// semaphore does not exist yet
    #[arg(long, value_name = "N", conflicts_with = "kind", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) permits: Option<u32>,
    /// Runs nothing if the lock is busy
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) only_try: bool,
    /// Waits no longer than this, such as 30s
    ///
    /// Without this, it waits until those who hold the lock release it. If the server cannot be reached, it retries until this time is
    /// over; without this, for `retry_timeout` (10 s). It then takes up to 10 s more to release what it may have acquired
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Holds the lock for this time, without renewals
    ///
    /// The command is stopped before the lease ends. SIGTERM comes earlier by the grace, and by up to 250 ms and 1 % of
    /// the lease: with 10s after 7.2 s. Without this, the lock is renewed while the command runs
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) lease: Option<Duration>,
    /// Stops the command before this time is over
    ///
    /// `--lease` must not be longer. SIGTERM comes earlier by the grace, and by up to 250 ms and 1 % of the lease: with 12s after 8.6 s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,
    /// Keeps the lock at least for this time
    ///
    /// It is kept even if the command ends sooner. A process in the background does that: `lockkeeper` itself
    /// ends with the command
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) at_least: Option<Duration>,
    /// The time between SIGTERM and SIGKILL
    ///
    /// At most half of the lease [default: a quarter of
    /// the lease, and 5s at most]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Sends this signal to the command when others wait
    ///
    /// The command gets it once, when another owner begins to wait for the lock: `TERM`, `USR1` or another name. Who uses `--try` does
    /// not wait
    #[arg(long, value_name = "SIGNAL", value_parser = signal, hide_short_help = true)]
    pub(crate) when_wanted: Option<i32>,
    /// Adds the wait for the lock to this file
    ///
    /// If the lock was busy, adds a line of JSON to this file when the wait has ended. Many processes can use one file.
    /// The fields: `lock`, `waited_at` (where in the source of lockkeeper), `from` and `to` (times in UTC), `outcome`
    /// (`granted`, `timed_out`, or `given_up` after a signal or an error) and `holders_seen` (who held the lock).
    /// `holders_seen` is empty if the wait was shorter than the lease. With `diagnosis = false`, nothing is added
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// The name of the lock, which is its key in Redis
    ///
    /// If the file has a `name_prefix`, the key is this prefix and the name
    pub(crate) name: String,
    /// The command and its arguments. No shell is used
    #[arg(trailing_var_arg = true, required = true)]
    #[serde(skip)]
    pub(crate) command: Vec<OsString>,
}

/// Returns the number of a signal with this name, with or without `SIG`.
fn signal(name: &str) -> Result<i32, String> {
    let name = name.to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    name.parse::<Signal>().map(|signal| signal as i32).map_err(|_| "is no name of a signal".to_owned())
}

/// The types of locks for `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Kind {
    /// One holder at a time
    Rlock,
    /// One holder at a time, in the order of the requests
    Fair,
    /// Many readers together
    Read,
    /// One writer, and no readers
    Write,
    /// One holder at a time, with a number that grows: LOCKKEEPER_TOKEN
    Fenced,
}

const SHOWN: &str = "JSON: null if the lock is free. Otherwise an object with the fields that
`lockkeeper ls --help` lists. `queued` and `listeners` are null.";

/// Which lock to show.
#[derive(Args, Debug)]
#[command(after_help = SHOWN)]
pub(crate) struct Show {
    /// The name of the lock or semaphore
    pub(crate) name: String,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which lock to release.
#[derive(Args, Debug)]
pub(crate) struct Release {
    /// The name of the lock or semaphore
    pub(crate) name: String,
    /// Releases only this permit of a semaphore, not all of them
    #[arg(long, value_name = "ID")]
    pub(crate) permit: Option<PermitId>,
    /// Does not ask first
    #[arg(long)]
    pub(crate) yes: bool,
    /// Prints JSON: `name` and `was_held`
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which semaphore to resize.
#[derive(Args, Debug)]
pub(crate) struct Resize {
    /// The name of the semaphore
    pub(crate) name: String,
    /// How many permits it has from now on
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) permits: u32,
    /// Prints JSON: `name`, `permits` and `before`
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads a time such as `30s`. A number alone means seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match text.parse().ok().filter(|_| is_number) {
        Some(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string()),
        None => humantime::parse_duration(text).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_means_seconds() {
        let ms = |text: &str| duration(text).map(|time| time.as_millis()).ok();
        assert_eq!(
            [ms("5"), ms("0.5"), ms("5s"), ms("500ms"), ms("1m 5s")],
            [5_000, 500, 5_000, 500, 65_000].map(Some)
        );
        for text in ["", ".", "-5", "5x", "inf", "1e3", "soon", "99999999999999999999999"] {
            assert_eq!(ms(text), None, "{text}");
        }
    }
}

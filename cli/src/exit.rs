//! The exit codes, and the errors that lead to them.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use lockkeeper::Error;
use serde::{Deserialize, Serialize};

use crate::text::visible;

/// `verify` saw a violation.
pub(crate) const VIOLATION: u8 = 1;
/// Bad arguments (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// The server cannot be reached, or refuses (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// The output cannot be written (`EX_IOERR`).
pub(crate) const OUTPUT: u8 = 74;
/// The reader of the output is gone, as in a shell for a program that gets `SIGPIPE`.
const PIPE: u8 = SIGNAL + 13;
/// The lock is busy (`EX_TEMPFAIL`).
pub(crate) const BUSY: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// The command cannot be executed, as in a shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;
/// A signal ended the command, as in a shell: this number plus that of the signal.
pub(crate) const SIGNAL: u8 = 128;

/// Tells the user. That nobody listens changes no exit code.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "lockkeeper: {}", visible(text));
}

/// Prints a result.
pub(crate) fn print(text: &[u8]) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    output.write_all(text).and_then(|()| output.flush()).map_err(Failure::output)
}

/// Prints a result as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(Failure::unavailable)?;
    print(format!("{text}\n").as_bytes())
}

/// Why there is no result.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) problem: String,
    pub(crate) code: u8,
}

impl Failure {
    pub(crate) fn usage(problem: impl fmt::Display) -> Self {
        Self { problem: problem.to_string(), code: USAGE }
    }

    pub(crate) fn unavailable(problem: impl fmt::Display) -> Self {
        Self { problem: problem.to_string(), code: UNAVAILABLE }
    }

    pub(crate) fn output(error: io::Error) -> Self {
        // The reader of a pipe wants no more output. A signal ends other programs then, and they say nothing either.
        let code = if error.kind() == io::ErrorKind::BrokenPipe { PIPE } else { OUTPUT };
        Self { problem: format!("cannot print: {error}"), code }
    }

    /// Tells the user.
    pub(crate) fn report(&self) -> ExitCode {
        if self.code != PIPE {
            tell(&self.problem);
        }
        self.code.into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidDuration { .. } | Error::Config(_) => Self::usage(as_options(error.to_string())),
            Error::InvalidName { .. } | Error::InvalidPermits { .. } | Error::WrongKind { .. } => {
                Self::usage(error)
            }
            _ => Self::unavailable(error),
        }
    }
}

/// Why locks could not be listed.
pub(crate) fn to_list(error: Error) -> Failure {
    match error {
        Error::Permission(_) => Failure::unavailable(format!(
            "{error}; to list locks, a user needs more rights than to lock, such as `+scan`: see \"Users and rights\" in \
             docs/deploy.md"
        )),
        error => error.into(),
    }
}

/// The library names its own arguments.
fn as_options(problem: String) -> String {
    let names =
        [("min_hold", "--at-least"), ("max_hold", "--max-hold"), ("fixed", "--lease"), ("wait", "--wait")];
    names
        .iter()
        .fold(problem, |text, (name, option)| text.replace(&format!("`{name}`"), &format!("`{option}`")))
}

//! What a check found.

use serde::Serialize;

/// How bad it is. Later ones are worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    /// It could not be found out.
    Unknown,
    Warning,
    Error,
}

impl Level {
    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The exit code, if nothing worse was found.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Unknown | Self::Warning => 1,
            Self::Error => 2,
        }
    }
}

/// What a check found, as JSON has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) level: Level,
    /// The address, if it is about one of the servers.
    pub(super) server: Option<String>,
    /// What is so, and what follows from it.
    pub(super) text: String,
    /// What to do. `None`: nothing.
    pub(super) advice: Option<String>,
    /// It does not count for the exit code.
    pub(super) ignored: bool,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, server: None, text: text.into(), advice: None, ignored: false }
    }

    pub(super) fn unknown(check: &'static str, text: impl Into<String>, advice: &str) -> Self {
        Self::bad(Level::Unknown, check, text, advice)
    }

    pub(super) fn warning(check: &'static str, text: impl Into<String>, advice: &str) -> Self {
        Self::bad(Level::Warning, check, text, advice)
    }

    pub(super) fn error(check: &'static str, text: impl Into<String>, advice: &str) -> Self {
        Self::bad(Level::Error, check, text, advice)
    }

    pub(super) fn at(self, server: &str) -> Self {
        Self { server: Some(server.to_owned()), ..self }
    }

    fn bad(level: Level, check: &'static str, text: impl Into<String>, advice: &str) -> Self {
        Self { level, advice: Some(advice.to_owned()), ..Self::ok(check, text) }
    }
}

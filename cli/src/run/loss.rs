//! How the lock of a command was lost.

/// How the lock was lost.
pub(super) struct Loss {
    pub(super) text: String,
    /// The command was stopped because of it.
    pub(super) stopped: bool,
}

impl Loss {
    pub(super) fn new(text: &str, stopped: bool) -> Self {
        Self { text: text.to_owned(), stopped }
    }
}

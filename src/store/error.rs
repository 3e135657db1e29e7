//! Why a store cannot be opened.

use crate::base::fault::Fault;
use crate::store::connection::wire;

#[derive(Debug)]
pub(crate) enum OpenError {
    Fault(Fault),
    /// The source cannot be used.
    Source(SourceError),
    /// The server is too old, or lacks something.
    Unsupported {
        version: String,
        server: String,
        problem: String,
    },
}

/// What in the source cannot be used.
#[derive(Debug)]
pub(crate) struct SourceError {
    pub(crate) field: &'static str,
    pub(crate) problem: String,
}

impl SourceError {
    pub(crate) fn field(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}

impl From<SourceError> for OpenError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for SourceError {
    /// An address. The problem does not repeat it: it can contain a password.
    fn from(error: E) -> Self {
        let error = error.into();
        let error = error.downcast_ref().map_or_else(|| error.to_string(), wire::words);
        Self::field("url", format!("is not an address such as redis://user:password@host:6379/0: {error}"))
    }
}

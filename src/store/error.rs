//! Why a store cannot be opened.

use crate::fault::Fault;

#[derive(Debug)]
pub(crate) enum OpenError {
    Fault(Fault),
    /// The source is no usable address.
    Source(SourceError),
    /// The server is too old, or lacks something.
    Unsupported {
        version: String,
        server: String,
        problem: String,
    },
}

/// The source is no usable address.
#[derive(Debug)]
pub(crate) struct SourceError(pub(crate) Box<dyn std::error::Error + Send + Sync>);

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for SourceError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

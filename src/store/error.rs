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

/// How the library says that an address needs TLS, and that it was built without.
const NO_TLS: &str = "TLS, the feature is not enabled";

const ENABLE_TLS: &str = "begins with `rediss://`, and this program was built without TLS: enable the feature \
                          `tokio-rustls-comp` or `tokio-native-tls-comp` of lockkeeper";

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
        if error.contains(NO_TLS) {
            return Self::field("url", ENABLE_TLS);
        }
        Self::field("url", format!("is not an address such as redis://user:password@host:6379/0: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library says this in a build without TLS.
    #[test]
    fn tls_without_a_feature_names_the_feature() {
        let error = SourceError::from("can't connect with TLS, the feature is not enabled");
        assert!(error.problem.contains("`tokio-rustls-comp`"), "{error:?}");
    }
}

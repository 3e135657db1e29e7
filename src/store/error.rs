//! Why a store cannot be opened.

use crate::base::error::{ConfigError, Error};
use crate::base::fault::Fault;
use crate::store::connection::wire;

#[derive(Debug)]
pub(crate) enum OpenError {
    /// Another try can succeed, if the fault is one that passes.
    Fault(Fault),
    /// Another try would fail, too: the source cannot be used, or the server.
    Lasting(Error),
}

/// How the library says that an address needs TLS, and that it was built without.
const NO_TLS: &str = "TLS, the feature is not enabled";

const ENABLE_TLS: &str = "begins with `rediss://`, and this program was built without TLS: enable the feature \
                          `tokio-rustls-comp` or `tokio-native-tls-comp` of lockkeeper";

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<ConfigError> for OpenError {
    fn from(wrong: ConfigError) -> Self {
        Self::Lasting(wrong.into())
    }
}

/// The error for an address. It does not repeat the address, which can contain a password.
pub(super) fn bad_address(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ConfigError {
    let error = error.into();
    let error = error.downcast_ref().map_or_else(|| error.to_string(), wire::words);
    if error.contains(NO_TLS) {
        return ConfigError::new("url", ENABLE_TLS);
    }
    ConfigError::new("url", format!("is not an address such as redis://user:password@host:6379/0: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library says this in a build without TLS.
    #[test]
    fn tls_without_a_feature_names_the_feature() {
        let error = bad_address("can't connect with TLS, the feature is not enabled");
        assert!(error.problem().contains("`tokio-rustls-comp`"), "{error:?}");
    }
}

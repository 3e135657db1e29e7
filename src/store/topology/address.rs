//! Where a server is.

use std::fmt;

use crate::store::connection::Endpoint;

/// Host and port of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// Where a connection leads. `None`: to a socket without a port.
    pub(crate) fn of(endpoint: &Endpoint) -> Option<Self> {
        let (host, port) = endpoint.host_and_port()?;
        Some(Self { host, port })
    }

    /// The address that a server announced. A server that does not know its own host announces none, or `?`: then it is the host
    /// that was asked.
    pub(super) fn announced(host: String, port: u16, asked: &Self) -> Self {
        let host = if host.is_empty() || host == "?" { asked.host.clone() } else { host };
        Self { host, port }
    }

    /// Reads the address in a redirect: host, colon, port.
    pub(super) fn of_redirect(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::announced(host.to_owned(), port.parse().ok()?, asked))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_not_announced_is_the_one_that_was_asked() {
        for host in ["", "?"] {
            assert_eq!(
                Address::announced(host.to_owned(), 7000, &Address { host: "s".to_owned(), port: 6379 })
                    .to_string(),
                "s:7000"
            );
        }
        assert_eq!(
            Address::announced("a".to_owned(), 7000, &Address { host: "s".to_owned(), port: 6379 })
                .to_string(),
            "a:7000"
        );
    }
}

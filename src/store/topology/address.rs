//! Where a server is.

use std::fmt;

use crate::store::connection::Endpoint;

/// What stands in the place of a host that a node does not know.
pub(super) const UNKNOWN: &str = "?";

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

    /// The address that a server announced. A server that does not know its own host announces none: then it is the host that was
    /// asked.
    pub(super) fn announced(host: String, port: u16, asked: &Self) -> Self {
        let host = if host.is_empty() { asked.host.clone() } else { host };
        Self { host, port }
    }

    /// Reads the address in a redirect: host, colon, port. `None`: it names no server.
    pub(super) fn of_redirect(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':').filter(|(host, _)| *host != UNKNOWN)?;
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
    fn a_redirect_can_name_no_server() {
        let asked = Address { host: "s".to_owned(), port: 6379 };
        let named = |text| Address::of_redirect(text, &asked).map(|address| address.to_string());
        assert_eq!(named("a:7000").as_deref(), Some("a:7000"));
        assert_eq!(named("::1:7000").as_deref(), Some("::1:7000"));
        assert_eq!(named(":7000").as_deref(), Some("s:7000"));
        assert_eq!((named("?:7000"), named("a")), (None, None));
    }

    #[test]
    fn a_host_that_is_not_announced_is_the_one_that_was_asked() {
        let asked = Address { host: "s".to_owned(), port: 6379 };
        assert_eq!(Address::announced(String::new(), 7000, &asked).to_string(), "s:7000");
        assert_eq!(Address::announced("a".to_owned(), 7000, &asked).to_string(), "a:7000");
    }
}

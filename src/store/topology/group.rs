//! Servers of which one is the master, as a source describes them.

use std::time::Duration;

use super::address::Address;
use super::ask::Way;
use crate::credentials::Credentials;
use crate::fault::{Fault, FaultKind, Sent};
use crate::store::connection::Endpoint;
use crate::store::error::{OpenError, SourceError};
use crate::store::source::Certificates;

#[derive(Clone)]
pub(crate) struct Group {
    pub(super) way: Way,
    /// Those who are asked: sentinels, or nodes of a cluster.
    pub(super) asked: Vec<(Address, Endpoint)>,
}

impl Group {
    pub(crate) fn cluster(
        urls: Vec<String>,
        credentials: Option<&Credentials>,
        limit: Duration,
    ) -> Result<Self, SourceError> {
        if urls.is_empty() {
            return Err(SourceError::field("urls", "must name at least one node"));
        }
        let asked = asked("urls", urls, credentials, limit)?;
        if asked.iter().any(|(_, node)| node.database() != 0) {
            return Err(SourceError::field("urls", "must name no database but 0: a cluster has no other"));
        }
        Ok(Self { way: Way::Cluster, asked })
    }

    pub(crate) fn sentinel(
        master: String,
        sentinels: Vec<String>,
        server: Box<Endpoint>,
        limit: Duration,
    ) -> Result<Self, SourceError> {
        Self::check_sentinel(&master, &sentinels)?;
        let asked = asked("sentinels", sentinels, None, limit)?;
        Ok(Self { way: Way::Sentinel { master, server }, asked })
    }

    /// Uses these certificates for all servers, and for the sentinels that have TLS.
    pub(crate) fn secured(mut self, certificates: Option<&Certificates>) -> Result<Self, SourceError> {
        if let Way::Sentinel { server, .. } = &mut self.way {
            **server = server.clone().secured(certificates)?;
        }
        let need_tls = !matches!(self.way, Way::Sentinel { .. });
        for (_, asked) in &mut self.asked {
            if need_tls || asked.is_tls() {
                *asked = asked.clone().secured(certificates)?;
            }
        }
        Ok(self)
    }

    pub(crate) fn check_sentinel(master: &str, sentinels: &[String]) -> Result<(), SourceError> {
        if master.is_empty() {
            Err(SourceError::field("master", "must be the name by which the sentinels know the master"))
        } else if sentinels.is_empty() {
            Err(SourceError::field("sentinels", "must name at least one sentinel"))
        } else {
            Ok(())
        }
    }

    /// How to connect to a data server.
    pub(super) fn endpoint(&self, address: &Address) -> Endpoint {
        let at = |server: &Endpoint| server.at(&address.host, address.port);
        match &self.way {
            Way::Cluster => {
                let own = self.asked.iter().find(|(asked, _)| asked == address);
                own.map_or_else(|| at(&self.asked[0].1), |(_, server)| server.clone())
            }
            Way::Sentinel { server, .. } => at(server),
        }
    }

    /// How to connect to the server with this address: one of those who are asked, or a data server.
    pub(crate) fn endpoint_named(&self, server: &str) -> Option<Endpoint> {
        let asked = self.asked.iter().find(|(address, _)| address.to_string() == server);
        let data = || Some(self.endpoint(&Address::of_redirect(server, &Address::default())?));
        asked.map(|(_, endpoint)| endpoint.clone()).or_else(data)
    }

    /// Why nobody named a master.
    pub(super) fn explain(&self, faults: Vec<Fault>) -> OpenError {
        let none = || Fault::new(FaultKind::ReadOnly, Sent::No, "none of the servers is a master");
        let lasting = faults.iter().find(|fault| !fault.is_transient()).or_else(|| faults.first());
        let fault = lasting.cloned().unwrap_or_else(none);
        match (&self.way, fault.kind) {
            (Way::Sentinel { .. }, FaultKind::Configuration) if fault.sent == Sent::Refused => {
                SourceError::field("master", format!("is unknown: {fault}")).into()
            }
            (Way::Cluster, FaultKind::Rejected) => SourceError::field(
                "urls",
                format!("must be nodes of a cluster, or use `Source::url`: {fault}"),
            )
            .into(),
            (Way::Sentinel { .. }, FaultKind::Rejected) => {
                SourceError::field("sentinels", format!("must be addresses of sentinels: {fault}")).into()
            }
            _ => OpenError::Fault(fault),
        }
    }
}

/// The servers that are asked who the master is.
fn asked(
    field: &'static str,
    urls: Vec<String>,
    credentials: Option<&Credentials>,
    limit: Duration,
) -> Result<Vec<(Address, Endpoint)>, SourceError> {
    let server = |url| {
        let endpoint = Endpoint::new(url, credentials.cloned(), limit)
            .map_err(|error| SourceError { field, ..error.into() })?;
        let address =
            Address::of(&endpoint).ok_or_else(|| SourceError::field(field, "must have a host and a port"))?;
        Ok((address, endpoint))
    };
    urls.into_iter().map(server).collect()
}

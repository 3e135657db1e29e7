//! The servers that a source names, and how the masters among them are found.

use std::sync::Arc;

use super::address::Address;
use crate::base::error::ConfigError;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::store::connection::{Dial, Endpoint};
use crate::store::error::OpenError;

/// The servers that a source names.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) discovery: Discovery,
    /// The servers that are asked who the masters are: at least one sentinel, or node of a cluster. None for a single server.
    pub(crate) pollees: Vec<(Address, Endpoint)>,
}

/// How the masters are found.
#[derive(Clone)]
pub(crate) enum Discovery {
    /// One server, which is always the master of all slots.
    Fixed(Dial),
    /// Each node of a cluster tells who the master of each slot is.
    Cluster,
    /// Each sentinel tells who the master of this name is. The endpoint says how to connect to data servers.
    Sentinel { master: String, server: Box<Endpoint> },
}

impl Group {
    /// One server.
    pub(crate) const fn fixed(server: Dial) -> Self {
        Self { discovery: Discovery::Fixed(server), pollees: Vec::new() }
    }

    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.discovery, Discovery::Cluster)
    }

    /// Whether another server can become the master.
    pub(crate) const fn can_switch(&self) -> bool {
        !matches!(self.discovery, Discovery::Fixed(_))
    }

    /// What makes the connections to a data server.
    pub(crate) fn dial(&self, server: &Address) -> Dial {
        match &self.discovery {
            Discovery::Fixed(dial) => dial.clone(),
            _ => Dial::Endpoint(Box::new(self.endpoint(server))),
        }
    }

    /// The address of a data server, for errors and events.
    pub(crate) fn name(&self, server: &Address) -> Arc<str> {
        match &self.discovery {
            Discovery::Fixed(Dial::Stream(_)) => "the server of a stream".into(),
            Discovery::Fixed(dial) => {
                dial.endpoint().map_or_else(|| "the server of a pool".into(), |at| at.address().into())
            }
            _ => server.to_string().into(),
        }
    }

    /// The number of the database, if it is known.
    pub(crate) fn database(&self) -> Option<i64> {
        match self.dial(&Address::default()) {
            Dial::Stream(_) => Some(0),
            dial => dial.endpoint().map(Endpoint::database),
        }
    }

    /// How to connect to a data server that was found. A single server is never looked for.
    pub(super) fn endpoint(&self, address: &Address) -> Endpoint {
        let at = |server: &Endpoint| server.at(&address.host, address.port);
        match &self.discovery {
            Discovery::Sentinel { server, .. } => at(server),
            _ => {
                let own = self.pollees.iter().find(|(node, _)| node == address);
                own.map_or_else(|| at(&self.pollees[0].1), |(_, server)| server.clone())
            }
        }
    }

    /// How to connect to the server that an error names. `None`: only the application knows.
    pub(crate) fn endpoint_named(&self, server: Option<&str>) -> Option<Endpoint> {
        if let Discovery::Fixed(dial) = &self.discovery {
            return dial.endpoint().cloned();
        }
        let pollee = self.pollees.iter().find(|(address, _)| Some(&*address.to_string()) == server);
        let data = || Some(self.endpoint(&Address::of_redirect(server?, &Address::default())?));
        pollee.map(|(_, endpoint)| endpoint.clone()).or_else(data)
    }

    /// Why nobody named a master.
    pub(super) fn explain(&self, faults: Vec<Fault>) -> OpenError {
        let none = || Fault::new(FaultKind::ReadOnly, Sent::No, "none of the servers is a master");
        let lasting = faults.iter().find(|fault| !fault.is_transient()).or_else(|| faults.first());
        let fault = lasting.cloned().unwrap_or_else(none);
        match (&self.discovery, fault.kind) {
            (Discovery::Sentinel { .. }, FaultKind::Configuration) if fault.sent == Sent::Refused => {
                ConfigError::new("master", format!("is unknown: {fault}")).into()
            }
            (Discovery::Cluster, FaultKind::Rejected) => {
                ConfigError::new("urls", format!("must be nodes of a cluster, or use `Source::url`: {fault}"))
                    .into()
            }
            (Discovery::Sentinel { .. }, FaultKind::Rejected) => {
                ConfigError::new("sentinels", format!("must be addresses of sentinels: {fault}")).into()
            }
            _ => fault.into(),
        }
    }
}

//! The servers that a source names, and how the masters among them are found.

use std::sync::Arc;

use super::address::Address;
use crate::base::error::ConfigError;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::store::connection::{CommandDial, Endpoint, MessageDial};
use crate::store::error::OpenError;

/// The servers that a source names.
#[derive(Clone)]
pub(crate) struct Group {
    pub(super) discovery: Discovery,
    /// The servers that are asked who the masters are: sentinels, or nodes of a cluster. None for a single server.
    pub(super) pollees: Vec<(Address, Endpoint)>,
}

/// How the masters are found.
#[derive(Clone)]
pub(super) enum Discovery {
    /// One server, which is always the master of all slots.
    Fixed(Fixed),
    /// Each node of a cluster tells who the master of each slot is.
    Cluster,
    /// Each sentinel tells who the master of this name is. The endpoint says how to connect to data servers.
    Sentinel { master: String, server: Box<Endpoint> },
}

#[derive(Clone)]
pub(super) struct Fixed {
    commands: CommandDial,
    /// `None`: a pool does not tell its address.
    messages: Option<MessageDial>,
}

impl Group {
    /// One server.
    pub(crate) const fn fixed(commands: CommandDial, messages: Option<MessageDial>) -> Self {
        Self { discovery: Discovery::Fixed(Fixed { commands, messages }), pollees: Vec::new() }
    }

    /// A cluster, with at least one of its nodes.
    pub(crate) const fn cluster(nodes: Vec<(Address, Endpoint)>) -> Self {
        Self { discovery: Discovery::Cluster, pollees: nodes }
    }

    /// At least one sentinel, the name by which they know the master, and how to connect to it.
    pub(crate) const fn sentinel(
        sentinels: Vec<(Address, Endpoint)>,
        master: String,
        server: Box<Endpoint>,
    ) -> Self {
        Self { discovery: Discovery::Sentinel { master, server }, pollees: sentinels }
    }

    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self.discovery, Discovery::Cluster)
    }

    /// Whether another server can become the master.
    pub(super) const fn can_switch(&self) -> bool {
        !matches!(self.discovery, Discovery::Fixed(_))
    }

    /// What makes the connections for commands to a data server.
    pub(super) fn commands(&self, server: &Address) -> CommandDial {
        match &self.discovery {
            Discovery::Fixed(fixed) => fixed.commands.clone(),
            _ => CommandDial::Endpoint(Box::new(self.endpoint(server))),
        }
    }

    /// What makes the connections for messages of a data server. `None`: its address is not known.
    pub(super) fn messages(&self, server: &Address) -> Option<MessageDial> {
        match &self.discovery {
            Discovery::Fixed(fixed) => fixed.messages.clone(),
            _ => Some(MessageDial::Endpoint(Box::new(self.endpoint(server)))),
        }
    }

    /// The address of a data server, for errors and events.
    pub(super) fn name(&self, server: &Address) -> Arc<str> {
        match &self.discovery {
            Discovery::Fixed(Fixed { messages: None, .. }) => "the server of a pool".into(),
            Discovery::Fixed(Fixed { messages: Some(messages), .. }) => {
                messages.endpoint().map_or_else(|| "the server of a stream".into(), |at| at.address().into())
            }
            _ => server.to_string().into(),
        }
    }

    /// The number of the database, if it is known.
    pub(super) fn database(&self) -> Option<i64> {
        let messages = self.messages(&Address::default())?;
        Some(messages.endpoint().map_or(0, Endpoint::database))
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
        if let Discovery::Fixed(fixed) = &self.discovery {
            return fixed.commands.endpoint().cloned();
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

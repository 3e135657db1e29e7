//! An open connection to a server.

use std::fmt;
use std::sync::Arc;

use redis::cmd;

use super::{Open, Server};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::store::connection::connection_index::ConnectionIndex;
use crate::store::connection::wire;

/// An open connection.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(super) open: Arc<Open>,
    pub(crate) index: ConnectionIndex,
    /// For a command that another node of the cluster redirected here.
    pub(crate) is_asking: bool,
}

impl Connection {
    /// A number that no other connection of this client has or had.
    pub(crate) fn number(&self) -> u64 {
        self.open.number
    }

    pub(crate) fn asking(self, is_asking: bool) -> Self {
        Self { is_asking, ..self }
    }

    /// Learns the server's time, if what this connection knows of it is old. To be called before an acquire counts as sent: with an old
    /// time, it could run after its end.
    pub(crate) async fn know_time(&self) -> Result<(), Fault> {
        if self.open.connection.clock.is_old() {
            // Boxed: this is rare, and the size of this future would burden every call.
            Box::pin(self.learn_time()).await?;
        }
        Ok(())
    }

    /// Learns the server's time.
    pub(crate) async fn learn_time(&self) -> Result<(), Fault> {
        let server = self.server()?;
        let asked = server.send(server.limit(), self, async |c| wire::send(c, &cmd("TIME")).await).await;
        // An acquire that was not sent before has no part in a fault.
        let time = asked.map_err(|mut fault| {
            fault.sent = Sent::No;
            fault
        })?;
        self.open.connection.clock.learn(&time).map_err(|fault| fault.at(&server.address))
    }

    /// The server to which it leads.
    pub(crate) fn server(&self) -> Result<Arc<Server>, Fault> {
        let gone = || Fault::new(FaultKind::Broken, Sent::No, "the server is no longer used");
        self.open.server.upgrade().ok_or_else(gone)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({:?}, number {})", self.index, self.number())
    }
}

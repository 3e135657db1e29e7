//! Scripts that are sent together.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::{Connection, Server};
use crate::fault::Fault;
use crate::protocol::{Call, Reply};
use crate::store::connection::wire;

impl Server {
    /// Runs scripts, which are sent in one write. Returns the result of each. A script whose hash the server does not know does not
    /// run.
    pub(crate) async fn run_together(
        self: &Arc<Self>,
        limit: Duration,
        connection: &Connection,
        calls: &[Call],
    ) -> Result<Vec<Result<Reply, Fault>>, Fault> {
        let is_sharded = self.is_sharded();
        let sending =
            self.send(limit, connection, async |c| wire::evaluate_together(c, calls, is_sharded).await);
        match sending.await? {
            Value::Array(values) if values.len() == calls.len() => {
                let result = |value: Value| wire::reply(value.extract_error().map_err(wire::fault)?);
                Ok(values.into_iter().map(result).collect())
            }
            other => Err(Fault::unexpected(&other)),
        }
    }
}

//! Scripts that wait until replicas have what they wrote.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Connection, Server};
use crate::config::Replication;
use crate::fault::{Fault, FaultKind, Sent};
use crate::protocol::{Call, Reply};
use crate::store::connection::wire::{self, Beside};
use crate::store::task::Task;

impl Server {
    /// Runs a script, and waits until so many replicas have what it wrote. Also returns how many have it.
    ///
    /// A connection waits for one script at a time. If they were sent together, the time limit of each would include the waits of
    /// those before it. So each has its turn, in a task: a caller that nobody polls must not keep the turn.
    pub(crate) async fn run_on_replicas(
        self: &Arc<Self>,
        connection: &Connection,
        call: &Call,
        sync: Replication,
    ) -> Result<(Reply, u32), Fault> {
        let (server, connection, call) = (Arc::clone(self), connection.clone(), call.clone());
        let (done, result) = oneshot::channel();
        let _task = Task::spawn_on(&self.runtime, async move {
            let _turn = server.turns[server.count.position(connection.index)].acquire().await;
            let _ = done.send(server.run_and_wait(&connection, &call, sync).await);
        });
        result.await.unwrap_or_else(|gone| Err(Fault::new(FaultKind::RuntimeGone, Sent::Unknown, gone)))
    }

    async fn run_and_wait(
        self: &Arc<Self>,
        connection: &Connection,
        call: &Call,
        sync: Replication,
    ) -> Result<(Reply, u32), Fault> {
        let (limit, is_sharded) = (self.command_timeout + sync.timeout, self.is_sharded());
        let value = self
            .send(limit, connection, async |c| wire::evaluate(c, call, Beside::Wait(sync), is_sharded).await)
            .await?;
        match wire::reply(value)? {
            Reply::List(mut both) if both.len() == 2 => {
                let replicas = both.pop();
                let replicas = if let Some(Reply::Int(replicas)) = replicas { replicas } else { 0 };
                Ok((both.swap_remove(0), u32::try_from(replicas).unwrap_or(0)))
            }
            other => Err(Fault::unexpected(&other)),
        }
    }
}

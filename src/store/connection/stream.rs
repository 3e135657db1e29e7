//! Connections over streams that the application opens.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::UnboundedSender;

use super::endpoint::logged_in;
use super::multiplexed::Multiplexed;
use crate::base::credentials::Credentials;
use crate::store::task::Task;

/// Opens streams to one server.
#[derive(Clone)]
pub(crate) struct StreamDial {
    connector: Connector,
    pub(crate) credentials: Option<Credentials>,
}

type Connector = Arc<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync>;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl StreamDial {
    pub(crate) fn new<C, F, S>(connector: C) -> Self
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connector = move || {
            let opening = connector();
            async move { opening.await.map(|stream| Box::new(stream) as Box<dyn Stream>) }.boxed()
        };
        Self { connector: Arc::new(connector), credentials: None }
    }

    /// Opens a connection for commands.
    pub(crate) async fn commands(&self) -> RedisResult<Multiplexed> {
        // `server.rs` sets the time limit of every command, for all kinds of sources.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        over(self.open().await?, &self.settings(), config).await
    }

    /// Opens a connection on which the server can send something unasked.
    pub(crate) async fn with_pushes(&self, pushes: UnboundedSender<PushInfo>) -> RedisResult<Multiplexed> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(pushes);
        let settings = self.settings().set_protocol(ProtocolVersion::RESP3);
        over(self.open().await?, &settings, config).await
    }

    /// Opens a connection for messages.
    pub(crate) async fn messages(&self) -> RedisResult<PubSub> {
        let stream = self.open().await?;
        PubSub::new(&self.settings(), stream).await
    }

    async fn open(&self) -> io::Result<Box<dyn Stream>> {
        // A panic of the connector must not end the task that subscribes, so it becomes an error.
        let opening = AssertUnwindSafe(async { (self.connector)().await }).catch_unwind().await;
        opening.unwrap_or_else(|_| Err(io::Error::other("the connector panicked")))
    }

    fn settings(&self) -> RedisConnectionInfo {
        logged_in(RedisConnectionInfo::default(), self.credentials.as_ref())
    }
}

/// Makes a connection from a stream.
pub(super) async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    settings: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> RedisResult<Multiplexed> {
    let (connection, driver) = MultiplexedConnection::new_with_config(settings, stream, config).await?;
    Ok(Multiplexed::new(connection, Some(Task::spawn(driver))))
}

//! Connections to a server, over a stream in memory.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex, split};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::channels::ClientId;
use super::state::State;
use super::wire::{Reply, take_command};
use crate::sync::lock;

/// How many bytes can be under way in one direction. A sender of more bytes waits.
const BUFFER: usize = 256 * 1024;

/// This long after a client left a connection, its host gives up the bytes that have not arrived yet.
const UNDELIVERED: Duration = Duration::from_secs(10);

/// The state of the server's process and of the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    /// The process is stopped. It gets commands and runs them later.
    pub(super) is_frozen: bool,
    /// Nothing arrives, in either direction.
    pub(super) is_held: bool,
    pub(super) is_running: bool,
    /// How often the connections were cut.
    pub(super) cuts: u64,
}

/// A server and the network to it.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) conditions: watch::Sender<Conditions>,
}

/// The client's end of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    bytes: DuplexStream,
    /// Ends with the stream. So the server learns that the client has left.
    _left: watch::Sender<()>,
}

/// Connects. The server's end is a task of the runtime on which this is called.
///
/// # Errors
///
/// The server does not run.
pub(super) fn connect(shared: &Arc<Shared>) -> io::Result<Stream> {
    let conditions = shared.conditions.subscribe();
    let at_start = *conditions.borrow();
    if !at_start.is_running {
        return Err(io::Error::new(
            io::ErrorKind::ConnectionRefused,
            "connection refused: the in-memory server is stopped",
        ));
    }
    let (bytes, server_end) = duplex(BUFFER);
    let (left, has_left) = watch::channel(());
    let (client, outbox) = lock(&shared.state).connect();
    let connection =
        Connection { shared: Arc::clone(shared), client, conditions, cuts: at_start.cuts, has_left };
    tokio::spawn(connection.serve(server_end, outbox));
    Ok(Stream { bytes, _left: left })
}

/// The server's end of a connection.
struct Connection {
    shared: Arc<Shared>,
    client: ClientId,
    conditions: watch::Receiver<Conditions>,
    /// The number of cuts before this connection was made.
    cuts: u64,
    has_left: watch::Receiver<()>,
}

impl Connection {
    async fn serve(self, stream: DuplexStream, outbox: UnboundedReceiver<Vec<u8>>) {
        let (from_client, to_client) = split(stream);
        let mut conditions = self.conditions.clone();
        let is_cut = conditions.wait_for(|now| !now.is_running || now.cuts != self.cuts);
        tokio::select! {
            biased;
            _ = is_cut => {}
            () = self.read(from_client) => {}
            () = self.write(to_client, outbox) => {}
        }
    }

    /// Runs commands until the client has left.
    async fn read(&self, mut from: impl AsyncRead + Unpin) {
        let mut bytes = Vec::new();
        let mut random = Rng::with_seed(self.client);
        while from.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
            // Connections overtake each other, as on a network. If each command were answered at once and the clock is paused,
            // clients that wait for each other could repeat the same steps for ever.
            if random.bool() {
                yield_now().await;
            }
            loop {
                let command = take_command(&mut bytes);
                if matches!(command, Ok(None)) {
                    break;
                }
                // Before each command: the conditions can have changed since the last one.
                if !self.may_run().await {
                    return;
                }
                let mut state = lock(&self.shared.state);
                match command {
                    Ok(words) => state.serve(self.client, &words.unwrap_or_default()),
                    Err(error) => {
                        state.data.send(self.client, &[Reply::Error(error)]);
                        return;
                    }
                }
            }
        }
    }

    /// Waits until a command that was sent can run. False: it was given up before it arrived.
    async fn may_run(&self) -> bool {
        let mut conditions = self.conditions.clone();
        loop {
            tokio::select! {
                biased;
                // Fails only without a server, which `self` has.
                _ = conditions.wait_for(|now| !now.is_held) => {}
                () = self.undeliverable() => return false,
            }
            let changed = conditions.wait_for(|now| now.is_held || !now.is_frozen).await;
            if changed.is_ok_and(|now| !now.is_held) {
                return true;
            }
        }
    }

    async fn undeliverable(&self) {
        // Fails when the client has left.
        let _ = self.has_left.clone().changed().await;
        sleep(UNDELIVERED).await;
    }

    /// Sends replies and messages. It never ends: what the client sent before it left still runs.
    async fn write(&self, mut to: impl AsyncWrite + Unpin, mut outbox: UnboundedReceiver<Vec<u8>>) {
        let mut conditions = self.conditions.clone();
        while let Some(bytes) = outbox.recv().await {
            let _ = conditions.wait_for(|now| !now.is_held).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
        std::future::pending().await
    }
}

/// Also when the runtime of the connection ends.
impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.shared.state).disconnect(self.client);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(cx)
    }
}

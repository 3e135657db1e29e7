//! Connections to a server, over a stream in memory.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex, split};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::channels::ClientId;
use crate::link::{Link, Subscription};
use crate::state::State;
use crate::sync::{Watched, lock};
use crate::value::Bytes;
use crate::wait::{self, Wait};
use crate::wire::{Reply, take_command};

/// How many bytes can be under way in one direction. A sender of more bytes waits.
const BUFFER: usize = 256 * 1024;

/// This long after a client left a connection, its host gives up the bytes that have not arrived yet.
const UNDELIVERED: Duration = Duration::from_secs(10);

/// The state of the server's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// The process is stopped. It gets commands and runs them later.
    pub(crate) is_frozen: bool,
    pub(crate) is_running: bool,
    /// How often the process was started.
    pub(crate) starts: u64,
    /// A command takes up to this long.
    pub(crate) slowness: Duration,
}

/// A server.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) conditions: Watched<Conditions>,
}

/// The client's end of a connection.
///
/// ```
/// # use lockkeeper_memory::{MemoryServer, Stream};
/// # async fn demo() -> std::io::Result<()> {
/// let stream: Stream = MemoryServer::new().connect().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Stream {
    bytes: DuplexStream,
    client: ClientId,
    /// Ends with the stream. So the server learns that the client has left.
    _left: watch::Sender<()>,
}

/// Connects. The server's end is a task of the runtime on which this is called.
///
/// # Errors
///
/// The server does not run, or the network refuses.
pub(crate) fn connect(shared: &Arc<Shared>, link: &Arc<Link>) -> io::Result<Stream> {
    let at_start = shared.conditions.get();
    if !at_start.is_running || link.refuses() {
        return Err(io::Error::new(
            io::ErrorKind::ConnectionRefused,
            "connection refused: the in-memory server is stopped",
        ));
    }
    let (bytes, server_end) = duplex(BUFFER);
    let (left, has_left) = watch::channel(());
    let (client, outbox) = {
        let mut state = lock(&shared.state);
        if state.has_no_place() {
            let client = state.next_client();
            drop(state);
            tokio::spawn(turn_away(Arc::clone(link), client, server_end));
            return Ok(Stream { bytes, client, _left: left });
        }
        state.connect()
    };
    let connection = Connection {
        shared: Arc::clone(shared),
        client,
        starts: at_start.starts,
        cuts: link.cuts(),
        link: Arc::clone(link),
        has_left,
        subscribes: AtomicBool::new(false),
    };
    tokio::spawn(connection.serve(server_end, outbox));
    Ok(Stream { bytes, client, _left: left })
}

/// Closes a connection for which the server has no place. The words in which the server says so are lost if the client has sent a
/// command before they arrive.
async fn turn_away(link: Arc<Link>, client: ClientId, mut stream: DuplexStream) {
    let mut random = Rng::with_seed(link.seed(client));
    pass(link.delay(&mut random)).await;
    link.changed(|link| !link.holds_replies(client, false)).await;
    if random.bool() {
        let _ = stream.write_all(b"-ERR max number of clients reached\r\n").await;
    }
}

impl Stream {
    /// The number of the connection, with which its commands are observed.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MemoryServer::new();
    /// assert_ne!(server.connect().await.unwrap().number(), server.connect().await.unwrap().number());
    /// # }
    /// ```
    #[doc(hidden)]
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.client
    }
}

/// The server's end of a connection.
struct Connection {
    shared: Arc<Shared>,
    client: ClientId,
    /// The number of starts of the server before this connection was made.
    starts: u64,
    link: Arc<Link>,
    /// The number of cuts before this connection was made.
    cuts: (u64, u64),
    has_left: watch::Receiver<()>,
    /// It has subscribed to a channel.
    subscribes: AtomicBool,
}

impl Connection {
    async fn serve(self, stream: DuplexStream, mut outbox: UnboundedReceiver<Vec<u8>>) {
        let (from_client, mut to_client) = split(stream);
        let is_over = self.shared.conditions.until(|now| !now.is_running || now.starts != self.starts);
        let mut is_over = std::pin::pin!(is_over);
        let mut read = std::pin::pin!(self.read(from_client));
        let is_delivered = tokio::select! {
            biased;
            () = &mut is_over => false,
            is_delivered = self.link.cut_after(self.cuts, &self.subscribes) => is_delivered,
            () = &mut read => {
                // `read` has ended: the client gets the last replies, and then the connection ends.
                while let Ok(bytes) = outbox.try_recv() {
                    let _ = to_client.write_all(&bytes).await;
                }
                false
            }
            () = self.write(&mut to_client, &mut outbox) => false,
        };
        if is_delivered {
            let _ = to_client.shutdown().await;
            tokio::select! {
                biased;
                () = is_over => {}
                () = read => {}
                () = sleep(UNDELIVERED) => {}
            }
        }
    }

    fn subscribes(&self) -> bool {
        self.subscribes.load(Ordering::Relaxed)
    }

    /// Runs commands until the client has left.
    async fn read(&self, mut from: impl AsyncRead + Unpin) {
        let mut bytes = Vec::new();
        let mut random = Rng::with_seed(self.link.seed(self.client));
        while from.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
            // Connections overtake each other, as on a network. If each command were answered at once and the clock is
            // paused, clients that wait for each other could repeat the same steps for ever.
            if random.bool() {
                yield_now().await;
            }
            pass(self.link.delay(&mut random)).await;
            loop {
                let command = take_command(&mut bytes);
                if matches!(command, Ok(None)) {
                    break;
                }
                if matches!(&command, Ok(Some(words)) if is_subscription(words)) {
                    self.subscribes.store(true, Ordering::Relaxed);
                }
                // Asked before each command: the conditions can have changed since the last one.
                if !self.may_run().await {
                    return;
                }
                if matches!(&command, Ok(Some(words)) if is_subscription(words)) {
                    match self.link.subscription() {
                        Subscription::Served => {}
                        Subscription::Refused => return,
                        Subscription::Denied => {
                            let error = "NOPERM No permissions to access a channel".to_owned();
                            lock(&self.shared.state).data.send(self.client, &[Reply::Error(error)]);
                            continue;
                        }
                    }
                }
                let slowness = self.shared.conditions.get().slowness;
                pass(slowness.mul_f64(random.f64())).await;
                if let Ok(Some(words)) = &command
                    && is(words, "wait")
                {
                    // The time that the writes take on their way to the replicas.
                    pass(self.link.delay(&mut random)).await;
                    if !self.wait(words).await || !self.may_run().await {
                        return;
                    }
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

    /// Waits until `WAIT` can be answered. False: the server became a replica meanwhile, and closes the connection.
    async fn wait(&self, words: &[Bytes]) -> bool {
        let of = || lock(&self.shared.state).wait_of(words);
        let Some(Wait { time, .. }) = of() else { return true };
        let is_over = self.shared.conditions.until(|_| of().is_none());
        if time.is_zero() {
            is_over.await;
        } else {
            // When the time is over, `WAIT` answers how many replicas have the writes.
            let _ = timeout(time, is_over).await;
        }
        let state = lock(&self.shared.state);
        if state.is_replica() {
            state.data.send(self.client, &[Reply::Error(wait::UNBLOCKED.to_owned())]);
        }
        !state.is_replica()
    }

    /// Waits until a command that was sent can run. False: it was given up before it arrived.
    async fn may_run(&self) -> bool {
        loop {
            if self.link.holds_requests(self.client, self.subscribes()) {
                tokio::select! {
                    biased;
                    () = self.link.changed(|link| !link.holds_requests(self.client, self.subscribes())) => {}
                    () = self.undeliverable() => return false,
                }
            }
            if !self.shared.conditions.get().is_frozen {
                return true;
            }
            tokio::select! {
                biased;
                () = self.shared.conditions.until(|now| !now.is_frozen) => {}
                () = self.link.changed(|link| link.holds_requests(self.client, self.subscribes())) => {}
            }
        }
    }

    async fn undeliverable(&self) {
        // `changed` fails when the client has left.
        let _ = self.has_left.clone().changed().await;
        sleep(UNDELIVERED).await;
    }

    /// Sends replies and messages. It never ends: what the client sent before it left still runs.
    async fn write(&self, mut to: impl AsyncWrite + Unpin, outbox: &mut UnboundedReceiver<Vec<u8>>) {
        let mut random = Rng::with_seed(!self.link.seed(self.client));
        loop {
            let mut bytes = tokio::select! {
                biased;
                bytes = outbox.recv() => match bytes {
                    Some(bytes) => bytes,
                    None => break,
                },
                () = self.expiry() => continue,
            };
            pass(self.link.delay(&mut random)).await;
            while let Ok(more) = outbox.try_recv() {
                bytes.extend(more);
            }
            self.link.changed(|link| !link.holds_replies(self.client, self.subscribes())).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
        pending().await
    }

    /// Waits until a key expires that the connection has read with `CLIENT TRACKING`. What changes this time is sent to the connection,
    /// which then waits anew.
    async fn expiry(&self) {
        // A stopped process lets nothing expire.
        self.shared.conditions.until(|now| !now.is_frozen).await;
        let next = lock(&self.shared.state).expire_read(self.client);
        match next {
            Some(left) => sleep(left).await,
            None => pending().await,
        }
    }
}

fn is_subscription(words: &[Bytes]) -> bool {
    is(words, "subscribe") || is(words, "ssubscribe")
}

/// Whether the words are this command.
fn is(words: &[Bytes], name: &str) -> bool {
    words.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

async fn pass(time: Duration) {
    if time > Duration::ZERO {
        sleep(time).await;
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

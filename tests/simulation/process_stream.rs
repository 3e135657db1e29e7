//! The connections of a simulated process.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use lockkeeper::{Process, Source};
use lockkeeper_memory::{MemoryServer, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A process that is stopped receives and sends nothing. redis-rs spawns the tasks of its connections for messages itself, so they do not
/// belong to the process.
pub struct ProcessStream {
    stream: Stream,
    process: Process,
}

impl ProcessStream {
    pub const fn new(stream: Stream, process: Process) -> Self {
        Self { stream, process }
    }
}

/// The server, for a client in this process.
pub fn source(server: &MemoryServer, process: &Process) -> Source {
    let (connect, process) = (server.connector(), process.clone());
    Source::stream(move || {
        let (opening, process) = (connect(), process.clone());
        async move { opening.await.map(|stream| ProcessStream { stream, process }) }
    })
}

impl AsyncRead for ProcessStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.process.is_running(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ProcessStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !self.process.is_running(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

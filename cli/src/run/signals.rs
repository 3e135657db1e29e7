//! The signals that the front passes on to the command.

use std::io;

use futures_util::future::select_all;
use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

const FORWARDED: [Signal; 6] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

/// The signals that this process received.
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let listen = |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        Ok(Self(FORWARDED.into_iter().map(listen).collect::<io::Result<_>>()?))
    }

    /// Waits for the next signal. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Signal {
        let received = self.0.iter_mut().map(|(signal, stream)| {
            Box::pin(async {
                stream.recv().await;
                *signal
            })
        });
        select_all(received).await.0
    }
}

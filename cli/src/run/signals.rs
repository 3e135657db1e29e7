//! The signals that the front passes on to the command.

use std::{fs, io};

use futures_util::future::select_all;
use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

const FORWARDED: [Signal; 6] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

/// The signals that this process received.
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// From now on, these signals do not end this process. Signals that are ignored stay ignored, here and in the command: that
    /// is what `nohup` asks for.
    pub(super) fn listen() -> io::Result<Self> {
        let heard = FORWARDED.into_iter().filter(|signal| !is_ignored(*signal));
        let listen = |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        Ok(Self(heard.map(listen).collect::<io::Result<_>>()?))
    }

    /// Waits for the next signal. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Signal {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let received = self.0.iter_mut().map(|(signal, stream)| {
            Box::pin(async {
                stream.recv().await;
                *signal
            })
        });
        select_all(received).await.0
    }
}

/// Whether this process ignores a signal.
pub(super) fn is_ignored(signal: Signal) -> bool {
    let ignored = ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    ignored & (1 << (signal as u64 - 1)) != 0
}

/// The ignored signals, one bit each, as Linux tells them. Elsewhere none are known.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        assert_eq!(ignored("Name:\tx\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001001\n"), 0x1001);
        assert_eq!(ignored(""), 0);
    }
}

//! Ctrl-Z: the front stops after the command, not before.
//!
//! `SIGTSTP` is blocked, not handled: so the front still stops by its default action. That does nothing if there is no shell that
//! could continue the front.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use linux::Suspension;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use other::Suspension;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use nix::sys::signal::{SigSet, Signal};
    use nix::sys::signalfd::{SfdFlags, SignalFd};

    use super::super::signals::is_ignored;

    /// Delays `SIGTSTP` until [`stop`](Self::stop), or until this is dropped.
    pub(in super::super) struct Suspension(Option<SignalFd>);

    impl Suspension {
        pub(in super::super) fn new() -> Self {
            let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
            let is_blocked = !is_ignored(Signal::SIGTSTP) && signals().thread_block().is_ok();
            Self(is_blocked.then(|| SignalFd::with_flags(&signals(), flags).ok()).flatten())
        }

        /// Whether the signal came since the last question.
        pub(in super::super) fn was_asked_for(&self) -> bool {
            self.0.as_ref().is_some_and(|signals| matches!(signals.read_signal(), Ok(Some(_))))
        }

        /// This process stops here if it has got the signal, until it is continued.
        pub(in super::super) fn stop(&self) {
            let _ = signals().thread_unblock();
            if self.0.is_some() {
                let _ = signals().thread_block();
            }
        }
    }

    impl Drop for Suspension {
        fn drop(&mut self) {
            let _ = signals().thread_unblock();
        }
    }

    fn signals() -> SigSet {
        SigSet::from(Signal::SIGTSTP)
    }
}

/// Here, the signal stops this process at once.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod other {
    pub(in super::super) struct Suspension;

    impl Suspension {
        pub(in super::super) const fn new() -> Self {
            Self
        }

        pub(in super::super) const fn was_asked_for(&self) -> bool {
            false
        }

        pub(in super::super) const fn stop(&self) {}
    }
}

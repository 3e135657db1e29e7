//! The front's eye on the command while it runs.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::Child;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::clock::Moment;
use super::gate::Gate;
use super::group::Group;
use super::keeper_handle::KeeperHandle;
use super::loss::{Causes, Loss};
use super::message::Report;
use super::signals::Signals;
use super::stop::{Step, Stop};
use super::terminal::Terminal;
use crate::exit::Failure;

/// How often the front looks at the clock, at least: timers stop while the host is suspended.
const LOOK: Duration = Duration::from_millis(50);
const MS: Duration = Duration::from_millis(1);

/// The keeper's next report comes within this time, if more of them wait than the pipe holds.
const NEXT: Duration = Duration::from_millis(20);

/// How long the kernel has to end processes that got `SIGKILL`.
const LIMIT: Duration = Duration::from_secs(1);

/// What became of a command.
pub(super) struct Ended {
    /// How its first process ended.
    pub(super) status: Option<ExitStatus>,
    pub(super) lost: Option<Loss>,
    /// The command did not run: the keeper released the lock before.
    pub(super) failure: Option<Failure>,
    /// Until when the lock was held, as far as the front knows.
    pub(super) until: Moment,
    /// False: a process is left that cannot be killed.
    pub(super) is_gone: bool,
}

/// The command while it runs.
pub(super) struct Watch {
    group: Group,
    gate: Gate,
    terminal: Terminal,
    stop: Stop,
    status: Option<ExitStatus>,
    lost: Option<Loss>,
    failure: Option<Failure>,
    causes: Causes,
}

impl Watch {
    pub(super) fn new(group: Group, gate: Gate, stop: Stop, causes: Causes) -> Self {
        Self {
            group,
            gate,
            terminal: Terminal::of(group),
            stop,
            status: None,
            lost: None,
            failure: None,
            causes,
        }
    }

    /// Waits until no process of the command is left, and stops it when it must not run any more.
    pub(super) async fn until_it_ends(
        mut self,
        command: &mut Child,
        keeper: &mut KeeperHandle,
        signals: &mut Signals,
    ) -> Ended {
        let mut is_kept = true;
        loop {
            tokio::select! {
                biased;
                report = keeper.reports.next(), if is_kept => {
                    is_kept = report.is_some();
                    self.hear(report);
                }
                signal = signals.next() => self.pass_on(signal),
                status = command.wait(), if self.status.is_none() => {
                    self.has_ended(status.ok());
                }
                () = sleep(LOOK.min(self.stop.next().left()).max(MS)) => {}
            }
            let (due, now) = (self.stop.next(), Moment::now());
            if due <= now {
                // A loop that is this late was perhaps stopped with its process. Then the keeper gets time to report a
                // renewal before anything is done.
                let wait = if due.plus(2 * LOOK) <= now { NEXT } else { Duration::ZERO };
                is_kept = is_kept && self.catch_up(keeper, wait).await;
                if self.status.is_none() {
                    self.has_ended(command.try_wait().ok().flatten());
                }
            }
            if self.status.is_some() && self.group.seems_empty() {
                let is_gone = timeout(LIMIT, self.group.end()).await.is_ok();
                return self.ended(is_gone);
            }
            if self.terminal.look() {
                // This process was suspended, and the keeper has perhaps renewed the lock meanwhile. Its reports are
                // read before anything is due.
                is_kept = is_kept && self.catch_up(keeper, NEXT).await;
            }
            match self.stop.step(Moment::now()) {
                Step::Nothing => {}
                Step::Terminate => {
                    self.time_is_up();
                    self.group.signal(Signal::SIGTERM);
                    // A stopped process cannot handle the signal and end, so it is continued.
                    self.group.signal(Signal::SIGCONT);
                }
                Step::Kill => {
                    self.time_is_up();
                    let is_gone = timeout(LIMIT, self.group.end()).await.is_ok();
                    if self.status.is_none() {
                        self.status = command.wait().await.ok();
                    }
                    return self.ended(is_gone);
                }
            }
        }
    }

    fn has_ended(&mut self, status: Option<ExitStatus>) {
        if status.is_some() {
            self.status = status;
            // Processes that the command left behind must not work without the lock, so their grace begins now.
            self.stop.soon(Moment::now());
        }
    }

    fn pass_on(&self, signal: Signal) {
        self.group.signal(signal);
        if !matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2) {
            // A stopped process cannot handle the signal and end, so it is continued.
            self.group.signal(Signal::SIGCONT);
        }
    }

    /// Hears the reports that came while this process was stopped. False: the keeper is gone.
    async fn catch_up(&mut self, keeper: &mut KeeperHandle, wait: Duration) -> bool {
        // The runtime needs a turn to read the pipe. Otherwise a `wait` of zero would miss reports that have arrived.
        yield_now().await;
        while let Ok(report) = timeout(wait, keeper.reports.next()).await {
            let is_kept = report.is_some();
            self.hear(report);
            if !is_kept {
                return false;
            }
        }
        true
    }

    /// The terminal comes back here.
    fn ended(self, is_gone: bool) -> Ended {
        let was_killed = self.lost.is_some() || self.status.is_none_or(|status| status.signal().is_some());
        self.terminal.take_back(was_killed);
        Ended {
            status: self.status,
            lost: self.lost,
            failure: self.failure,
            until: self.stop.until(),
            is_gone,
        }
    }

    fn hear(&mut self, report: Option<Report>) {
        match report {
            Some(Report::Guarded) => {
                if self.stop.may_run(Moment::now()) {
                    self.terminal.lend();
                    self.gate.open();
                }
            }
            Some(Report::Until(until)) => self.stop.renewed(until),
            Some(Report::Lost { killed, was_removed }) => {
                self.loses(self.causes.of_loss(was_removed, self.stop.until()), killed);
                self.stop.at_once(Moment::now());
            }
            Some(Report::Failed(failure)) => {
                self.failure = Some(failure);
                self.stop.at_once(Moment::now());
            }
            Some(_) => {}
            None => {
                self.loses("the process that holds the lock ended", false);
                self.stop.soon(Moment::now());
            }
        }
    }

    /// The command is stopped although it works: the lock ends soon.
    fn time_is_up(&mut self) {
        if self.status.is_none() {
            self.loses(self.causes.of_end(self.stop.until()), false);
        }
    }

    fn loses(&mut self, text: &str, killed: bool) {
        let stopped = killed || self.status.is_none();
        self.lost.get_or_insert_with(|| Loss::new(text, stopped));
    }
}

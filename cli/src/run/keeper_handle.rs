//! The keeper, as the front sees it.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, ChildStdout};
use tokio::time::{sleep, timeout};

use super::clock::Moment;
use super::command::this_program;
use super::lines::{Reader, Writer};
use super::loss::{Causes, Loss};
use super::message::{Order, Release, Report};
use super::signals::Signals;
use crate::args::{Connection, Run};
use crate::exit::{Failure, tell};

/// How long the keeper has to undo an acquire, and to answer at the end of a lease.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process that holds the lock.
pub(super) struct KeeperHandle {
    process: Child,
    pub(super) orders: Writer<Order>,
    pub(super) reports: Reader<ChildStdout, Report>,
}

impl KeeperHandle {
    pub(super) fn start(connection: Connection, run: Run) -> Result<Self, Failure> {
        let mut process = this_program(crate::KEEP)
            .and_then(|mut program| {
                program
                    .args(["--", &run.name])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
            })
            .map_err(Failure::unavailable)?;
        let (Some(orders), Some(reports)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Failure::unavailable("no pipes"));
        };
        let orders = Writer::new(orders);
        orders.send(Order::Acquire { connection, run });
        Ok(Self { process, orders, reports: Reader::new(reports) })
    }

    /// Ends an acquire under way.
    pub(super) async fn give_up(mut self) {
        self.orders.finish().await;
        let _ = timeout(PATIENCE, self.process.wait()).await;
    }

    /// Tells the keeper that the command has ended, and waits for nothing else.
    pub(super) async fn dismiss(self) {
        self.orders.send(Order::Release);
        let _ = timeout(PATIENCE, self.orders.finish()).await;
    }

    /// Releases the lock. Returns the loss if the server did not have it any more. A signal ends the waiting.
    pub(super) async fn release(
        mut self,
        until: Moment,
        causes: Causes,
        signals: &mut Signals,
    ) -> Option<Loss> {
        self.orders.send(Order::Release);
        let problem = tokio::select! {
            biased;
            answer = answer(&mut self.reports, until, causes) => match answer {
                Ok(None) => return None,
                Ok(Some(problem)) => problem,
                Err(loss) => return Some(loss),
            },
            _ = signals.next() => "interrupted".to_owned(),
            () = sleep(until.left() + PATIENCE) => "the process that holds it does not answer".to_owned(),
        };
        tell(&format!("the lock ends with its lease: {problem}"));
        None
    }
}

/// What became of a release: perhaps it is not known whether the server released the lock, and why.
async fn answer(
    reports: &mut Reader<ChildStdout, Report>,
    until: Moment,
    causes: Causes,
) -> Result<Option<String>, Loss> {
    loop {
        let (text, stopped) = match reports.next().await {
            Some(Report::Held(_) | Report::Guarded | Report::Until(_)) => continue,
            Some(Report::Released(Release { was_held: true, killed: false, problem })) => return Ok(problem),
            Some(Report::Lost { killed, was_removed }) => (causes.of_loss(was_removed, until), killed),
            Some(Report::Released(Release { killed: true, .. })) => (causes.of_end(until), true),
            Some(_) => (causes.of_loss(true, until), false),
            None => ("the process that holds the lock ended", false),
        };
        return Err(Loss::new(text, stopped));
    }
}

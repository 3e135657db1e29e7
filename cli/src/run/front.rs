//! The front: the process that the user started.

use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::sleep;

use super::command::start;
use super::group::Group;
use super::keeper_handle::KeeperHandle;
use super::loss::{Causes, Loss};
use super::message::{Hold, Order, Report};
use super::signals::Signals;
use super::stop::Stop;
use super::watch::{Ended, Watch};
use crate::args::{Connection, Run};
use crate::exit::{Failure, LOST, SIGNAL, tell};

/// After this time, a user at a terminal is told what the front waits for.
const SILENCE: Duration = Duration::from_secs(1);

/// Runs a command while a lock is held.
pub(crate) async fn run(connection: Connection, run: Run) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(Failure::unavailable)?;
    let mut keeper = KeeperHandle::start(connection, run.clone())?;
    let hold = match acquired(&run.name, &mut keeper, &mut signals).await? {
        Ok(hold) => hold,
        Err(signal) => {
            keeper.give_up().await;
            return Ok((SIGNAL + signal as u8).into());
        }
    };
    let causes = Causes::of(&run);
    let (mut started, gate) = start(&run.name, &hold, &run.command).map_err(Failure::unavailable)?;
    let leader = started.id().and_then(|id| i32::try_from(id).ok());
    let group = Group::new(leader.ok_or_else(|| Failure::unavailable("the command has no process"))?);
    keeper.orders.send(Order::Guard(group.id().as_raw()));
    let watch = Watch::new(group, gate, Stop::new(hold.until, hold.grace), causes);
    let Ended { status, lost, failure, until, is_gone } =
        watch.until_it_ends(&mut started, &mut keeper, &mut signals).await;
    if let Some(failure) = failure {
        keeper.dismiss().await;
        return Err(failure);
    }
    let lost = match lost {
        _ if !is_gone => Some(Loss::new(causes.of_survivor(), true)),
        Some(lost) => {
            keeper.dismiss().await;
            Some(lost)
        }
        None => keeper.release(until, causes, &mut signals).await,
    };
    result(&run.name, status, lost)
}

/// Waits for the lock, until a signal ends the waiting.
async fn acquired(
    name: &str,
    keeper: &mut KeeperHandle,
    signals: &mut Signals,
) -> Result<Result<Hold, Signal>, Failure> {
    let mut is_silent = io::stderr().is_terminal();
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => return Ok(Err(signal)),
            report = keeper.reports.next() => match report {
                Some(Report::Held(hold)) => return Ok(Ok(hold)),
                Some(Report::Failed(failure)) => return Err(failure),
                Some(Report::Notice(text)) => tell(&text),
                Some(_) => {}
                None => return Err(Failure::unavailable("the process that acquires the lock ended")),
            },
            () = sleep(SILENCE), if is_silent => {
                is_silent = false;
                tell(&format!("waiting for `{name}`"));
            }
        }
    }
}

fn result(name: &str, status: Option<ExitStatus>, lost: Option<Loss>) -> Result<ExitCode, Failure> {
    let code = status.map_or(LOST, code_of);
    let Some(Loss { text, stopped }) = lost else { return Ok(code.into()) };
    let problem = format!("lock `{name}`: {text}. {}", became(status, stopped));
    // If the command failed by itself, its own code says more. Otherwise it was stopped, or it reported success
    // although the lock did not protect it until its end.
    Err(Failure { problem, code: if !stopped && code != 0 { code } else { LOST } })
}

/// What became of the command whose lock was lost.
fn became(status: Option<ExitStatus>, stopped: bool) -> String {
    let Some(status) = status else { return "The command still runs".to_owned() };
    match (status.signal().and_then(|signal| Signal::try_from(signal).ok()), stopped) {
        (Some(signal), true) => format!("The command was stopped with {signal}"),
        (None, true) => format!("The command was told to stop, and ended with code {}", code_of(status)),
        (Some(signal), false) => {
            format!("{signal} had ended the command, which was not protected until its end")
        }
        (None, false) => {
            format!("The command ended with code {}, and was not protected until its end", code_of(status))
        }
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| i32::from(SIGNAL) + signal);
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

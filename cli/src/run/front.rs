//! The front: the process that the user started.

use std::env;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use super::clock::Moment;
use super::group::Group;
use super::lines::{Reader, send};
use super::message::{Order, Report};
use super::signals::Signals;
use super::stop::{Step, Stop};
use super::terminal::Foreground;
use crate::args::{Connection, Run};
use crate::exit::{Failure, LOST, SIGNAL};

/// How often the front looks at the clock: timers stop while the host is suspended.
const LOOK: Duration = Duration::from_millis(50);

/// How long the keeper has to give up a lock for which it waits.
const GIVE_UP: Duration = Duration::from_secs(2);

/// Runs a command while a lock is held.
pub(crate) async fn run(connection: Connection, run: Run) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(Failure::unavailable)?;
    let (name, command) = (run.name.clone(), run.command.clone());
    let mut keeper = Keeper::start(Order::Acquire { connection, run }).await?;
    let (until, grace, token) = loop {
        tokio::select! {
            biased;
            signal = signals.next() => {
                keeper.give_up().await;
                return Ok(exit_code(SIGNAL + signal as u8));
            }
            report = keeper.reports.next() => match report {
                Some(Report::Held { until, grace, token }) => break (until, grace, token),
                Some(Report::Failed { problem, code }) => return Err(Failure { problem, code }),
                Some(_) => {}
                None => return Err(Failure::unavailable("the process that holds the lock ended")),
            },
        }
    };
    let mut started = start(&name, token, &command).map_err(Failure::unavailable)?;
    let group = Group::new(i32::try_from(started.id().unwrap_or_default()).unwrap_or_default());
    send(&mut keeper.orders, &Order::Guard(group.id().as_raw())).await;
    let foreground = Foreground::lend(group);
    let watched = Watch { group, stop: Stop::new(until, grace), status: None, lost: None };
    let Watch { status, lost, .. } = watched.until_it_ends(&mut started, &mut keeper, &mut signals).await;
    drop(foreground);
    let lost = match lost {
        Some(lost) => Some(lost),
        None => keeper.release().await,
    };
    let code = status.map_or(LOST, code_of);
    match lost {
        // The command was stopped, or reported success although it was not protected until its end.
        Some(Loss { text, stopped }) => {
            let is_own_failure = !stopped && code != 0;
            Err(Failure { problem: text, code: if is_own_failure { code } else { LOST } })
        }
        None => Ok(exit_code(code)),
    }
}

/// How the lock was lost.
struct Loss {
    text: String,
    /// The command was stopped because of it.
    stopped: bool,
}

/// The command while it runs.
struct Watch {
    group: Group,
    stop: Stop,
    /// How its first process ended.
    status: Option<ExitStatus>,
    lost: Option<Loss>,
}

impl Watch {
    /// Waits until no process of the command is left, and stops it when it must not run any more.
    async fn until_it_ends(
        mut self,
        command: &mut Child,
        keeper: &mut Keeper,
        signals: &mut Signals,
    ) -> Self {
        let mut is_kept = true;
        loop {
            tokio::select! {
                biased;
                report = keeper.reports.next(), if is_kept => match report {
                    Some(Report::Until(until)) => self.stop.renewed(until),
                    Some(Report::Lost) => self.lost_now("the lock was lost"),
                    Some(_) => {}
                    None => {
                        is_kept = false;
                        self.loses("the process that holds the lock ended");
                        self.stop.soon(Moment::now());
                    }
                },
                signal = signals.next() => self.group.signal(signal),
                status = command.wait(), if self.status.is_none() => {
                    self.status = status.ok();
                    // What it left behind must not work without the lock.
                    self.stop.soon(Moment::now());
                }
                () = sleep(LOOK) => {}
            }
            if self.status.is_some() && self.group.is_empty() {
                return self;
            }
            match self.stop.step(Moment::now()) {
                Step::Nothing => {}
                Step::Terminate => {
                    self.time_is_up();
                    self.group.signal(Signal::SIGTERM);
                    // A process that is stopped cannot end.
                    self.group.signal(Signal::SIGCONT);
                }
                Step::Kill => {
                    self.time_is_up();
                    self.group.end().await;
                    if self.status.is_none() {
                        self.status = command.wait().await.ok();
                    }
                    return self;
                }
            }
        }
    }

    fn lost_now(&mut self, text: &str) {
        self.loses(text);
        self.stop.at_once(Moment::now());
    }

    /// The command is stopped although it works: the lock ends soon.
    fn time_is_up(&mut self) {
        if self.status.is_none() {
            self.loses("the lock was not renewed, or its time is up");
        }
    }

    fn loses(&mut self, text: &str) {
        let stopped = self.status.is_none();
        self.lost.get_or_insert_with(|| Loss { text: text.to_owned(), stopped });
    }
}

/// The process that holds the lock.
struct Keeper {
    process: Child,
    orders: ChildStdin,
    reports: Reader<ChildStdout, Report>,
}

impl Keeper {
    async fn start(order: Order) -> Result<Self, Failure> {
        let mut process = this_program(crate::KEEP)
            .and_then(|mut program| {
                program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
            })
            .map_err(Failure::unavailable)?;
        let (Some(mut orders), Some(reports)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Failure::unavailable("no pipes"));
        };
        send(&mut orders, &order).await;
        Ok(Self { process, orders, reports: Reader::new(reports) })
    }

    /// Ends an acquire under way.
    async fn give_up(mut self) {
        drop(self.orders);
        let _ = timeout(GIVE_UP, self.process.wait()).await;
    }

    /// Releases the lock. Returns the loss if the server did not have it any more.
    async fn release(mut self) -> Option<Loss> {
        let lost = |text: &str| Some(Loss { text: text.to_owned(), stopped: false });
        if !send(&mut self.orders, &Order::Release).await {
            return lost("the process that holds the lock ended");
        }
        loop {
            match self.reports.next().await {
                Some(Report::Until(_)) => {}
                Some(Report::Released { was_held: true, problem: None }) => return None,
                Some(Report::Released { was_held: true, problem: Some(problem) }) => {
                    eprintln!("lockkeeper: the lock ends with its lease: {problem}");
                    return None;
                }
                Some(_) => return lost("the lock was lost before the command ended"),
                None => return lost("the process that holds the lock ended"),
            }
        }
    }
}

/// Starts the command, in a process group of its own.
fn start(name: &str, token: Option<u64>, command: &[String]) -> io::Result<Child> {
    let mut program = this_program(crate::EXEC)?;
    program.arg(std::process::id().to_string()).arg("--").args(command).env("LOCKKEEPER_NAME", name);
    match token {
        Some(token) => program.env("LOCKKEEPER_TOKEN", token.to_string()),
        None => program.env_remove("LOCKKEEPER_TOKEN"),
    };
    program.spawn()
}

/// A further process of this program, in a process group of its own: signals of a terminal do not reach it.
fn this_program(hidden: &str) -> io::Result<Command> {
    // The path can lead to another version by now. This one leads to the program that runs.
    let running = PathBuf::from("/proc/self/exe");
    let path = if running.exists() { running } else { env::current_exe()? };
    let mut program = Command::new(path);
    program.arg0("lockkeeper").arg(hidden).process_group(0);
    Ok(program)
}

fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| i32::from(SIGNAL) + signal);
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn exit_code(code: u8) -> ExitCode {
    code.into()
}

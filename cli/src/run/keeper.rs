//! The keeper: holds the lock while the command runs.

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use lockkeeper::{Error, FencingToken, LockClient, LockGuard};
use nix::sys::signal::Signal;
use tokio::io::{Stdin, stdin, stdout};
use tokio::time::{sleep, timeout};

use super::acquire::{acquire, other_number, waits_for_itself};
use super::clock::Moment;
use super::group::Group;
use super::lines::{Reader, Writer};
use super::message::{Hold, Order, Release, Report};
use super::record::Record;
use super::signals::Signals;
use super::times::Times;
use crate::args::{Connection, Run};
use crate::connect::Settings;
use crate::exit::{BUSY, Failure};

/// How often the keeper looks at the clock, at least: timers stop while the host is suspended.
const LOOK: Duration = Duration::from_millis(50);
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// How long the front has to start a command, at most. It has no longer than a third of the lease.
const START: Duration = Duration::from_secs(5);

/// So long after the end of a command, a front that runs has told it.
const END: Duration = Duration::from_millis(500);

/// Holds a lock for the front, which sends its orders to stdin and reads the reports from stdout.
pub(crate) async fn keep() -> ExitCode {
    // A service manager sends signals to all processes of a service. The keeper ignores them, because the lock has to
    // outlive the command.
    let _not_ended_by_signals = Signals::listen();
    let mut keeper = Keeper { orders: Reader::new(stdin()), reports: Writer::new(stdout()) };
    let Some(Order::Acquire { connection, run }) = keeper.orders.next().await else {
        return ExitCode::FAILURE;
    };
    if let Err(failure) = keeper.keep(&connection, &run).await {
        keeper.reports.send(Report::Failed(failure));
    }
    keeper.reports.finish().await;
    ExitCode::SUCCESS
}

struct Keeper {
    orders: Reader<Stdin, Order>,
    reports: Writer<Report>,
}

impl Keeper {
    async fn keep(&mut self, connection: &Connection, run: &Run) -> Result<(), Failure> {
        let settings = Settings::read(connection)?;
        let times = Times::of(run, settings.locks().watchdog_lease())?;
        let mut record = run.record.as_deref().map(Record::open).transpose()?;
        // Connecting is retried for as long as an acquire: for `wait`, and without it for `retry_timeout`.
        let settings = settings.with_start_timeout(run.wait)?;
        let start = Moment::now();
        let Some(locks) = self.unless_given_up(settings.connect()).await else { return Ok(()) };
        let locks = locks?;
        let mut run = run.clone();
        run.wait = run.wait.map(|wait| start.plus(wait).left());
        let result = self.keep_with(&locks, &run, &times, record.as_mut()).await;
        // A lock that cannot be released within this time has expired with its lease.
        let _ = timeout(times.lease.max(SECOND), locks.shutdown()).await;
        result
    }

    async fn keep_with(
        &mut self,
        locks: &LockClient,
        run: &Run,
        times: &Times,
        record: Option<&mut Record>,
    ) -> Result<(), Failure> {
        let Some(waits) = self.unless_given_up(waits_for_itself(locks, run)).await else { return Ok(()) };
        if waits? {
            let problem = format!(
                "`{}` is held by a `lockkeeper run` around this one, which waits for this one: use another name",
                run.name
            );
            return Err(Failure { problem, code: BUSY });
        }
        let Some(notice) = self.unless_given_up(other_number(locks, run)).await else { return Ok(()) };
        if let Some(notice) = notice {
            self.reports.send(Report::Notice(notice));
        }
        let acquired = self.unless_given_up(acquire(locks, run)).await;
        if let Some(record) = record {
            record.add(locks);
        }
        let Some(held) = acquired else { return Ok(()) };
        let Some((guard, token)) = held? else {
            return Err(Failure { problem: format!("`{}` is busy", run.name), code: BUSY });
        };
        let acquired_at = Moment::now();
        if self
            .hold(guard, token, times, run.when_wanted.and_then(|number| Signal::try_from(number).ok()))
            .await?
            && let Some(least) = run.at_least
        {
            // The front has its report and does not wait for the end of this sleep.
            sleep(acquired_at.plus(least).left()).await;
        }
        Ok(())
    }

    /// `None`: the front gave up, or is gone.
    async fn unless_given_up<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            _ = self.orders.next() => None,
            result = work => Some(result),
        }
    }

    /// Reports until when the command may run, until it has ended or must not run any more. False: the lock was lost.
    async fn hold(
        &mut self,
        guard: LockGuard,
        token: Option<FencingToken>,
        times: &Times,
        when_wanted: Option<Signal>,
    ) -> Result<bool, Failure> {
        let token = token.map(FencingToken::get);
        let mut until = times.until(&guard);
        let owner = guard.owner_id();
        self.reports.send(Report::Held(Hold { until, owner, grace: times.grace, token }));
        let mut ended = pin!(guard.ended());
        let (mut wanted, mut when_wanted) = (pin!(guard.wanted()), when_wanted);
        let mut group: Option<Group> = None;
        let mut killed = false;
        // For how long no command has run: the sum of the pauses. A clock would also count the time for which this
        // process was stopped.
        let mut idle = Duration::ZERO;
        loop {
            let pause = LOOK.min(until.left()).max(MS);
            tokio::select! {
                biased;
                order = self.orders.next() => match order {
                    Some(Order::Guard(leader)) => {
                        group = Some(Group::new(leader));
                        idle = Duration::ZERO;
                        self.reports.send(Report::Guarded);
                    }
                    Some(_) => return Ok(self.report(release(guard, killed).await)),
                    None => {
                        // The front is gone and cannot stop the command any more. The keeper kills the command, and
                        // holds the lock until the command is gone.
                        if let Some(group) = group {
                            tokio::select! {
                                () = group.end() => {}
                                _ = &mut ended => {}
                            }
                        }
                        return Ok(self.report(release(guard, killed).await));
                    }
                },
                _ = &mut ended => {
                    let was_removed = !until.left().is_zero();
                    if let Some(group) = group {
                        killed |= !group.seems_empty();
                        let _ = timeout(SECOND, group.end()).await;
                    }
                    self.reports.send(Report::Lost { killed, was_removed });
                    return Ok(false);
                }
                () = &mut wanted, if when_wanted.is_some() && group.is_some() => {
                    if let (Some(group), Some(signal)) = (group, when_wanted.take()) {
                        group.signal(signal);
                    }
                }
                () = sleep(pause) => idle += pause,
            }
            let renewed = times.until(&guard);
            // Each computed end is a little off, so only a later one by more than 1 ms is a renewal.
            if renewed > until.plus(MS) {
                until = renewed;
                self.reports.send(Report::Until(until));
            }
            let Some(group) = group else {
                if idle >= START.min(times.lease / 3) {
                    // After this release the keeper ends. It reads no later order of the front, so the front cannot
                    // open the gate any more.
                    release(guard, killed).await;
                    return Err(Failure::unavailable(
                        "nothing was run: the lock was granted while `lockkeeper` was stopped, and was released",
                    ));
                }
                continue;
            };
            if until.left().is_zero() {
                // The front kills the command before this moment, unless the front itself is stopped.
                killed |= !group.seems_empty();
                group.signal(Signal::SIGKILL);
            }
            if !group.seems_empty() {
                idle = Duration::ZERO;
            } else if idle >= END {
                // The front is stopped, so it has not reported the end of the command. It reads this report when it
                // continues.
                group.end().await;
                let released = release(guard, killed).await;
                self.orders.next().await;
                return Ok(self.report(released));
            }
        }
    }

    /// False: the lock was lost.
    fn report(&self, release: Release) -> bool {
        let was_held = release.was_held;
        self.reports.send(Report::Released(release));
        was_held
    }
}

async fn release(guard: LockGuard, killed: bool) -> Release {
    let limit = guard.remaining() + SECOND;
    let released = timeout(limit, guard.unlock()).await;
    let was_held = !matches!(released, Ok(Err(Error::NotHeld(_))));
    let problem = match released {
        Ok(released) => released.err().map(|error| error.to_string()),
        Err(_) => Some("there was no answer".to_owned()),
    };
    Release { was_held, killed, problem }
}

//! The keeper: holds the lock while the command runs.

use std::process::ExitCode;
use std::time::Duration;

use lockkeeper::{LockClient, LockGuard};
use tokio::io::{Stdin, Stdout, stdin, stdout};
use tokio::time::sleep;

use super::clock::Moment;
use super::group::Group;
use super::lines::{Reader, send};
use super::message::{Order, Report};
use crate::args::{Connection, Kind, Run};
use crate::connect::Settings;
use crate::exit::{BUSY, Failure};

/// How often the keeper looks at the lease.
const LOOK: Duration = Duration::from_millis(50);

/// How long before the deadline of the lock the command is killed, at most. The deadline is before the end of the lease.
const EARLY: Duration = Duration::from_millis(250);
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// Holds a lock for the front, which sends its orders to stdin and reads the reports from stdout.
pub(crate) async fn keep() -> ExitCode {
    let mut pipes = Pipes { orders: Reader::new(stdin()), reports: stdout() };
    let Some(Order::Acquire { connection, run }) = pipes.orders.next().await else {
        return ExitCode::FAILURE;
    };
    if let Err(failure) = pipes.keep(&connection, &run).await {
        send(&mut pipes.reports, &Report::from(failure)).await;
    }
    ExitCode::SUCCESS
}

struct Pipes {
    orders: Reader<Stdin, Order>,
    reports: Stdout,
}

/// How a lock was acquired.
struct Held {
    guard: LockGuard,
    token: Option<u64>,
}

impl Pipes {
    async fn keep(&mut self, connection: &Connection, run: &Run) -> Result<(), Failure> {
        let settings = Settings::read(connection)?;
        let acquiring = async {
            let locks = settings.connect().await?;
            let held = acquire(&locks, run).await;
            Ok::<_, Failure>((locks, held))
        };
        let (locks, held) = tokio::select! {
            biased;
            // The front gave up, or is gone.
            _ = self.orders.next() => return Ok(()),
            acquired = acquiring => acquired?,
        };
        let acquired_at = Moment::now();
        let result = match held {
            Ok(Some(held)) => self.hold(held, run).await,
            Ok(None) => Err(Failure { problem: format!("`{}` is busy", run.name), code: BUSY }),
            Err(failure) => Err(failure),
        };
        if let (Ok(()), Some(least)) = (&result, run.at_least) {
            // The front does not wait for this.
            sleep(acquired_at.plus(least).left()).await;
        }
        let _ = locks.shutdown().await;
        result
    }

    /// Reports until when the command may run, until it has ended or must not run any more.
    async fn hold(&mut self, Held { guard, token }: Held, run: &Run) -> Result<(), Failure> {
        let times = Times::of(run.grace, guard.remaining())?;
        let mut until = times.until(&guard);
        send(&mut self.reports, &Report::Held { until, grace: times.grace, token }).await;
        let mut lost = std::pin::pin!(guard.lost());
        let mut group = None;
        let is_lost = loop {
            tokio::select! {
                biased;
                order = self.orders.next() => match order {
                    Some(Order::Guard(leader)) => group = Some(Group::new(leader)),
                    Some(_) => break false,
                    None => {
                        // The front is gone, and cannot stop the command any more.
                        end(group).await;
                        break false;
                    }
                },
                () = &mut lost => break true,
                () = sleep(LOOK) => {}
            }
            let renewed = times.until(&guard);
            if renewed > until {
                until = renewed;
                send(&mut self.reports, &Report::Until(until)).await;
            }
            if until.left().is_zero() {
                // The front has killed the command by now, unless the front was stopped.
                end(group).await;
            }
        };
        if is_lost {
            end(group).await;
            send(&mut self.reports, &Report::Lost).await;
            return Ok(());
        }
        let released = guard.unlock().await;
        let was_held = !matches!(released, Err(lockkeeper::Error::NotHeld(_)));
        let problem = released.err().map(|error| error.to_string());
        send(&mut self.reports, &Report::Released { was_held, problem }).await;
        Ok(())
    }
}

async fn end(group: Option<Group>) {
    if let Some(group) = group {
        group.end().await;
    }
}

/// How long before the end of the lease what happens.
struct Times {
    early: Duration,
    grace: Duration,
}

impl Times {
    /// For a lock that was acquired just now.
    fn of(grace: Option<Duration>, lease: Duration) -> Result<Self, Failure> {
        let grace = grace.unwrap_or_else(|| LONGEST_GRACE.min(lease / 4));
        if grace > lease / 2 {
            let [grace, lease] =
                [grace, Duration::from_secs(lease.as_secs())].map(humantime::format_duration);
            return Err(Failure::usage(format!(
                "a grace of {grace} is longer than half of the lease, which is {lease}"
            )));
        }
        Ok(Self { early: EARLY.min(lease / 10), grace })
    }

    /// When the command has to be killed, if the lease is not renewed.
    fn until(&self, guard: &LockGuard) -> Moment {
        // The clock is read first: what is left then is not less than what is left now.
        let now = Moment::now();
        now.plus(guard.remaining()).minus(self.early)
    }
}

/// `None`: the lock is busy.
async fn acquire(locks: &LockClient, run: &Run) -> Result<Option<Held>, Failure> {
    /// Calls the methods of the type itself: those of `BaseLock` return no token.
    macro_rules! acquire {
        ($lock:expr) => {{
            let mut lock = $lock;
            if let Some(lease) = run.lease {
                lock = lock.lease(lease)?;
            }
            if let Some(most) = run.max_hold {
                lock = lock.max_hold(most)?;
            }
            if let Some(least) = run.at_least {
                lock = lock.hold_at_least(least)?;
            }
            match (run.only_try, run.wait) {
                (true, _) => lock.try_lock().await?,
                (false, Some(wait)) => lock.try_lock_for(wait).await?,
                (false, None) => Some(lock.lock().await?),
            }
        }};
    }
    let plain = |guard| Held { guard, token: None };
    Ok(match run.kind {
        Kind::Rlock => acquire!(locks.rlock(&run.name)).map(plain),
        Kind::Fair => acquire!(locks.fair_lock(&run.name)).map(plain),
        Kind::Read => acquire!(locks.read_write_lock(&run.name).into_read()).map(plain),
        Kind::Write => acquire!(locks.read_write_lock(&run.name).into_write()).map(plain),
        Kind::Fenced => acquire!(locks.fenced_lock(&run.name))
            .map(|guard| Held { token: Some(guard.token().get()), guard: guard.into() }),
    })
}

//! The parent process: prepares the files, lets the workers run without and with the lock, and compares the two ledgers.

use std::env;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::process::{self, ExitCode};
use std::time::Duration;

use lockkeeper::LockClient;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::check::Findings;
use crate::run::{Run, Story};
use crate::screen::{Ink, ink};
use crate::{LOCK, Result, cut_off, jobs, redis_url};

const USAGE: &str = "usage: ledger [NUMBER OF JOBS | FILE WITH JOBS]";

const INTRODUCTION: &str = "
Four processes, the workers, do jobs from a list. For each job, a worker reads the last line of one
file, the ledger. It adds the amount of the job to the balance, and appends a line:

  job  account  amount  balance  worker";

const WITHOUT_LOCK: &str = "
  Several workers read the same last line, so they do the same job. Each worker writes its line in
  two halves. If another worker writes between the halves, both lines are torn.
  The first torn and doubled lines:
";

const WITH_LOCK: &str = "
  Four workers do the same jobs, but each worker holds a lock in Redis while it does a job. One of
  them is killed while it holds the lock.

  A lock has a lease. While its holder lives, the client renews the lease. If the holder dies, Redis
  releases the lock when the lease ends. Here the lease is 2 s, so that the other workers soon
  continue. The default is 30 s: a holder that cannot renew for a whole lease loses its lock, so a
  longer lease survives longer pauses of the process, the server or the network.
";

const CUT_OFF: &str = "
  Worker 1 holds a lock and works. After 1 s, it is cut off from Redis. Worker 2 waits for the lock,
  and works for 1 s. Once the lock is a plain `SET NX` that lives 2 s, once lockkeeper's with a lease of 2 s.
  `SET NX` tells nobody when it ends. lockkeeper renews the lock. If it cannot, a timer in the
  process of worker 1 stops the work before the lease ends.
";

/// One of the two runs.
pub(crate) struct Plan {
    pub(crate) has_lock: bool,
    pub(crate) jobs: usize,
    pub(crate) input: PathBuf,
    pub(crate) ledger: PathBuf,
    /// The workers are stopped after this time.
    longest: Duration,
}

pub(crate) async fn main(args: &[String]) -> Result<ExitCode> {
    let source = match args {
        [] => "200",
        [source] if !source.starts_with('-') => source,
        _ => return Err(USAGE.into()),
    };
    let scratch = Scratch::make()?;
    let input = match source.parse() {
        Ok(count) => jobs::write(scratch.0.join("jobs"), count)?,
        Err(_) => source.into(),
    };
    let jobs = jobs::read(&input)?.len();
    if jobs < 50 {
        return Err("with fewer than 50 jobs, all may be done before a worker is killed".into());
    }
    let plan = |has_lock, ledger, ms| {
        let (input, ledger) = (input.clone(), scratch.0.join(ledger));
        Plan { has_lock, jobs, input, ledger, longest: Duration::from_millis(ms) }
    };
    // Workers without a lock may never finish.
    let without = plan(false, "without-lock", 4_000);
    let with = plan(true, "with-lock", 10_000 + 25 * u64::try_from(jobs)?);

    let locks = LockClient::connect(redis_url()).await?;
    let outcome = both(&without, &with, &locks, &scratch.0).await;
    if outcome.is_err() {
        locks.rlock(LOCK).force_unlock().await?; // a worker that was stopped may have held it
    }
    locks.shutdown().await?;
    outcome
}

async fn both(without: &Plan, with: &Plan, locks: &LockClient, scratch: &Path) -> Result<ExitCode> {
    let heading = |text| println!("\n{}", ink(Ink::Bold, text));
    let mut interruption = pin!(interruption());

    println!("{INTRODUCTION}");
    heading("1. Without a lock");
    let (spoiled, _) = perform(without, locks, interruption.as_mut()).await?;
    println!("{WITHOUT_LOCK}");
    spoiled.show_samples();

    heading("2. With the lock");
    println!("{WITH_LOCK}");
    let (found, story) = perform(with, locks, interruption.as_mut()).await?;
    found.show_samples();

    println!("\n  The two ledgers, compared with the list of jobs:");
    compare(&spoiled, &found);

    heading("3. The holder is cut off from Redis");
    println!("{CUT_OFF}");
    let [set_nx, lockkeeper] = tokio::select! {
        logs = cut_off::perform(scratch) => logs?,
        outcome = interruption => return outcome.and(Err("interrupted".into())),
    };
    for (name, log) in [("with SET NX", &set_nx), ("with lockkeeper", &lockkeeper)] {
        println!("  {name}:");
        log.show();
    }
    let beside_set_nx = set_nx.both_worked_ms();

    let bad = if !found.is_good() {
        Some("with the lock, the ledger is wrong")
    } else if !story.is_as_planned() {
        Some("with the lock, the ledger is right, but the run did not go as planned")
    } else if lockkeeper.both_worked_ms() > 0 {
        Some("with lockkeeper, two workers worked at the same time")
    } else if spoiled.is_good() {
        Some("nothing was spoiled without the lock, so this run shows nothing; run it again")
    } else if beside_set_nx == 0 || !lockkeeper.was_handed_over() {
        Some("the third part did not go as planned, so it shows nothing; run it again")
    } else {
        None
    };
    let (color, code, verdict) = match bad {
        Some(bad) => (Ink::Red, ExitCode::FAILURE, format!("bad: {bad}")),
        None => {
            let good = format!(
                "good: with the lock, each job is in the ledger once, whole and in order. Two workers worked\n\
                 at the same time for {beside_set_nx} ms with SET NX, and for 0 ms with lockkeeper"
            );
            (Ink::Green, ExitCode::SUCCESS, good)
        }
    };
    println!("\n{}", ink(color, &verdict));
    Ok(code)
}

/// Lets the workers run, and checks what they wrote. No worker is left at the end.
async fn perform(
    plan: &Plan,
    locks: &LockClient,
    interruption: Pin<&mut impl Future<Output = Result<()>>>,
) -> Result<(Findings, Story)> {
    let mut run = Run::new(plan, locks);
    let outcome = tokio::select! {
        outcome = timeout(plan.longest, run.perform()) => match outcome {
            Ok(outcome) => outcome,
            Err(_) if plan.has_lock => Err(format!("not all jobs are done after {:?}", plan.longest).into()),
            Err(_) => Ok(()),
        },
        outcome = interruption => outcome.and(Err("interrupted".into())),
    };
    run.stop().await?;
    outcome?;
    let text = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok((Findings::of(&text(&plan.input)?, &text(&plan.ledger)?), run.story))
}

fn compare(without: &Findings, with: &Findings) {
    let row = |what: &str, without: &dyn Display, with: &dyn Display, remark: &str| {
        println!("{}", format!("  {what:<10}{without:>14}{with:>14}   {remark}").trim_end());
    };
    row("", &"without lock", &"with lock", "");
    row("jobs", &without.jobs, &with.jobs, "");
    let judged = |what, of: fn(&Findings) -> usize, expected: fn(&Findings) -> usize, remark| {
        let cell = |found: &Findings| {
            let color = if of(found) == expected(found) { Ink::Green } else { Ink::Red };
            ink(color, &format!("{:>14}", of(found)))
        };
        row(what, &cell(without), &cell(with), remark);
    };
    judged("lines", |found| found.lines, |found| found.jobs, "");
    judged("torn", |found| found.torn, |_| 0, "lines that are not whole, or mixed with others");
    judged("doubled", |found| found.doubled, |_| 0, "lines of a job that already has a line");
    judged("wrong", |found| found.wrong, |_| 0, "lines out of order, or with a wrong balance");
    judged("missing", |found| found.missing, |_| 0, "jobs without a whole line");
}

async fn interruption() -> Result<()> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupted.recv() => {},
        _ = terminated.recv() => {},
    }
    Ok(())
}

/// A temporary directory. Dropping it deletes the files.
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> Result<Self> {
        let path = env::temp_dir().join(format!("lockkeeper-ledger-{}", process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

//! A worker process: does one job after the other, each under the lock, until none is left.

use std::fs::{File, OpenOptions};
use std::future::pending;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use lockkeeper::{Error, LockClient, LockConfig};
use tokio::time::sleep;

use crate::jobs::{self, Job};
use crate::{LEASE, LOCK, Result, redis_url};

struct Worker {
    number: usize,
    ledger: PathBuf,
    jobs: Vec<Job>,
    /// At this job or a later one, the victim hangs inside its section. The others leave this job to the victim.
    hangs_from: usize,
    is_victim: bool,
}

#[derive(PartialEq)]
enum Step {
    Done,
    NothingLeft,
}

/// The arguments are `NUMBER INPUT LEDGER HANGS-FROM victim|other with|without`. Events are lines on the standard output.
pub(crate) async fn main(args: &[String]) -> Result<()> {
    let [number, input, ledger, hangs_from, role, lock] = args else {
        return Err("only the parent can start a worker".into());
    };
    thread::spawn(end_with_parent);
    let worker = Worker {
        number: number.parse()?,
        ledger: ledger.into(),
        jobs: jobs::read(Path::new(input))?,
        hangs_from: hangs_from.parse()?,
        is_victim: role == "victim",
    };
    if lock == "without" { worker.run_without_lock().await } else { worker.run().await }
}

impl Worker {
    async fn run(&self) -> Result<()> {
        let config = LockConfig::builder().watchdog_lease(LEASE).build()?;
        let locks = LockClient::connect_with(redis_url(), config).await?;
        let mut lock = locks.rlock(LOCK);
        loop {
            let guard = lock.lock().await?;
            let step = match guard.run(self.section()).await {
                Ok(step) => step?,
                Err(_) => Step::Done, // the lock was lost and the section stopped: `unlock` fails, too
            };
            match guard.unlock().await {
                Err(Error::NotHeld { .. }) => println!("lost"),
                outcome => outcome?,
            }
            if step == Step::NothingLeft {
                return Ok(locks.shutdown().await?);
            }
            pause(2..8).await;
        }
    }

    async fn run_without_lock(&self) -> Result<()> {
        while self.section().await? == Step::Done {
            pause(2..8).await;
        }
        Ok(())
    }

    /// The section: one job. Two workers in it would do the same job, and mix their lines.
    async fn section(&self) -> Result<Step> {
        println!("started");
        let mut ledger = Ledger::open(&self.ledger)?;
        let Last { job: last, balance, was_repaired } = ledger.last()?;
        let Some(job) = self.jobs.get(last) else { return Ok(Step::NothingLeft) };
        let number = last + 1;
        if !self.is_victim && number == self.hangs_from && !was_repaired {
            return Ok(Step::Done); // the victim has not done it yet
        }
        pause(1..3).await;

        ledger.append(&format!("{number:>6}  {:<10} {:>+6}", job.account, job.amount))?;
        if self.is_victim && number >= self.hangs_from {
            println!("hangs {number}");
            pending::<()>().await;
        }
        pause(1..3).await;
        ledger.append(&format!(" {:>8}  worker {}\n", balance + job.amount, self.number))?;
        println!("done {number}");
        Ok(Step::Done)
    }
}

struct Ledger(File);

/// The last whole line.
struct Last {
    job: usize,
    balance: i64,
    /// Whether half a line followed it.
    was_repaired: bool,
}

impl Ledger {
    fn open(path: &Path) -> Result<Self> {
        Ok(Self(OpenOptions::new().read(true).append(true).open(path)?))
    }

    /// Returns the last whole line. If half a line follows, a worker died while it wrote: removes this half, so that
    /// the job is done again.
    fn last(&mut self) -> Result<Last> {
        const ENOUGH: u64 = 4_096;
        let start = self.0.metadata()?.len().saturating_sub(ENOUGH);
        self.0.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        self.0.read_to_end(&mut end)?;
        let whole = end.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let was_repaired = whole < end.len();
        if was_repaired {
            self.0.set_len(start + u64::try_from(whole)?)?;
            println!("repaired {}", end.len() - whole);
        }
        match String::from_utf8_lossy(&end[..whole]).lines().rev().find_map(read) {
            Some((job, balance)) => Ok(Last { job, balance, was_repaired }),
            None if start == 0 => Ok(Last { job: 0, balance: 0, was_repaired }),
            None => Err("the end of the ledger is not readable".into()),
        }
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        self.0.write_all(text.as_bytes())
    }
}

fn read(line: &str) -> Option<(usize, i64)> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [number, _, _, balance, "worker", _] => Some((number.parse().ok()?, balance.parse().ok()?)),
        _ => None,
    }
}

async fn pause(ms: Range<u64>) {
    sleep(Duration::from_millis(fastrand::u64(ms))).await;
}

/// Ends this process with its parent, which keeps the other end of the standard input and writes nothing to it.
pub(crate) fn end_with_parent() {
    let _ = io::stdin().read(&mut [0]);
    process::exit(1);
}

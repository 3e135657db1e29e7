//! The run: starts the workers, reads what they report, and kills one of them.

use std::env;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lockkeeper::LockClient;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use crate::parent::Plan;
use crate::screen::{Ink, Screen, ink};
use crate::{LOCK, Result};

const WORKERS: usize = 4;
const VICTIM: usize = 3;

/// Longer than a lease, to show that the watchdog renews the lock of a worker that is alive.
const HANGS: Duration = Duration::from_secs(3);

/// What happened in the run with the lock, and when.
#[derive(Default)]
pub(crate) struct Story {
    /// When the victim began to hang inside its section, and at which job.
    hangs: Option<(Instant, usize)>,
    killed: Option<Instant>,
    /// When the next worker acquired the lock.
    reacquired: Option<Instant>,
    /// Jobs that others did while the victim was alive inside its section.
    intrusions: usize,
    failures: usize,
}

impl Story {
    pub(crate) fn is_as_planned(&self) -> bool {
        self.reacquired.is_some() && self.intrusions == 0 && self.failures == 0
    }
}

pub(crate) struct Run<'a> {
    plan: &'a Plan,
    locks: &'a LockClient,
    workers: Vec<Child>,
    screen: Screen,
    pub(crate) story: Story,
}

/// One line that a worker printed.
struct Report {
    worker: usize,
    event: String,
    number: usize,
}

impl<'a> Run<'a> {
    pub(crate) fn new(plan: &'a Plan, locks: &'a LockClient) -> Self {
        Self { plan, locks, workers: Vec::new(), screen: Screen::new(), story: Story::default() }
    }

    pub(crate) async fn perform(&mut self) -> Result<()> {
        fs::write(&self.plan.ledger, "")?;
        let mut reports = self.start()?;
        while let Some(report) = self.next(&mut reports).await? {
            self.note(&report);
        }
        self.end().await
    }

    /// Kills the workers that still run.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            worker.kill().await?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<mpsc::Receiver<Report>> {
        let (sender, reports) = mpsc::channel(64);
        for number in 1..=WORKERS {
            let mut worker = self.command(number)?.spawn()?;
            let output = worker.stdout.take().ok_or("a worker has no output")?;
            tokio::spawn(listen(number, output, sender.clone()));
            self.workers.push(worker);
        }
        let ids: Vec<_> = self.workers.iter().filter_map(Child::id).map(|id| id.to_string()).collect();
        let (jobs, ids) = (self.plan.jobs, ids.join(" "));
        self.screen.note(&format!("{WORKERS} workers start, for {jobs} jobs (processes {ids})"));
        Ok(reports)
    }

    fn command(&self, worker: usize) -> Result<Command> {
        let hangs_from = if self.plan.has_lock { self.plan.jobs / 3 } else { 0 }.to_string(); // 0: no job
        let role = if worker == VICTIM && self.plan.has_lock { "victim" } else { "other" };
        let mut command = Command::new(env::current_exe()?);
        command
            .args(["worker", &worker.to_string()])
            .args([&self.plan.input, &self.plan.ledger])
            .args([hangs_from.as_str(), role, if self.plan.has_lock { "with" } else { "without" }])
            .stdin(Stdio::piped()) // a worker ends when this closes, so it ends with its parent
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }

    /// Returns the next report. `None`: all workers have ended. Meanwhile, kills the victim when it has hung long enough.
    async fn next(&mut self, reports: &mut mpsc::Receiver<Report>) -> Result<Option<Report>> {
        loop {
            let waits = self.story.hangs.filter(|_| self.story.killed.is_none());
            let end = waits.map_or_else(Instant::now, |(since, _)| since + HANGS);
            tokio::select! {
                report = reports.recv() => return Ok(report),
                () = sleep_until(end.into()), if waits.is_some() => self.kill().await?,
            }
        }
    }

    fn note(&mut self, report: &Report) {
        let now = Instant::now();
        let Report { worker, number, .. } = *report;
        let story = &mut self.story;
        match report.event.as_str() {
            "started" => {
                if let (Some(killed), None) = (story.killed, story.reacquired) {
                    story.reacquired = Some(now);
                    let after = (now - killed).as_secs_f64();
                    self.screen
                        .note(&format!("worker {worker} acquires the lock, {after:.2} s after the kill"));
                }
            }
            "repaired" if self.plan.has_lock => {
                self.screen
                    .note(&format!("worker {worker} finds half a line ({number} bytes) and removes it"));
            }
            "hangs" => {
                story.hangs = Some((now, number));
                self.screen.note(&format!(
                    "worker {worker} holds the lock, has written half of a line (job {number}), and hangs for {} s",
                    HANGS.as_secs()
                ));
            }
            "done" => {
                if story.killed.is_none() && story.hangs.is_some_and(|(_, job)| job <= number) {
                    story.intrusions += 1;
                }
                self.screen.progress(number, self.plan.jobs);
            }
            "lost" => {
                story.hangs = story.hangs.filter(|_| worker != VICTIM);
                self.screen.note(&ink(Ink::Red, &format!("worker {worker} lost its lock")));
            }
            _ => {}
        }
    }

    async fn kill(&mut self) -> Result<()> {
        let others = match self.story.intrusions {
            0 => "no other worker did a job".to_owned(),
            count => format!("the others did {count} jobs"),
        };
        self.screen
            .note(&format!("worker {VICTIM} still holds the lock: its client renewed the lease; {others}"));

        self.story.killed = Some(Instant::now());
        self.workers[VICTIM - 1].kill().await?;
        let killed = ink(Ink::Yellow, &format!("worker {VICTIM} is killed (SIGKILL)"));
        let lease = match self.locks.inspect(LOCK).await?.and_then(|lock| lock.remaining_lease.duration()) {
            Some(left) => format!("its lease ends in {:.2} s", left.as_secs_f64()),
            None => "it held no lock".to_owned(),
        };
        self.screen.note(&format!("{killed}; {lease}"));
        Ok(())
    }

    async fn end(&mut self) -> Result<()> {
        for (number, worker) in (1..).zip(&mut self.workers) {
            let status = worker.wait().await?;
            let was_killed = number == VICTIM && self.story.killed.is_some();
            if !status.success() && !was_killed {
                self.story.failures += 1;
                self.screen.note(&format!("worker {number} failed: {status}"));
            }
        }
        self.screen.note("all workers have ended");
        Ok(())
    }
}

async fn listen(worker: usize, output: impl AsyncRead + Unpin, sender: mpsc::Sender<Report>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let (event, number) = line.split_once(' ').unwrap_or((&line, ""));
        let report = Report { worker, event: event.to_owned(), number: number.parse().unwrap_or(0) };
        if sender.send(report).await.is_err() {
            return;
        }
    }
}

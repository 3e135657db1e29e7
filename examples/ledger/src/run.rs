//! The run: starts the workers, reads what they report, and kills one of them.

use std::env;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lockkeeper::LockClient;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};

use crate::parent::Plan;
use crate::screen::{Ink, Screen};
use crate::{LOCK, Result, redis_url};

pub(crate) const WORKERS: usize = 4;
pub(crate) const VICTIM: usize = 3;

/// Longer than a lease, to show that the watchdog renews the lock of a worker that is alive.
const HANGS: Duration = Duration::from_secs(3);

/// The longest time without a report from any worker.
const PATIENCE: Duration = Duration::from_secs(30);

/// What happened, and when.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) first: Option<Instant>,
    pub(crate) last: Option<Instant>,
    /// When the victim began to hang inside its section, and at which job.
    pub(crate) hangs: Option<(Instant, usize)>,
    pub(crate) killed: Option<Instant>,
    /// When the next worker acquired the lock.
    pub(crate) reacquired: Option<Instant>,
    /// Jobs that others did while the victim was alive inside its section.
    pub(crate) intrusions: usize,
    pub(crate) locks_lost: usize,
    pub(crate) failures: usize,
}

impl Story {
    pub(crate) fn is_as_planned(&self) -> bool {
        self.reacquired.is_some() && self.intrusions == 0 && self.failures == 0
    }
}

pub(crate) struct Run<'a> {
    plan: &'a Plan,
    workers: Vec<Child>,
    pub(crate) screen: Screen,
    pub(crate) story: Story,
}

/// One line that a worker printed.
struct Report {
    worker: usize,
    event: String,
    number: usize,
}

impl<'a> Run<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        Self { plan, workers: Vec::new(), screen: Screen::new(), story: Story::default() }
    }

    pub(crate) async fn perform(&mut self) -> Result<()> {
        let guarded = if self.plan.has_lock { " that only the lock protects" } else { ", and no lock" };
        println!("{} jobs, {WORKERS} worker processes, one ledger{guarded}\n", self.plan.jobs);
        let locks = LockClient::connect(redis_url()).await?;
        let mut reports = self.start()?;
        while let Some(report) = self.next(&mut reports, &locks).await? {
            self.note(&report);
        }
        self.end().await?;
        Ok(locks.shutdown().await?)
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
        self.screen.note(&format!("{WORKERS} workers started, as processes {}", ids.join(" ")));
        Ok(reports)
    }

    fn command(&self, worker: usize) -> Result<Command> {
        let hangs_from = (self.plan.jobs / 3).to_string();
        let role = if worker == VICTIM { "victim" } else { "other" };
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
    async fn next(
        &mut self,
        reports: &mut mpsc::Receiver<Report>,
        locks: &LockClient,
    ) -> Result<Option<Report>> {
        let report = timeout(PATIENCE, reports.recv());
        tokio::pin!(report);
        loop {
            let waits = self.story.hangs.filter(|_| self.story.killed.is_none());
            let end = waits.map_or_else(Instant::now, |(since, _)| since + HANGS);
            tokio::select! {
                report = &mut report => {
                    return Ok(report.map_err(|_| format!("no worker has reported for {PATIENCE:?}"))?);
                },
                () = sleep_until(end.into()), if waits.is_some() => self.kill(locks).await?,
            }
        }
    }

    fn note(&mut self, report: &Report) {
        let now = Instant::now();
        let Report { worker, number, .. } = *report;
        let story = &mut self.story;
        match report.event.as_str() {
            "started" => {
                story.first.get_or_insert(now);
                if let (Some(killed), None, true) = (story.killed, story.reacquired, self.plan.has_lock) {
                    story.reacquired = Some(now);
                    self.screen.note(&format!(
                        "worker {worker} acquires the lock, {:.2?} after the kill",
                        now - killed
                    ));
                }
            }
            "repaired" if self.plan.has_lock => {
                self.screen
                    .note(&format!("worker {worker} finds half a line and removes it ({number} bytes)"));
            }
            "hangs" => {
                story.hangs = Some((now, number));
                self.screen.note(&format!(
                    "worker {worker} hangs inside its section, with half of line {number} written"
                ));
            }
            "done" => {
                story.last = Some(now);
                if story.killed.is_none() && story.hangs.is_some_and(|(_, job)| job <= number) {
                    story.intrusions += 1;
                }
                self.screen.progress(number, self.plan.jobs);
            }
            "lost" => {
                story.locks_lost += 1;
                story.hangs = story.hangs.filter(|_| worker != VICTIM);
                self.screen.note(&self.screen.ink(Ink::Red, &format!("worker {worker} lost its lock")));
            }
            _ => {}
        }
    }

    async fn kill(&mut self, locks: &LockClient) -> Result<()> {
        let others = match self.story.intrusions {
            0 => "no other worker did a job".to_owned(),
            count => format!("the others did {count} jobs"),
        };
        self.screen.note(&format!("worker {VICTIM} has hung for {HANGS:?}; meanwhile {others}"));

        self.story.killed = Some(Instant::now());
        self.workers[VICTIM - 1].kill().await?;
        let killed = self.screen.ink(Ink::Yellow, &format!("worker {VICTIM} is killed (SIGKILL)"));
        let lease = match locks.inspect(LOCK).await?.and_then(|lock| lock.remaining_lease.duration()) {
            Some(left) => format!("its lease ends in {left:.2?}"),
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
        self.screen.note("all jobs are done");
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

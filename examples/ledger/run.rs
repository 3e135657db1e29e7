//! The run: starts the workers, hears what they say, and kills one of them.

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

/// For longer than a lease, to show that the lock of a worker that lives is renewed.
const HANGS: Duration = Duration::from_secs(3);

/// As long as this, something must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// What happened, and when.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) first: Option<Instant>,
    pub(crate) last: Option<Instant>,
    /// Since when the victim hangs inside its section, and at which job.
    pub(crate) hangs: Option<(Instant, usize)>,
    pub(crate) killed: Option<Instant>,
    /// When the next worker came in.
    pub(crate) reopened: Option<Instant>,
    /// Jobs that others did while the victim was in its section, and lived.
    pub(crate) intrusions: usize,
    pub(crate) locks_lost: usize,
    pub(crate) failures: usize,
}

impl Story {
    pub(crate) fn is_as_planned(&self) -> bool {
        self.reopened.is_some() && self.intrusions == 0 && self.failures == 0
    }
}

pub(crate) struct Run<'a> {
    plan: &'a Plan,
    workers: Vec<Child>,
    pub(crate) screen: Screen,
    pub(crate) story: Story,
}

/// What a worker said, and which one.
struct Said {
    worker: usize,
    what: String,
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
        let mut told = self.start()?;
        while let Some(said) = self.next(&mut told, &locks).await? {
            self.hear(&said);
        }
        self.end().await?;
        Ok(locks.shutdown().await?)
    }

    /// Ends the workers that there still are.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            worker.kill().await?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<mpsc::Receiver<Said>> {
        let (tell, told) = mpsc::channel(64);
        for number in 1..=WORKERS {
            let mut worker = self.command(number)?.spawn()?;
            let says = worker.stdout.take().ok_or("a worker without output")?;
            tokio::spawn(listen(number, says, tell.clone()));
            self.workers.push(worker);
        }
        let ids: Vec<_> = self.workers.iter().filter_map(Child::id).map(|id| id.to_string()).collect();
        self.screen.note(&format!("{WORKERS} workers started, as processes {}", ids.join(" ")));
        Ok(told)
    }

    fn command(&self, worker: usize) -> Result<Command> {
        let hangs_from = (self.plan.jobs / 3).to_string();
        let role = if worker == VICTIM { "victim" } else { "other" };
        let mut command = Command::new(env::current_exe()?);
        command
            .args(["worker", &worker.to_string()])
            .args([&self.plan.input, &self.plan.ledger])
            .args([hangs_from.as_str(), role, if self.plan.has_lock { "with" } else { "without" }])
            .stdin(Stdio::piped()) // a worker ends when this closes: with its parent, however that ends
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }

    /// What a worker says next. `None`: all have ended. Meanwhile, the victim is killed when its time has come.
    async fn next(&mut self, told: &mut mpsc::Receiver<Said>, locks: &LockClient) -> Result<Option<Said>> {
        let said = timeout(PATIENCE, told.recv());
        tokio::pin!(said);
        loop {
            let waits = self.story.hangs.filter(|_| self.story.killed.is_none());
            let end = waits.map_or_else(Instant::now, |(since, _)| since + HANGS);
            tokio::select! {
                said = &mut said => return Ok(said.map_err(|_| format!("no sign of life for {PATIENCE:?}"))?),
                () = sleep_until(end.into()), if waits.is_some() => self.kill(locks).await?,
            }
        }
    }

    fn hear(&mut self, said: &Said) {
        let now = Instant::now();
        let Said { worker, number, .. } = *said;
        let story = &mut self.story;
        match said.what.as_str() {
            "entered" => {
                story.first.get_or_insert(now);
                if let (Some(killed), None, true) = (story.killed, story.reopened, self.plan.has_lock) {
                    story.reopened = Some(now);
                    self.screen
                        .note(&format!("worker {worker} comes in, {:.2?} after the kill", now - killed));
                }
            }
            "mended" if self.plan.has_lock => {
                self.screen
                    .note(&format!("worker {worker} finds half a line, and cuts it off ({number} bytes)"));
            }
            "hangs" => {
                story.hangs = Some((now, number));
                self.screen.note(&format!(
                    "worker {worker} hangs inside its section, half of line {number} written"
                ));
            }
            "did" => {
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
            0 => "nobody else came in".to_owned(),
            count => format!("others did {count} jobs"),
        };
        self.screen.note(&format!("worker {VICTIM} has hung for {HANGS:?}: {others}"));

        self.story.killed = Some(Instant::now());
        self.workers[VICTIM - 1].kill().await?;
        let killed = self.screen.ink(Ink::Yellow, &format!("worker {VICTIM} is killed (SIGKILL)"));
        let lease = match locks.inspect(LOCK).await?.map(|lock| lock.remaining_lease) {
            Some(left) => format!("its lease goes on for {left:.2?}"),
            None => "it had no lock".to_owned(),
        };
        self.screen.note(&format!("{killed}, {lease}"));
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
        self.screen.note("no job is left");
        Ok(())
    }
}

async fn listen(worker: usize, says: impl AsyncRead + Unpin, tell: mpsc::Sender<Said>) {
    let mut lines = BufReader::new(says).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let (what, number) = line.split_once(' ').unwrap_or((&line, ""));
        let said = Said { worker, what: what.to_owned(), number: number.parse().unwrap_or(0) };
        if tell.send(said).await.is_err() {
            return;
        }
    }
}

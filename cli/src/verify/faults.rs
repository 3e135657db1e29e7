//! The worker processes, and what is done to them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};
use tokio::time::{Instant, sleep, timeout};

use super::cable::Cable;
use super::history::What;
use super::journal::{Events, Phase};
use super::worker::Orders;
use crate::connect::at_address;
use crate::exit::Failure;
use crate::run::this_program;

/// How long a worker has to end.
const PATIENCE: Duration = Duration::from_secs(15);

/// A worker, and the processes that were it. When one is killed, the next one takes its place.
struct Worker {
    process: Child,
    lifeline: Option<ChildStdin>,
    orders: Orders,
    cable: Option<Cable>,
    /// What it suffers from, and until when.
    suffers: Option<(Fault, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Pause,
    Cut,
}

/// All workers of a run.
pub(super) struct Workers<'a> {
    all: Vec<Worker>,
    next: u32,
    began: u64,
    lease: Duration,
    folder: PathBuf,
    events: &'a Events,
}

impl<'a> Workers<'a> {
    /// Starts so many. `server`: the address and the URL of a server whose connections can be cut.
    pub(super) async fn start(
        count: u32,
        orders: &Orders,
        server: Option<(&str, &str)>,
        folder: &Path,
        events: &'a Events,
    ) -> Result<Self, Failure> {
        let mut workers = Self {
            all: Vec::new(),
            next: 1,
            began: orders.began,
            lease: orders.lease,
            folder: folder.into(),
            events,
        };
        for _ in 0..count {
            let mut orders = orders.clone();
            let cable = match server {
                None => None,
                Some((address, url)) => {
                    let cable = Cable::to(address.to_owned()).await.map_err(Failure::unavailable)?;
                    orders.connection.url = at_address(url, cable.address);
                    Some(cable)
                }
            };
            let (process, lifeline) = workers.spawn(&mut orders).await.map_err(Failure::unavailable)?;
            workers.all.push(Worker { process, lifeline: Some(lifeline), orders, cable, suffers: None });
        }
        Ok(workers)
    }

    async fn spawn(&mut self, orders: &mut Orders) -> io::Result<(Child, ChildStdin)> {
        orders.process = self.next;
        orders.journal = self.folder.join(format!("{}.jsonl", self.next));
        self.next += 1;
        let mut program = this_program(crate::WORK)?;
        program.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
        let mut process = program.spawn()?;
        let mut lifeline = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        lifeline.write_all((serde_json::to_string(orders)? + "\n").as_bytes()).await?;
        Ok((process, lifeline))
    }

    /// Kills, pauses and cuts off workers at random, until one ends by itself. At most half of them suffer at the same time.
    pub(super) async fn disturb(&mut self) -> Failure {
        let pause = self.lease / 2;
        let mut next = Instant::now() + pause / 2;
        loop {
            let now = Instant::now();
            // All faults end with their phase: the calm is too short for the effects of a fault that goes on.
            let is_calm = Phase::of(self.began, self.lease) != Phase::Faults;
            for index in 0..self.all.len() {
                if let Ok(Some(status)) = self.all[index].process.try_wait() {
                    return Failure::unavailable(format!("a worker ended: {status}"));
                }
                if self.all[index].suffers.is_some_and(|(_, until)| is_calm || until <= now) {
                    self.relieve(index);
                }
            }
            if next <= now && !is_calm {
                next = now + pause.mul_f64(0.5 + fastrand::f64());
                if let Err(error) = self.hurt().await {
                    return Failure::unavailable(error);
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn hurt(&mut self) -> io::Result<()> {
        let well: Vec<usize> =
            (0..self.all.len()).filter(|index| self.all[*index].suffers.is_none()).collect();
        if well.len() * 2 <= self.all.len() {
            return Ok(());
        }
        let Some(&index) = fastrand::choice(&well) else { return Ok(()) };
        let faults = if self.all[index].cable.is_some() { 3 } else { 2 };
        let fault = [Fault::Kill, Fault::Pause, Fault::Cut][fastrand::usize(0..faults)];
        let until = Instant::now() + self.lease.mul_f64(0.3 + 1.5 * fastrand::f64());
        match fault {
            Fault::Kill => {
                self.kill(index).await?;
                let mut orders = self.all[index].orders.clone();
                let (process, lifeline) = self.spawn(&mut orders).await?;
                let worker = &mut self.all[index];
                (worker.process, worker.lifeline, worker.orders) = (process, Some(lifeline), orders);
            }
            Fault::Pause => {
                self.add(index, What::Paused);
                self.signal(index, Signal::SIGSTOP);
                self.all[index].suffers = Some((fault, until));
            }
            Fault::Cut => {
                self.add(index, What::Cut);
                self.all[index].cable.iter().for_each(Cable::cut);
                self.all[index].suffers = Some((fault, until));
            }
        }
        Ok(())
    }

    fn relieve(&mut self, index: usize) {
        match self.all[index].suffers.take() {
            Some((Fault::Pause, _)) => {
                self.signal(index, Signal::SIGCONT);
                self.add(index, What::Resumed);
            }
            Some((Fault::Cut, _)) => {
                self.all[index].cable.iter().for_each(Cable::join);
                self.add(index, What::Joined);
            }
            _ => {}
        }
    }

    async fn kill(&mut self, index: usize) -> io::Result<()> {
        self.add(index, What::Killed);
        self.all[index].process.kill().await
    }

    /// Only to processes that were not waited for: their ids are not used again.
    fn signal(&self, index: usize, signal: Signal) {
        if let Some(id) = self.all[index].process.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = kill(Pid::from_raw(id), signal);
        }
    }

    fn add(&self, index: usize, what: What) {
        self.events.add(self.all[index].orders.process, what);
    }

    /// Ends all workers. Those that do not end in time are killed.
    pub(super) async fn end(mut self) {
        for index in 0..self.all.len() {
            self.relieve(index);
        }
        // The workers that were cut off connect again in this time, so that they can release their locks.
        sleep(Duration::from_millis(50)).await;
        self.all.iter_mut().for_each(|worker| drop(worker.lifeline.take()));
        for index in 0..self.all.len() {
            if timeout(PATIENCE, self.all[index].process.wait()).await.is_err() {
                let _ = self.kill(index).await;
            }
        }
    }
}

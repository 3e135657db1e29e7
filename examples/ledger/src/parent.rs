//! The parent process: prepares the files, runs the workers, and checks the ledger.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{self, ExitCode};

use tokio::signal::unix::{SignalKind, signal};

use crate::check::Findings;
use crate::run::{Run, Story};
use crate::screen::{Ink, Screen};
use crate::{Result, jobs, report};

const USAGE: &str = "usage: ledger [--without-lock] [NUMBER OF JOBS | FILE WITH JOBS]";

pub(crate) async fn main(args: &[String]) -> Result<ExitCode> {
    let scratch = Scratch::make()?;
    let plan = Plan::read(args, &scratch)?;
    let mut run = Run::new(&plan);
    let outcome = tokio::select! {
        outcome = run.perform() => outcome,
        outcome = interruption() => outcome.and(Err("interrupted".into())),
    };
    run.stop().await?;
    run.screen.clear();
    outcome?;
    conclude(&plan, &run.story, &run.screen)
}

pub(crate) struct Plan {
    pub(crate) has_lock: bool,
    pub(crate) jobs: usize,
    pub(crate) input: PathBuf,
    pub(crate) ledger: PathBuf,
}

impl Plan {
    fn read(args: &[String], scratch: &Scratch) -> Result<Self> {
        let (mut has_lock, mut source) = (true, "400");
        for arg in args {
            match arg.as_str() {
                "--without-lock" => has_lock = false,
                flag if flag.starts_with('-') => return Err(USAGE.into()),
                given => source = given,
            }
        }
        let input = match source.parse() {
            Ok(count) => jobs::write(scratch.0.join("jobs"), count)?,
            Err(_) => source.into(),
        };
        let jobs = jobs::read(&input)?.len();
        if jobs < 50 {
            return Err("with fewer than 50 jobs, all may be done before a worker is killed".into());
        }
        let ledger = scratch.0.join("ledger");
        fs::write(&ledger, "")?;
        Ok(Self { has_lock, jobs, input, ledger })
    }
}

fn conclude(plan: &Plan, story: &Story, screen: &Screen) -> Result<ExitCode> {
    let ledger = fs::read(&plan.ledger)?;
    let found = Findings::of(&fs::read_to_string(&plan.input)?, &String::from_utf8_lossy(&ledger));
    report::show(story, &found, screen);

    // Without the lock, only the ledger counts.
    let is_good = found.is_good() && (story.is_as_planned() || !plan.has_lock);
    if is_good {
        println!("\n{}", screen.ink(Ink::Green, "good: each job is in the ledger once, whole and in order"));
        return Ok(ExitCode::SUCCESS);
    }
    let problem = match (plan.has_lock, found.is_good()) {
        (false, _) => "bad: without the lock, the workers spoiled the ledger",
        (true, false) => "bad: the ledger is wrong, see above",
        (true, true) => "bad: the ledger is right, but the run did not go as planned",
    };
    println!("\n{}", screen.ink(Ink::Red, problem));
    Ok(ExitCode::FAILURE)
}

async fn interruption() -> Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        outcome = tokio::signal::ctrl_c() => Ok(outcome?),
        _ = terminated.recv() => Ok(()),
    }
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

//! `lockkeeper verify`: worker processes use locks of a server while they are killed, stopped and cut off. A judge reads what they wrote.
//!
//! ```text
//! mod      checks the rights, starts all, waits for the end
//! worker   a process that acquires and releases locks (`__work`)
//! faults   the worker processes, and what is done to them. cable: a connection that can be cut
//! server   whether the server answers, and who is the master
//! sweep    what is left on the server
//! history  the events. judge: from events to a verdict, and nothing else. picture, report: for people
//! ```

mod cable;
mod faults;
pub(crate) mod history;
mod journal;
mod judge;
mod picture;
mod report;
mod server;
mod sweep;
mod worker;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::args::{Connection, Examined, Verify};
use crate::connect::{Settings, address_of};
use crate::exit::{Failure, UNAVAILABLE, VIOLATION, print, print_json, tell};
use faults::Workers;
use history::{Event, MAIN, What};
use journal::{Events, now};
use judge::Verdict;
use worker::Orders;

pub(crate) use worker::work;

/// So many calls of a worker run together.
const TASKS: u32 = 8;
/// The time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

pub(crate) async fn verify(connection: Connection, options: Verify) -> Result<ExitCode, Failure> {
    let events = match &options.judge {
        Some(path) => journal::read(path).map_err(|error| {
            Failure::usage(format!("the history {} cannot be read: {error}", path.display()))
        })?,
        None => run(connection, &options).await?,
    };
    let verdict = judge::judge(&events);
    if options.json {
        print_json(&verdict)?;
    } else {
        print(report::text(&verdict).as_bytes())?;
    }
    end(&verdict)
}

fn end(verdict: &Verdict) -> Result<ExitCode, Failure> {
    if !verdict.counts.is_empty() {
        return Ok(VIOLATION.into());
    }
    if verdict.grants == 0 {
        let problem = "no lock was granted, so nothing was tested".to_owned();
        return Err(Failure { problem, code: UNAVAILABLE });
    }
    Ok(ExitCode::SUCCESS)
}

/// A folder that only this user can read, and that is removed when this value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> io::Result<Self> {
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the workers. Returns what all did, in the order of the times.
async fn run(connection: Connection, options: &Verify) -> Result<Vec<Event>, Failure> {
    let settings = Settings::read(&connection)?.with_short_leases(options.lease)?;
    // This client has the settings of the workers, so it finds out first what a worker would find out.
    let locks = settings.clone().connect().await?;
    let id = locks.id();
    let beginning = format!("lockkeeper-verify:{}:", &id[..8]);
    let kinds = kinds(&options.kind);
    server::check_rights(&locks, &beginning, &kinds).await?;
    let folder = Folder::new(&format!("lockkeeper-verify-{id}")).map_err(Failure::unavailable)?;
    let server = settings.plain_url().and_then(|url| Some((address_of(url)?, url)));
    announce(options, &settings, &beginning, server.is_some());

    let events = Events::default();
    events.add(MAIN, What::Began { lease_ms: millis(options.lease) });
    let calls = options.workers * TASKS;
    let orders = Orders {
        connection,
        process: MAIN,
        began: now(),
        beginning: beginning.clone(),
        locks: kinds.clone(),
        lease: options.lease,
        tasks: TASKS,
        every: Duration::from_secs(1) * calls / options.rate,
        journal: PathBuf::new(),
        ignores_losses: options.ignore_losses,
    };
    let server = server.as_ref().map(|(address, url)| (&**address, *url));
    let mut workers = Workers::start(options.workers, &orders, server, &folder.0, &events).await?;
    // With so many names, each master of a cluster probably has one.
    let probes = if settings.kind == "cluster" { 8 } else { 1 };
    let mut interrupted = signal(SignalKind::interrupt()).map_err(Failure::unavailable)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(Failure::unavailable)?;
    let over = sleep(Duration::from_secs(options.seconds));
    let failure = {
        tokio::select! {
            biased;
            () = over => None,
            _ = interrupted.recv() => None,
            _ = terminated.recv() => None,
            failure = workers.disturb() => Some(failure),
            () = server::observe(&locks, &beginning, probes, &events) => None,
            () = progress(&folder.0) => None,
        }
    };
    // Without this event, a server that never answered would leave no gap in the history.
    events.add(MAIN, What::Ended);
    workers.end().await;
    if let Some(failure) = failure {
        return Err(failure);
    }
    match sweep::sweep(&settings, &locks, &beginning, &kinds, options.lease).await {
        Ok(keys) => events.add(MAIN, What::LeftBehind { keys }),
        Err(problem) => tell(&format!(
            "what is left behind was not counted, and keys that begin with `redisson_lock_token:{{{}{beginning}` stay: {problem}",
            settings.locks().name_prefix()
        )),
    }
    let _ = locks.shutdown().await; // this client holds nothing
    let mut events = events.into_all();
    for entry in fs::read_dir(&folder.0).map_err(Failure::output)? {
        events.extend(journal::read(&entry.map_err(Failure::output)?.path()).map_err(Failure::output)?);
    }
    // The sort is stable: events of one process at one time stay in their order.
    events.sort_by_key(|event| event.at);
    if let Some(path) = &options.history {
        journal::save(path, &events).map_err(Failure::output)?;
    }
    Ok(events)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Without a choice, all types. A read-write lock is tested with both of its sides.
fn kinds(chosen: &[Examined]) -> Vec<Examined> {
    use Examined::{Fair, Fenced, Read, Rlock, Semaphore, Write};
    let is_side = |kind: &Examined| matches!(kind, Read | Write);
    let is_wanted = |kind: &Examined| {
        chosen.is_empty() || chosen.contains(kind) || (is_side(kind) && chosen.iter().any(is_side))
    };
    [Rlock, Fair, Read, Write, Fenced, Semaphore].into_iter().filter(is_wanted).collect()
}

/// Says what is about to be done to the server.
fn announce(options: &Verify, settings: &Settings, beginning: &str, can_cut: bool) {
    let faults = if can_cut { "killed, paused and cut off" } else { "killed and paused" };
    tell(&format!(
        "{} worker processes are {faults} at random for {} s. Leases last {}. At most {} calls a second. All names begin with `{}{beginning}`",
        options.workers,
        options.seconds,
        humantime::format_duration(options.lease),
        options.rate,
        settings.locks().name_prefix()
    ));
    if !can_cut {
        tell("connections are not cut: that needs a single server, without TLS");
    }
    tell("fail over your master meanwhile, if you want to see that, too");
}

/// Tells how many grants there were.
async fn progress(folder: &Path) {
    let (mut seconds, mut read) = (0, std::collections::BTreeMap::new());
    loop {
        sleep(PROGRESS).await;
        seconds += PROGRESS.as_secs();
        let grants = grants(folder, &mut read).unwrap_or_default();
        tell(&format!("{:02}:{:02}  {grants} grants", seconds / 60, seconds % 60));
    }
}

/// How many grants the workers have written, and how far each file was read.
fn grants(folder: &Path, read: &mut std::collections::BTreeMap<PathBuf, (u64, usize)>) -> io::Result<usize> {
    use std::io::{Read, Seek, SeekFrom};
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let mut file = fs::File::open(&path)?;
        let (from, count) = read.entry(path).or_default();
        file.seek(SeekFrom::Start(*from))?;
        let mut text = String::new();
        *from += file.read_to_string(&mut text)? as u64;
        *count += text.matches("\"entered\"").count();
    }
    Ok(read.values().map(|(_, count)| count).sum())
}

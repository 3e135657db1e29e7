//! The file in which a process writes what it does: one line of JSON for each event.
//!
//! All processes of a host share one clock, CLOCK_MONOTONIC. So the times of their events can be compared, and that is why a run is for one host.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::history::{Event, What};

/// What workers do at a time of the run. The phases repeat, because some things show only while nothing else happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// For three leases: workers are killed, stopped and cut off.
    Faults,
    /// For two leases: the effects of the faults end. A wait or a turn that is wrong now has no excuse.
    Calm,
    /// The end of that: all calls that begin wait for long, so that some still wait when nothing else happens.
    Patient,
    /// For one lease: no call begins. A waiter that was told of no release sleeps beside a free lock.
    Quiet,
}

impl Phase {
    pub(super) fn of(began: u64, lease: Duration) -> Self {
        match Duration::from_nanos(now().saturating_sub(began)).div_duration_f64(lease) % 6.0 {
            ..3.0 => Self::Faults,
            ..4.9 => Self::Calm,
            ..5.0 => Self::Patient,
            _ => Self::Quiet,
        }
    }
}

/// The time of the clock that the processes share.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The events of the process that starts the workers.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Vec<Event>>);

impl Events {
    /// Adds what a process does now, or what is done to it.
    pub(super) fn add(&self, process: u32, what: What) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Event { at: now(), process, what });
    }

    pub(super) fn into_all(self) -> Vec<Event> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a process writes its events. Each is one write, so what is written survives the death of the process.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    process: u32,
}

impl Journal {
    pub(super) fn open(path: &Path, process: u32) -> io::Result<Self> {
        Ok(Self { file: File::options().append(true).create(true).open(path)?, process })
    }

    pub(super) fn write(&self, at: u64, what: What) -> io::Result<()> {
        let event = Event { at, process: self.process, what };
        (&self.file).write_all(line(&event)?.as_bytes())
    }
}

fn line(event: &Event) -> io::Result<String> {
    Ok(serde_json::to_string(event)? + "\n")
}

/// The events of a file, without a last line that was not written to its end.
pub(super) fn read(path: &Path) -> io::Result<Vec<Event>> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let event = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {error}", number + 1))
        })
    };
    whole.lines().enumerate().map(event).collect()
}

/// Writes all events into a new file.
pub(super) fn save(path: &Path, events: &[Event]) -> io::Result<()> {
    let mut file = io::BufWriter::new(File::create(path)?);
    events.iter().try_for_each(|event| file.write_all(line(event)?.as_bytes()))?;
    file.flush()
}

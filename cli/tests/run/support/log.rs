//! The file to which the commands of all contenders append a line each few milliseconds while they live.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// When something was first and last alive, by one clock for all processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) first: Duration,
    pub(crate) last: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Log(PathBuf);

pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock").into()
}

impl Log {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Appends one line, in one write.
    pub(crate) fn alive(&self, who: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0).expect("the log");
        let line = format!("{who} {} {}\n", std::process::id(), now().as_nanos());
        file.write_all(line.as_bytes()).expect("a line in the log");
    }

    /// The lines of one contender: the process and the time of each.
    fn lines(&self, who: &str) -> Vec<(u32, Duration)> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        let words = complete.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        words
            .filter(|words| words[0] == who)
            .map(|words| {
                (
                    words[1].parse().expect("a process"),
                    Duration::from_nanos(words[2].parse().expect("a time")),
                )
            })
            .collect()
    }

    /// How many processes of a contender have been alive.
    pub(crate) fn processes(&self, who: &str) -> usize {
        let mut found: Vec<u32> = self.lines(who).into_iter().map(|(process, _)| process).collect();
        found.sort_unstable();
        found.dedup();
        found.len()
    }

    /// From the first line of a contender to the last one.
    pub(crate) fn span(&self, who: &str) -> Option<Span> {
        let times: Vec<Duration> = self.lines(who).into_iter().map(|(_, time)| time).collect();
        Some(Span { first: *times.iter().min()?, last: *times.iter().max()? })
    }

    /// There was no moment in which both were alive.
    #[track_caller]
    pub(crate) fn assert_apart(&self, first: &str, second: &str) {
        let (before, after) = (self.span(first).expect("the first"), self.span(second).expect("the second"));
        assert!(
            before.last < after.first,
            "{second} came {:?} before {first} was gone",
            before.last.saturating_sub(after.first)
        );
    }
}

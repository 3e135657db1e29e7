//! A semaphore on a server, as its keys say. Rule p: only a resize changes the total.

use std::time::Duration;

use crate::locks::NAMES;
use crate::plan::{MOST_PERMITS, MS};

/// What the clock of a Java client can be ahead: a permit is removed so long after the end that the server has for it, and that end is so much
/// later than that of the lease.
pub const SLACK_MS: i64 = 500;

#[derive(Clone, Debug)]
pub struct Permits {
    /// The number of available permits on the server.
    available: i64,
    /// When each permit in use can be removed.
    ends: Vec<Duration>,
    /// Since when one permit is available, two, and so on.
    since: [Option<Duration>; MOST_PERMITS as usize],
    /// The total from each time on. 0: there is no key, and each handle gives the number that it knows.
    totals: Vec<(Duration, i64)>,
    /// The total, while there was a key.
    last: i64,
    /// The key existed at the last look, and the server has lost no data since.
    is_known: bool,
}

impl Permits {
    /// A semaphore that does not exist yet.
    pub fn new(total: u32) -> Self {
        Self {
            available: total.into(),
            ends: Vec::new(),
            since: std::array::from_fn(|i| (i < total as usize).then_some(Duration::ZERO)),
            totals: vec![(Duration::ZERO, total.into())],
            last: total.into(),
            is_known: false,
        }
    }

    /// Asks a server, after a command that may set the total or not. Returns what is wrong.
    pub fn update(
        &mut self,
        now: Duration,
        name: usize,
        sets_total: bool,
        ask: &mut dyn FnMut(&[&str]) -> Vec<u8>,
    ) -> Option<String> {
        let before: Vec<_> = (1..=MOST_PERMITS).map(|count| self.free_since(now, count)).collect();
        let now_ms = clock_ms(ask);
        let in_use =
            texts(&ask(&["ZRANGE", &format!("{{{}}}:timeout", NAMES[name]), "0", "-1", "WITHSCORES"]));
        let end = |score: &String| {
            let left_ms = number(score) + SLACK_MS + 1 - now_ms;
            let left = Duration::from_millis(left_ms.unsigned_abs());
            if left_ms < 0 { now.saturating_sub(left) } else { now + left }
        };
        self.ends = in_use.chunks(2).map(|permit| end(&permit[1])).collect();
        let count = i64::try_from(self.ends.len()).expect("few");
        let available = texts(&ask(&["GET", NAMES[name]])).first().map(|text| number(text));
        self.available = available.unwrap_or(self.last - count);
        let (last, is_known) = (self.last, available.is_some());
        let total = available.map_or(0, |available| available + count);
        let is_wrong = is_known && self.is_known && !sets_total && total != last;
        let problem = is_wrong.then(|| format!("the total of {} was {last}, and is {total}", NAMES[name]));
        if self.totals.last().is_none_or(|(_, before)| *before != total) {
            self.totals.push((now, total));
        }
        self.is_known = is_known;
        if is_known {
            self.last = total;
        }
        let ended = i64::try_from(self.ends.iter().filter(|end| **end < now).count()).expect("few");
        for (i, since) in self.since.iter_mut().enumerate() {
            let is_free = self.available + ended > i as i64;
            *since = is_free.then(|| before[i].unwrap_or(now));
        }
        problem
    }

    /// The server lost data.
    pub fn forget(&mut self) {
        self.is_known = false;
    }

    /// When the last permit in use can be removed. `None`: none is in use.
    pub fn last_end(&self, now: Duration) -> Option<Duration> {
        self.ends.iter().max().copied().filter(|end| now <= *end)
    }

    /// Since when so many permits are available.
    pub fn free_since(&self, now: Duration, count: u32) -> Option<Duration> {
        if let Some(since) = self.since[count as usize - 1] {
            return Some(since);
        }
        let missing = usize::try_from(i64::from(count) - self.available).ok()?;
        let end = self.ends.get(missing.checked_sub(1)?)?;
        (*end + MS < now).then_some(*end)
    }

    /// Whether so many are available only because the leases of some have ended. A waiter knows the end of one lease, and perhaps another
    /// one ends first.
    pub fn counts_ended(&self, count: u32) -> bool {
        self.available < i64::from(count)
    }

    /// The least and the greatest total from a time on.
    pub fn totals_since(&self, since: Duration) -> (i64, i64) {
        let first = self.totals.iter().rposition(|(at, _)| *at < since).unwrap_or(0);
        let totals = self.totals[first..].iter().map(|(_, total)| *total);
        (totals.clone().min().unwrap_or(0), totals.max().unwrap_or(0))
    }
}

/// The texts of a reply, one or a list. Those that are no text are not needed.
pub fn texts(reply: &[u8]) -> Vec<String> {
    bulks(reply).iter().map(|bulk| String::from_utf8_lossy(bulk).into_owned()).collect()
}

/// The same, as bytes.
pub fn bulks(reply: &[u8]) -> Vec<Vec<u8>> {
    let mut bulks = Vec::new();
    let mut rest = reply;
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let (line, after) = (&rest[..end], &rest[end + 2..]);
        rest = after;
        if let Some(length) = line.strip_prefix(b"$").and_then(|text| std::str::from_utf8(text).ok())
            && let Ok(length) = length.parse::<usize>()
        {
            bulks.push(after[..length].to_vec());
            rest = &after[length + 2..];
        }
    }
    bulks
}

pub fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}

/// What the clock of a server shows.
pub fn clock_ms(ask: &mut dyn FnMut(&[&str]) -> Vec<u8>) -> i64 {
    let time = texts(&ask(&["TIME"]));
    number(&time[0]) * 1_000 + number(&time[1]) / 1_000
}

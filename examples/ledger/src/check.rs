//! The check: compares the ledger with the input. It shares no code with the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) jobs: usize,
    pub(crate) lines: usize,
    /// Lines that no job can write.
    pub(crate) torn: usize,
    /// Jobs without a line.
    pub(crate) lost: usize,
    /// Lines of a job that already has one.
    pub(crate) doubled: usize,
    /// Whole lines behind the line of a later job, or with a wrong balance.
    pub(crate) misplaced: usize,
    pub(crate) by_worker: BTreeMap<usize, usize>,
    /// The first few bad lines.
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug)]
pub(crate) struct Sample {
    at: usize,
    what: &'static str,
    line: String,
}

/// A complete line.
struct Entry<'a> {
    number: usize,
    account: &'a str,
    amount: i64,
    balance: i64,
    worker: usize,
}

impl Findings {
    pub(crate) fn of(input: &str, ledger: &str) -> Self {
        let mut jobs = BTreeMap::new();
        let mut balance = 0;
        for (at, line) in input.lines().enumerate() {
            let mut words = line.split_whitespace();
            let account = words.next().unwrap_or_default();
            let amount: i64 = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
            balance += amount;
            jobs.insert(at + 1, (account, amount, balance));
        }

        let mut found = Self { jobs: jobs.len(), ..Self::default() };
        let mut seen = BTreeSet::new();
        for (at, line) in ledger.split_inclusive('\n').enumerate() {
            found.lines += 1;
            let job = |entry: &Entry<'_>| jobs.get(&entry.number).copied();
            let entry = entry(line).filter(|entry| {
                job(entry)
                    .is_some_and(|(account, amount, _)| (account, amount) == (entry.account, entry.amount))
            });
            let Some(entry) = entry else {
                found.torn += 1;
                found.sample(at, "torn", line);
                continue;
            };
            *found.by_worker.entry(entry.worker).or_default() += 1;
            let is_last = seen.last().is_none_or(|&last| last < entry.number);
            if !seen.insert(entry.number) {
                found.doubled += 1;
                found.sample(at, "doubled", line);
            } else if !is_last || job(&entry).is_some_and(|(.., balance)| balance != entry.balance) {
                found.misplaced += 1;
                found.sample(at, "misplaced", line);
            }
        }
        found.lost = jobs.len() - seen.len();
        found
    }

    pub(crate) fn is_good(&self) -> bool {
        self.lines == self.jobs && [self.torn, self.lost, self.doubled, self.misplaced] == [0; 4]
    }

    fn sample(&mut self, at: usize, what: &'static str, line: &str) {
        if self.samples.len() < 5 {
            self.samples.push(Sample { at: at + 1, what, line: line.trim_end().to_owned() });
        }
    }
}

fn entry(line: &str) -> Option<Entry<'_>> {
    let words: Vec<_> = line.strip_suffix('\n')?.split_whitespace().collect();
    let [number, account, amount, balance, "worker", worker] = words[..] else { return None };
    Some(Entry {
        number: number.parse().ok()?,
        account,
        amount: amount.parse().ok()?,
        balance: balance.parse().ok()?,
        worker: worker.parse().ok()?,
    })
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {:<5} {:<10} {}", self.at, self.what, self.line)
    }
}

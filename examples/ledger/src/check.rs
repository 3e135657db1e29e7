//! The check: compares the ledger with the input. It shares no code with the workers.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) jobs: usize,
    pub(crate) lines: usize,
    /// Lines that no job can write.
    pub(crate) torn: usize,
    /// Lines of a job that already has one.
    pub(crate) doubled: usize,
    /// Whole lines behind the line of a later job, or with a wrong balance.
    pub(crate) wrong: usize,
    /// Jobs without a line.
    pub(crate) missing: usize,
    /// The first torn and doubled lines.
    samples: Vec<String>,
}

/// A complete line.
struct Entry<'a> {
    number: usize,
    account: &'a str,
    amount: i64,
    balance: i64,
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
                found.sample(found.torn, at, "torn", line);
                continue;
            };
            let is_last = seen.last().is_none_or(|&last| last < entry.number);
            if !seen.insert(entry.number) {
                found.doubled += 1;
                found.sample(found.doubled, at, "doubled", line);
            } else if !is_last || job(&entry).is_some_and(|(.., balance)| balance != entry.balance) {
                found.wrong += 1;
            }
        }
        found.missing = jobs.len() - seen.len();
        found
    }

    pub(crate) fn is_good(&self) -> bool {
        self.lines == self.jobs && [self.torn, self.doubled, self.wrong, self.missing] == [0; 4]
    }

    pub(crate) fn show_samples(&self) {
        for sample in &self.samples {
            println!("    {sample}");
        }
    }

    fn sample(&mut self, count: usize, at: usize, what: &str, line: &str) {
        if count <= 2 {
            let line: String = line.chars().take(70).collect();
            self.samples.push(format!("line {:<4} {what:<8} {}", at + 1, line.trim_end()));
        }
    }
}

fn entry(line: &str) -> Option<Entry<'_>> {
    let words: Vec<_> = line.strip_suffix('\n')?.split_whitespace().collect();
    let [number, account, amount, balance, "worker", worker] = words[..] else { return None };
    worker.parse::<usize>().ok()?;
    Some(Entry {
        number: number.parse().ok()?,
        account,
        amount: amount.parse().ok()?,
        balance: balance.parse().ok()?,
    })
}

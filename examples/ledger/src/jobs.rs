//! The input: each line is an account and an amount.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

pub(crate) struct Job {
    pub(crate) account: String,
    pub(crate) amount: i64,
}

pub(crate) fn read(path: &Path) -> Result<Vec<Job>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let job = |(at, line): (usize, &str)| {
        let problem = || format!("{}:{}: `{line}` is not an account and an amount", path.display(), at + 1);
        let (account, amount) = line.trim().split_once(char::is_whitespace).ok_or_else(problem)?;
        let amount: i32 = amount.trim().parse().map_err(|_| problem())?;
        Ok(Job { account: account.to_owned(), amount: amount.into() })
    };
    text.lines().enumerate().map(job).collect()
}

/// Writes this number of jobs, the same ones in each run.
pub(crate) fn write(path: PathBuf, count: usize) -> Result<PathBuf> {
    const ACCOUNTS: [&str; 6] = ["ada", "barbara", "edsger", "grace", "leslie", "tony"];
    let mut random = fastrand::Rng::with_seed(42);
    let mut text = String::new();
    for _ in 0..count {
        let account = random.choice(ACCOUNTS).unwrap_or_default();
        writeln!(text, "{account} {:+}", random.i32(-500..=900))?;
    }
    fs::write(&path, text)?;
    Ok(path)
}

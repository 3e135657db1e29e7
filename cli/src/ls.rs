//! `lockkeeper ls`.

use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use lockkeeper::LockInfo;

use crate::args::{Connection, Examined, Ls};
use crate::connect::Settings;
use crate::exit::{Failure, print, to_list};
use crate::table::{Output, lay_out};
use crate::text::{holds, process, visible, waiters};

/// The words of `top`, and what has no room there.
const HEADER: [&str; 8] = ["NAME", "TYPE", "OWNER", "CLIENT", "HOLDS", "HELD", "LEASE", "WAITERS"];

pub(crate) async fn ls(connection: &Connection, options: &Ls) -> Result<ExitCode, Failure> {
    let locks = Settings::read(connection)?.connect().await?;
    let mut list = Listing::begin(options);
    let mut parts = locks.list_parts(&options.pattern);
    let mut skipped = Vec::new();
    while let Some(part) = parts.next().await.map_err(to_list)? {
        let rows = part.locks.into_iter();
        list.add(rows.filter(|row| is_of(row, &options.kind) && is_older(row, options.older)))?;
        skipped.extend(part.skipped);
    }
    list.end()?;
    if skipped.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::unavailable(format!(
        "left out, because their slots are being moved to other servers, or other data is among their permits: {}",
        skipped.join(", ")
    )))
}

/// Prints rows as they come, so that very many need no memory. A sorted list, and a table for people, is printed at the end.
struct Listing<'a> {
    options: &'a Ls,
    output: Output,
    /// What is printed at the end.
    rows: Vec<LockInfo>,
    count: usize,
}

impl<'a> Listing<'a> {
    fn begin(options: &'a Ls) -> Self {
        Self { options, output: Output::of_this_process(), rows: Vec::new(), count: 0 }
    }

    fn add(&mut self, rows: impl Iterator<Item = LockInfo>) -> Result<(), Failure> {
        let is_table = matches!(self.output, Output::Terminal(_)) && !self.options.json;
        if self.options.sort || is_table {
            self.rows.extend(rows);
            return Ok(());
        }
        let rows: Vec<LockInfo> = rows.collect();
        if rows.is_empty() { Ok(()) } else { self.print(rows) }
    }

    fn end(mut self) -> Result<(), Failure> {
        let mut rows = std::mem::take(&mut self.rows);
        rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let is_empty = self.count == 0 && rows.is_empty();
        if !rows.is_empty() || is_empty {
            self.print(rows)?;
        }
        if self.options.json {
            return print(b"]\n");
        }
        // The count goes to standard error, because programs read only rows from standard output. If nobody reads
        // standard error, the command still succeeds.
        let _ = writeln!(io::stderr(), "{} lock{}", self.count, if self.count == 1 { "" } else { "s" });
        Ok(())
    }

    /// Prints what comes next of the array or the table.
    fn print(&mut self, rows: Vec<LockInfo>) -> Result<(), Failure> {
        let is_first = self.count == 0;
        self.count += rows.len();
        if !self.options.json {
            let cells = rows.iter().map(|row| cells(row, self.output)).collect();
            return print(lay_out(is_first.then_some(HEADER), cells, self.output).as_bytes());
        }
        let mut text = String::from(if is_first { "[" } else { "" });
        for (index, row) in rows.iter().enumerate() {
            text += if is_first && index == 0 { "" } else { "," };
            text += &serde_json::to_string(row).map_err(Failure::unavailable)?;
        }
        print(text.as_bytes())
    }
}

/// Whether the lock is of one of these types. None are all.
fn is_of(row: &LockInfo, kinds: &[Examined]) -> bool {
    let own = row.kind.to_string();
    let is = |kind: &Examined| kind.to_possible_value().is_some_and(|kind| kind.get_name() == own);
    kinds.is_empty() || kinds.iter().any(is)
}

/// Whether an owner holds the lock for this time already. One whose time is unknown does not.
fn is_older(row: &LockInfo, least: Option<Duration>) -> bool {
    let Some(least) = least else { return true };
    held_for(row).is_some_and(|held_for| held_for >= least)
}

/// For how long the first of the holders has held the lock, as far as that is known.
fn held_for(row: &LockInfo) -> Option<Duration> {
    row.holders.iter().filter_map(|holder| holder.held_for).max()
}

fn cells(row: &LockInfo, output: Output) -> [String; 8] {
    [
        visible(&row.name).into_owned(),
        row.kind.to_string(),
        joined(row.holders.iter().map(|holder| visible(&holder.owner)).collect(), output),
        joined(
            row.holders.iter().map(|holder| process(holder).unwrap_or("unknown").into()).collect(),
            output,
        ),
        match row.permits {
            Some(permits) => format!("{} of {permits}", row.holders.len()),
            None => holds(row).to_string(),
        },
        held_for(row).map_or_else(|| "unknown".to_owned(), seconds),
        row.remaining_lease.duration().map_or_else(|| "never".to_owned(), seconds),
        waiters(row),
    ]
}

/// A terminal has no room for all readers of a lock.
fn joined(holders: Vec<Cow<'_, str>>, output: Output) -> String {
    match (output, &holders[..]) {
        (Output::Terminal(_), [first, _, ..]) => format!("{first} +{}", holders.len() - 1),
        _ => holders.join(","),
    }
}

fn seconds(time: Duration) -> String {
    format!("{}.{} s", time.as_secs(), time.subsec_millis() / 100)
}

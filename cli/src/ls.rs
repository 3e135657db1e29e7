//! `lockkeeper ls`.

use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use lockkeeper::{LockClient, LockInfo};

use crate::args::{Connection, Examined, Ls};
use crate::connect::Settings;
use crate::exit::{Failure, print, print_json, to_list};
use crate::table::{Output, lay_out};
use crate::text::{holds, process, visible, waiters};

/// The words of `top`, and what has no room there.
const HEADER: [&str; 9] = ["NAME", "TYPE", "OWNER", "CLIENT", "HOLDS", "HELD", "LEASE", "WAITERS", "AT"];

const NOT_SEEN: &str = "not those of Redisson, of dead processes, and of clients without diagnosis or with another name_prefix, nor the first \
                        second of a hold, permits, and what a client holds besides its 500 oldest holds";

pub(crate) async fn ls(connection: &Connection, options: &Ls) -> Result<ExitCode, Failure> {
    let locks = Settings::read(connection)?.connect().await?;
    if options.fast {
        return fast(&locks, options).await;
    }
    let mut list = Listing::begin(options);
    let mut parts = locks.list_parts(&options.pattern);
    let mut skipped = Vec::new();
    while let Some(part) = parts.next().await.map_err(to_list)? {
        let rows = part.locks.into_iter();
        list.add(rows.filter(|row| is_chosen(options, &row.kind.to_string(), held_for(row))))?;
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

/// Lists what the clients tell, and says what they do not.
async fn fast(locks: &LockClient, options: &Ls) -> Result<ExitCode, Failure> {
    let mut holds = locks.list_holds().await.map_err(to_list)?;
    holds.retain(|hold| is_chosen(options, &hold.kind, Some(hold.held_for)));
    if options.json {
        print_json(&holds)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = holds.iter().map(|hold| {
        let [name, identity, at] =
            [&hold.lock, &hold.identity, &hold.acquired_at].map(|text| visible(text).into_owned());
        [name, hold.kind.clone(), hold.owner.clone(), identity, seconds(hold.held_for), at]
    });
    let header = ["NAME", "TYPE", "OWNER", "CLIENT", "HELD", "AT"];
    print(lay_out(Some(header), rows.collect(), Output::of_this_process(), &mut [0; 6]).as_bytes())?;
    let _ =
        writeln!(io::stderr(), "{} hold{}; {NOT_SEEN}", holds.len(), if holds.len() == 1 { "" } else { "s" });
    Ok(ExitCode::SUCCESS)
}

/// Prints rows as they come, so that very many need no memory. A sorted list, and a table for people, is printed at the end.
struct Listing<'a> {
    options: &'a Ls,
    output: Output,
    /// What is printed at the end.
    rows: Vec<LockInfo>,
    count: usize,
    widths: [usize; 9],
}

impl<'a> Listing<'a> {
    fn begin(options: &'a Ls) -> Self {
        Self { options, output: Output::of_this_process(), rows: Vec::new(), count: 0, widths: [0; 9] }
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
            return print(
                lay_out(is_first.then_some(HEADER), cells, self.output, &mut self.widths).as_bytes(),
            );
        }
        let mut text = String::from(if is_first { "[" } else { "" });
        for (index, row) in rows.iter().enumerate() {
            text += if is_first && index == 0 { "" } else { "," };
            text += &serde_json::to_string(row).map_err(Failure::unavailable)?;
        }
        print(text.as_bytes())
    }
}

/// Whether the lock has one of the types, none of which are all, and is held for the time already. One whose time is unknown is not.
fn is_chosen(options: &Ls, own: &str, held_for: Option<Duration>) -> bool {
    let is = |kind: &Examined| kind.to_possible_value().is_some_and(|kind| kind.get_name() == own);
    let is_older = options.older.is_none_or(|least| held_for.is_some_and(|held_for| held_for >= least));
    is_older && (options.kind.is_empty() || options.kind.iter().any(is))
}

/// For how long the first of the holders has held the lock, as far as that is known.
fn held_for(row: &LockInfo) -> Option<Duration> {
    row.holders.iter().filter_map(|holder| holder.held_for).max()
}

fn cells(row: &LockInfo, output: Output) -> [String; 9] {
    let places = row.holders.iter().map(|holder| visible(holder.acquired_at.as_deref().unwrap_or("unknown")));
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
        joined(places.collect(), output),
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

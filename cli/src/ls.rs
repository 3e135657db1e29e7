//! `lockkeeper ls`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::ValueEnum;

use crate::args::{Connection, Kind, Ls};
use crate::connect::Settings;
use crate::exit::{Failure, print, print_json, to_list};
use crate::row::{Row, visible};
use crate::table::{Output, lay_out};

const HEADER: [&str; 6] = ["NAME", "KIND", "HOLDERS", "HOLDS", "ENDS IN", "WAITERS"];

pub(crate) async fn ls(connection: &Connection, options: &Ls) -> Result<ExitCode, Failure> {
    let Ls { pattern, kind, json } = options;
    let locks = Settings::read(connection)?.connect().await?;
    // Sorted by name.
    let found = locks.list(pattern).await.map_err(to_list)?.into_iter().map(Row::from);
    let rows: Vec<Row> = found.filter(|row| is_of(row, kind)).collect();
    if *json {
        print_json(&rows)?;
    } else {
        let output = Output::of_this_process();
        let cells = rows.iter().map(|row| cells(row, output)).collect();
        print(lay_out(HEADER, cells, output).as_bytes())?;
        count(rows.len());
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the lock is of one of these types. None are all.
fn is_of(row: &Row, kinds: &[Kind]) -> bool {
    let is = |kind: &Kind| kind.to_possible_value().is_some_and(|kind| kind.get_name() == row.kind);
    kinds.is_empty() || kinds.iter().any(is)
}

/// On standard error: programs read only rows. That nobody listens is no error.
fn count(locks: usize) {
    let _ = writeln!(io::stderr(), "{locks} lock{}", if locks == 1 { "" } else { "s" });
}

fn cells(row: &Row, output: Output) -> [String; 6] {
    [
        visible(&row.name).into_owned(),
        row.kind.to_owned(),
        holders(row, output),
        row.holds().to_string(),
        row.expires_in_ms.map_or_else(|| "never".to_owned(), seconds),
        row.waiters(),
    ]
}

/// A terminal has no room for all readers of a lock.
fn holders(row: &Row, output: Output) -> String {
    let owners: Vec<_> = row.holders.iter().map(|holder| visible(&holder.owner)).collect();
    match (output, &owners[..]) {
        (Output::Terminal(_), [first, _, ..]) => format!("{first} +{}", owners.len() - 1),
        _ => owners.join(","),
    }
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100)
}

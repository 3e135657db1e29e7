//! `lockkeeper ls`.

use std::borrow::Cow;
use std::process::ExitCode;

use crate::args::{Connection, Ls};
use crate::connect::Settings;
use crate::exit::{Failure, print, print_json, to_list};
use crate::row::{Row, visible};
use crate::table::{Output, lay_out};

const HEADER: [&str; 7] = ["NAME", "KIND", "HOLDERS", "CLIENTS", "HOLDS", "ENDS IN", "WAITERS"];

pub(crate) async fn ls(connection: &Connection, Ls { pattern, json }: &Ls) -> Result<ExitCode, Failure> {
    let locks = Settings::read(connection)?.connect().await?;
    // Sorted by name.
    let all = locks.list(pattern).await.map_err(to_list)?;
    let rows: Vec<Row> = all.locks.into_iter().map(Row::from).collect();
    if *json {
        print_json(&rows)?;
    } else {
        let output = Output::of_this_process();
        let cells = rows.iter().map(|row| cells(row, output)).collect();
        print(lay_out(HEADER, cells, output).as_bytes())?;
    }
    if all.skipped.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::unavailable(format!(
        "left out, because their slots are being moved to other servers: {}",
        all.skipped.join(", ")
    )))
}

fn cells(row: &Row, output: Output) -> [String; 7] {
    [
        visible(&row.name).into_owned(),
        row.kind.to_owned(),
        joined(row.holders.iter().map(|holder| visible(&holder.owner)).collect(), output),
        joined(
            row.holders.iter().map(|holder| holder.process().unwrap_or("unknown").into()).collect(),
            output,
        ),
        row.permits.map_or_else(
            || row.holds().to_string(),
            |permits| format!("{} of {}", permits.in_use, permits.total),
        ),
        row.expires_in_ms.map_or_else(|| "never".to_owned(), seconds),
        row.waiters(),
    ]
}

/// A terminal has no room for all readers of a lock.
fn joined(holders: Vec<Cow<'_, str>>, output: Output) -> String {
    match (output, &holders[..]) {
        (Output::Terminal(_), [first, _, ..]) => format!("{first} +{}", holders.len() - 1),
        _ => holders.join(","),
    }
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100)
}

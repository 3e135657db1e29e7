//! `lockkeeper show` and `lockkeeper release`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use lockkeeper::LockInfo;
use serde::Serialize;

use crate::args::{Connection, Release, Show};
use crate::connect::Settings;
use crate::exit::{Failure, UNAVAILABLE, print, print_json};
use crate::row::{Holder, expires_in_ms, visible};

/// A lock, as JSON has it.
#[derive(Serialize)]
struct Lock<'a> {
    name: &'a str,
    is_held: bool,
    is_read_write: bool,
    /// `null`: the lock is free, or the key has no expiry.
    expires_in_ms: Option<u64>,
    holders: Vec<Holder>,
}

#[derive(Serialize)]
struct Released<'a> {
    name: &'a str,
    was_held: bool,
}

pub(crate) async fn show(connection: &Connection, Show { name, json }: &Show) -> Result<ExitCode, Failure> {
    let locks = Settings::read(connection)?.connect().await?;
    let info = locks.inspect(name).await?;
    if *json {
        print_json(&as_json(name, info.as_ref()))?;
    } else {
        print(describe(name, info.as_ref()).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn release(connection: &Connection, options: &Release) -> Result<ExitCode, Failure> {
    let Release { name, yes, json } = options;
    let locks = Settings::read(connection)?.connect().await?;
    let Some(info) = locks.inspect(name).await? else {
        if *json {
            print_json(&Released { name, was_held: false })?;
        } else {
            print(format!("{}: free, nothing was released\n", visible(name)).as_bytes())?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    if !json {
        print(describe(name, Some(&info)).as_bytes())?;
    }
    if !yes && !is_confirmed()? {
        return Err(Failure { problem: "nothing was released".to_owned(), code: UNAVAILABLE });
    }
    let was_held = if info.is_read_write {
        // Each side releases its own holds.
        let mut lock = locks.read_write_lock(name);
        let had_readers = lock.read().force_unlock().await?;
        lock.write().force_unlock().await? || had_readers
    } else {
        locks.rlock(name).force_unlock().await?
    };
    if *json {
        print_json(&Released { name, was_held })?;
    } else {
        let outcome = if was_held { "released" } else { "was free by then" };
        print(format!("{}: {outcome}\n", visible(name)).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json<'a>(name: &'a str, info: Option<&'a LockInfo>) -> Lock<'a> {
    let holders = info.iter().flat_map(|info| &info.holders);
    Lock {
        name,
        is_held: info.is_some(),
        is_read_write: info.is_some_and(|info| info.is_read_write),
        expires_in_ms: info.and_then(|info| expires_in_ms(info.remaining_lease)),
        holders: holders.map(Holder::from).collect(),
    }
}

fn describe(name: &str, info: Option<&LockInfo>) -> String {
    let name = visible(name);
    let Some(info) = info else { return format!("{name}: free\n") };
    let ends = match info.remaining_lease.duration() {
        Some(left) => format!("ends in {:.1} s, if nobody renews it", left.as_secs_f64()),
        None => "never ends: its key has no expiry".to_owned(),
    };
    let kind = if info.is_read_write { "read-write lock" } else { "lock" };
    let mut text = format!("{name}: held, a {kind}, {ends}\n");
    for holder in &info.holders {
        let holder = Holder::from(holder);
        let (who, holds) = (holder.who(), holder.holds);
        text += &format!("  {who}, {holds} hold{}", if holds == 1 { "" } else { "s" });
        text += &holder.held_for_ms.map_or_else(String::new, |age| format!(", held for {} s", age / 1_000));
        text += "\n";
    }
    text
}

/// Asks the user. Without a terminal, nobody can answer.
fn is_confirmed() -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage("there is no terminal to ask for confirmation: use --yes"));
    }
    let question =
        "The holder notices only at its next renewal, and works on until then. Release the lock? [y/N] ";
    io::stderr().write_all(question.as_bytes()).map_err(Failure::output)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::unavailable)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}

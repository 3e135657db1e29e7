//! `lockkeeper show`, `lockkeeper release` and `lockkeeper resize`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use lockkeeper::LockInfo;
use serde::Serialize;

use crate::args::{Connection, Release, Resize, Show};
use crate::connect::Settings;
use crate::exit::{Failure, UNAVAILABLE, print, print_json};
use crate::row::{Holder, Permits, expires_in_ms, visible};

/// A lock, as JSON has it.
#[derive(Serialize)]
struct Lock<'a> {
    name: &'a str,
    is_held: bool,
    is_read_write: bool,
    /// `null`: it is not a semaphore.
    permits: Option<Permits>,
    /// `null`: the lock is free, or the key has no expiry.
    expires_in_ms: Option<u64>,
    holders: Vec<Holder>,
}

#[derive(Serialize)]
struct Released<'a> {
    name: &'a str,
    was_held: bool,
}

#[derive(Serialize)]
struct Resized<'a> {
    name: &'a str,
    permits: u32,
    before: u32,
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
    let Release { name, permit, yes, json } = options;
    let locks = Settings::read(connection)?.connect().await?;
    let info = locks.inspect(name).await?;
    if permit.is_some() && info.as_ref().is_some_and(|info| info.permits.is_none()) {
        return Err(Failure::usage("--permit is for semaphores, and this is a lock"));
    }
    let is_chosen = |holder: &lockkeeper::Holder| permit.is_none_or(|id| holder.owner == id.to_string());
    let Some(mut info) = info.filter(|info| info.holders.iter().any(is_chosen)) else {
        let state = if permit.is_some() { "this permit is not in use" } else { "free" };
        return report(name, false, &format!("{state}, nothing was released"), *json);
    };
    if !json {
        print(describe(name, Some(&info)).as_bytes())?;
    }
    if !yes && !is_confirmed()? {
        return Err(Failure { problem: "nothing was released".to_owned(), code: UNAVAILABLE });
    }
    info.holders.retain(is_chosen);
    let was_held = locks.force_unlock(name, &info).await?;
    report(name, was_held, outcome(was_held), *json)
}

pub(crate) async fn resize(connection: &Connection, options: &Resize) -> Result<ExitCode, Failure> {
    let Resize { name, permits, json } = options;
    let locks = Settings::read(connection)?.connect().await?;
    // A name that was mistyped would otherwise become a semaphore that never expires.
    let Some(info) = locks.inspect(name).await? else {
        return Err(Failure::usage(format!(
            "there is no semaphore `{name}`: the first `run --permits` makes it"
        )));
    };
    let Some(before) = info.permits else {
        return Err(Failure::usage(format!("`{name}` is a lock and no semaphore")));
    };
    locks.semaphore(name, *permits).resize(*permits).await?;
    if *json {
        print_json(&Resized { name, permits: *permits, before })?;
    } else {
        print(format!("{}: {permits} permits, {before} before\n", visible(name)).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What became of those who were shown.
pub(crate) const fn outcome(was_held: bool) -> &'static str {
    if was_held { "released" } else { "nothing was released: those who were shown no longer hold it" }
}

fn report(name: &str, was_held: bool, outcome: &str, as_json: bool) -> Result<ExitCode, Failure> {
    if as_json {
        print_json(&Released { name, was_held })?;
    } else {
        print(format!("{}: {outcome}\n", visible(name)).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json<'a>(name: &'a str, info: Option<&'a LockInfo>) -> Lock<'a> {
    let holders = info.iter().flat_map(|info| &info.holders);
    Lock {
        name,
        is_held: info.is_some_and(|info| !info.holders.is_empty()),
        is_read_write: info.is_some_and(|info| info.is_read_write),
        permits: info.and_then(Permits::of),
        expires_in_ms: info
            .filter(|info| !info.holders.is_empty())
            .and_then(|info| expires_in_ms(info.remaining_lease)),
        holders: holders.map(Holder::from).collect(),
    }
}

/// What `show` prints.
pub(crate) fn describe(name: &str, info: Option<&LockInfo>) -> String {
    let name = visible(name);
    let Some(info) = info else { return format!("{name}: free\n") };
    if let Some(permits) = Permits::of(info) {
        return describe_permits(&name, permits, info);
    }
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

fn describe_permits(name: &str, permits: Permits, info: &LockInfo) -> String {
    let Permits { total, in_use, available } = permits;
    let mut text =
        format!("{name}: a semaphore with {total} permits, {in_use} in use, {available} available\n");
    for holder in &info.holders {
        let client = holder.client().map_or_else(String::new, |client| format!(" of client {client}…"));
        let ends = match holder.remaining_lease.duration() {
            Some(left) => format!("ends in {:.1} s, if nobody renews it", left.as_secs_f64()),
            None => "never ends".to_owned(),
        };
        text += &format!("  {}{client} {ends}\n", Holder::from(holder).who());
    }
    text
}

/// Asks the user. Without a terminal, nobody can answer.
fn is_confirmed() -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage("there is no terminal to ask for confirmation: use --yes"));
    }
    let question = "The holder notices only at its next renewal, and works on until then. Release it? [y/N] ";
    io::stderr().write_all(question.as_bytes()).map_err(Failure::output)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::unavailable)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}

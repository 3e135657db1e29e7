//! `lockkeeper show`, `lockkeeper release` and `lockkeeper resize`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use lockkeeper::{Holder, LockInfo, LockKind};
use serde::Serialize;

use crate::args::{Connection, Release, Resize, Show};
use crate::connect::Settings;
use crate::exit::{Failure, UNAVAILABLE, print, print_json};
use crate::text::{visible, who};

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
        print_json(&info)?;
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
    let is_chosen = |holder: &Holder| permit.is_none_or(|id| holder.owner == id.to_string());
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
    let was_held = locks.force_unlock(&info).await?;
    report(name, was_held, outcome(was_held), *json)
}

pub(crate) async fn resize(connection: &Connection, options: &Resize) -> Result<ExitCode, Failure> {
    let Resize { name, permits, json } = options;
    let locks = Settings::read(connection)?.connect().await?;
    // Without this check, a mistyped name would become a semaphore that never expires.
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
        print_json(&serde_json::json!({ "name": name, "was_held": was_held }))?;
    } else {
        print(format!("{}: {outcome}\n", visible(name)).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What `show` prints.
pub(crate) fn describe(name: &str, info: Option<&LockInfo>) -> String {
    let name = visible(name);
    let Some(info) = info else { return format!("{name}: free\n") };
    let (left, in_use) = (info.remaining_lease, info.holders.len());
    let note = if left.duration().is_some() { ", if nobody renews it" } else { ": its key has no expiry" };
    let mut text = match info.permits {
        Some(total) => {
            let available = usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(in_use);
            format!("{name}: a semaphore with {total} permits, {in_use} in use, {available} available\n")
        }
        None if matches!(info.kind, LockKind::Read | LockKind::Write) => {
            format!("{name}: held, a read-write lock, {left}{note}\n")
        }
        None => format!("{name}: held, a lock, {left}{note}\n"),
    };
    for holder in &info.holders {
        text += &format!("  {}", who(holder));
        text += &match (info.permits, &holder.client, holder.holds) {
            (Some(_), Some(client), _) => format!(" of client {client}… {}", holder.remaining_lease),
            (Some(_), None, _) => format!(" {}", holder.remaining_lease),
            (None, _, 1) => ", 1 hold".to_owned(),
            (None, _, holds) => format!(", {holds} holds"),
        };
        text += &holder.held_for.map_or_else(String::new, |age| format!(", held for {} s", age.as_secs()));
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
        "The holder works on until it notices: mostly at once, or at its next renewal. Release it? [y/N] ";
    io::stderr().write_all(question.as_bytes()).map_err(Failure::output)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::unavailable)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}

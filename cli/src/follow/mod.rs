//! `lockkeeper watch`.

mod changes;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::SystemTime;

use futures_util::future::{Either, select, try_join_all};
use lockkeeper::LockClient;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::{Connection, Watch};
use crate::connect::Settings;
use crate::exit::{Failure, print, print_json, tell, to_list};
use crate::text::visible;
use changes::{Change, Rows, changes};

/// A change, as JSON has it.
#[derive(Serialize)]
struct Event<'a> {
    /// By the clock of this process.
    at: String,
    #[serde(flatten)]
    change: &'a Change<'a>,
}

/// Follows locks until Ctrl-C.
pub(crate) async fn watch(connection: &Connection, options: &Watch) -> Result<ExitCode, Failure> {
    let locks = Settings::read(connection)?.connect().await?;
    let following = std::pin::pin!(follow(&locks, options));
    let interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    match select(following, interrupted).await {
        Either::Left((ended, _)) => ended,
        Either::Right((interrupted, _)) => {
            interrupted.map_err(Failure::unavailable)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What is wrong at the first look ends the command. Later, it is told once, until a look succeeds again.
async fn follow(locks: &LockClient, options: &Watch) -> Result<ExitCode, Failure> {
    let mut ticks = interval(options.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut before = Rows::new();
    let mut look_result = Ok(look(locks, &options.patterns).await.map_err(to_list)?);
    let (mut is_blind, mut is_first) = (false, true);
    loop {
        match look_result {
            Ok((mut now, skipped)) => {
                // The look could not see these locks, so their earlier rows stay. Without them, the locks would seem to
                // be released.
                now.extend(
                    skipped.into_iter().filter_map(|name| before.get(&name).cloned().map(|row| (name, row))),
                );
                if is_blind {
                    tell("the server answers again");
                }
                is_blind = false;
                let at = SystemTime::now();
                for change in &mut changes(&before, &now) {
                    if is_first {
                        change.what = "present";
                    }
                    report(change, at, options.json)?;
                }
                (before, is_first) = (now, false);
            }
            Err(_) if is_blind => {}
            Err(error) => {
                tell(&format!("cannot read the locks: {error}"));
                is_blind = true;
            }
        }
        ticks.tick().await;
        look_result = look(locks, &options.patterns).await;
    }
}

/// Also returns the names of locks that no server could tell about.
async fn look(locks: &LockClient, patterns: &[String]) -> lockkeeper::Result<(Rows, BTreeSet<String>)> {
    let (mut rows, mut skipped) = (Rows::new(), BTreeSet::new());
    for all in try_join_all(patterns.iter().map(|pattern| locks.list(pattern))).await? {
        rows.extend(all.locks.into_iter().map(|lock| (lock.name.clone(), lock)));
        skipped.extend(all.skipped);
    }
    Ok((rows, skipped))
}

fn report(change: &Change<'_>, at: SystemTime, as_json: bool) -> Result<(), Failure> {
    if as_json {
        let at = humantime::format_rfc3339_millis(at).to_string();
        return print_json(&Event { at, change });
    }
    let at = humantime::format_rfc3339_seconds(at);
    print(format!("{at} {} {}\n", visible(change.name), change.text).as_bytes())
}

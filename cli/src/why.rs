//! `lockkeeper why`.

use std::process::ExitCode;

use lockkeeper::{LockClient, LockInfo, WaitChain};

use crate::args::{Connection, Why};
use crate::connect::Settings;
use crate::exit::{Failure, print, print_json, to_list};
use crate::text::visible;

pub(crate) async fn why(connection: &Connection, Why { name, json }: &Why) -> Result<ExitCode, Failure> {
    let locks = Settings::read(connection)?.connect().await?;
    let chains = match name {
        Some(name) => locks.why(name).await?,
        None => locks.wait_chains().await.map_err(to_list)?,
    };
    if *json {
        print_json(&chains)?;
    } else if chains.is_empty() {
        let text = match name {
            Some(name) => format!("{}: free\n", visible(name)),
            None => no_chain(&locks).await?,
        };
        print(text.as_bytes())?;
    } else {
        print(chains.iter().map(describe).collect::<Vec<_>>().join("\n").as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that there is no chain, and for how many locks calls wait all the same.
async fn no_chain(locks: &LockClient) -> Result<String, Failure> {
    let listed = locks.list("*").await.map_err(to_list)?.locks;
    let is_awaited = |lock: &&LockInfo| lock.queued.max(lock.listeners).is_some_and(|waiters| waiters > 0);
    let waits = match listed.iter().filter(is_awaited).count() {
        0 => "nothing waits".to_owned(),
        1 => "calls wait for 1 lock: see `lockkeeper ls`".to_owned(),
        count => format!("calls wait for {count} locks: see `lockkeeper ls`"),
    };
    Ok(format!("no holder waits for another lock ({waits})\n"))
}

/// The chains of more than one lock, as people read them. Empty: there are none.
pub(crate) fn explain(chains: &[WaitChain]) -> String {
    let longer = chains.iter().filter(|chain| chain.links.len() > 1);
    longer.map(describe).collect::<Vec<_>>().join("\n")
}

/// A line for each link.
fn describe(chain: &WaitChain) -> String {
    let mut text = String::new();
    for link in &chain.links {
        text += &visible(&link.to_string());
        text += "\n";
    }
    if chain.is_deadlock {
        text += "a deadlock: these owners wait for each other\n";
    }
    text
}

//! `lockkeeper why`.

use std::process::ExitCode;

use lockkeeper::WaitChain;
use serde::Serialize;

use crate::args::{Connection, Why};
use crate::connect::Settings;
use crate::exit::{Failure, print, print_json, to_list};
use crate::row::{Holder, visible};

/// A chain, as JSON has it.
#[derive(Serialize)]
struct Chain {
    is_deadlock: bool,
    links: Vec<Link>,
}

#[derive(Serialize)]
struct Link {
    lock: String,
    holder: Holder,
    /// `null`: the holder does not wait, or that is not known.
    waits_for: Option<String>,
    waits_for_ms: Option<u64>,
    waits_at: Option<String>,
    client_waits: Vec<ClientWait>,
}

/// A call of the client of a holder that is perhaps the holder's.
#[derive(Serialize)]
struct ClientWait {
    waits_for: String,
    waits_for_ms: u64,
    waits_at: String,
}

pub(crate) async fn why(connection: &Connection, Why { name, json }: &Why) -> Result<ExitCode, Failure> {
    let locks = Settings::read(connection)?.connect().await?;
    let chains = match name {
        Some(name) => locks.why(name).await?,
        None => locks.wait_chains().await.map_err(to_list)?,
    };
    let chains: Vec<Chain> = chains.iter().map(Chain::from).collect();
    if *json {
        print_json(&chains)?;
    } else if let Some(name) = name.as_ref().filter(|_| chains.is_empty()) {
        print(format!("{}: free\n", visible(name)).as_bytes())?;
    } else {
        print(chains.iter().map(describe).collect::<Vec<_>>().join("\n").as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

impl From<&WaitChain> for Chain {
    fn from(chain: &WaitChain) -> Self {
        let links = chain.links.iter().map(|link| {
            let (waits_for, age) = link.waits_for.clone().unzip();
            Link {
                lock: link.lock.clone(),
                holder: Holder::from(&link.holder),
                waits_for,
                waits_for_ms: age.and_then(|age| age.as_millis().try_into().ok()),
                waits_at: link.waits_at.clone(),
                client_waits: link.client_waits.iter().map(ClientWait::from).collect(),
            }
        });
        Self { is_deadlock: chain.is_deadlock, links: links.collect() }
    }
}

impl From<&lockkeeper::ClientWait> for ClientWait {
    fn from(wait: &lockkeeper::ClientWait) -> Self {
        Self {
            waits_for: wait.lock.clone(),
            waits_for_ms: wait.age.as_millis().try_into().unwrap_or(u64::MAX),
            waits_at: wait.waits_at.clone(),
        }
    }
}

/// The chains of more than one lock, as people read them. Empty: there are none.
pub(crate) fn explain(chains: &[WaitChain]) -> String {
    let longer = chains.iter().filter(|chain| chain.links.len() > 1);
    longer.map(|chain| describe(&chain.into())).collect::<Vec<_>>().join("\n")
}

/// A line for each link.
fn describe(chain: &Chain) -> String {
    let mut text = String::new();
    for Link { lock, holder, waits_for, waits_for_ms, waits_at, client_waits } in &chain.links {
        text += &format!("{}: held by {}", visible(lock), holder.who());
        if let Some((next, age)) = waits_for.as_ref().zip(*waits_for_ms) {
            text += &format!(", which has waited for {} for {} s", visible(next), age / 1_000);
            text += &waits_at.as_ref().map_or_else(String::new, |at| format!(", at {}", visible(at)));
        }
        text += "\n";
        for ClientWait { waits_for, waits_for_ms, waits_at } in client_waits {
            let (next, at) = (visible(waits_for), visible(waits_at));
            text += &format!(
                "  perhaps it waits: a call of its client has waited for {next} for {} s, at {at}\n",
                waits_for_ms / 1_000
            );
        }
    }
    if chain.is_deadlock {
        text += "a deadlock: these owners wait for each other\n";
    }
    text
}

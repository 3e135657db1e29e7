//! `lockkeeper why`.

use std::process::ExitCode;

use lockkeeper::WaitChain;

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
    } else if let Some(name) = name.as_ref().filter(|_| chains.is_empty()) {
        print(format!("{}: free\n", visible(name)).as_bytes())?;
    } else {
        print(chains.iter().map(describe).collect::<Vec<_>>().join("\n").as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
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

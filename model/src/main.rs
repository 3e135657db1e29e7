//! Explores the protocol: `cargo run -p lockkeeper-model -- check`, or `explore lock` to look at it in a browser.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use lockkeeper_model::protocol::Protocol;
use stateright::{Checker, Expectation, Model};

const PAGE: &str = "localhost:3000";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let named = |name: &str| Protocol::all().into_iter().find(|protocol| protocol.name == name);
    match words[..] {
        ["check"] => {
            Ok(if Protocol::all().into_iter().all(check) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        ["check", name] => Ok(if check(named(name).ok_or("no such protocol")?) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }),
        ["explore"] | ["explore", _] => {
            let protocol = named(words.get(1).copied().unwrap_or("lock")).ok_or("no such protocol")?;
            println!("http://{PAGE}");
            protocol.checker().serve(PAGE);
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            let names: Vec<_> = Protocol::all().iter().map(|protocol| protocol.name).collect();
            Err(format!("usage: lockkeeper-model check | explore [{}]", names.join(" | ")).into())
        }
    }
}

/// Explores all states, prints how many there are, and the shortest way to one that breaks a property.
fn check(protocol: Protocol) -> bool {
    let began = Instant::now();
    let Protocol { name, roles, acquires, end, faults, .. } = &protocol;
    println!("{name}: {roles:?}, {acquires} acquires each, {end} s; at most {faults} faults");
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("  {states} states, {depth} steps deep, {:.1} s", began.elapsed().as_secs_f32());
    let mut is_right = true;
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        if (property.expectation == Expectation::Always) == found.is_some() {
            is_right = false;
            println!("  BROKEN: {}", property.name);
            for (state, action) in found.into_iter().flat_map(|path| path.into_vec()) {
                println!("    {state:?}\n    {action:?}");
            }
        }
    }
    is_right
}

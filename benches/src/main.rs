//! Measures lockkeeper side by side with the same scripts sent bare, and with its peers.
//!
//! Numbers of different runs can not be compared: the machine is never the same twice. So everything here is a ratio
//! within one round: all candidates run in each round, in an order that rotates, and what is reported is the median
//! of the rounds' ratios, with the least and the greatest. The server and the clients share one host.

mod bare;
mod clock;
mod commands;
mod compared;
mod contended;
mod dropped;
mod flavor;
mod floor;
mod free;
mod handoff;
mod held;
mod machine;
mod memory;
mod pairs;
mod peer;
mod profile;
mod read;
mod red;
mod results;
mod rounds;
mod server;
mod share;
mod sides;
mod stats;
mod table;
mod waiters;

use std::process::ExitCode;

use flavor::Flavor;
use rounds::Effort;
use server::Server;

type Part = (&'static str, fn(&str, Effort));

const PARTS: [Part; 12] = [
    ("free", |url, effort| Flavor::ALL.into_iter().for_each(|flavor| free::measure(url, flavor, effort))),
    ("floor", floor::measure),
    ("handoff", |url, effort| {
        Flavor::ALL.into_iter().for_each(|flavor| handoff::measure(url, flavor, effort))
    }),
    ("contended", contended::measure),
    ("waiters", waiters::measure),
    ("red", |_, effort| red::measure(effort)),
    ("read", read::measure),
    ("server", share::measure),
    ("profile", profile::measure),
    ("held", held::measure),
    ("dropped", dropped::measure),
    ("memory", memory::measure),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).filter(|arg| *arg != "--quick").collect();
    let effort = if words.len() < args.len() { Effort::QUICK } else { Effort::FULL };
    match words[..] {
        [] => measure(&PARTS, effort),
        [results::WORD, text, folder] => results::write(text, folder),
        // This program, started by itself.
        [handoff::SIDE, url, peer, flavor, sections] => handoff::side(url, peer, flavor, sections),
        [read::SIDE, url, flavor, turns] => read::side(url, flavor, turns),
        [profile::SIDE, url, candidate, tasks, pairs] => profile::side(url, candidate, tasks, pairs),
        [memory::SIDE, url, what] => memory::side(url, what),
        _ => return measure_some(&words, effort),
    }
    ExitCode::SUCCESS
}

fn measure_some(names: &[&str], effort: Effort) -> ExitCode {
    let wanted: Vec<Part> = PARTS.into_iter().filter(|(name, _)| names.contains(name)).collect();
    if wanted.len() < names.len() {
        eprintln!(
            "usage: scripts/bench [part…] [--quick]; the parts: {}",
            PARTS.map(|(name, _)| name).join(" ")
        );
        return ExitCode::from(2);
    }
    measure(&wanted, effort);
    ExitCode::SUCCESS
}

fn measure(parts: &[Part], effort: Effort) {
    let server = Server::start();
    machine::describe(&server, effort);
    compared::describe();
    for (_, part) in parts {
        part(server.url(), effort);
    }
}

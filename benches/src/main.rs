//! Measures lockkeeper side by side with the same scripts sent bare, and with a peer.
//!
//! Numbers of different runs can not be compared: the machine is never the same twice. So everything here is a ratio
//! within one round: all candidates run in each round, in an order that rotates, and what is reported is the median
//! of the rounds' ratios, with the least and the greatest. The server and the clients share one host.

mod bare;
mod clock;
mod contended;
mod flavor;
mod free;
mod handoff;
mod memory;
mod pairs;
mod peer;
mod read;
mod rounds;
mod server;
mod sides;
mod stats;
mod table;

use std::process::ExitCode;
use std::thread::available_parallelism;

use flavor::Flavor;
use rounds::Effort;
use server::Server;

const USAGE: &str = "usage: lockkeeper-bench [free|handoff|contended|read|memory|all] [--quick]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).filter(|arg| *arg != "--quick").collect();
    let effort = if words.len() < args.len() { Effort::QUICK } else { Effort::FULL };
    match words[..] {
        [] => measure("all", effort),
        [what @ ("free" | "handoff" | "contended" | "read" | "memory" | "all")] => measure(what, effort),
        // This program, started by itself.
        [handoff::SIDE, url, peer, flavor, sections] => handoff::side(url, peer, flavor, sections),
        [read::SIDE, url, flavor, turns] => read::side(url, flavor, turns),
        [memory::SIDE, url, what] => memory::side(url, what),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn measure(what: &str, effort: Effort) {
    let server = Server::start();
    let cpus = available_parallelism().map_or(0, usize::from);
    println!(
        "{}, {cpus} CPUs, {} rounds. Ratios: median [least..greatest].",
        server.version(),
        effort.rounds
    );
    let is_wanted = |name| what == name || what == "all";
    if is_wanted("free") {
        Flavor::ALL.into_iter().for_each(|flavor| free::measure(server.url(), flavor, effort));
    }
    if is_wanted("handoff") {
        Flavor::ALL.into_iter().for_each(|flavor| handoff::measure(server.url(), flavor, effort));
    }
    if is_wanted("contended") {
        contended::measure(server.url(), effort);
    }
    if is_wanted("read") {
        read::measure(server.url(), effort);
    }
    if is_wanted("memory") {
        memory::measure(server.url(), effort);
    }
}

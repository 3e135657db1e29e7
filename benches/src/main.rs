//! Measures lockkeeper side by side with the same scripts sent bare, with Redisson, and with its peers.
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
mod redisson;
mod results;
mod rounds;
mod share;
mod sides;
mod stats;
mod table;
mod waiters;

use std::process::ExitCode;
use std::rc::Rc;

use lockkeeper_testkit::Server;
use redisson::Jvm;
use rounds::Effort;

/// Some are measured beside Redisson, too, and some are counted.
enum Part {
    Here(fn(&str, Effort)),
    BesideJava(fn(&str, &Rc<Jvm>, Effort)),
    InValgrind(fn(&str, Effort)),
}
use Part::{BesideJava, Here, InValgrind};

const PARTS: [(&str, Part); 12] = [
    ("free", BesideJava(free::measure)),
    ("floor", Here(floor::measure)),
    ("handoff", BesideJava(handoff::measure)),
    ("contended", BesideJava(contended::measure)),
    ("waiters", BesideJava(waiters::measure)),
    ("red", Here(|_, effort| red::measure(effort))),
    ("read", BesideJava(read::measure)),
    ("server", Here(share::measure)),
    ("profile", InValgrind(profile::measure)),
    ("held", BesideJava(held::measure)),
    ("dropped", Here(dropped::measure)),
    ("memory", BesideJava(|_, _, effort| memory::measure(effort))),
];

/// The word by which this program is asked what parts need beside a server.
const NEEDS: &str = "needs";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).filter(|arg| *arg != "--quick").collect();
    let effort = if words.len() < args.len() { Effort::QUICK } else { Effort::FULL };
    match words[..] {
        [results::WORD, text, folder] => results::write(text, folder),
        // This program, started by itself.
        [handoff::SIDE, url, peer, flavor, sections] => handoff::side(url, peer, flavor, sections),
        [read::SIDE, url, flavor, turns] => read::side(url, flavor, turns),
        [profile::SIDE, url, candidate, tasks, pairs] => profile::side(url, candidate, tasks, pairs),
        [memory::SIDE, url, what] => memory::side(url, what),
        _ => return obey(&words, effort),
    }
    ExitCode::SUCCESS
}

fn obey(words: &[&str], effort: Effort) -> ExitCode {
    let (asks, names) = match words {
        [NEEDS, names @ ..] => (true, names),
        names => (false, names),
    };
    let Some(parts) = wanted(names) else {
        let known = PARTS.map(|(name, _)| name).join(" ");
        eprintln!("usage: scripts/bench [part…] [--quick]; the parts: {known}");
        return ExitCode::from(2);
    };
    if asks {
        let mut needs: Vec<&str> = parts.iter().filter_map(Part::needs).collect();
        needs.sort_unstable();
        needs.dedup();
        needs.iter().for_each(|program| println!("{program}"));
    } else {
        measure(&parts, effort);
    }
    ExitCode::SUCCESS
}

/// None named: all of them.
fn wanted(names: &[&str]) -> Option<Vec<Part>> {
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    let parts: Vec<Part> = PARTS.into_iter().filter(|(name, _)| wanted(name)).map(|(_, part)| part).collect();
    (parts.len() >= names.len()).then_some(parts)
}

impl Part {
    fn needs(&self) -> Option<&'static str> {
        match self {
            Here(_) => None,
            BesideJava(_) => Some("java"),
            InValgrind(_) => Some("valgrind"),
        }
    }
}

fn measure(parts: &[Part], effort: Effort) {
    let server = Server::start();
    let url = &server.url();
    let needs_java = parts.iter().any(|part| matches!(part, BesideJava(_)));
    let jvm = needs_java.then(|| redisson::warm(url, effort));
    machine::describe(&server, jvm.as_deref(), effort);
    compared::describe();
    for part in parts {
        match part {
            Here(part) | InValgrind(part) => part(url, effort),
            BesideJava(part) => part(url, jvm.as_ref().expect("BUG: not started"), effort),
        }
    }
}

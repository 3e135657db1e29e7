//! Measures lockkeeper side by side with the same scripts sent bare, with Redisson, and with other crates.
//!
//! Numbers of different runs cannot be compared, because the machine is never in the same state twice. So most results are
//! ratios: all candidates run in each round, in an order that rotates. The ratio of two candidates is taken in each
//! round, and the report has the median, the least and the greatest. The server and the clients share one machine.

mod bare;
mod cache;
mod cluster;
mod commands;
mod connection;
mod contended;
mod ends;
mod free;
mod handoff;
mod herd;
mod machine;
mod memory;
mod pairs;
mod peer;
mod plot;
mod profile;
mod reads;
mod red;
mod redisson;
mod redisson_lua;
mod replicas;
mod report;
mod rounds;
mod runtime;
mod server;
mod sharing;
mod sides;
mod stats;
mod waiters;

use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use lockkeeper_testkit::Server;

use crate::redisson::Jvm;
use crate::report::Report;
use crate::rounds::Effort;

/// How a part measures, and what it needs besides a server.
#[derive(Clone, Copy)]
enum Part {
    Here(fn(&str, Effort, &mut Report)),
    BesideJava(fn(&str, &Rc<Jvm>, Effort, &mut Report)),
}
use Part::{BesideJava, Here};

/// The part that needs valgrind.
const VALGRIND: &str = "profile";

const PARTS: [(&str, Part); 16] = [
    ("server", Here(server::measure)),
    ("free", BesideJava(free::measure)),
    ("read", BesideJava(free::measure_reading)),
    ("reads", Here(reads::measure)),
    ("cache", Here(cache::measure)),
    ("handoff", BesideJava(handoff::measure)),
    ("contended", BesideJava(contended::measure)),
    ("waiters", BesideJava(waiters::measure)),
    ("ends", Here(ends::measure)),
    ("herd", Here(herd::measure)),
    ("red", Here(|_, effort, report| red::measure(effort, report))),
    ("sharing", Here(sharing::measure)),
    ("replicas", Here(|_, effort, report| replicas::measure(effort, report))),
    ("cluster", Here(|_, effort, report| cluster::measure(effort, report))),
    (VALGRIND, Here(profile::measure)),
    ("memory", BesideJava(|_, _, effort, report| memory::measure(effort, report))),
];

/// Prints what the named parts need besides a server.
const NEEDS: &str = "needs";

/// The folder for the page and the plots follows: that of the repository, or another. Without it, the results are only printed.
const SAVE: &str = "--save";

const QUICK: &str = "--quick";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        // Further processes of this program.
        [handoff::SIDE, url, peer, sections] => handoff::side(url, peer, sections),
        [profile::SIDE, url, candidate, tasks, pairs] => profile::side(url, candidate, tasks, pairs),
        [memory::SIDE, url, what] => memory::side(url, what),
        [cache::SIDE, url, address, linger] => cache::side([url, address, linger]),
        [sharing::SIDE, ref work @ ..] => sharing::side(work.try_into().expect("eight arguments")),
        [NEEDS, ref args @ ..] => return with_wanted(args, |wanted| needs(&wanted.parts)),
        _ => return with_wanted(&args, |wanted| measure(&wanted)),
    }
    ExitCode::SUCCESS
}

/// What the command line asks for.
struct Wanted<'a> {
    names: Vec<&'a str>,
    parts: Vec<(&'static str, Part)>,
    effort: Effort,
    folder: Option<&'a Path>,
}

fn with_wanted(args: &[&str], obey: impl FnOnce(Wanted<'_>)) -> ExitCode {
    let Some(wanted) = Wanted::parse(args) else {
        let known = PARTS.map(|(name, _)| name).join(" ");
        eprintln!("usage: scripts/bench [part…] [--quick] [--save]; the parts: {known}");
        return ExitCode::from(2);
    };
    obey(wanted);
    ExitCode::SUCCESS
}

impl<'a> Wanted<'a> {
    /// All parts, if none is named.
    fn parse(args: &[&'a str]) -> Option<Self> {
        let (mut names, mut effort, mut folder) = (Vec::new(), Effort::FULL, None);
        let mut args = args.iter().copied();
        while let Some(arg) = args.next() {
            match arg {
                QUICK => effort = Effort::QUICK,
                SAVE => folder = Some(Path::new(args.next()?)),
                name => names.push(name),
            }
        }
        let is_wanted = |name: &str| names.is_empty() || names.contains(&name);
        let parts: Vec<_> = PARTS.into_iter().filter(|(name, _)| is_wanted(name)).collect();
        (parts.len() >= names.len()).then_some(Self { names, parts, effort, folder })
    }
}

fn needs(parts: &[(&str, Part)]) {
    if parts.iter().any(|(_, part)| matches!(part, BesideJava(_))) {
        println!("java");
    }
    if parts.iter().any(|(name, _)| *name == VALGRIND) {
        println!("valgrind");
    }
}

fn measure(Wanted { names, parts, effort, folder }: &Wanted<'_>) {
    let (server, effort) = (Server::start(), *effort);
    let url = &server.url();
    let needs_java = parts.iter().any(|(_, part)| matches!(part, BesideJava(_)));
    let jvm = needs_java.then(|| redisson::start_warm(url, effort));
    let mut report = Report::new(machine::describe(names, &server, jvm.as_deref(), effort));
    for (name, part) in parts {
        report.part(name);
        match part {
            Here(measure) => measure(url, effort, &mut report),
            BesideJava(measure) => {
                measure(url, jvm.as_ref().expect("a JVM was started"), effort, &mut report);
            }
        }
    }
    if let Some(folder) = folder {
        report.save(folder, &PARTS.map(|(name, _)| name));
    }
}

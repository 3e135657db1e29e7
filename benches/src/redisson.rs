//! Redisson with its default configuration, in a warm JVM, with one thread per task.
//!
//! The JVM runs the Java program of `tests/interop`, which executes one order after the other.

#[path = "../../tests/interop/jvm.rs"]
mod command;

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::rc::Rc;
use std::time::Duration;

use crate::rounds::Effort;

pub const NAME: &str = "Redisson, JVM";
pub const FAIR: &str = "Redisson fair, JVM";

/// The largest heap. Java chooses all else for this machine.
const OPTIONS: [&str; 1] = ["-Xmx1g"];

/// The lock types of the warm-up. For each, some threads lock a lock of their own, and as many share one.
const KINDS: [&str; 3] = ["rlock", "fair", "read"];
const THREADS: usize = 8;

/// Starts a JVM, and lets it work for a while.
pub fn start_warm(url: &str, effort: Effort) -> Rc<Jvm> {
    let jvm = Jvm::start(url, &OPTIONS);
    for kind in KINDS {
        let own = (0..THREADS).map(|thread| format!("warm-{kind}:{thread}"));
        let names = own.chain((0..THREADS).map(|_| format!("warm-{kind}"))).collect();
        let time = warm_up(effort) / KINDS.len() as u32;
        Work { kind, names, section: Duration::ZERO, pause: Duration::ZERO, time }.run(&jvm);
    }
    Rc::new(jvm)
}

/// How long the JVM works before it is measured. On two cores with other work, Redisson was three times as fast after
/// ten seconds, four times after thirty, and not faster later.
pub fn warm_up(effort: Effort) -> Duration {
    effort.longer(100).slice
}

/// A JVM. Dropping this value kills it.
pub struct Jvm {
    process: Child,
    input: ChildStdin,
    output: RefCell<BufReader<ChildStdout>>,
    version: String,
}

impl Jvm {
    /// Starts a JVM with these options.
    pub fn start(url: &str, options: &[&str]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of the project");
        let mut command = command::command(root, options, url);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = started.expect("java, which scripts/bench installs");
        let input = process.stdin.take().expect("a pipe");
        let output = RefCell::new(BufReader::new(process.stdout.take().expect("a pipe")));
        let mut jvm = Self { process, input, output, version: String::new() };
        jvm.version = jvm.read("ready ").replace(' ', " on Java ");
        jvm
    }

    /// Such as "4.7.0 on Java 17.0.15".
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Executes an order, see `Loads.java`, and returns its numbers.
    pub fn order(&self, load: &str, kind: &str, name: &str, numbers: &[u128]) -> Vec<u64> {
        self.begin(load, kind, name, numbers);
        self.result()
    }

    /// Sends an order, and does not wait for its result.
    pub fn begin(&self, load: &str, kind: &str, name: &str, numbers: &[u128]) {
        let numbers: Vec<String> = numbers.iter().map(u128::to_string).collect();
        let order = format!("0 bench {load} {kind} {name} {}\n", numbers.join(" "));
        (&self.input).write_all(order.as_bytes()).expect("a running process");
    }

    /// Waits for the result of the last order.
    pub fn result(&self) -> Vec<u64> {
        let numbers = self.read("0 ok");
        numbers.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    }

    /// Reads a line, and returns what follows this start of it.
    fn read(&self, start: &str) -> String {
        let mut line = String::new();
        self.output.borrow_mut().read_line(&mut line).expect("text");
        let rest = line.trim_end().strip_prefix(start);
        rest.unwrap_or_else(|| panic!("Redisson: {line:?}")).to_owned()
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the threads shall do.
pub struct Work {
    /// The lock type, by its name in `Locks.java`.
    pub kind: &'static str,
    /// The name of the lock of each thread.
    pub names: Vec<String>,
    pub section: Duration,
    pub pause: Duration,
    pub time: Duration,
}

/// What the threads did. Times are in nanoseconds of the clock that all processes of a machine share.
pub struct Done {
    pub began: u64,
    pub sections: Vec<Section>,
}

pub struct Section {
    pub thread: usize,
    pub asked: u64,
    pub acquired: u64,
    /// Just before the release.
    pub released: u64,
    pub ended: u64,
}

impl Work {
    pub fn begin(&self, jvm: &Jvm) {
        let numbers = [self.section.as_micros(), self.pause.as_micros(), self.time.as_millis()];
        jvm.begin("sections", self.kind, &self.names.join(","), &numbers);
    }

    pub fn run(&self, jvm: &Jvm) -> Done {
        self.begin(jvm);
        Done::of(jvm)
    }
}

impl Done {
    /// Waits until the threads have ended.
    pub fn of(jvm: &Jvm) -> Self {
        let numbers = jvm.result();
        let (head, sections) = numbers.split_at(2);
        let section = |numbers: &[u64]| Section {
            thread: numbers[0] as usize,
            asked: numbers[1],
            acquired: numbers[2],
            released: numbers[3],
            ended: numbers[4],
        };
        Self { began: head[0], sections: sections.chunks_exact(5).map(section).collect() }
    }
}

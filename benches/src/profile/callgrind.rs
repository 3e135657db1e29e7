//! Counts the work of a process with `callgrind`. It counts and does not sample, so two runs give nearly the same.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::{env, fs, process};

use super::places::Place;

/// The counts of a process, or per pair.
#[derive(Default)]
pub struct Counts {
    /// The instructions of each place, without those of the functions that it calls.
    pub instructions: HashMap<Place, f64>,
    /// Calls that allocate memory or enlarge an allocation.
    pub allocations: f64,
    /// Without clock reads: outside of valgrind, these are no system calls.
    pub system_calls: f64,
    pub clock_reads: f64,
    /// Instructions that were not in the simulated first-level cache.
    pub cache_misses: f64,
}

impl Counts {
    pub fn all(&self) -> f64 {
        self.instructions.values().sum()
    }

    /// The instructions by a name of their place.
    pub fn by(&self, name: impl Fn(&Place) -> Option<String>) -> HashMap<String, f64> {
        let mut sums = HashMap::new();
        for (place, instructions) in &self.instructions {
            if let Some(name) = name(place) {
                *sums.entry(name).or_default() += instructions;
            }
        }
        sums
    }

    /// The difference to another count, divided by this number.
    pub fn difference(mut self, other: &Self, each: usize) -> Self {
        let each = each as f64;
        for (place, instructions) in &mut self.instructions {
            *instructions = (*instructions - other.instructions.get(place).copied().unwrap_or(0.0)) / each;
        }
        self.allocations = (self.allocations - other.allocations) / each;
        self.cache_misses = (self.cache_misses - other.cache_misses) / each;
        self.clock_reads = (self.clock_reads - other.clock_reads) / each;
        self.system_calls = (self.system_calls - other.system_calls) / each;
        self
    }
}

const CLOCK: &str = "clock_gettime";

const ALLOCATORS: [&str; 5] = ["malloc", "calloc", "realloc", "memalign", "posix_memalign"];

/// Runs this program with these arguments, and counts its work.
pub fn count(words: &[&str]) -> Counts {
    let file = env::temp_dir().join(format!("lockkeeper-profile.{}", process::id()));
    let status = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--collect-systime=yes", "--cache-sim=yes"])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(env::current_exe().expect("this program"))
        .args(words)
        .status()
        .expect("valgrind can be run");
    assert!(status.success(), "under valgrind: {status}");
    let counts = read(&file);
    fs::remove_file(&file).expect("the file that callgrind wrote");
    counts
}

/// The format is in valgrind's manual, "Callgrind Format Specification".
fn read(file: &Path) -> Counts {
    let text = fs::read_to_string(file).expect("the file that callgrind wrote");
    let mut counts = Counts::default();
    let mut events = Vec::new();
    let (mut object, mut function, mut source) = ("", "", "");
    let (mut callee, mut caller_is_allocator) = ("", false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line.split_once(['=', ':']) {
            Some(("events", names)) => events = names.split_whitespace().collect(),
            Some(("ob", name)) => object = name,
            Some(("fl" | "fi" | "fe", name)) => source = name,
            Some(("fn", name)) => {
                function = name;
                caller_is_allocator = ALLOCATORS.contains(&name);
            }
            Some(("cfn", name)) => callee = name,
            Some(("calls", how)) => {
                if ALLOCATORS.contains(&callee) && !caller_is_allocator {
                    counts.allocations += number(how.split(' ').next());
                }
                if callee.starts_with(CLOCK) && !function.starts_with(CLOCK) {
                    counts.clock_reads += number(how.split(' ').next());
                }
                lines.next(); // the cost of those calls: the callee's own lines have it as well
            }
            None if line.starts_with(|first: char| first.is_ascii_digit()) => {
                let mut costs = line.split(' ').skip(1);
                for event in &events {
                    let cost = costs.next().map_or(0.0, |cost| number(Some(cost)));
                    match *event {
                        "Ir" => {
                            let place = Place::of(object, source, function);
                            *counts.instructions.entry(place).or_default() += cost;
                        }
                        "I1mr" => counts.cache_misses += cost,
                        "sysCount" => counts.system_calls += cost,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    counts.system_calls -= counts.clock_reads;
    counts
}

fn number(text: Option<&str>) -> f64 {
    text.and_then(|text| text.parse().ok()).expect("a number")
}

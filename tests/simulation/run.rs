//! Runs seeds on all cores, and prints what they came to.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_memory::MemoryServer;

use crate::mutants::Mutant;
use crate::oracle::come_too_early;
use crate::plan::{Deployment, Kind, Mode, Options, Plan};
use crate::world::{self, Report};

#[derive(Default)]
struct Sum {
    seeds: u64,
    events: u64,
    counts: BTreeMap<&'static str, u64>,
    excused: BTreeMap<&'static str, u64>,
    hashes: BTreeMap<u64, u64>,
    failed: BTreeMap<u64, Vec<String>>,
}

struct Task {
    from: u64,
    count: u64,
    /// Begins no seed after this.
    limit: Duration,
    options: Options,
    mutants: Vec<Mutant>,
    is_printed: bool,
    threads: usize,
}

fn run(task: &Task) -> Sum {
    let (next, is_over, sum) =
        (AtomicU64::new(task.from), AtomicBool::new(false), Mutex::new(Sum::default()));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..task.threads {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) && start.elapsed() < task.limit {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= task.from + task.count {
                        break;
                    }
                    let prepare = |server: &MemoryServer| {
                        task.mutants.iter().for_each(|mutant| mutant.prepare(server));
                    };
                    let report = world::run(&Plan::draw(seed, &task.options), task.is_printed, &prepare);
                    let mut sum = sum.lock().expect("no thread panics");
                    sum.add(report, &task.options);
                    if !task.mutants.is_empty() && !sum.failed.is_empty() {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    sum.into_inner().expect("no thread panics")
}

impl Sum {
    fn add(&mut self, report: Report, options: &Options) {
        let Report { plan, hash, oracle } = report;
        self.seeds += 1;
        self.events += oracle.trace.events;
        self.hashes.insert(plan.seed, hash);
        for (what, count) in oracle.counts {
            *self.counts.entry(what).or_default() += count;
        }
        for (what, count) in oracle.excused {
            *self.excused.entry(what).or_default() += count;
        }
        let mut violations = oracle.violations;
        violations.extend(come_too_early(&self.counts));
        if !violations.is_empty() {
            let kinds: Vec<_> = options.kinds.iter().map(|kind| kind.text()).collect();
            let mode = options.mode.map_or_else(String::new, |mode| format!(" --mode {}", mode.text()));
            let deployment = options.deployment.option();
            // A seed is another world in an optimized build.
            let debug = if cfg!(debug_assertions) { " --debug" } else { "" };
            println!(
                "seed {} ({}, {}) fails: scripts/simulate{debug}{deployment} --from {} --count 1 --kinds {}{mode} --trace",
                plan.seed,
                plan.kind.text(),
                plan.mode.text(),
                plan.seed,
                kinds.join(",")
            );
            for violation in &violations {
                println!("    {violation}");
            }
            self.failed.insert(plan.seed, violations);
        }
    }
}

fn variable<T: std::str::FromStr>(name: &str, default: T) -> T {
    match std::env::var(format!("SIMULATE_{name}")) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("SIMULATE_{name}={text} is not understood")),
        Err(_) => default,
    }
}

/// `scripts/simulate` runs this.
#[test]
#[ignore = "scripts/simulate runs it"]
fn simulate() {
    world::count_panics();
    let mutants = std::env::var("SIMULATE_MUTANT").map_or_else(|_| Vec::new(), |names| Mutant::find(&names));
    // Of several, the worlds of the last one.
    let drawn = mutants.last().map_or(("", "", 0), |mutant| (&*mutant.kinds, &*mutant.mode, mutant.seed));
    let kinds: String = variable("KINDS", drawn.0.to_owned());
    let kinds =
        if kinds.is_empty() { Kind::ALL.to_vec() } else { kinds.split(',').map(Kind::parse).collect() };
    let mode: String = variable("MODE", drawn.1.to_owned());
    let mode = (!mode.is_empty()).then(|| Mode::parse(&mode));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let deployment = match &*variable("DEPLOYMENT", String::new()) {
        "" => mutants.last().map_or_else(Deployment::default, |mutant| mutant.deployment),
        "cluster" => Deployment::Cluster,
        "sentinels" => Deployment::Sentinels,
        other => panic!("SIMULATE_DEPLOYMENT={other} is not understood"),
    };
    // A mutant that an older world notices begins with it.
    let bursts = mutants.last().is_none_or(|mutant| mutant.bursts);
    let task = Task {
        from: variable("FROM", drawn.2),
        count: variable("COUNT", 1_000),
        limit: Duration::from_secs(variable("SECONDS", u64::MAX / 2)),
        options: Options { kinds, mode, deployment, bursts },
        is_printed: variable("TRACE", false),
        mutants,
        threads: variable("THREADS", cores),
    };
    let start = Instant::now();
    let sum = run(&task);
    let took = start.elapsed().as_secs_f64();
    println!(
        "{} seeds in {took:.1} s, {:.1} seeds/s, {} events",
        sum.seeds,
        sum.seeds as f64 / took,
        sum.events
    );
    if !task.mutants.is_empty() {
        let (seed, rules) = sum.failed.first_key_value().expect("no seed notices the mutant");
        let rule = rules[0].split(": ").nth(1).unwrap_or_default();
        println!("noticed: | seed {seed}, {rule} |");
        return;
    }
    println!("counts: {:?}", sum.counts);
    println!("excused: {:?}", sum.excused);
    if variable("HASHES", false) {
        for (seed, hash) in &sum.hashes {
            println!("hash {seed} {hash:016x}");
        }
    }
    assert!(sum.failed.is_empty(), "{} seeds fail: {:?}", sum.failed.len(), sum.failed.keys());
}

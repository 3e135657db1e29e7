//! Workers of several processes claim names of one group, and others hold some of the names as an `RLock`, while connections break and the
//! server stands still. Many calls are dropped. Leases are longer than a world, so that nothing ends by itself. An oracle checks:
//!
//! - No name has two holders.
//! - A claim has a greater token than every claim that was returned before it began, and no other claim has this token.
//! - What a call claimed is one of its names.
//! - Half a minute after the last call nothing is left but the counter: each copy was undone, whichever name it had acquired.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use lockkeeper::{LockClient, LockConfig, Process};
use lockkeeper_memory::{MemoryServer, Network};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::drawn::{run_all, wanted};
use crate::plan::{MS, SECOND, one, up_to};
use crate::process_stream;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Faults happen until then.
const FAULTS_END: Duration = Duration::from_secs(10);
/// Calls begin until then.
const END: Duration = Duration::from_secs(15);
/// No copy of a call is undone for longer than this.
const UNDONE: Duration = Duration::from_secs(35);
/// Longer than a world.
const LEASE: Duration = Duration::from_secs(300);
const LONGEST_FAULT: Duration = Duration::from_secs(4);
/// What is sent arrives up to this much later, each way.
const CALM: Network = Network {
    most_delay: Duration::from_millis(2),
    holds_requests: false,
    holds_replies: false,
    holds_existing: false,
    refuses: false,
    only_messages: false,
    denies_messages: false,
};

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    claims: u32,
    refused: u32,
    dropped: u32,
    failed: u32,
    faults: u32,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.claims += other.claims;
        self.refused += other.refused;
        self.dropped += other.dropped;
        self.failed += other.failed;
        self.faults += other.faults;
    }
}

#[derive(Default)]
struct Truth {
    /// Who holds each name.
    held: BTreeMap<String, String>,
    tokens: BTreeSet<u64>,
    wrong: Vec<String>,
    counts: Counts,
}

#[derive(Clone)]
struct World {
    start: Instant,
    server: MemoryServer,
    networks: Vec<MemoryServer>,
    truth: Arc<Mutex<Truth>>,
}

impl World {
    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.start.elapsed() > END
    }

    fn violate(&self, text: String) {
        let text = format!("{:?}: {text}", self.start.elapsed());
        self.truth().wrong.push(text);
    }

    fn acquired(&self, name: &str, owner: String) {
        if let Some(other) = self.truth().held.insert(name.to_owned(), owner.clone()) {
            self.violate(format!("{owner} and {other} hold {name}"));
        }
    }

    async fn work(self, locks: LockClient, mut rng: Rng) {
        let jobs = locks.claims("jobs");
        while !self.is_over() {
            let mut names = NAMES;
            rng.shuffle(&mut names);
            let names = &names[..rng.usize(1..=NAMES.len())];
            let least = self.truth().tokens.last().copied().unwrap_or(0);
            let patience = one(&mut rng, &[3 * MS, 10 * MS, 20 * SECOND]);
            let claimed = timeout(up_to(&mut rng, patience), jobs.claim(names)).await;
            let claim = match claimed {
                Ok(Ok(Some(claim))) => claim,
                Ok(Ok(None)) => {
                    self.truth().counts.refused += 1;
                    sleep(up_to(&mut rng, 100 * MS)).await;
                    continue;
                }
                Ok(Err(_)) => {
                    self.truth().counts.failed += 1;
                    continue;
                }
                Err(_) => {
                    self.truth().counts.dropped += 1;
                    sleep(up_to(&mut rng, 300 * MS)).await;
                    continue;
                }
            };
            self.truth().counts.claims += 1;
            self.acquired(claim.name(), claim.owner_id());
            let token = claim.token().get();
            if token <= least || !self.truth().tokens.insert(token) {
                self.violate(format!("{token} is the token of {}, after {least}", claim.name()));
            }
            if !names.contains(&claim.name()) {
                self.violate(format!("{} was claimed of {names:?}", claim.name()));
            }
            sleep(up_to(&mut rng, 300 * MS)).await;
            self.truth().held.remove(claim.name());
            if rng.bool() {
                // A release that fails is repeated in the background, so the name is in use for longer.
                drop(timeout(up_to(&mut rng, 5 * SECOND), claim.unlock()).await);
            }
        }
    }

    /// Holds names as an `RLock`, from where nothing breaks.
    async fn rival(self, locks: LockClient, mut rng: Rng) {
        while !self.is_over() {
            let name = one(&mut rng, &NAMES);
            if let Ok(Some(guard)) = locks.rlock(format!("{{jobs}}:{name}")).try_lock().await {
                self.acquired(name, guard.owner_id());
                sleep(up_to(&mut rng, 200 * MS)).await;
                self.truth().held.remove(name);
            }
            sleep(up_to(&mut rng, 300 * MS)).await;
        }
    }

    async fn break_things(self, mut rng: Rng) {
        while self.start.elapsed() < FAULTS_END {
            sleep(up_to(&mut rng, SECOND)).await;
            self.truth().counts.faults += 1;
            let network = &self.networks[rng.usize(..self.networks.len())];
            let time = up_to(&mut rng, LONGEST_FAULT);
            match rng.u8(..6) {
                0 => {
                    self.server.freeze(true);
                    sleep(time).await;
                    self.server.freeze(false);
                }
                1 => network.cut(),
                2 => network.cut_after_delivery(),
                kind => {
                    let (holds_requests, holds_replies) = (kind != 3, kind != 4);
                    let holds_existing = rng.bool();
                    network.set_network(Network { holds_requests, holds_replies, holds_existing, ..CALM });
                    sleep(time).await;
                    network.set_network(CALM);
                }
            }
        }
    }
}

/// Returns what was wrong.
fn run(seed: u64) -> (Counts, Vec<String>) {
    fastrand::seed(seed);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xc1a1);
        let server = MemoryServer::simulated(1_700_000_000 * SECOND, seed);
        let mut world = World { start: Instant::now(), server, networks: Vec::new(), truth: Arc::default() };
        let process = Process::new(60 * SECOND, 0);
        process.run(live(&mut world, &process, &mut rng)).await;
        let truth = world.truth();
        (truth.counts, truth.wrong.clone())
    })
}

async fn live(world: &mut World, process: &Process, rng: &mut Rng) {
    let (mut clients, processes) = (Vec::new(), rng.usize(1..=3));
    let connect = async |server: &MemoryServer, rng: &mut Rng| {
        let config =
            LockConfig::builder().watchdog_lease(LEASE).retry_timeout(one(rng, &[SECOND, 5 * SECOND]));
        let config = config.connections(one(rng, &[1, 2, 4])).build().expect("settings");
        LockClient::connect_with(process_stream::source(server, process), config).await.expect("no fault yet")
    };
    for _ in 0..processes {
        let network = world.server.over_network(rng.u64(..));
        network.set_network(CALM);
        clients.push(connect(&network, rng).await);
        world.networks.push(network);
    }
    let direct = connect(&world.server, rng).await;
    let mut tasks = JoinSet::new();
    for locks in &clients {
        for _ in 0..rng.usize(1..=3) {
            tasks.spawn(process.run(world.clone().work(locks.clone(), rng.fork())));
        }
    }
    tasks.spawn(process.run(world.clone().rival(direct.clone(), rng.fork())));
    tasks.spawn(process.run(world.clone().break_things(rng.fork())));
    while tasks.join_next().await.is_some() {}
    sleep(UNDONE).await;
    let keys = String::from_utf8_lossy(&world.server.execute(&["KEYS", "*"])).into_owned();
    let left: Vec<&str> = keys.split("\r\n").filter(|key| key.starts_with("{jobs}:")).collect();
    if !left.is_empty() {
        world.violate(format!("left: {left:?}"));
    }
    for locks in clients.into_iter().chain([direct]) {
        if let Err(error) = locks.shutdown().await {
            world.violate(format!("a shutdown failed: {error}"));
        }
    }
}

#[test]
fn a_name_has_one_holder_and_no_copy_of_a_claim_is_left() {
    let counts = run_all((0, 60), 1, run);
    println!("{counts:?}");
    // Otherwise the worlds show nothing.
    assert!(counts.claims > 2_000 && counts.refused > 500 && counts.dropped > 1_000, "{counts:?}");
}

/// `CLAIMS_FROM` and `CLAIMS_COUNT` say which.
#[test]
#[ignore = "takes minutes"]
fn ten_thousand_worlds_leave_no_copy_of_a_claim() {
    println!("{:?}", run_all(wanted("CLAIMS"), 2, run));
}

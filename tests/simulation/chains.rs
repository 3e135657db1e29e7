//! Owners that acquire several locks one after the other. An oracle knows who holds and who waits, and so each deadlock that there is:
//!
//! - No event and no chain names a deadlock that was not there.
//! - A deadlock that lasts is named by each of its owners within two leases, and found by `wait_chains`.
//!
//! A third of the worlds have faults. There, a report can be about a deadlock that ended a moment before, and can come late: a process
//! that is cut off tells the server nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write, sink};
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use lockkeeper::{LockClient, LockConfig, LockGuard, Owner, Process, Source, WaitChain};
use lockkeeper_memory::{MemoryServer, Network};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing_subscriber::filter::LevelFilter;

use crate::drawn::{run_all, wanted};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Owners begin nothing new after this time.
const END: Duration = Duration::from_secs(40);

/// What is sent arrives up to this much later, each way.
const DELAY: Duration = Duration::from_millis(5);

/// A report needs so much longer than the two looks, which are a second apart.
const SLACK: Duration = Duration::from_millis(400);

/// A fault lasts no longer than this.
const LONGEST_FAULT: Duration = Duration::from_secs(3);

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Those of them that are read-write locks.
const READ_WRITE: [&str; 2] = ["a", "c"];

/// Each lock and the id that holds it. Readers of one client can hold a lock as one id.
type Ring = BTreeSet<(String, String)>;

/// The waiting call of each owner.
type Calls = BTreeMap<usize, usize>;

#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    clients: usize,
    owners: usize,
    locks: usize,
    lease: Duration,
    /// All owners acquire the locks in the same order: there is no deadlock.
    is_ordered: bool,
    has_faults: bool,
}

impl Plan {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        Self {
            seed,
            clients: rng.usize(1..=3),
            owners: rng.usize(2..=5),
            locks: rng.usize(2..=NAMES.len()),
            lease: SECOND * rng.u32(2..=4),
            is_ordered: seed.is_multiple_of(3),
            has_faults: rng.u8(..3) == 0,
        }
    }
}

/// A deadlock that there was.
struct Deadlock {
    ring: Ring,
    /// The calls that wait in it.
    calls: Calls,
    /// An owner in it only reads the lock that it holds.
    has_reader: bool,
    from: Duration,
    to: Option<Duration>,
}

/// An owner that holds a lock.
#[derive(Clone)]
struct Held {
    owner: usize,
    id: String,
    reads: bool,
}

/// An owner that waits for a lock.
#[derive(Clone, Copy)]
struct Waits {
    lock: &'static str,
    reads: bool,
    /// The number of the call.
    call: usize,
}

/// An event that names a deadlock.
struct Named {
    at: Duration,
    ring: Ring,
    /// What the owner holds that reports it.
    own: String,
}

/// Who holds and who waits.
struct Truth {
    start: Instant,
    held: BTreeMap<&'static str, Vec<Held>>,
    /// By the owner.
    waits: BTreeMap<usize, Waits>,
    /// When each call began.
    calls: Vec<Duration>,
    /// The owners that held something as an id.
    owners: BTreeMap<String, BTreeSet<usize>>,
    deadlocks: Vec<Deadlock>,
    named: Vec<Named>,
    wrong: Vec<String>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    worlds: u64,
    acquired: u64,
    deadlocks: u64,
    lasting: u64,
    /// Those of them that go through a read lock.
    through_readers: u64,
    events: u64,
    chains: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.worlds += other.worlds;
        self.acquired += other.acquired;
        self.deadlocks += other.deadlocks;
        self.lasting += other.lasting;
        self.through_readers += other.through_readers;
        self.events += other.events;
        self.chains += other.chains;
    }
}

impl Truth {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Compares the deadlocks with what is held and waited for now.
    fn changes(&mut self) {
        let (now, open) = (self.now(), self.rings());
        // One whose calls are others is a new one.
        for deadlock in self.deadlocks.iter_mut().filter(|deadlock| deadlock.to.is_none()) {
            if !open.iter().any(|(ring, calls, _)| *ring == deadlock.ring && *calls == deadlock.calls) {
                deadlock.to = Some(now);
            }
        }
        for (ring, calls, has_reader) in open {
            let is_known =
                |known: &Deadlock| known.to.is_none() && known.ring == ring && known.calls == calls;
            if !self.deadlocks.iter().any(is_known) {
                self.counts.deadlocks += 1;
                self.deadlocks.push(Deadlock { ring, calls, has_reader, from: now, to: None });
            }
        }
    }

    /// The owners that wait for each other now, and whether one of them only reads what it holds.
    fn rings(&self) -> Vec<(Ring, Calls, bool)> {
        let mut rings = Vec::new();
        for start in self.held.keys() {
            self.follow(start, start, &mut Vec::new(), &mut rings);
        }
        rings
    }

    /// Follows each holder of a lock to the lock for which it waits, until the path leads back to its start.
    fn follow<'a>(
        &'a self,
        start: &str,
        lock: &'static str,
        path: &mut Vec<(&'static str, &'a Held, Waits)>,
        rings: &mut Vec<(Ring, Calls, bool)>,
    ) {
        for held in self.held.get(lock).into_iter().flatten() {
            let Some(waits) = self.waits.get(&held.owner).copied().filter(|waits| self.blocks(waits)) else {
                continue;
            };
            path.push((lock, held, waits));
            if waits.lock == start {
                let ring = path.iter().map(|(lock, held, _)| ((*lock).to_owned(), held.id.clone())).collect();
                let calls = path.iter().map(|(_, held, waits)| (held.owner, waits.call)).collect();
                rings.push((ring, calls, path.iter().any(|(_, held, _)| held.reads)));
            } else if !path.iter().any(|(before, ..)| *before == waits.lock) {
                self.follow(start, waits.lock, path, rings);
            }
            path.pop();
        }
    }

    /// Whether somebody holds the lock in a way that excludes the waiter. A reader also waits while a writer stops new readers, but not for
    /// a holder.
    fn blocks(&self, waits: &Waits) -> bool {
        self.held.get(waits.lock).into_iter().flatten().any(|held| !(held.reads && waits.reads))
    }

    fn begins(&mut self, owner: usize, lock: &'static str, reads: bool) {
        self.waits.insert(owner, Waits { lock, reads, call: self.calls.len() });
        self.calls.push(self.now());
        self.changes();
    }

    fn ends(&mut self, owner: usize, lock: &'static str, reads: bool, id: Option<String>) {
        self.waits.remove(&owner);
        if let Some(id) = id {
            self.counts.acquired += 1;
            self.owners.entry(id.clone()).or_default().insert(owner);
            let held = self.held.entry(lock).or_default();
            held.retain(|other| reads && other.reads); // the others have lost it
            held.push(Held { owner, id, reads });
        }
        self.changes();
    }

    fn releases(&mut self, owner: usize, lock: &'static str) {
        // After a lost hold, another owner can hold it.
        self.held.entry(lock).or_default().retain(|held| held.owner != owner);
        self.changes();
    }

    /// Whether there was such a deadlock from one time to the other; with faults, at any time between them.
    fn was_there(&self, ring: &Ring, from: Duration, to: Duration, has_faults: bool) -> bool {
        self.deadlocks.iter().filter(|deadlock| deadlock.ring == *ring).any(|deadlock| {
            let end = deadlock.to.unwrap_or(Duration::MAX);
            if has_faults { deadlock.from <= to && end >= from } else { deadlock.from <= from && end >= to }
        })
    }
}

#[derive(Clone)]
struct World {
    plan: Plan,
    truth: Arc<Mutex<Truth>>,
}

impl World {
    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.truth().now() >= END
    }

    /// How long ago the first look at what is reported now can be.
    fn oldest(&self) -> Duration {
        // With faults: the time limits of both looks.
        if self.plan.has_faults { 10 * SECOND } else { SECOND }
    }

    async fn own(self, owner: usize, locks: LockClient, mut rng: Rng) {
        let mut me = locks.owner();
        while !self.is_over() {
            sleep(up_to(&mut rng, 3_000)).await;
            self.turn(owner, &mut me, &mut rng).await;
        }
    }

    /// Acquires some locks, one after the other, and releases them.
    async fn turn(&self, owner: usize, me: &mut Owner, rng: &mut Rng) {
        let mut wanted = NAMES[..self.plan.locks].to_vec();
        rng.shuffle(&mut wanted);
        wanted.truncate(rng.usize(1..=3));
        if self.plan.is_ordered {
            wanted.sort_unstable();
        }
        let mut guards = Vec::new();
        for lock in wanted {
            let limit = if rng.u8(..3) == 0 { SECOND * 3 } else { self.plan.lease * 8 };
            let reads = READ_WRITE.contains(&lock) && rng.u8(..3) > 0;
            self.truth().begins(owner, lock, reads);
            let guard = acquire(me, lock, reads, limit.mul_f64(rng.f64()) + MS).await;
            self.truth().ends(owner, lock, reads, guard.as_ref().map(LockGuard::owner_id));
            let Some(guard) = guard else { break };
            guards.push((lock, guard));
            sleep(if rng.bool() { up_to(rng, 50) } else { up_to(rng, 4_000) }).await;
        }
        if rng.bool() {
            guards.reverse();
        }
        for (lock, guard) in guards {
            self.truth().releases(owner, lock);
            if rng.bool() {
                let _ = guard.unlock().await;
            }
        }
    }

    /// Looks for deadlocks from outside.
    async fn look(self, locks: LockClient, mut rng: Rng) {
        while !self.is_over() {
            sleep(up_to(&mut rng, 5_000)).await;
            let (from, looks_at_all) = (self.truth().now(), rng.bool());
            let chains = if looks_at_all {
                locks.wait_chains().await
            } else {
                locks.why(NAMES[rng.usize(..self.plan.locks)]).await
            };
            let Ok(chains) = chains else { continue };
            self.check_chains(&chains, from);
            if looks_at_all && !self.plan.has_faults {
                self.check_found(&chains, from);
            }
        }
    }

    fn check_chains(&self, chains: &[WaitChain], from: Duration) {
        let mut truth = self.truth();
        let to = truth.now();
        for chain in chains.iter().filter(|chain| chain.is_deadlock) {
            truth.counts.chains += 1;
            let ring: Ring =
                chain.links.iter().map(|link| (link.lock.clone(), link.holder.owner.clone())).collect();
            // A process that is cut off cannot tell the server that its part has ended.
            let earliest =
                if self.plan.has_faults { from.saturating_sub(LONGEST_FAULT + SECOND) } else { from };
            // A chain can lead to a deadlock of which its first links are no part.
            let is_there = truth.deadlocks.iter().any(|deadlock| {
                deadlock.ring.is_subset(&ring)
                    && truth.was_there(
                        &deadlock.ring,
                        earliest,
                        to.saturating_sub(SLACK).max(from),
                        self.plan.has_faults,
                    )
            });
            if !is_there {
                truth.wrong.push(format!("{from:?} to {to:?}: no such deadlock: {chain:#?}"));
            }
        }
    }

    /// What was there for long enough before the look, and until its end, was found.
    fn check_found(&self, chains: &[WaitChain], from: Duration) {
        let mut truth = self.truth();
        let is_found = |ring: &Ring| {
            chains.iter().filter(|chain| chain.is_deadlock).any(|chain| {
                let is_in = |(lock, id): &(String, String)| {
                    chain.links.iter().any(|link| link.lock == *lock && link.holder.owner == *id)
                };
                ring.iter().all(is_in)
            })
        };
        let lasts = |deadlock: &&Deadlock| deadlock.to.is_none() && deadlock.from + SECOND + SLACK < from;
        let missing = truth.deadlocks.iter().filter(lasts).find(|deadlock| !is_found(&deadlock.ring));
        if let Some(Deadlock { ring, .. }) = missing {
            let text = format!("from {from:?}: {ring:?} was not found: {chains:#?}");
            truth.wrong.push(text);
        }
    }

    /// Breaks something for a while.
    async fn break_things(self, server: MemoryServer, networks: Vec<MemoryServer>, mut rng: Rng) {
        while self.plan.has_faults && !self.is_over() {
            sleep(SECOND + up_to(&mut rng, 9_000)).await;
            let time = LONGEST_FAULT.mul_f64(rng.f64());
            let network = &networks[rng.usize(..networks.len())];
            let calm = Network { most_delay: DELAY, ..Network::default() };
            match rng.u8(..4) {
                0 => {
                    server.freeze(true);
                    sleep(time).await;
                    server.freeze(false);
                }
                1 => network.cut(),
                2 => {
                    network.set_network(Network { holds_requests: true, ..calm });
                    sleep(time).await;
                    network.set_network(calm);
                }
                _ => {
                    network.set_network(Network { most_delay: 500 * MS, ..calm });
                    sleep(time).await;
                    network.set_network(calm);
                }
            }
        }
    }

    /// What events say, after the end.
    fn check_events(&self) {
        let mut truth = self.truth();
        let truth = &mut *truth;
        let mut wrong = Vec::new();
        for Named { at, ring, own } in &truth.named {
            truth.counts.events += 1;
            let to = at.saturating_sub(SLACK);
            if !truth.was_there(ring, at.saturating_sub(self.oldest()), to, self.plan.has_faults) {
                wrong.push(format!("{at:?}: no such deadlock: {ring:?}, says the owner of {own}"));
            }
        }
        if self.plan.is_ordered && !truth.deadlocks.is_empty() {
            wrong.push("a deadlock among owners that acquire in the same order".to_owned());
        }
        for Deadlock { ring, calls, has_reader, from, to } in &truth.deadlocks {
            let by = *from + 2 * self.plan.lease + SECOND + SLACK;
            if self.plan.has_faults || to.is_none_or(|to| to < by) {
                continue;
            }
            truth.counts.lasting += 1;
            truth.counts.through_readers += u64::from(*has_reader);
            for (own, call) in calls {
                // A call reports one deadlock, and can be in another one before or after that.
                let is_told = |named: &Named| {
                    truth.owners.get(&named.own).is_some_and(|owners| owners.contains(own))
                        && truth.calls[*call] <= named.at
                        && named.at <= by
                };
                if !truth.named.iter().any(is_told) {
                    wrong.push(format!("{from:?}: owner {own} does not name {ring:?} by {by:?}"));
                }
            }
        }
        truth.wrong.append(&mut wrong);
    }
}

fn up_to(rng: &mut Rng, ms: u64) -> Duration {
    Duration::from_millis(rng.u64(..ms))
}

/// `None`: another owner held it until the time was up, or nobody answered.
async fn acquire(me: &mut Owner, name: &str, reads: bool, limit: Duration) -> Option<LockGuard> {
    match name {
        _ if reads => me.read_write_lock(name).into_read().try_lock_for(limit).await,
        _ if READ_WRITE.contains(&name) => me.read_write_lock(name).into_write().try_lock_for(limit).await,
        "b" => me.fair_lock(name).try_lock_for(limit).await,
        "d" => me.fenced_lock(name).try_lock_for(limit).await.map(|guard| guard.map(LockGuard::into_plain)),
        _ => me.rlock(name).try_lock_for(limit).await,
    }
    .ok()
    .flatten()
}

/// Reads the events of a world.
struct Events(World);

impl Write for Events {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        if text.contains("a deadlock: this call waits") {
            let mut truth = self.0.truth();
            let at = truth.now();
            let (mut ring, mut own) = (Ring::new(), String::new());
            let (_, chain) = text.split_once("chain=\"").expect("a chain");
            for link in chain.split('"').next().expect("a text").split("; ") {
                let lock = link.split('`').nth(1).expect("a lock");
                let (_, holder) = link.split_once(" is held by ").expect("a holder");
                let holder = holder.split(", which").next().expect("a text");
                // Without the names of connections, the id stands alone.
                let id = holder.split_once('(').map_or(holder, |(_, id)| id.trim_end_matches(')'));
                if holder.contains("this client") {
                    id.clone_into(&mut own);
                }
                ring.insert((lock.to_owned(), id.to_owned()));
            }
            truth.named.push(Named { at, ring, own });
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns what was wrong.
fn run(plan: Plan) -> (Counts, Vec<String>) {
    // Otherwise a thread that is the first to reach an event can turn it off for all threads.
    static OTHER_THREADS: Once = Once::new();
    OTHER_THREADS.call_once(|| {
        let _ = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(sink).try_init();
    });
    fastrand::seed(plan.seed);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let truth = Truth {
            start: Instant::now(),
            held: BTreeMap::new(),
            waits: BTreeMap::new(),
            calls: Vec::new(),
            owners: BTreeMap::new(),
            deadlocks: Vec::new(),
            named: Vec::new(),
            wrong: Vec::new(),
            counts: Counts { worlds: 1, ..Counts::default() },
        };
        let world = World { plan, truth: Arc::new(Mutex::new(truth)) };
        let events = world.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(LevelFilter::WARN)
            .with_writer(move || Events(events.clone()))
            .finish();
        let _collecting = tracing::subscriber::set_default(subscriber);
        live(&world).await;
        world.check_events();
        let truth = world.truth();
        (truth.counts, truth.wrong.clone())
    })
}

async fn live(world: &World) {
    let plan = &world.plan;
    let server = MemoryServer::simulated(Duration::from_secs(1_700_000_000), plan.seed);
    let mut rng = Rng::with_seed(plan.seed ^ 0xc4a1);
    // In a process, all follows from the seed.
    let process = Process::new(60 * SECOND, 0);
    let (mut clients, mut networks) = (Vec::new(), Vec::new());
    // The last one only looks.
    for _ in 0..=plan.clients {
        let network = server.over_network(rng.u64(..));
        network.set_network(Network { most_delay: DELAY, ..Network::default() });
        let config = LockConfig::builder().watchdog_lease(plan.lease).build().expect("settings");
        let source = Source::stream(network.connector());
        let connected = process.run(LockClient::connect_with(source, config)).await;
        clients.push(connected.expect("no fault yet"));
        networks.push(network);
    }
    let mut tasks = JoinSet::new();
    for owner in 0..plan.owners {
        let locks = clients[owner % plan.clients].clone();
        tasks.spawn(process.run(world.clone().own(owner, locks, rng.fork())));
    }
    tasks.spawn(process.run(world.clone().look(clients[plan.clients].clone(), rng.fork())));
    tasks.spawn(world.clone().break_things(server, networks, rng.fork()));
    let all = async { while tasks.join_next().await.is_some() {} };
    timeout(300 * SECOND, all).await.expect("all owners end");
}

/// Returns what was wrong with a world, too.
fn run_drawn(seed: u64) -> (Counts, Vec<String>) {
    run(Plan::draw(seed))
}

#[test]
fn a_deadlock_is_named_if_and_only_if_it_is_there() {
    let counts = run_all((0, 90), 1, run_drawn);
    println!("{counts:?}");
    // Otherwise the worlds show nothing.
    assert!(counts.lasting >= 10 && counts.events >= 30 && counts.chains >= 20, "{counts:?}");
    assert!(counts.through_readers >= 5, "{counts:?}");
}

/// `CHAINS_FROM` and `CHAINS_COUNT` say which.
#[test]
#[ignore = "takes minutes"]
fn ten_thousand_worlds_name_no_false_deadlock() {
    println!("{:?}", run_all(wanted("CHAINS"), 2, run_drawn));
}

//! One world: servers, processes, workers and faults on one thread, from the beginning to the end.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::{Arguments, Display};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper::{LockClient, Process};
use lockkeeper_memory::{MemoryCluster, MemoryServer, Network};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::bursts::{self, Bursts};
use crate::cluster::WorldCluster;
use crate::faults;
use crate::locks::{Claim, NAMES};
use crate::onlooker::{self, Onlooker};
use crate::oracle::Oracle;
use crate::permits::{clock_ms, number, texts};
use crate::plan::{Deployment, FaultKind, Kind, Plan, SECOND};
use crate::process_stream;
use crate::trace::Script;
use crate::unlocked::Unlocked;
use crate::worker::Worker;

/// Workers end what they do within this time.
const FINISH: Duration = Duration::from_secs(120);

pub struct World {
    pub plan: Plan,
    start: Instant,
    /// Those of a cluster are its nodes.
    pub servers: Vec<MemoryServer>,
    pub cluster: Option<Arc<WorldCluster>>,
    pub processes: Vec<Process>,
    /// The network between each process and each server.
    pub networks: Vec<Vec<MemoryServer>>,
    oracle: Arc<Mutex<Oracle>>,
    /// The targets of faults that go on.
    targets: Mutex<BTreeSet<(u8, usize, usize)>>,
    killed: Mutex<BTreeSet<usize>>,
    is_over: AtomicBool,
}

/// What became of a seed.
pub struct Report {
    pub plan: Plan,
    pub hash: u64,
    pub oracle: Oracle,
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Counts panics of this thread, also those of tasks, whose panics tokio catches.
pub fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.set(PANICS.get() + 1);
        before(info);
    }));
}

/// What is done to the servers before they start, such as to replace a text in their scripts.
pub type Prepare<'a> = dyn Fn(&MemoryServer) + Sync + 'a;

/// Runs a world from the beginning to the end.
pub fn run(plan: &Plan, is_printed: bool, prepare: &Prepare<'_>) -> Report {
    fastrand::seed(plan.seed);
    let panics = PANICS.get();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let oracle = Arc::new(Mutex::new(Oracle::new(plan, is_printed)));
    let _events = tracing::subscriber::set_default(Unlocked);
    let _metrics = metrics::set_default_local_recorder(&Unlocked);
    runtime.block_on(live(plan, &oracle, prepare));
    drop(runtime);
    // Killed processes may keep the servers, and those their observers.
    let mut oracle = std::mem::replace(
        &mut *oracle.lock().unwrap_or_else(PoisonError::into_inner),
        Oracle::new(plan, false),
    );
    if PANICS.get() > panics {
        oracle.violate(Duration::ZERO, "panics", "something panicked");
    }
    Report { plan: plan.clone(), hash: oracle.trace.hash(), oracle }
}

async fn live(plan: &Plan, oracle: &Arc<Mutex<Oracle>>, prepare: &Prepare<'_>) {
    let world = Arc::new(World::new(plan, oracle, prepare));
    let mut clients = Vec::new();
    for process in 0..plan.processes {
        clients.push(world.connect(process).await);
    }
    let mut workers: Vec<JoinHandle<()>> = Vec::new();
    for number in 0..plan.workers {
        let process = number % plan.processes;
        let worker = Worker::new(number, process, &world, &clients[process]);
        workers.push(tokio::spawn(world.processes[process].run(worker.run())));
    }
    let gossip = world.cluster.clone().map(|cluster| {
        let world = Arc::clone(&world);
        tokio::spawn(async move { tokio::join!(cluster.gossip(&world), cluster.look_at_holds(&world)) })
    });
    let extras = &plan.extras;
    let mut others: Vec<(usize, JoinHandle<()>)> = Vec::new();
    for (process, clients) in clients.iter().enumerate().filter(|_| extras.looks || extras.forces) {
        let onlooker = Onlooker::new(process, &world, clients);
        others.push((process, tokio::spawn(world.processes[process].run(onlooker.run()))));
    }
    let bursts = Arc::<Bursts>::default();
    for (number, process) in (0..2 * plan.processes).map(|number| (number, number % plan.processes)) {
        if plan.has_bursts() {
            let burst = bursts::run(
                number,
                process,
                Arc::clone(&world),
                clients[process][0].clone(),
                Arc::clone(&bursts),
            );
            others.push((process, tokio::spawn(world.processes[process].run(burst))));
        }
    }
    if let Some(at) = extras.shuts_down {
        let clients = clients[0].clone();
        let shutdown = onlooker::shut_down(Arc::clone(&world), 0, clients, at);
        others.push((0, tokio::spawn(world.processes[0].run(shutdown))));
    }
    let faults = tokio::spawn(faults::run(Arc::clone(&world)));
    while world.now() < plan.end() {
        sleep(SECOND).await;
        let now = world.now();
        world.oracle().check_waits(now);
        world.oracle().check_lost_is_final(now);
        world.check_late(now);
        world.check_passed(now);
    }
    world.is_over.store(true, Ordering::Relaxed);
    let _ = faults.await;
    let workers = workers.into_iter().enumerate().map(|(number, worker)| (number % plan.processes, worker));
    for (number, (process, worker)) in workers.chain(others).enumerate() {
        if !world.is_killed(process) && timeout(FINISH, worker).await.is_err() {
            let now = world.now();
            world.oracle().violate(now, "h", format!("worker {number} does not end"));
            return;
        }
    }
    let _ = gossip.inspect(JoinHandle::abort);
    world.check_end(clients).await;
}

impl World {
    fn new(plan: &Plan, oracle: &Arc<Mutex<Oracle>>, prepare: &Prepare<'_>) -> Self {
        let start = Instant::now();
        let since_1970 = Duration::from_secs(1_700_000_000 + plan.seed % 1_000);
        let server = |number: usize| {
            let server = MemoryServer::simulated(since_1970, plan.seed ^ number as u64);
            prepare(&server);
            // Not drawn, so that the worlds stay those that they were. Messages of a cluster need version 3.
            server.lack_version_3(plan.seed % 5 == 3 && plan.deployment != Deployment::Cluster);
            server.deny_tracking(plan.seed % 5 == 4);
            if plan.faults.iter().any(|fault| matches!(fault, FaultKind::RestartOld | FaultKind::TakeOverOld))
            {
                server.keep_history();
            }
            server
        };
        let behind_proxy = |number: usize| {
            let cluster = MemoryCluster::new(1, 0, |_| server(number));
            cluster.hide(0);
            cluster.nodes()[0].clone()
        };
        let cluster = plan.can_switch().then(|| Arc::new(WorldCluster::new(plan.deployment, server)));
        let servers = match &cluster {
            Some(cluster) => cluster.cluster.nodes().to_vec(),
            None if plan.separates_slots => (0..plan.servers).map(behind_proxy).collect(),
            None => (0..plan.servers).map(server).collect(),
        };
        for (number, server) in servers.iter().enumerate() {
            // The servers keep their observers, so these must not keep the cluster.
            let (oracle, cluster) = (Arc::clone(oracle), cluster.as_ref().map(Arc::downgrade));
            server.observe(move |client, words, reply, ask| {
                let (now, mut oracle) =
                    (start.elapsed(), oracle.lock().unwrap_or_else(PoisonError::into_inner));
                oracle.refuses_slots(now, (number, client), reply);
                let Some(cluster) = &cluster else {
                    return oracle.command(now, number, client, words, reply, ask);
                };
                let Some(cluster) = cluster.upgrade() else { return };
                let script = Script::of(words);
                if let Some(problem) =
                    script.as_ref().and_then(|script| cluster.asked(now, (number, client), script, reply))
                {
                    oracle.violate(now, "m", problem);
                }
                let client = client + 1_000 * number as u64;
                let counts = |script: Script<'_>| script.keys.iter().all(|key| cluster.counts(number, key));
                if Script::of(words).is_some_and(counts) {
                    let ask = &mut |words: &[&str]| cluster.ask(words, Some((number, &mut *ask)));
                    oracle.command(now, 0, client, words, reply, ask);
                } else {
                    oracle.trace.command(now, number, client, words, Script::of(words).as_ref(), reply);
                }
            });
        }
        let uptime = |number: usize| Duration::from_millis(60_000 + 7_919 * number as u64);
        let processes: Vec<_> =
            (0..plan.processes).map(|number| Process::new(uptime(number), plan.drifts[number])).collect();
        processes.iter().for_each(|process| process.set_limits(plan.limits));
        let network = |process: usize, server: usize| {
            let seed = plan.seed.wrapping_mul(1_000).wrapping_add((process * 10 + server) as u64);
            let network = servers[server].over_network(seed);
            network.set_network(Network { most_delay: plan.most_delay, ..Network::default() });
            network
        };
        let networks = (0..plan.processes)
            .map(|process| (0..servers.len()).map(|server| network(process, server)).collect())
            .collect();
        oracle.lock().unwrap_or_else(PoisonError::into_inner).processes.clone_from(&processes);
        Self {
            plan: plan.clone(),
            start,
            networks,
            servers,
            cluster,
            processes,
            oracle: Arc::clone(oracle),
            targets: Mutex::default(),
            killed: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    async fn connect(&self, process: usize) -> Vec<LockClient> {
        let config = self.plan.config().build().expect("valid");
        let number = process;
        let (process, networks) = (&self.processes[number], &self.networks[number]);
        let connecting = async {
            let mut clients = Vec::new();
            let sources = match &self.cluster {
                Some(cluster) => vec![cluster.source(networks, process, number, self.start)],
                None => networks.iter().map(|network| process_stream::source(network, process)).collect(),
            };
            for source in sources {
                clients.push(LockClient::connect_with(source, config.clone()).await.expect("no fault yet"));
            }
            clients
        };
        process.run(connecting).await
    }

    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn say(&self, who: impl Display, text: Arguments<'_>) {
        let now = self.now();
        self.oracle().say(now, who, text);
    }

    /// Sets the clock of a server forward by these seconds, or back.
    pub fn step_clock(&self, server: usize, seconds: i64) {
        self.servers[server].step_clock(seconds);
        let now = self.now();
        self.oracle().steps_clock(now, server, seconds);
    }

    /// Takes the target of a fault, if no other fault has it.
    pub fn is_free(&self, target: (u8, usize, usize)) -> bool {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).insert(target)
    }

    pub fn frees(&self, target: (u8, usize, usize)) {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).remove(&target);
    }

    pub fn alive(&self) -> usize {
        self.plan.processes - self.killed.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn is_killed(&self, process: usize) -> bool {
        self.killed.lock().unwrap_or_else(PoisonError::into_inner).contains(&process)
    }

    pub fn kill(&self, process: usize) {
        self.killed.lock().unwrap_or_else(PoisonError::into_inner).insert(process);
        self.processes[process].kill();
        for network in &self.networks[process] {
            network.cut_after_delivery();
        }
        self.oracle().waits.runs(process, None);
    }

    /// Asks a server, or that of a cluster which has the key.
    fn ask(&self, server: usize, words: &[&str]) -> Vec<u8> {
        match &self.cluster {
            Some(cluster) => cluster.ask(words, None),
            None => self.servers[server].execute(words),
        }
    }

    /// Whether the server has a hold of this owner, or a permit with this id.
    pub fn has_field(&self, claim: &Claim, owner: &str) -> bool {
        self.has(claim.server, NAMES[claim.name], owner)
    }

    pub fn has(&self, server: usize, key: &str, owner: &str) -> bool {
        if self.plan.kind != Kind::Semaphore || owner.contains(':') {
            return self.ask(server, &["HEXISTS", key, owner]) == b":1\r\n";
        }
        let server = match &self.cluster {
            Some(cluster) => &self.servers[cluster.holder_of(key)],
            None => &self.servers[server],
        };
        let id = u128::from_str_radix(owner, 16).expect("an id").to_be_bytes();
        let permits = format!("{{{key}}}:timeout");
        server.execute(&[&b"ZSCORE"[..], permits.as_bytes(), &id]) != b"$-1\r\n"
    }

    /// What the servers have of a client: its holds, its places in queues, and its intents.
    pub fn left_of(&self, client: &str) -> Vec<String> {
        let mut left = Vec::new();
        for (server, name) in (0..self.plan.servers).flat_map(|server| NAMES.map(|name| (server, name))) {
            let queue = format!("redisson_lock_queue:{{{name}}}");
            // What is left of a reader after its own timeout counts for nobody. It stays while other readers keep the key.
            let is_over = |owner: &str| {
                let timeout = format!("{{{name}}}:{owner}:rwlock_timeout:1");
                self.plan.kind == Kind::ReadWrite
                    && !owner.ends_with(":write")
                    && self.ask(server, &["EXISTS", &timeout]) == b":0\r\n"
            };
            left.extend(
                texts(&self.ask(server, &["HKEYS", name])).into_iter().filter(|owner| !is_over(owner)),
            );
            // A place that has ended stays in the queue until somebody looks at it.
            let lives = |owner: &String| {
                let record =
                    texts(&self.ask(server, &["HGET", &format!("lockkeeper_fair:{{{name}}}"), owner]));
                let until = record.first().and_then(|record| record.split(' ').next()).map(number);
                until.is_none_or(|until| until > clock_ms(&mut |args| self.ask(server, args)))
            };
            left.extend(texts(&self.ask(server, &["LRANGE", &queue, "0", "-1"])).into_iter().filter(lives));
            let intent = texts(&self.ask(server, &["GET", &format!("{{{name}}}:lockkeeper_intent")]));
            left.extend(intent.iter().filter_map(|intent| intent.split(' ').nth(1)).map(str::to_owned));
        }
        left.retain(|owner| owner.starts_with(client));
        left
    }

    fn check_late(&self, now: Duration) {
        let late = self.oracle().late(now);
        for late in late {
            if self.has(late.server, &late.key, &late.owner) {
                let text = format!("a late copy keeps {} for {}", late.key, late.owner);
                self.oracle().violate(now, "j", text);
            }
        }
    }

    fn check_passed(&self, now: Duration) {
        let passed = self.oracle().not_taken(now);
        for passed in passed {
            if self.has_field(&passed.claim, &passed.owner) {
                self.oracle().violate(now, "k", format!("nobody took {}", passed.owner));
            }
        }
    }

    /// Rule h: nothing is left.
    async fn check_end(&self, clients: Vec<Vec<LockClient>>) {
        // Holds that nobody renews end, and undos of late copies.
        sleep(self.plan.longest_lease() + self.plan.slack() + 12 * SECOND).await;
        if self.plan.kind == Kind::Semaphore {
            self.check_permits(&clients).await;
        }
        self.check_keys(
            "at the end",
            &[
                "redisson_lock_token",
                "redisson_lock_queue",
                "redisson_lock_timeout",
                "lockkeeper_fair",
                "lockkeeper_client",
            ],
        );
        let killed: Vec<_> = (0..self.plan.processes).filter(|process| self.is_killed(*process)).collect();
        for (process, clients) in clients.into_iter().enumerate() {
            self.processes[process].enter(|| drop(clients));
        }
        sleep(40 * SECOND).await;
        let now = self.now();
        let tasks = Handle::current().metrics().num_alive_tasks();
        if killed.is_empty() && tasks > 0 {
            self.oracle().violate(now, "h", format!("{tasks} tasks are left"));
        }
        for server in &self.servers {
            let connections =
                String::from_utf8_lossy(&server.execute(&["CLIENT", "LIST"])).matches("id=").count();
            if killed.is_empty() && connections > 0 {
                self.oracle().violate(now, "h", format!("{connections} connections are left"));
            }
            if server.execute(&["PUBSUB", "CHANNELS"]) != b"*0\r\n" {
                self.oracle().violate(now, "h", "channels are left");
            }
        }
        // Nobody keeps the records of a process that was killed.
        sleep(100 * SECOND).await;
        let of_queues =
            ["redisson_lock_token", "redisson_lock_queue", "redisson_lock_timeout", "lockkeeper_fair"];
        self.check_keys("minutes later", &of_queues);
        sleep_until(Instant::now() + 25 * 3_600 * SECOND).await;
        self.check_keys("a day later", &["redisson_lock_token"]);
    }

    /// Rule h, for semaphores: all permits are available. Acquiring them removes those whose leases ended.
    async fn check_permits(&self, clients: &[Vec<LockClient>]) {
        let alive = (0..self.plan.processes).find(|process| !self.is_killed(*process)).expect("one");
        for (name, text) in NAMES.iter().enumerate().take(self.plan.names) {
            let claim = Claim { server: 0, name, is_shared: false, permits: 1 };
            let (_, total) = self.oracle().waits.totals_since(&claim, self.now());
            let total = u32::try_from(total).ok().filter(|total| *total > 0).unwrap_or(self.plan.permits);
            let semaphore = clients[alive][0].semaphore(text, total);
            let acquiring = async {
                match semaphore.try_acquire_many(total).await? {
                    Some(permits) => permits.unlock().await.map(|()| true),
                    None => Ok(false),
                }
            };
            self.oracle().waits.uses(&[claim]);
            let acquired = self.processes[alive].run(acquiring).await;
            let now = self.now();
            self.oracle().waits.used(now, &[claim]);
            if !matches!(acquired, Ok(true)) {
                self.oracle().violate(now, "h", format!("not all {total} permits of {text}: {acquired:?}"));
            }
        }
    }

    /// Checks that the servers have no other keys than such. The total of a semaphore stays.
    fn check_keys(&self, when: &str, but: &[&str]) {
        let is_total = |key: &str| self.plan.kind == Kind::Semaphore && NAMES.contains(&key);
        for (number, server) in self.servers.iter().enumerate() {
            let keys = String::from_utf8_lossy(&server.execute(&["KEYS", "*"])).into_owned();
            let mut keys: Vec<_> =
                keys.split("\r\n").filter(|line| !line.starts_with(['*', '$']) && !line.is_empty()).collect();
            keys.retain(|key| !but.iter().any(|but| key.starts_with(but)) && !is_total(key));
            if !keys.is_empty() {
                let now = self.now();
                self.oracle().violate(now, "h", format!("{when}, server {number} has {keys:?}"));
            }
        }
    }
}

//! Candidates of several processes for one leadership, and those who watch. An oracle knows which work runs, and so who leads:
//!
//! - No two lead: when a candidate is elected, every earlier term is over by the clock of its process, and its work was dropped, unless the
//!   process stands still. The work does no step after the end of its term. Terms grow.
//! - Without faults, there is a leader within a moment. A leader that is asked to step down does so, and leaves the leadership to others for a
//!   second. All who watch know who leads.
//! - Nobody is ever said to announce what another one does.
//! - At the end nothing is left but the count of the terms.
//!
//! Three quarters of the worlds have faults. In some of these the server loses its data: then the leader from before goes on until its next
//! renewal, and the terms grow all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::ops::AddAssign;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use lockkeeper::leader::{Candidate, CandidateHandle, Leader, LeaderWatch, Leadership};
use lockkeeper::{Error, LockClient, LockConfig, LockOptions, Process, Result};
use lockkeeper_memory::{Data, MemoryServer, Network};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::drawn::{run_all, wanted};
use crate::plan::{MS, SECOND, one, up_to};
use crate::process_stream;

const NAME: &str = "leader";

/// Faults happen until then.
const FAULTS_END: Duration = Duration::from_secs(30);

/// Candidates stand until then.
const END: Duration = Duration::from_secs(100);

const LONGEST_FAULT: Duration = Duration::from_secs(4);

/// What is sent arrives up to this much later, each way.
const DELAY: Duration = Duration::from_millis(2);

/// A candidate that stepped down rests for so long.
const REST: Duration = Duration::from_secs(1);

/// What messages tell needs so long.
const TOLD: Duration = Duration::from_millis(200);

/// A leader does a step so often.
const STEP: Duration = Duration::from_millis(50);

/// Those who watch know of a change after this time: a message makes them ask, and another one when the leader announces something.
const SEEN: Duration = Duration::from_millis(1_500);

#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    processes: usize,
    candidates: usize,
    lease: Duration,
    /// Of every second candidate.
    max_term: Option<Duration>,
    drifts: Vec<i32>,
    has_faults: bool,
    loses_data: bool,
}

impl Plan {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1ead);
        let lease = one(&mut rng, &[1_500, 3_000, 5_000]) * MS;
        Self {
            seed,
            processes: rng.usize(1..=4),
            candidates: rng.usize(1..=6),
            lease,
            max_term: rng.bool().then(|| 50 * MS + up_to(&mut rng, 4 * lease)),
            drifts: (0..4).map(|_| rng.i32(-800..=800)).collect(),
            has_faults: !seed.is_multiple_of(4),
            loses_data: seed % 8 == 3,
        }
    }

    fn process_of(&self, candidate: usize) -> usize {
        candidate % self.processes
    }

    fn max_term_of(&self, candidate: usize) -> Option<Duration> {
        self.max_term.filter(|_| candidate % 2 == 1)
    }

    /// How long after a fault its effects may last: leases of those who died, undos of late copies, and pauses of candidates.
    fn settle(&self) -> Duration {
        2 * self.lease + 20 * SECOND
    }
}

struct Term {
    candidate: usize,
    /// What it announces.
    said: String,
    leadership: Leadership,
    from: Duration,
    /// When its work was dropped, or completed.
    to: Option<Duration>,
    asked_at: Option<Duration>,
    /// The same candidate leaves the leadership to others for a while, unless it left and stands anew.
    rests: bool,
}

/// Who leads, and what those who watch know.
struct Truth {
    start: Instant,
    terms: Vec<Term>,
    /// The candidates that run now.
    standing: BTreeSet<usize>,
    /// Since when somebody could lead, and nobody does.
    nobody_since: Option<Duration>,
    handles: BTreeMap<usize, CandidateHandle>,
    /// What the watch of each process returned last.
    seen: BTreeMap<usize, Option<String>>,
    /// Since when each process watches without a break.
    back: BTreeMap<usize, Duration>,
    /// What each owner announces.
    announced: BTreeMap<String, String>,
    /// The processes that stand still. False: it was killed.
    still: BTreeMap<usize, bool>,
    /// When the host of each process was last suspended no more.
    resumed: BTreeMap<usize, Duration>,
    /// When the server last lost its data.
    lost_data: Option<Duration>,
    running_faults: usize,
    last_fault: Duration,
    wrong: Vec<String>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    worlds: u64,
    terms: u64,
    asked: u64,
    faults: u64,
    seen: u64,
    calm_checks: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.worlds += other.worlds;
        self.terms += other.terms;
        self.asked += other.asked;
        self.faults += other.faults;
        self.seen += other.seen;
        self.calm_checks += other.calm_checks;
    }
}

impl Truth {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn violate(&mut self, text: impl AsRef<str>) {
        let text = format!("{:?}: {}", self.now(), text.as_ref());
        self.wrong.push(text);
    }

    /// Whether the effects of all faults are over.
    fn is_calm(&self, plan: &Plan) -> bool {
        let over = if self.last_fault.is_zero() { Duration::ZERO } else { self.last_fault + plan.settle() };
        self.running_faults == 0 && self.now() >= over
    }

    fn leads(&self) -> Option<&Term> {
        self.terms.last().filter(|term| term.to.is_none())
    }

    /// Somebody begins or ends to lead, or to stand.
    fn changes(&mut self) {
        let nobody = !self.standing.is_empty() && self.leads().is_none();
        self.nobody_since = nobody.then(|| self.nobody_since.unwrap_or_else(|| self.now()));
    }
}

#[derive(Clone)]
struct World {
    plan: Arc<Plan>,
    server: MemoryServer,
    networks: Vec<MemoryServer>,
    processes: Vec<Process>,
    truth: Arc<Mutex<Truth>>,
}

/// Work that runs. It ends when it is dropped.
struct Working(World, usize);

impl Drop for Working {
    fn drop(&mut self) {
        let mut truth = self.0.truth();
        let now = truth.now();
        let term = &mut truth.terms[self.1];
        term.to = Some(now);
        let most = self.0.plan.max_term_of(term.candidate);
        let is_up = most.is_some_and(|most| now - term.from >= most - (most / 8).min(REST / 2));
        term.rests = term.asked_at.is_some() || is_up;
        truth.changes();
    }
}

/// A candidate that stands.
struct Standing(World, usize);

impl Drop for Standing {
    fn drop(&mut self) {
        let mut truth = self.0.truth();
        truth.standing.remove(&self.1);
        // Another one with this number has not been asked.
        truth.terms.iter_mut().filter(|term| term.candidate == self.1).for_each(|term| term.rests = false);
        truth.changes();
    }
}

impl World {
    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.truth().now() >= END
    }

    /// A candidate that stands, leaves, and stands again.
    async fn stand(self, number: usize, locks: LockClient, mut rng: Rng) {
        let (mut count, mut candidate, mut said) = (0, Candidate::new(&locks, NAME), String::new());
        while !self.is_over() {
            sleep(up_to(&mut rng, 3 * SECOND)).await;
            // Or the same one runs again.
            if count == 0 || rng.bool() {
                count += 1;
                said = format!("{number} of {}: {count}", locks.id());
                candidate = Candidate::new(&locks, NAME).announce(said.clone()).expect("it is short");
                if let Some(most) = self.plan.max_term_of(number) {
                    let options = LockOptions::builder().max_hold(most).build();
                    candidate = candidate.with(&options.expect("it is long enough"));
                }
            }
            {
                let mut truth = self.truth();
                truth.handles.insert(number, candidate.handle());
                truth.standing.insert(number);
                truth.changes();
            }
            let standing = Standing(self.clone(), number);
            let completes = rng.u8(..3) == 0;
            let time = if completes { up_to(&mut rng, 6 * SECOND) } else { END };
            let running =
                candidate.run(|leadership| self.clone().lead(number, said.clone(), leadership, time));
            let left = END.saturating_sub(self.truth().now());
            let done = timeout(up_to(&mut rng, 40 * SECOND).min(left), running).await;
            drop(standing);
            match done {
                // It left.
                Err(_) | Ok(Ok(())) => {}
                Ok(Err(Error::NotHeld(_))) if self.plan.has_faults => {}
                Ok(Err(error)) => self.truth().violate(format!("candidate {number}: {error:?}")),
            }
        }
    }

    /// The work of a leader: a step each moment.
    async fn lead(self, candidate: usize, said: String, leadership: Leadership, time: Duration) {
        let _working = Working(self.clone(), self.elected(candidate, said, leadership.clone()));
        let mut sleeping = pin!(async {
            let until = Instant::now() + time;
            while Instant::now() < until {
                sleep(STEP.min(until - Instant::now())).await;
            }
        });
        poll_fn(|context| {
            if leadership.is_over() {
                self.truth().violate(format!("{candidate} does a step after its term"));
            }
            sleeping.as_mut().poll(context)
        })
        .await;
    }

    fn elected(&self, candidate: usize, said: String, leadership: Leadership) -> usize {
        let mut truth = self.truth();
        let (now, number) = (truth.now(), leadership.term());
        let mut wrong = Vec::new();
        for term in &truth.terms {
            let process = self.plan.process_of(term.candidate);
            if term.leadership.term() >= number {
                wrong.push(format!("term {number} comes after {}", term.leadership.term()));
            }
            let is_killed = truth.still.get(&process) == Some(&false);
            // The leader from before learns it when it renews its lease, or when that ends.
            let is_void = truth.lost_data.is_some_and(|at| now < at + self.plan.lease);
            if is_killed || is_void {
                continue;
            }
            // After a suspend, timers are late.
            let is_late =
                truth.resumed.get(&process).is_some_and(|at| now < *at + self.plan.lease + 2 * SECOND);
            let (process, is_still) = (&self.processes[process], truth.still.contains_key(&process));
            if !process.enter(|| term.leadership.remaining().is_zero()) {
                wrong.push(format!("{} and {candidate} lead", term.candidate));
            }
            if term.to.is_some() {
                continue;
            }
            // Not otherwise: this look tells the work, too.
            if is_still && !process.enter(|| term.leadership.is_over()) {
                wrong.push(format!("{} does not know that {candidate} leads", term.candidate));
            }
            if !is_still && !is_late {
                wrong.push(format!("the work of {} goes on when {candidate} is elected", term.candidate));
            }
        }
        let rests = truth.terms.last().is_some_and(|last| {
            last.candidate == candidate && last.rests && last.to.is_some_and(|to| now < to + REST)
        });
        if rests {
            wrong.push(format!("{candidate} steps down, and leads again at once"));
        }
        wrong.into_iter().for_each(|text| truth.violate(text));
        truth.counts.terms += 1;
        truth.terms.push(Term {
            candidate,
            said,
            leadership,
            from: now,
            to: None,
            asked_at: None,
            rests: false,
        });
        truth.changes();
        truth.terms.len() - 1
    }

    /// Learns who leads.
    async fn watch(self, process: usize, locks: LockClient, mut rng: Rng) {
        let mut watch = LeaderWatch::new(&locks, NAME);
        while !self.is_over() {
            // A call that is dropped misses nothing, and perhaps there is none for a while.
            let most = one(&mut rng, &[5 * MS, 10 * SECOND]);
            let changed = timeout(up_to(&mut rng, most), watch.changed()).await;
            self.learn(process, changed.ok());
            if rng.u8(..8) == 0 {
                self.truth().back.remove(&process);
                sleep(up_to(&mut rng, 40 * SECOND)).await;
            }
            let mut truth = self.truth();
            let now = truth.now();
            truth.back.entry(process).or_insert(now);
        }
    }

    fn learn(&self, process: usize, changed: Option<Result<Option<Leader>>>) {
        let mut truth = self.truth();
        let leader = match changed {
            None => return,
            Some(Ok(leader)) => leader,
            Some(Err(error)) => {
                if truth.is_calm(&self.plan) {
                    truth.violate(format!("{process} cannot watch: {error:?}"));
                }
                return;
            }
        };
        truth.counts.seen += 1;
        let said = leader.and_then(|leader| {
            let said = String::from_utf8(leader.announcement?).expect("a text");
            let owner = leader.holder.owner;
            let first = truth.announced.entry(owner.clone()).or_insert_with(|| said.clone()).clone();
            let client = owner.split(':').next().unwrap_or_default();
            if first != said || !said.contains(client) {
                truth.violate(format!("{owner} announces {first:?} and {said:?}"));
            }
            Some(said)
        });
        truth.seen.insert(process, said);
    }

    /// Asks candidates to step down.
    async fn ask(self, mut rng: Rng) {
        while !self.is_over() {
            sleep(SECOND + up_to(&mut rng, 12 * SECOND)).await;
            let mut truth = self.truth();
            let asked = if rng.bool() {
                truth.leads().map(|term| term.candidate)
            } else {
                Some(rng.usize(..self.plan.candidates))
            };
            let Some(handle) = asked.and_then(|asked| truth.handles.get(&asked).cloned()) else {
                continue;
            };
            truth.counts.asked += 1;
            let now = truth.now();
            if let Some(term) = truth.terms.last_mut().filter(|term| term.to.is_none())
                && Some(term.candidate) == asked
            {
                term.asked_at.get_or_insert(now);
            }
            drop(truth);
            handle.step_down();
        }
    }

    /// What must be true while nothing is wrong.
    async fn look(self) {
        while !self.is_over() {
            sleep(50 * MS).await;
            let mut truth = self.truth();
            if !truth.is_calm(&self.plan) {
                continue;
            }
            truth.counts.calm_checks += 1;
            let now = truth.now();
            let mut wrong = Vec::new();
            if truth.nobody_since.is_some_and(|since| now > since + REST + 2 * TOLD) {
                wrong.push(format!("nobody leads since {:?}", truth.nobody_since));
            }
            if let Some(term) = truth.leads() {
                let candidate = term.candidate;
                if term.asked_at.is_some_and(|at| now > at + TOLD) {
                    wrong.push(format!("{candidate} does not step down"));
                }
                if self.plan.max_term_of(candidate).is_some_and(|most| now > term.from + most) {
                    wrong.push(format!("the term of {candidate} is too long"));
                }
            }
            let leads = truth.leads().map(|term| term.said.clone());
            let since = truth.terms.last().map_or(Duration::ZERO, |term| term.to.unwrap_or(term.from));
            for (process, back) in truth.back.iter().filter(|(one, _)| !truth.still.contains_key(one)) {
                let seen = truth.seen.get(process);
                if now > since.max(*back) + SEEN && seen != Some(&leads) {
                    wrong.push(format!("{leads:?} leads, and process {process} saw {seen:?}"));
                }
            }
            wrong.into_iter().for_each(|text| truth.violate(text));
            if truth.wrong.len() > 5 {
                return;
            }
        }
    }

    /// Breaks something for a while.
    async fn break_things(self, mut rng: Rng) {
        let mut running = JoinSet::new();
        while self.plan.has_faults && self.truth().now() < FAULTS_END {
            sleep(up_to(&mut rng, 8 * SECOND)).await;
            running.spawn(self.clone().break_one(rng.fork()));
        }
        while running.join_next().await.is_some() {}
    }

    async fn break_one(self, mut rng: Rng) {
        let time = up_to(&mut rng, LONGEST_FAULT);
        let process = rng.usize(..self.plan.processes);
        {
            let mut truth = self.truth();
            (truth.running_faults, truth.counts.faults) = (truth.running_faults + 1, truth.counts.faults + 1);
        }
        let calm = Network { most_delay: DELAY, ..Network::default() };
        let network = &self.networks[process];
        match rng.u8(..8) {
            0 => {
                self.server.freeze(true);
                sleep(time).await;
                self.server.freeze(false);
            }
            1 => {
                self.server.stop();
                sleep(time / 2).await;
                let loses = self.plan.loses_data && rng.bool();
                self.server.start(if loses { Data::Lost } else { Data::Kept });
                let mut truth = self.truth();
                truth.lost_data = if loses { Some(truth.now()) } else { truth.lost_data };
            }
            2 => network.cut(),
            3 => network.cut_after_delivery(),
            4 => {
                let (holds_requests, holds_replies) =
                    if rng.bool() { (true, rng.bool()) } else { (false, true) };
                network.set_network(Network { holds_requests, holds_replies, ..calm });
                sleep(time).await;
                network.set_network(calm);
            }
            5 => {
                network.set_network(Network { holds_replies: true, only_messages: true, ..calm });
                sleep(time).await;
                network.set_network(calm);
            }
            _ => self.stop(process, time, &mut rng).await,
        }
        let mut truth = self.truth();
        truth.running_faults -= 1;
        truth.last_fault = truth.now();
    }

    /// Stops a process, suspends its host, or kills it.
    async fn stop(&self, process: usize, time: Duration, rng: &mut Rng) {
        let kills = {
            let mut truth = self.truth();
            let killed = truth.still.values().filter(|goes_on| !**goes_on).count();
            let kills = rng.u8(..4) == 0 && killed + 1 < self.plan.processes;
            if truth.still.contains_key(&process) {
                return;
            }
            truth.still.insert(process, !kills);
            kills
        };
        if kills {
            self.processes[process].kill();
            self.networks[process].cut_after_delivery();
            let mut truth = self.truth();
            let now = truth.now();
            // The calls of a killed process do not end.
            let of_process = |candidate: usize| self.plan.process_of(candidate) == process;
            truth.standing.retain(|candidate| !of_process(*candidate));
            for term in truth.terms.iter_mut().filter(|term| of_process(term.candidate)) {
                term.to.get_or_insert(now);
            }
            truth.changes();
            return;
        }
        let suspends = rng.bool();
        if suspends {
            self.processes[process].suspend();
        } else {
            self.processes[process].stop();
        }
        sleep(time).await;
        self.processes[process].go_on();
        sleep(MS).await;
        let mut truth = self.truth();
        truth.still.remove(&process);
        if suspends {
            let now = truth.now();
            truth.resumed.insert(process, now);
        }
    }
}

/// Returns what was wrong.
fn run(plan: &Plan) -> (Counts, Vec<String>) {
    fastrand::seed(plan.seed);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let mut rng = Rng::with_seed(plan.seed ^ 0x1ead);
        let server = MemoryServer::simulated(1_700_000_000 * SECOND, plan.seed);
        let processes = (0..plan.processes).map(|at| Process::new(60 * SECOND, plan.drifts[at])).collect();
        let truth = Truth {
            start: Instant::now(),
            terms: Vec::new(),
            standing: BTreeSet::new(),
            nobody_since: None,
            handles: BTreeMap::new(),
            seen: BTreeMap::new(),
            back: BTreeMap::new(),
            announced: BTreeMap::new(),
            still: BTreeMap::new(),
            resumed: BTreeMap::new(),
            lost_data: None,
            running_faults: 0,
            last_fault: Duration::ZERO,
            wrong: Vec::new(),
            counts: Counts { worlds: 1, ..Counts::default() },
        };
        let mut world = World {
            plan: Arc::new(plan.clone()),
            networks: Vec::new(),
            server,
            processes,
            truth: Arc::new(Mutex::new(truth)),
        };
        live(&mut world, &mut rng).await;
        let truth = world.truth();
        (truth.counts, truth.wrong.clone())
    })
}

async fn live(world: &mut World, rng: &mut Rng) {
    let plan = Arc::clone(&world.plan);
    let mut clients = Vec::new();
    for process in &world.processes {
        let network = world.server.over_network(rng.u64(..));
        network.set_network(Network { most_delay: DELAY, ..Network::default() });
        let config = LockConfig::builder().watchdog_lease(plan.lease).retry_timeout(3 * SECOND).build();
        let source = process_stream::source(&network, process);
        let connecting = LockClient::connect_with(source, config.expect("settings"));
        clients.push(process.run(connecting).await.expect("no fault yet"));
        world.networks.push(network);
    }
    let mut tasks: Vec<(usize, JoinSet<()>)> = Vec::new();
    for (number, process) in world.processes.iter().enumerate() {
        let mut of_process = JoinSet::new();
        for candidate in (0..plan.candidates).filter(|one| plan.process_of(*one) == number) {
            let standing = world.clone().stand(candidate, clients[number].clone(), rng.fork());
            of_process.spawn(process.run(standing));
        }
        of_process.spawn(process.run(world.clone().watch(number, clients[number].clone(), rng.fork())));
        tasks.push((number, of_process));
    }
    tokio::join!(world.clone().ask(rng.fork()), world.clone().look(), world.clone().break_things(rng.fork()));
    for (process, mut tasks) in tasks {
        if world.truth().still.get(&process) == Some(&false) {
            continue;
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        if timeout(60 * SECOND, all).await.is_err() {
            world.truth().violate(format!("the tasks of process {process} do not end"));
        }
    }
    sleep(2 * SECOND).await;
    let channels = world.server.execute(&["PUBSUB", "CHANNELS"]);
    if !world.truth().still.values().any(|goes_on| !goes_on) && channels != b"*0\r\n" {
        world.truth().violate(format!("left: {}", String::from_utf8_lossy(&channels)));
    }
    check_left(world, &["redisson_lock_token", "lockkeeper_client"]);
    for (process, clients) in world.processes.iter().zip(clients) {
        process.enter(|| drop(clients));
    }
    sleep(25 * 3_600 * SECOND).await;
    check_left(world, &["redisson_lock_token"]);
}

/// The server has no other keys than such.
fn check_left(world: &World, but: &[&str]) {
    let keys = String::from_utf8_lossy(&world.server.execute(&["KEYS", "*"])).into_owned();
    let is_left = |line: &&str| {
        !line.starts_with(['*', '$']) && !line.is_empty() && !but.iter().any(|but| line.starts_with(but))
    };
    let left: Vec<&str> = keys.split("\r\n").filter(is_left).collect();
    if !left.is_empty() {
        world.truth().violate(format!("left: {left:?}"));
    }
}

/// Returns what was wrong with a world, too.
fn run_drawn(seed: u64) -> (Counts, Vec<String>) {
    run(&Plan::draw(seed))
}

#[test]
fn one_candidate_leads_and_all_know_it() {
    let counts = run_all((0, 60), 1, run_drawn);
    println!("{counts:?}");
    // Otherwise the worlds show nothing.
    assert!(counts.terms >= 500 && counts.calm_checks >= 10_000 && counts.seen >= 500, "{counts:?}");
}

/// `LEADERS_FROM` and `LEADERS_COUNT` say which.
#[test]
#[ignore = "takes minutes"]
fn ten_thousand_worlds_have_one_leader() {
    println!("{:?}", run_all(wanted("LEADERS"), 2, run_drawn));
}

/// Runs work with a server, a client for those who lead, and one for those who watch.
fn watched<W, F>(work: W)
where
    W: FnOnce(MemoryServer, LockClient, LockClient) -> F,
    F: Future<Output = ()>,
{
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let server = MemoryServer::simulated(1_700_000_000 * SECOND, 1);
        let process = Process::new(60 * SECOND, 0);
        let network = server.over_network(1);
        network.set_network(Network { most_delay: DELAY, ..Network::default() });
        let connect = async |server: &MemoryServer| {
            LockClient::connect(process_stream::source(server, &process)).await.expect("a server")
        };
        let working = async { work(server.clone(), connect(&server).await, connect(&network).await).await };
        process.run(working).await;
    });
}

/// Otherwise a follower would believe what was true when its last call was dropped.
#[test]
fn an_answer_that_nobody_read_is_forgotten() {
    watched(|_, holder, follower| async move {
        let first = holder.fenced_lock(NAME).lock().await.expect("a lock");
        let mut watches = Vec::new();
        for ms in 1..40 {
            let mut watch = LeaderWatch::new(&follower, NAME);
            if timeout(ms * MS, watch.changed()).await.is_err() {
                watches.push(watch);
            }
        }
        assert!(watches.len() >= 3, "no call was dropped while it asked");
        first.unlock().await.expect("it is held");
        let second = holder.fenced_lock(NAME).lock().await.expect("a lock");
        sleep(60 * SECOND).await;
        for watch in &mut watches {
            let leader = watch.changed().await.expect("a server").expect("a leader");
            assert_eq!(leader.holder.owner, second.owner_id());
        }
        second.unlock().await.expect("it is held");
    });
}

/// A message made it ask, and there is no other one.
#[test]
fn a_watch_asks_again_a_second_after_an_error() {
    watched(|server, _, follower| async move {
        let mut watch = LeaderWatch::new(&follower, NAME);
        assert_eq!(watch.changed().await.expect("a server"), None);
        timeout(2 * SECOND, watch.changed()).await.expect_err("nothing changes");
        server.execute(&["SET", NAME, "no lock"]);
        server.execute(&["PUBLISH", "lockkeeper_announcement:{leader}", ""]);
        watch.changed().await.expect_err("it is no lock");
        let again = Instant::now();
        watch.changed().await.expect_err("it is no lock");
        assert!(again.elapsed() < 2 * SECOND, "it asked again after {:?}", again.elapsed());
    });
}

//! Leading: at most one candidate leads, its work ends before another one's begins, and terms grow.

#[path = "support/mod.rs"]
mod support;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper::{Candidate, Error, LeaderWatch, Leadership};
use rustix::time::{ClockId, clock_gettime};
use support::{
    Child, Faults, LIMIT, MS, SECOND, Scene, child, connect, eventually, patient, poll_until, soon,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Watchdog lease of the candidates in processes of their own.
const LEASE: Duration = Duration::from_secs(2);

// --- processes that are killed and stopped -------------------------------------------------------------------------------

/// A candidate in a process of its own. In a normal test run it does nothing.
#[tokio::test]
async fn child() {
    let Some((_, url)) = child::role() else { return };
    let locks = connect(url, patient().watchdog_lease(LEASE)).await;
    let work = async |leadership: Leadership| {
        loop {
            // The clock is read first: if the term is not over after that, it was not over at that time.
            let now = now();
            if !leadership.is_over() {
                println!("at {} {}", leadership.term(), now.as_nanos());
            }
            sleep(2 * MS).await;
        }
    };
    let result: lockkeeper::Result<()> = locks.candidate("a").run(work).await;
    println!("unexpected: {result:?}");
}

/// A clock that all processes share.
fn now() -> Duration {
    clock_gettime(ClockId::Boottime).try_into().unwrap()
}

/// When a process worked in a term, first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    first: Duration,
    last: Duration,
    number: u64,
    process: usize,
}

/// The processes, and in which terms they worked so far.
struct Candidates {
    url: String,
    processes: Vec<Child>,
    terms: Vec<Term>,
}

impl Candidates {
    fn start(url: String, count: usize) -> Self {
        let processes = (0..count).map(|_| Child::start("candidate", &url)).collect();
        Self { url, processes, terms: Vec::new() }
    }

    /// Reads what the processes printed.
    fn read(&mut self) {
        for (process, child) in self.processes.iter_mut().enumerate() {
            for line in child.read_so_far() {
                let Some(line) = line.strip_prefix("at ") else { continue };
                let (number, at) = line.split_once(' ').unwrap();
                let (number, at) = (number.parse().unwrap(), Duration::from_nanos(at.parse().unwrap()));
                let same = |term: &&mut Term| term.number == number && term.process == process;
                match self.terms.iter_mut().find(same) {
                    Some(term) => term.last = term.last.max(at),
                    None => self.terms.push(Term { first: at, last: at, number, process }),
                }
            }
        }
    }

    /// Waits until a process works that worked not before this time.
    async fn leader_after(&mut self, time: Duration) -> Term {
        let start = Instant::now();
        loop {
            self.read();
            if let Some(term) = self.terms.iter().find(|term| term.first > time) {
                return *term;
            }
            assert!(start.elapsed() < LIMIT, "nobody leads: {:#?}", self.terms);
            sleep(5 * MS).await;
        }
    }

    /// Kills the leader, or stops it for longer than its lease. Returns how long it took until another one led.
    async fn disturb(&mut self, leader: Term) -> Duration {
        let at = now();
        if fastrand::bool() {
            self.processes[leader.process].kill();
            self.read();
            // Its number is not used again.
            self.processes.push(Child::start("candidate", &self.url));
            return self.leader_after(at).await.first - at;
        }
        self.processes[leader.process].signal("STOP");
        let next = self.leader_after(at).await;
        self.processes[leader.process].signal("CONT");
        next.first - at
    }

    /// At most one process led at a time, and the numbers of the terms grew.
    fn check(&mut self) {
        self.read();
        self.terms.sort();
        for pair in self.terms.windows(2) {
            let [before, after] = pair else { unreachable!("windows of two") };
            assert!(before.last < after.first, "two leaders: {before:?}, {after:?}");
            assert!(before.number < after.number, "the term did not grow: {before:?}, {after:?}");
        }
    }
}

async fn disturb_candidates_for(time: Duration) {
    let scene = Scene::start();
    let mut candidates = Candidates::start(scene.server.url(), 3);
    let (start, mut slowest, mut disturbances) = (Instant::now(), Duration::ZERO, 0);
    let mut leader = candidates.leader_after(Duration::ZERO).await;
    while start.elapsed() < time {
        sleep(fastrand::u32(50..500) * MS).await;
        slowest = slowest.max(candidates.disturb(leader).await);
        candidates.read();
        leader = *candidates.terms.iter().max_by_key(|term| term.number).unwrap();
        disturbances += 1;
    }
    candidates.check();
    println!("{disturbances} disturbances; a new leader after {slowest:?} at most");
    // A second for the machine.
    assert!(slowest < LEASE + 2 * SECOND, "a new leader took {slowest:?}");
    drop(candidates);
    // The leases of the killed processes.
    let locks = scene.client().await;
    soon(locks.rlock("a").lock()).await.unwrap().unlock().await.unwrap();
    drop(locks);
    forget_counter(&scene);
    scene.end().await;
}

#[tokio::test]
async fn one_of_three_candidates_leads_while_leaders_are_killed_and_stopped() {
    disturb_candidates_for(10 * SECOND).await;
}

#[tokio::test]
#[ignore = "takes two minutes"]
async fn one_of_three_candidates_leads_for_two_minutes() {
    disturb_candidates_for(120 * SECOND).await;
}

// --- one process ---------------------------------------------------------------------------------------------------------

/// Removes the counter of the fenced lock, which stays.
fn forget_counter(scene: &Scene) {
    let _: u64 = scene.server.run(&["DEL", "redisson_lock_token:{a}"]);
}

/// A candidate at work, and what it tells.
struct Running {
    /// Each term, when its work begins, and whether it is at work.
    begins: UnboundedReceiver<(Leadership, Arc<AtomicBool>)>,
    task: JoinHandle<lockkeeper::Result<()>>,
}

/// Clears a flag when it is dropped.
struct AtWork(Arc<AtomicBool>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Runs work that never ends by itself.
fn run(mut candidate: Candidate) -> Running {
    let (sender, begins) = unbounded_channel();
    let work = move |leadership: Leadership| {
        let is_at_work = Arc::new(AtomicBool::new(true));
        let at_work = AtWork(Arc::clone(&is_at_work));
        sender.send((leadership, is_at_work)).unwrap();
        async move {
            let _at_work = at_work;
            pending().await
        }
    };
    Running { begins, task: tokio::spawn(async move { candidate.run(work).await }) }
}

impl Running {
    async fn begins(&mut self) -> (Leadership, Arc<AtomicBool>) {
        soon(self.begins.recv()).await.unwrap()
    }

    async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

#[tokio::test]
async fn the_result_of_the_work_comes_back_and_the_leadership_is_free() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut candidate = locks.candidate("a");
    let first = candidate.run(async |leadership: Leadership| leadership).await.unwrap();
    assert!(first.is_over() && first.remaining().is_zero());
    assert_eq!(locks.inspect("a").await.unwrap(), None);
    let second = candidate.run(async |leadership: Leadership| leadership.term()).await.unwrap();
    assert!(second > first.term());
    drop((candidate, locks));
    forget_counter(&scene);
    scene.end().await;
}

#[tokio::test]
async fn a_removed_leadership_ends_the_work_and_a_new_term_begins() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(SECOND)).await;
    let mut running = run(locks.candidate("a"));
    let (first, is_at_work) = running.begins().await;
    assert!(is_at_work.load(Ordering::SeqCst) && !first.is_over() && first.remaining() > Duration::ZERO);
    assert!(locks.rlock("a").force_unlock().await.unwrap());
    let (second, _) = running.begins().await;
    assert!(!is_at_work.load(Ordering::SeqCst) && first.is_over(), "the work goes on");
    assert!(second.term() > first.term() && !second.is_over());
    running.end().await;
    drop(locks);
    forget_counter(&scene);
    scene.end().await;
}

/// The work ended, but the leadership was removed before.
#[tokio::test]
async fn work_without_leadership_at_its_end_is_an_error() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let work = async |_| locks.rlock("a").force_unlock().await.unwrap();
    let result = locks.candidate("a").run(work).await;
    assert!(matches!(result, Err(Error::NotHeld(_))), "{result:?}");
    drop(locks);
    forget_counter(&scene);
    scene.end().await;
}

#[tokio::test]
async fn a_leader_that_steps_down_makes_way_for_another() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let (one, other) = (locks.candidate("a"), beside.candidate("a"));
    let (resigner, other_resigner) = (one.resigner(), other.resigner());
    // Nobody leads: this does nothing.
    resigner.step_down();
    let mut one = run(one);
    let (first, first_works) = one.begins().await;
    let mut other = run(other);
    // It does not lead: this does nothing.
    other_resigner.step_down();
    resigner.step_down();
    let (second, second_works) = other.begins().await;
    assert!(first.is_over() && !first_works.load(Ordering::SeqCst), "two at work");
    assert!(second.term() > first.term());
    other_resigner.step_down();
    let (third, _) = one.begins().await;
    assert!(second.is_over() && !second_works.load(Ordering::SeqCst), "two at work");
    assert!(third.term() > second.term());
    one.end().await;
    other.end().await;
    drop((locks, beside));
    forget_counter(&scene);
    scene.end().await;
}

#[tokio::test]
async fn a_dropped_candidate_steps_down() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let mut running = run(locks.candidate("a"));
    let (leadership, is_at_work) = running.begins().await;
    running.end().await;
    assert!(leadership.is_over() && !is_at_work.load(Ordering::SeqCst));
    let next =
        soon(beside.candidate("a").run(async |leadership: Leadership| leadership.term())).await.unwrap();
    assert!(next > leadership.term());
    drop((locks, beside));
    forget_counter(&scene);
    scene.end().await;
}

#[tokio::test]
async fn the_longest_term_ends() {
    let scene = Scene::start();
    let locks = scene.client().await;
    assert!(matches!(
        locks.candidate("a").longest_term(Duration::ZERO),
        Err(Error::InvalidDuration { argument: "max_hold", .. })
    ));
    let mut running = run(locks.candidate("a").longest_term(SECOND).unwrap());
    let (first, is_at_work) = running.begins().await;
    let (second, _) = running.begins().await;
    assert!(first.is_over() && !is_at_work.load(Ordering::SeqCst) && second.term() > first.term());
    running.end().await;
    drop(locks);
    forget_counter(&scene);
    scene.end().await;
}

/// The campaigns fail meanwhile, and not only wait: `retry_timeout` is short.
#[tokio::test]
async fn a_candidate_campaigns_again_after_an_outage() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = patient().watchdog_lease(SECOND).command_timeout(200 * MS).retry_timeout(300 * MS);
    let locks = connect(proxy.url(), config).await;
    let mut running = run(locks.candidate("a"));
    let (first, is_at_work) = running.begins().await;
    proxy.set(Faults::black_hole());
    eventually("the work ends", || is_at_work.load(Ordering::SeqCst), |&works| !works).await;
    assert!(first.is_over());
    // Longer than a campaign takes until it fails.
    sleep(SECOND).await;
    proxy.set(Faults::default());
    let (second, _) = running.begins().await;
    assert!(second.term() > first.term());
    running.end().await;
    locks.shutdown().await.unwrap();
    drop((locks, proxy));
    forget_counter(&scene);
    scene.end().await;
}

#[tokio::test]
async fn errors_that_do_not_pass_end_a_campaign() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let result = locks.candidate("").run(async |_| ()).await;
    assert!(matches!(result, Err(Error::InvalidName { .. })), "{result:?}");
    locks.shutdown().await.unwrap();
    let result = locks.candidate("a").run(async |_| ()).await;
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    drop(locks);
    scene.end().await;
}

async fn change(watch: &mut LeaderWatch) -> Option<String> {
    soon(watch.changed()).await.unwrap()
}

#[tokio::test]
async fn followers_learn_who_leads() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let mut watch = beside.watch_leader("a");
    assert_eq!(change(&mut watch).await, None);
    let mut running = run(locks.candidate("a"));
    running.begins().await;
    let leader = change(&mut watch).await.unwrap();
    assert!(leader.starts_with(&locks.id()), "{leader}");
    running.end().await;
    assert_eq!(change(&mut watch).await, None);
    // Nothing changes: the call waits, and asks seldom.
    let calls = scene.server.calls("evalsha");
    let mut waiting = Box::pin(watch.changed());
    let start = Instant::now();
    poll_until(&mut waiting, || start.elapsed() > SECOND).await;
    let asked = scene.server.calls("evalsha") - calls;
    assert!(asked <= 3, "it asked {asked} times in {:?}", start.elapsed());
    drop(waiting);
    drop((watch, locks, beside));
    forget_counter(&scene);
    scene.end().await;
}

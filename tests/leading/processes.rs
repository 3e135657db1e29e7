//! Three processes are candidates, and the leader is killed or stopped again and again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{LEASE, forget_counter, now};
use crate::support::load::Section;
use crate::support::verify::check;
use crate::support::{Child, LIMIT, MS, SECOND, Scene, soon};

/// When a process worked in a term, first and last.
#[derive(Clone, Copy, Debug)]
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
        let processes = (0..count).map(|_| Child::start("leading::child", "candidate", &url)).collect();
        Self { url, processes, terms: Vec::new() }
    }

    /// Reads what the processes printed.
    fn read(&mut self) {
        for (process, child) in self.processes.iter_mut().enumerate() {
            for line in child.read_so_far() {
                assert!(!line.contains("unexpected"), "{line}");
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
            self.processes.push(Child::start("leading::child", "candidate", &self.url));
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
        let begin = Instant::now();
        let section = |term: &Term| Section {
            start: begin + term.first,
            end: begin + term.last,
            is_shared: false,
            token: Some(term.number.into()),
        };
        check("the leadership", &self.terms.iter().map(section).collect::<Vec<_>>());
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

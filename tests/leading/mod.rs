//! Leading: at most one candidate leads, its work ends before another one's begins, terms grow, and followers learn who leads.

mod announcing;
mod shutdown;
mod stepping_down;
mod watching;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::events::Events;
use crate::support::{MS, Scene, patient, poll_until, soon};
use lockkeeper::Error;
use lockkeeper::leader::{Candidate, Leadership};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

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
    let (scene, locks) = Scene::with_client().await;
    let mut candidate = Candidate::new(&locks, "a");
    let first = candidate.run(async |leadership: Leadership| leadership).await.unwrap();
    assert!(first.is_over() && first.remaining().is_zero());
    assert_eq!(locks.inspect("a").await.unwrap(), None);
    let second = candidate.run(async |leadership: Leadership| leadership.term()).await.unwrap();
    assert!(second > first.term());
    drop((candidate, locks));
    forget_counter(&scene);
    scene.end(()).await;
}

/// A call of the same client that waits in the same way is reported. So the candidate waited for longer than a lease without a report: one
/// report is the most in ten seconds.
#[tokio::test]
async fn a_candidate_that_stands_by_for_a_lease_logs_nothing_and_asks_for_no_list() {
    let scene = Scene::start();
    let leader = scene.client_with(patient()).await;
    let guard = leader.fenced_lock("a").lock().await.unwrap();
    let events = Events::default();
    let collecting = events.collect();
    let locks = scene.client_with(patient().watchdog_lease(300 * MS)).await;
    let mut candidate = Candidate::new(&locks, "a");
    let runs_at = line!() + 1;
    let mut standing_by = Box::pin(candidate.run(async |_| ()));
    poll_until(&mut standing_by, || !scene.server.channels().is_empty()).await;
    let (mut lock, waits_at) = (locks.fenced_lock("a"), line!() + 1);
    let mut waiting = Box::pin(lock.lock());
    let reports = || {
        let text = events.text();
        text.lines().filter(|line| line.contains("has waited for")).map(str::to_owned).collect::<Vec<_>>()
    };
    tokio::select! {
        led = &mut standing_by => panic!("{led:?}"),
        acquired = &mut waiting => panic!("{acquired:?}"),
        () = events.tell("has waited for") => {}
    }
    let found = reports();
    assert!(found.len() == 1 && found[0].contains(&format!("tests/leading/mod.rs:{waits_at}")), "{found:?}");
    assert_eq!(scene.server.calls("client|list"), 1, "that of the other call");
    drop(waiting);
    guard.unlock().await.unwrap();
    soon(standing_by).await.unwrap();
    // Who looks for it finds the place.
    let waits = locks.recent_waits();
    assert!(waits.iter().any(|wait| wait.waited_at.line() == runs_at), "{waits:?}");
    drop(collecting);
    drop((candidate, lock, locks, leader));
    forget_counter(&scene);
    scene.end(()).await;
}

/// The work ended, but the leadership was removed before.
#[tokio::test]
async fn work_without_leadership_at_its_end_is_an_error() {
    let (scene, locks) = Scene::with_client().await;
    let work = async |_| locks.rlock("a").force_unlock().await.unwrap();
    let result = Candidate::new(&locks, "a").run(work).await;
    assert!(matches!(result, Err(Error::NotHeld(_))), "{result:?}");
    drop(locks);
    forget_counter(&scene);
    scene.end(()).await;
}

#[tokio::test]
async fn errors_that_do_not_pass_end_a_campaign() {
    let (scene, locks) = Scene::with_client().await;
    let result = Candidate::new(&locks, "").run(async |_| ()).await;
    assert!(matches!(result, Err(Error::InvalidName { .. })), "{result:?}");
    locks.shutdown().await.unwrap();
    let result = Candidate::new(&locks, "a").run(async |_| ()).await;
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    scene.end(locks).await;
}

#[tokio::test]
async fn work_that_panics_frees_the_leadership() {
    let (scene, locks) = Scene::with_client().await;
    let mut candidate = Candidate::new(&locks, "a");
    let (sender, mut begins) = unbounded_channel();
    let task = tokio::spawn(async move {
        let work = |leadership| {
            sender.send(leadership).unwrap();
            async { panic!("the work fails") }
        };
        candidate.run(work).await
    });
    assert!(soon(task).await.unwrap_err().is_panic());
    let leadership: Leadership = begins.recv().await.unwrap();
    assert!(leadership.is_over());
    let next = soon(Candidate::new(&locks, "a").run(async |next: Leadership| next.term())).await.unwrap();
    assert!(next > leadership.term());
    drop(locks);
    forget_counter(&scene);
    scene.end(()).await;
}

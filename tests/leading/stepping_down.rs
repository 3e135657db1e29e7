//! A leader that steps down makes way for another candidate.

use lockkeeper::LockOptions;
use lockkeeper::leader::{Candidate, Leadership};

use super::{forget_counter, run};
use crate::support::events::Events;
use crate::support::{MS, SECOND, Scene, at_most, eventually, fixed, listens, soon};

/// The end of such a term is planned. A term is so short here that its hold always ends before the candidate steps down.
#[tokio::test]
async fn a_term_that_ends_by_its_options_is_no_lost_lock() {
    let (scene, locks) = Scene::with_client().await;
    for options in [at_most(100 * MS), fixed(100 * MS)] {
        let events = Events::default();
        let collecting = events.collect();
        let mut running = run(Candidate::new(&locks, "a").with(&options));
        running.begins().await;
        running.begins().await;
        assert_eq!(events.lost("a"), Vec::<String>::new());
        assert!(events.text().contains("its longest term ended"), "{}", events.text());
        drop(collecting);
        running.end().await;
    }
    let events = Events::default();
    let _collecting = events.collect();
    drop(locks);
    let locks = scene.client().await; // its thread tells these events
    let mut running = run(Candidate::new(&locks, "a").with(&at_most(600 * SECOND)));
    running.begins().await;
    scene.server.run::<()>(&["DEL", "a"]);
    running.begins().await;
    events.tell_lost("a", "the server no longer has it").await;
    running.end().await;
    drop(locks);
    forget_counter(&scene);
    scene.end(()).await;
}

#[tokio::test]
async fn a_handle_tells_whether_its_candidate_leads() {
    let (scene, locks, beside) = Scene::with_two_clients().await;
    let (one, other) = (Candidate::new(&locks, "a"), Candidate::new(&beside, "a"));
    let handles = [one.handle(), other.handle()];
    let lead = || handles.each_ref().map(|handle| handle.is_leading());
    assert_eq!(lead(), [false, false]);
    let mut one = run(one);
    one.begins().await;
    assert_eq!(lead(), [true, false]);
    let mut other = run(other);
    listens(&scene.server).await;
    handles[0].step_down();
    let (second, _) = other.begins().await;
    assert_eq!(lead(), [false, true]);
    scene.server.run::<()>(&["DEL", "a"]);
    eventually("the loss is noticed", || second.is_over(), |is_over| *is_over).await;
    one.end().await;
    other.end().await;
    assert_eq!(lead(), [false, false]);
    drop((locks, beside));
    forget_counter(&scene);
    scene.end(()).await;
}

#[tokio::test]
async fn a_shortest_hold_keeps_no_other_candidate_out() {
    let (scene, locks, beside) = Scene::with_two_clients().await;
    let options = LockOptions::builder().min_hold(600 * SECOND).build().unwrap();
    let mut first = Candidate::new(&locks, "a").with(&options);
    soon(first.run(async |_: Leadership| ())).await.unwrap();
    soon(Candidate::new(&beside, "a").run(async |_: Leadership| ())).await.unwrap();
    drop((first, locks, beside));
    forget_counter(&scene);
    scene.end(()).await;
}

/// The lines of docs/getting-started.md, at a signal: the next candidate leads at once, and not after a lease.
#[tokio::test]
async fn a_candidate_that_is_ended_by_a_signal_leaves_nothing_behind() {
    let (scene, locks, beside) = Scene::with_two_clients().await;
    let mut candidate = Candidate::new(&locks, "a");
    let handle = candidate.handle();
    let signal = eventually("it leads", || handle.is_leading(), |&leads| leads);
    tokio::select! {
        done = candidate.run(async |_: Leadership| std::future::pending::<()>().await) => panic!("{done:?}"),
        _ = signal => {}
    }
    locks.shutdown().await.unwrap();
    assert!(!scene.server.run::<bool>(&["EXISTS", "a"]));
    soon(Candidate::new(&beside, "a").run(async |_: Leadership| ())).await.unwrap();
    drop((candidate, locks, beside));
    forget_counter(&scene);
    scene.end(()).await;
}

//! A leader that steps down makes way for another candidate.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lockkeeper::leader::{Candidate, Leadership};

use super::{forget_counter, run};
use crate::support::events::Events;
use crate::support::{SECOND, Scene, listens, soon};

#[tokio::test]
async fn a_leader_that_steps_down_makes_way_for_another() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let (one, other) = (Candidate::new(&locks, "a"), Candidate::new(&beside, "a"));
    let (handle, other_handle) = (one.step_down(), other.step_down());
    // Nobody leads: this does nothing.
    handle.ask();
    let mut one = run(one);
    let (first, first_works) = one.begins().await;
    let mut other = run(other);
    listens(&scene.server).await;
    // It does not lead: this does nothing.
    other_handle.ask();
    handle.ask();
    let (second, second_works) = other.begins().await;
    assert!(first.is_over() && !first_works.load(Ordering::SeqCst), "two at work");
    assert!(second.term() > first.term());
    other_handle.ask();
    // On a busy machine both can have rested by the time at which one of them campaigns.
    let (third, _) = tokio::select! {
        begins = one.begins() => begins,
        begins = other.begins() => begins,
    };
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
    let mut running = run(Candidate::new(&locks, "a"));
    let (leadership, is_at_work) = running.begins().await;
    running.end().await;
    assert!(leadership.is_over() && !is_at_work.load(Ordering::SeqCst));
    let next = soon(Candidate::new(&beside, "a").run(async |leadership: Leadership| leadership.term()))
        .await
        .unwrap();
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
        Candidate::new(&locks, "a").max_term(Duration::ZERO),
        Err(wrong) if wrong.field() == "max_hold"
    ));
    let mut running = run(Candidate::new(&locks, "a").max_term(SECOND).unwrap());
    let (first, is_at_work) = running.begins().await;
    let (second, _) = running.begins().await;
    assert!(first.is_over() && !is_at_work.load(Ordering::SeqCst) && second.term() > first.term());
    running.end().await;
    drop(locks);
    forget_counter(&scene);
    scene.end().await;
}

#[tokio::test]
async fn the_longest_term_makes_way_for_another() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let events = Events::default();
    let collecting = events.collect();
    let mut one = run(Candidate::new(&locks, "a").max_term(2 * SECOND).unwrap());
    let (first, _) = one.begins().await;
    let mut other = run(Candidate::new(&beside, "a"));
    let (second, _) = other.begins().await;
    assert!(first.is_over() && second.term() > first.term());
    assert!(events.text().contains("its longest term ended"), "{}", events.text());
    drop(collecting);
    one.end().await;
    other.end().await;
    drop((locks, beside));
    forget_counter(&scene);
    scene.end().await;
}

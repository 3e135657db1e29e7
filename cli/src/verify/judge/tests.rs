//! Histories that are written by hand.

use super::super::history::What::{
    Asked, Awake, Began, Cut, Ended, Entered, FailedOver, GaveUp, Joined, Killed, Leaving, Left, LeftBehind,
    Told, Worked,
};
use super::*;
use Examined::{Fair, Fenced, Read, Rlock, Semaphore, Write};

/// A history in which each process writes every 100 ms that it runs, from 0 until 30 s.
struct Scene {
    events: Vec<Event>,
    calls: u32,
}

const END: u64 = 30_000;

impl Scene {
    /// Leases last 3 s. There are two workers, 1 and 2.
    fn new() -> Self {
        let mut scene = Self { events: Vec::new(), calls: 0 };
        scene.add(0, MAIN, Began { lease_ms: 3_000 });
        for process in [MAIN, 1, 2] {
            scene.runs(process, 0, END);
        }
        for process in [MAIN, 1, 2] {
            scene.add(END, process, Ended);
        }
        scene
    }

    /// With these sections, which end as they should.
    fn of(lock: Examined, sections: &[(u32, [u64; 3])]) -> Self {
        let mut scene = Self::new();
        sections.iter().for_each(|&(process, times)| scene.holds(process, lock, times));
        scene
    }

    fn add(&mut self, at_ms: u64, process: u32, what: What) {
        self.events.push(Event { at: at_ms * MS, process, what });
    }

    fn runs(&mut self, process: u32, from_ms: u64, to_ms: u64) {
        (from_ms..=to_ms).step_by(100).for_each(|at| self.add(at, process, Awake));
    }

    /// The process writes nothing between these times.
    fn is_silent(&mut self, process: u32, from_ms: u64, to_ms: u64) {
        self.events
            .retain(|event| event.process != process || event.at <= from_ms * MS || event.at >= to_ms * MS);
    }

    /// A call that waits from then on.
    fn asks(&mut self, at_ms: u64, process: u32, lock: Examined) -> u32 {
        self.calls += 1;
        self.add(at_ms, process, Asked { call: self.calls, lock, number: 0 });
        self.calls
    }

    fn gives_up(&mut self, process: u32, lock: Examined, from_ms: u64, to_ms: u64) {
        let call = self.asks(from_ms, process, lock);
        self.add(to_ms, process, GaveUp { call });
    }

    /// A section that ends as it should.
    fn holds(&mut self, process: u32, lock: Examined, [asked, entered, leaving]: [u64; 3]) {
        let call = self.enters(process, lock, [asked, entered]);
        self.add(leaving, process, Leaving { call });
        self.add(leaving + 1, process, Left { call, ok: true });
    }

    fn enters(&mut self, process: u32, lock: Examined, [asked, entered]: [u64; 2]) -> u32 {
        let call = self.asks(asked, process, lock);
        self.add(entered, process, Entered { call, token: None });
        call
    }

    fn gets(&mut self, process: u32, token: u64, [asked, entered, leaving]: [u64; 3]) {
        let call = self.asks(asked, process, Fenced);
        self.add(entered, process, Entered { call, token: Some(token) });
        self.add(leaving, process, Leaving { call });
        self.add(leaving + 1, process, Left { call, ok: true });
    }

    fn verdict(mut self) -> Verdict {
        self.events.sort_by_key(|event| event.at);
        judge(&self.events)
    }

    /// What was broken, and how often.
    #[track_caller]
    fn breaks(self, expected: &[(Rule, u64)]) {
        let verdict = self.verdict();
        let counts: Vec<_> = verdict.counts.clone().into_iter().collect();
        assert_eq!(counts, expected, "{:#?}", verdict.violations);
    }
}

#[test]
fn holds_that_follow_each_other_are_counted() {
    let mut scene = Scene::of(Rlock, &[(1, [0, 10, 20]), (2, [5, 21, 30]), (2, [40, 41, 50])]);
    scene.add(60, 1, FailedOver { server: "a".to_owned() });
    let verdict = scene.verdict();
    assert_eq!((verdict.grants, verdict.handed_over, verdict.failovers), (3, 1, 1));
    assert!(verdict.counts.is_empty());
}

#[test]
fn overlapping_sections_are_two_holders() {
    Scene::of(Rlock, &[(1, [0, 10, 20]), (2, [5, 19, 30])]).breaks(&[(Rule::TwoHolders, 1)]);
}

#[test]
fn sections_that_touch_do_not_overlap() {
    Scene::of(Rlock, &[(1, [0, 10, 20]), (2, [5, 20, 30])]).breaks(&[]);
}

#[test]
fn a_section_of_a_dead_process_ends_with_its_last_step() {
    let mut scene = Scene::new();
    scene.is_silent(1, 100, END);
    let call = scene.enters(1, Rlock, [50, 60]);
    scene.add(90, 1, Worked { call });
    scene.add(95, 1, Killed);
    scene.holds(2, Rlock, [80, 3_050, 3_060]);
    scene.holds(2, Rlock, [80, 91, 92]);
    let verdict = scene.verdict();
    assert!(verdict.counts.is_empty() && verdict.deaths == 1, "{verdict:#?}");
}

#[test]
fn a_step_after_a_pause_belongs_to_the_section() {
    let mut scene = Scene::new();
    scene.is_silent(1, 100, 5_000);
    let call = scene.enters(1, Rlock, [50, 60]);
    scene.add(5_001, 1, Worked { call });
    scene.holds(2, Rlock, [80, 4_000, 4_010]);
    scene.breaks(&[(Rule::TwoHolders, 1)]);
}

#[test]
fn a_long_section_overlaps_with_each_later_one() {
    Scene::of(Rlock, &[(1, [0, 10, 1_000]), (2, [5, 20, 30]), (2, [40, 50, 60])])
        .breaks(&[(Rule::TwoHolders, 2)]);
}

#[test]
fn readers_share_and_a_writer_excludes_them() {
    Scene::of(Read, &[(1, [0, 10, 100]), (2, [0, 20, 100])]).breaks(&[]);
    let mut scene = Scene::of(Read, &[(1, [0, 10, 100])]);
    scene.holds(2, Write, [0, 20, 30]);
    scene.breaks(&[(Rule::TwoHolders, 1)]);
    let mut scene = Scene::of(Write, &[(1, [0, 10, 100])]);
    scene.holds(2, Read, [0, 20, 30]);
    scene.breaks(&[(Rule::TwoHolders, 1)]);
}

#[test]
fn a_third_permit_of_two_is_one_too_many() {
    Scene::of(Semaphore, &[(1, [0, 10, 100]), (2, [0, 20, 100])]).breaks(&[]);
    let mut scene = Scene::new();
    for process in [1, 2, 1] {
        scene.holds(process, Semaphore, [0, 10, 100]);
    }
    scene.breaks(&[(Rule::TwoHolders, 1)]);
}

#[test]
fn other_locks_exclude_nothing() {
    let mut scene = Scene::new();
    for lock in [Rlock, Fair, Fenced, Write, Semaphore] {
        scene.holds(1, lock, [0, 10, 20]);
    }
    scene.breaks(&[]);
}

#[test]
fn a_worker_that_goes_on_after_a_loss_is_named() {
    let mut scene = Scene::new();
    let call = scene.enters(1, Rlock, [0, 10]);
    scene.add(900, 1, Told { call });
    scene.add(1_200, 1, Worked { call });
    scene.holds(2, Rlock, [20, 1_100, 1_110]);
    let verdict = scene.verdict();
    assert_eq!(verdict.count(Rule::TwoHolders), 1);
    assert!(
        verdict.violations[0].text.contains("Worker 1 had been told of its loss, and went on"),
        "{verdict:#?}"
    );
    assert_eq!(verdict.earliest_notice_ms, Some(200));
}

#[test]
fn a_loss_that_is_told_after_the_next_grant_is_late() {
    let mut scene = Scene::new();
    let call = scene.enters(1, Rlock, [0, 10]);
    scene.holds(2, Rlock, [20, 1_000, 1_010]);
    scene.add(1_700, 1, Told { call });
    scene.breaks(&[(Rule::ToldLate, 1)]);
}

#[test]
fn a_process_that_did_not_run_is_not_late() {
    let mut scene = Scene::new();
    scene.is_silent(1, 100, 5_000);
    let call = scene.enters(1, Rlock, [0, 10]);
    scene.holds(2, Rlock, [20, 3_100, 3_110]);
    scene.add(5_001, 1, Told { call });
    scene.breaks(&[]);
}

#[test]
fn a_token_must_be_greater_than_all_before() {
    let mut scene = Scene::new();
    scene.gets(1, 7, [0, 10, 20]);
    scene.gets(2, 8, [0, 30, 40]);
    scene.gets(1, 9, [0, 50, 60]);
    scene.breaks(&[]);
    for token in [6, 8] {
        let mut scene = Scene::new();
        scene.gets(1, 7, [0, 10, 20]);
        scene.gets(2, 8, [0, 30, 40]);
        scene.gets(1, token, [0, 50, 60]);
        scene.breaks(&[(Rule::TokenNotGreater, 1)]);
    }
}

#[test]
fn a_waiter_beside_a_free_lock_is_found() {
    Scene::of(Rlock, &[(1, [0, 10, 20]), (2, [5, 2_100, 2_110])]).breaks(&[(Rule::SleepingWaiter, 1)]);
}

#[test]
fn a_waiter_that_gives_up_beside_a_free_lock_is_found() {
    let mut scene = Scene::of(Rlock, &[(1, [0, 10, 20])]);
    scene.gives_up(2, Rlock, 5, 2_100);
    let verdict = scene.verdict();
    assert_eq!(verdict.count(Rule::SleepingWaiter), 1);
    assert_eq!(verdict.longest_wait_beside_free_lock_ms, 2_079);
}

#[test]
fn a_waiter_behind_holders_does_not_sleep() {
    let mut scene = Scene::new();
    for start in [10, 1_510, 3_010] {
        scene.holds(1, Rlock, [start, start, start + 1_490]);
    }
    scene.holds(2, Rlock, [5, 4_510, 4_520]);
    scene.breaks(&[]);
}

#[test]
fn a_free_permit_beside_a_waiter_is_found() {
    let mut scene = Scene::of(Semaphore, &[(1, [0, 10, 5_000])]);
    scene.gives_up(2, Semaphore, 5, 4_000);
    scene.breaks(&[(Rule::SleepingWaiter, 1)]);
    let mut scene = Scene::of(Semaphore, &[(1, [0, 10, 5_000]), (1, [0, 10, 5_000])]);
    scene.gives_up(2, Semaphore, 15, 4_000);
    scene.breaks(&[]);
}

#[test]
fn the_lease_of_a_dead_holder_must_end_first() {
    let mut scene = Scene::new();
    scene.is_silent(1, 100, END);
    let _held = scene.enters(1, Rlock, [50, 60]);
    scene.add(150, 1, Killed);
    scene.holds(2, Rlock, [80, 3_200, 3_210]);
    scene.breaks(&[]);
}

#[test]
fn the_lease_of_a_lost_hold_must_end_first() {
    let mut scene = Scene::new();
    let call = scene.enters(1, Rlock, [50, 60]);
    scene.add(1_000, 1, Told { call });
    scene.holds(2, Rlock, [80, 5_000, 5_010]);
    scene.breaks(&[]);
}

#[test]
fn a_killed_waiter_may_have_been_granted_the_lock() {
    let mut scene = Scene::new();
    scene.is_silent(1, 1_000, END);
    let _asked = scene.asks(900, 1, Rlock);
    scene.add(1_050, 1, Killed);
    scene.holds(2, Rlock, [950, 4_100, 4_110]);
    scene.breaks(&[]);
}

#[test]
fn a_killed_process_may_not_have_released_what_it_gave_up() {
    let mut scene = Scene::new();
    scene.is_silent(1, 1_000, END);
    scene.gives_up(1, Rlock, 800, 950);
    scene.add(1_050, 1, Killed);
    scene.holds(2, Rlock, [900, 4_100, 4_110]);
    scene.breaks(&[]);
}

#[test]
fn a_cut_waiter_cannot_hear_of_a_release() {
    let mut scene = Scene::of(Rlock, &[(1, [0, 10, 20])]);
    scene.add(15, 2, Cut);
    scene.add(2_500, 2, Joined);
    scene.holds(2, Rlock, [5, 2_600, 2_610]);
    scene.breaks(&[]);
}

#[test]
fn a_silent_server_excuses_waits() {
    let mut scene = Scene::new();
    scene.is_silent(MAIN, 100, 2_300);
    scene.holds(1, Rlock, [0, 10, 20]);
    scene.holds(2, Rlock, [15, 2_400, 2_410]);
    let verdict = scene.verdict();
    assert!(verdict.counts.is_empty() && verdict.outage_ms == 2_200, "{verdict:#?}");
}

#[test]
fn a_server_that_never_answers_excuses_waits() {
    let mut scene = Scene::new();
    scene.is_silent(MAIN, 0, END);
    scene.gives_up(2, Rlock, 15, 10_000);
    let verdict = scene.verdict();
    assert!(verdict.counts.is_empty() && verdict.outage_ms == END, "{verdict:#?}");
}

#[test]
fn a_failover_excuses_waits() {
    let mut scene = Scene::new();
    scene.add(1_000, MAIN, FailedOver { server: "a".to_owned() });
    scene.holds(1, Rlock, [0, 10, 20]);
    scene.holds(2, Rlock, [15, 2_400, 2_410]);
    scene.breaks(&[]);
}

#[test]
fn a_fair_lock_is_granted_in_the_order_of_the_calls() {
    Scene::of(Fair, &[(1, [0, 10, 1_000]), (2, [100, 1_010, 1_020]), (1, [900, 1_030, 1_040])]).breaks(&[]);
    Scene::of(Fair, &[(1, [0, 10, 1_000]), (2, [100, 1_030, 1_040]), (1, [900, 1_010, 1_020])])
        .breaks(&[(Rule::OutOfTurn, 1)]);
}

#[test]
fn calls_that_began_together_have_no_order() {
    Scene::of(Fair, &[(1, [0, 10, 1_000]), (2, [100, 1_030, 1_040]), (1, [500, 1_010, 1_020])]).breaks(&[]);
}

#[test]
fn a_fair_waiter_that_was_passed_over_and_gave_up_is_found() {
    let mut scene = Scene::of(Fair, &[(1, [0, 10, 1_000])]);
    scene.gives_up(2, Fair, 100, 1_900);
    scene.holds(1, Fair, [900, 1_010, 1_020]);
    scene.breaks(&[(Rule::OutOfTurn, 1)]);
    // A waiter that was about to leave the queue may be passed over.
    let mut scene = Scene::of(Fair, &[(1, [0, 10, 1_000])]);
    scene.gives_up(2, Fair, 100, 1_020);
    scene.holds(1, Fair, [900, 1_010, 1_020]);
    scene.breaks(&[]);
}

#[test]
fn other_locks_have_no_order() {
    Scene::of(Rlock, &[(1, [0, 10, 1_000]), (2, [100, 1_030, 1_040]), (1, [900, 1_010, 1_020])]).breaks(&[]);
}

#[test]
fn a_fair_waiter_that_did_not_run_loses_its_place() {
    let mut scene = Scene::new();
    scene.is_silent(2, 200, 9_000);
    scene.holds(1, Fair, [0, 10, 8_000]);
    scene.holds(2, Fair, [100, 9_030, 9_040]);
    scene.holds(1, Fair, [900, 8_010, 8_020]);
    scene.breaks(&[]);
}

#[test]
fn keys_that_are_left_are_named() {
    let mut scene = Scene::new();
    scene.add(END, MAIN, LeftBehind { keys: vec!["a".to_owned(), "b".to_owned()] });
    let verdict = scene.verdict();
    assert_eq!((verdict.count(Rule::LeftBehind), verdict.keys_left_behind), (1, Some(2)));
    assert!(verdict.violations[0].text.contains("a, b"), "{verdict:#?}");
    let mut scene = Scene::new();
    scene.add(END, MAIN, LeftBehind { keys: Vec::new() });
    scene.breaks(&[]);
}

#[test]
fn the_picture_has_a_line_for_each_process() {
    let verdict = Scene::of(Rlock, &[(1, [0, 10, 20]), (2, [5, 15, 30])]).verdict();
    let picture = &verdict.violations[0].picture;
    assert!(picture.len() == 3 && picture[0].starts_with("worker 1   |"), "{picture:#?}");
    assert!(picture[0].contains('#') && picture[1].contains('.'), "{picture:#?}");
}

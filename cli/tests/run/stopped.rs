//! Processes of `lockkeeper` that are stopped or killed. A second contender is never inside before the first one is gone.

use lockkeeper_testkit::signal;

use super::support::{ALONE, Contender, LEASE, Scene, now, wait_until};

/// A command whose processes do not end by themselves, and not by `SIGTERM`.
const STUBBORN: &str = "trap '' TERM HUP; WORKER & WORKER & wait";

/// The first contender is inside, and the second waits.
fn two(scene: &Scene, script: &str, processes: usize) -> (Contender, Contender) {
    let first = Contender::start(scene, "first", &[], script, None).enters_with(processes);
    (first, Contender::plain(scene, "second").waits(scene))
}

fn a_lease_passes() {
    let start = now();
    wait_until("a lease and more is over", || now() - start > LEASE + LEASE / 2);
}

#[test]
fn a_killed_front_ends_the_command() {
    for script in [ALONE, STUBBORN] {
        let scene = Scene::new();
        let (first, second) = two(&scene, script, if script == ALONE { 1 } else { 2 });
        first.signal_front("KILL");
        assert_eq!(first.code(), None);
        assert_eq!(second.enters().finish(), Some(0));
        scene.log().assert_apart("first", "second");
    }
}

#[test]
fn a_killed_keeper_ends_the_command() {
    for script in [ALONE, STUBBORN] {
        let scene = Scene::new();
        let (first, second) = two(&scene, script, if script == ALONE { 1 } else { 2 });
        first.signal_keeper("KILL");
        assert_eq!(first.code(), Some(76));
        assert_eq!(second.enters().finish(), Some(0));
        scene.log().assert_apart("first", "second");
    }
}

#[test]
fn a_stopped_front_keeps_the_lock() {
    let scene = Scene::new();
    let (first, second) = two(&scene, ALONE, 1);
    first.signal_front("STOP");
    a_lease_passes();
    assert!(!second.is_inside());
    first.signal_front("CONT");
    assert_eq!(first.finish(), Some(0));
    assert_eq!(second.enters().finish(), Some(0));
    scene.log().assert_apart("first", "second");
}

#[test]
fn a_stopped_keeper_ends_the_command() {
    for script in [ALONE, STUBBORN] {
        let scene = Scene::new();
        let (first, second) = two(&scene, script, if script == ALONE { 1 } else { 2 });
        let keeper = first.keeper();
        signal(keeper, "STOP");
        assert_eq!(second.enters().finish(), Some(0));
        assert_eq!(first.code(), Some(76));
        scene.log().assert_apart("first", "second");
        signal(keeper, "CONT");
    }
}

#[test]
fn a_stopped_keeper_does_not_stop_the_front_from_ending() {
    let scene = Scene::new();
    let first = Contender::start(&scene, "first", &[], &format!("({ALONE}); exit 5"), None).enters();
    let keeper = first.keeper();
    signal(keeper, "STOP");
    assert_eq!(first.finish(), Some(5));
    signal(keeper, "CONT");
}

#[test]
fn a_killed_front_and_a_stopped_keeper_end_the_command() {
    let scene = Scene::new();
    let (first, second) = two(&scene, ALONE, 1);
    let keeper = first.keeper();
    signal(keeper, "STOP");
    first.signal_front("KILL");
    assert_eq!(first.code(), None);
    assert_eq!(second.enters().finish(), Some(0));
    scene.log().assert_apart("first", "second");
    signal(keeper, "CONT");
}

#[test]
fn a_killed_front_and_a_killed_keeper_end_the_command() {
    let scene = Scene::new();
    let (first, second) = two(&scene, ALONE, 1);
    first.signal_front("STOP");
    first.signal_keeper("KILL");
    first.signal_front("KILL");
    assert_eq!(first.code(), None);
    assert_eq!(second.enters().finish(), Some(0));
    scene.log().assert_apart("first", "second");
}

/// While both are stopped, nothing can stop the command: `cli/README.md` says so.
#[test]
fn both_stopped_past_the_lease_end_the_command_when_they_continue() {
    let scene = Scene::new();
    let (first, second) = two(&scene, STUBBORN, 2);
    let keeper = first.keeper();
    signal(keeper, "STOP");
    first.signal_front("STOP");
    let second = second.enters();
    first.signal_front("CONT");
    assert_eq!(first.code(), Some(76));
    signal(keeper, "CONT");
    assert_eq!(second.finish(), Some(0));
}

#[test]
fn no_command_starts_before_the_keeper_can_stop_it() {
    for front_is_killed in [true, false] {
        let scene = Scene::new();
        let holder = Contender::plain(&scene, "holder").enters();
        let first = Contender::start(&scene, "first", &[], STUBBORN, None).waits(&scene);
        let keeper = first.keeper();
        first.signal_front("STOP");
        assert_eq!(holder.finish(), Some(0));
        wait_until("the keeper has told that it has the lock", || scene.processes.has_written(keeper));
        signal(keeper, "STOP");
        first.signal_front("CONT");
        wait_until("the command is started", || first.command().is_some());
        if front_is_killed {
            first.signal_front("KILL");
            assert_eq!(first.code(), None);
        } else {
            assert_eq!(first.code(), Some(76));
        }
        assert!(scene.log().span("first").is_none());
        signal(keeper, "CONT");
    }
}

/// With and without renewals.
#[test]
fn a_lock_that_is_granted_to_a_stopped_front_is_released_and_nothing_starts() {
    for options in [&[][..], &["--lease", "1s"]] {
        let scene = Scene::new();
        let holder = Contender::plain(&scene, "holder").enters();
        let first = Contender::start(&scene, "first", options, ALONE, None).waits(&scene);
        first.signal_front("STOP");
        assert_eq!(holder.finish(), Some(0));
        wait_until("the keeper has the lock", || !scene.keys().is_empty());
        wait_until("the lock is free", || scene.keys().is_empty());
        first.signal_front("CONT");
        assert_eq!(first.code(), Some(69));
        assert!(scene.log().span("first").is_none());
    }
}

#[test]
fn a_command_that_ends_while_the_front_is_stopped_releases_the_lock() {
    for is_continued in [true, false] {
        let scene = Scene::new();
        let script = format!("({ALONE}); exit 5");
        let (first, second) = two(&scene, &script, 1);
        first.signal_front("STOP");
        first.stop_working();
        let second = second.enters();
        scene.log().assert_apart("first", "second");
        if is_continued {
            // Longer than the front knows that the lock is held.
            a_lease_passes();
            first.signal_front("CONT");
            assert_eq!(first.code(), Some(5));
        } else {
            first.signal_front("KILL");
            assert_eq!(first.code(), None);
        }
        assert_eq!(second.finish(), Some(0));
    }
}

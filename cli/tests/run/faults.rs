//! Faults of the server and of the network. A second contender is never inside before the first one is gone.

use std::process::Stdio;
use std::time::Duration;

use super::support::{ALONE, Contender, LEASE, Network, Scene, now, problem, wait_until};

/// The network fails while the first contender runs this script.
fn network_fails(script: &str, processes: usize, fault: impl FnOnce(&Network, &Contender)) {
    let scene = Scene::new();
    let network = Network::to(&scene);
    let first = Contender::start(&scene, "first", &[], script, Some(&network.proxy.url()));
    let first = first.enters_with(processes);
    let second = Contender::plain(&scene, "second").waits(&scene);
    fault(&network, &first);
    let second = second.enters();
    assert_eq!(second.finish(), Some(0));
    // If its front was stopped.
    first.signal_front("CONT");
    assert_eq!(first.code(), Some(76));
    scene.log().assert_apart("first", "second");
}

#[test]
fn a_black_hole_stops_the_command_in_time() {
    network_fails(ALONE, 1, |network, _| network.black_hole());
}

#[test]
fn a_cut_network_stops_the_command_in_time() {
    network_fails(ALONE, 1, |network, _| network.cut());
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_in_time() {
    network_fails(&format!("trap '' TERM; {ALONE}"), 1, |network, _| network.black_hole());
}

#[test]
fn all_processes_of_the_group_are_killed_in_time() {
    let script = "trap '' TERM; WORKER & (WORKER & WORKER) & wait";
    network_fails(script, 3, |network, _| network.black_hole());
}

#[test]
fn a_command_that_is_stopped_is_killed_in_time() {
    network_fails(ALONE, 1, |network, first| {
        lockkeeper_testkit::signal(first.command().expect("a command"), "STOP");
        network.black_hole();
    });
}

#[test]
fn a_stopped_front_and_a_black_hole_the_keeper_kills() {
    network_fails("WORKER & WORKER", 2, |network, first| {
        first.signal_front("STOP");
        network.black_hole();
    });
}

#[test]
fn a_stopped_keeper_and_a_black_hole_the_front_kills() {
    let scene = Scene::new();
    let network = Network::to(&scene);
    let first = Contender::start(&scene, "first", &[], ALONE, Some(&network.proxy.url())).enters();
    let second = Contender::plain(&scene, "second").waits(&scene);
    let keeper = first.keeper();
    lockkeeper_testkit::signal(keeper, "STOP");
    network.black_hole();
    assert_eq!(second.enters().finish(), Some(0));
    assert_eq!(first.code(), Some(76));
    scene.log().assert_apart("first", "second");
    lockkeeper_testkit::signal(keeper, "CONT");
}

#[test]
fn a_short_fault_stops_nothing() {
    let scene = Scene::new();
    let network = Network::to(&scene);
    let first = Contender::start(&scene, "first", &[], ALONE, Some(&network.proxy.url())).enters();
    network.proxy.cut();
    let start = now();
    wait_until("two leases are over", || now() - start > 2 * LEASE);
    assert_eq!(first.finish(), Some(0));
}

#[test]
fn a_killed_server_stops_the_command_before_the_lease_ends() {
    let mut scene = Scene::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let first = Contender::plain(&scene, "first").enters();
    scene.server.kill();
    let killed = now();
    assert_eq!(first.code(), Some(76));
    let last = scene.log().span("first").expect("it ran").last;
    assert!(last < killed + LEASE, "{:?} after the last renewal", last - killed);
    scene.server.start_again();
    let second = Contender::plain(&scene, "second").enters();
    assert_eq!(second.finish(), Some(0));
    scene.log().assert_apart("first", "second");
}

#[test]
fn a_server_that_comes_back_in_time_stops_nothing() {
    let mut scene = Scene::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let first = Contender::plain(&scene, "first").enters();
    let second = Contender::plain(&scene, "second").waits(&scene);
    scene.server.restart();
    let start = now();
    wait_until("two leases are over", || now() - start > 2 * LEASE);
    assert!(!second.is_inside());
    assert_eq!((first.finish(), second.enters().finish()), (Some(0), Some(0)));
    scene.log().assert_apart("first", "second");
}

#[test]
fn a_lock_that_was_deleted_stops_the_command() {
    let scene = Scene::new();
    let first = Contender::start(&scene, "first", &[], &format!("trap '' TERM; {ALONE}"), None).enters();
    let _: u32 = scene.server.run(&["DEL", "lock"]);
    assert_eq!(first.code(), Some(76));
}

#[test]
fn what_ended_the_lock_is_told() {
    let mut scene = Scene::new();
    let told = |front: std::process::Child| problem(&front.wait_with_output().expect("an end"));
    let start = |options: &[&str]| {
        let args = [&["run"], options, &["lock", "--", "sh", "-c", "touch inside; exec sleep 60"]].concat();
        let mut command = scene.lockkeeper(&args);
        let front = command.stderr(Stdio::piped()).spawn().expect("lockkeeper runs");
        wait_until("the command runs", || scene.dir().join("inside").exists());
        scene.remove("inside");
        front
    };
    for (options, text) in [
        (
            &["--lease", "2s"][..],
            "lockkeeper: lock `lock`: the time of --lease is over. The command was stopped with SIGTERM\n",
        ),
        (&["--max-hold", "2s"], "the time of --max-hold is over"),
        (&["--max-hold", "9s", "--lease", "2s"], "the time of --lease is over"),
    ] {
        let told = told(start(options));
        assert!(told.contains(text), "{options:?}: {told}");
    }
    let front = start(&[]);
    let _: u32 = scene.server.run(&["DEL", "lock"]);
    let removed = told(front);
    assert!(removed.contains("somebody released or deleted it"), "{removed}");
    let front = start(&["--max-hold", "50s"]);
    scene.server.kill();
    let outage = told(front);
    assert!(outage.contains("the lock could not be renewed in time"), "{outage}");
}

#[test]
fn what_became_of_the_command_is_told() {
    let scene = Scene::new();
    for (script, code, text) in [
        ("trap '' TERM; sleep 60", 76, "The command was stopped with SIGKILL\n"),
        ("trap 'exit 3' TERM; sleep 60 & wait", 76, "The command was told to stop, and ended with code 3\n"),
    ] {
        let output = scene.output(&["run", "--lease", "2s", "lock", "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{script}");
        assert!(problem(&output).ends_with(text), "{script}: {}", problem(&output));
    }
}

#[test]
fn a_lock_that_was_lost_before_the_command_ended_is_76() {
    let scene = Scene::new();
    let first = Contender::plain(&scene, "first").enters();
    let _: u32 = scene.server.run(&["DEL", "lock"]);
    assert_eq!(first.finish(), Some(76));
}

#[test]
fn a_lost_server_at_the_end_changes_no_exit_code() {
    let mut scene = Scene::new();
    let first = Contender::start(&scene, "first", &[], &format!("({ALONE}); exit 5"), None).enters();
    scene.server.kill();
    let start = now();
    assert_eq!(first.finish(), Some(5));
    // The front does not wait for longer than the lease and a little.
    assert!(now() - start < LEASE + Duration::from_secs(10));
}

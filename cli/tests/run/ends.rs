//! What a command leaves behind when it ends, and `lockkeeper run` that is killed at any moment.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::support::{ALONE, Contender, Scene, wait_until};

#[test]
fn what_the_command_left_behind_is_ended_before_the_lock() {
    for trap in ["", "trap '' TERM; "] {
        let scene = Scene::new();
        let script = format!("{trap}WORKER & (WORKER) & until [ -e leave ]; do sleep 0.01; done; exit 6");
        let first = Contender::start(&scene, "first", &[], &script, None).enters_with(2);
        let second = Contender::plain(&scene, "second").waits(&scene);
        scene.write("leave", "");
        assert_eq!(first.code(), Some(6));
        assert_eq!(second.enters().finish(), Some(0));
        scene.log().assert_apart("first", "second");
    }
}

/// A list of processes is out of date when a process has started its successor and ended.
#[test]
fn a_chain_of_processes_is_ended() {
    let scene = Scene::new();
    // It ends by itself, should it survive.
    scene.write("chain.sh", "trap '' TERM; [ -e chain.sh ] && sh ./chain.sh & exit");
    for _ in 0..5 {
        assert_eq!(
            scene.run(&["--lease", "20s", "--grace", "100ms"], "exec >&- 2>&-; sh ./chain.sh; exit 3"),
            3
        );
        for _ in 0..20 {
            // The keeper may live on for a moment.
            if scene.processes.arguments().contains("chain.sh") {
                scene.remove("chain.sh");
                panic!("the chain goes on");
            }
        }
    }
}

/// In a container, the first process often asks for no status of the orphans that it inherits. Here this process does not.
#[test]
fn zombies_do_not_hold_up_the_end() {
    nix::sys::prctl::set_child_subreaper(true).expect("orphans come here");
    let scene = Scene::new();
    let start = Instant::now();
    let script = "WORKER & until [ -e leave ]; do sleep 0.01; done; exit 6";
    let first =
        Contender::start(&scene, "first", &["--lease", "20s", "--grace", "10s"], script, None).enters();
    scene.write("leave", "");
    assert_eq!(first.code(), Some(6));
    assert!(start.elapsed() < Duration::from_secs(8), "it waited for the zombie");
}

#[test]
fn an_end_at_any_moment_leaves_no_process_and_no_lock() {
    let scene = Scene::new();
    for round in 0..30 {
        let script = "trap '' TERM HUP; sleep 60 & sleep 60";
        let front = Contender::start(&scene, "first", &[], script, None);
        sleep(Duration::from_millis(round)); // a different moment each time
        front.signal_front("KILL");
        assert_eq!(front.code(), None);
        scene.processes.wait_until_gone();
        wait_until("the lock is free", || scene.keys().is_empty());
    }
    assert_eq!(Contender::start(&scene, "last", &["--try"], ALONE, None).enters().finish(), Some(0));
}

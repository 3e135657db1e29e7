//! What passes through `lockkeeper run`: standard streams, arguments, the environment and signals.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use lockkeeper_testkit::{Faults, signal};

use super::support::{ALONE, Contender, Network, Scene, problem, state_of, text, wait_until};

#[test]
fn the_standard_streams_are_those_of_the_command() {
    let scene = Scene::new();
    let mut command = scene.lockkeeper(&["run", "lock", "--", "sh", "-c", "tr a-z A-Z; echo problem >&2"]);
    let mut front = command.stdin(Stdio::piped()).spawn().expect("lockkeeper runs");
    // More than a pipe holds.
    let sent = "hello\n".repeat(50_000);
    let mut input = front.stdin.take().expect("a pipe");
    let (writer, bytes) = (sent.clone(), sent.to_uppercase());
    let writing = std::thread::spawn(move || input.write_all(writer.as_bytes()));
    let output = front.wait_with_output().expect("an end");
    writing.join().expect("a thread").expect("everything is read");
    assert_eq!(text(&output), bytes);
    assert_eq!(problem(&output), "problem\n");
}

#[test]
fn the_command_inherits_nothing_else() {
    let scene = Scene::new();
    let list = "ls /proc/self/fd";
    let direct = std::process::Command::new("sh").args(["-c", list]).output().expect("a shell");
    let output = scene.output(&["run", "lock", "--", "sh", "-c", list]);
    assert_eq!(text(&output), text(&direct));
}

#[test]
fn arguments_pass_without_a_shell() {
    let scene = Scene::new();
    let output =
        scene.output(&["run", "lock", "--", "printf", "%s|", "a b", "$HOME", "*", "", "--try", "--"]);
    assert_eq!(text(&output), "a b|$HOME|*||--try|--|");
    // Bytes that are no text.
    let mut command = scene.lockkeeper(&["run", "lock", "printf", "%s"]);
    let output = command.arg(OsStr::from_bytes(b"\xff\xfe")).output().expect("lockkeeper runs");
    assert_eq!(output.stdout, b"\xff\xfe");
}

#[test]
fn the_environment_has_the_name_and_the_token() {
    let scene = Scene::new();
    let show = "echo $LOCKKEEPER_NAME ${LOCKKEEPER_TOKEN-none}";
    let shown = |kind: &str| {
        let mut command = scene.lockkeeper(&["run", "--kind", kind, "a lock", "--", "sh", "-c", show]);
        text(&command.env("LOCKKEEPER_TOKEN", "7").output().expect("lockkeeper runs"))
    };
    for kind in ["rlock", "fair", "read", "write"] {
        assert_eq!(shown(kind), "a lock none\n", "{kind}");
    }
    let token = || shown("fenced").trim().strip_prefix("a lock ").and_then(|token| token.parse::<u64>().ok());
    let (first, second) = (token().expect("a token"), token().expect("a token"));
    assert!(first < second);
}

#[test]
fn the_command_hears_once_that_another_owner_waits() {
    let scene = Scene::new();
    let script = "trap 'echo asked; touch asked' USR1; until [ -e end ]; do sleep 0.05; done";
    let mut holder = scene.lockkeeper(&["run", "--when-wanted", "usr1", "lock", "--", "sh", "-c", script]);
    let holder = holder.current_dir(scene.dir()).stdout(Stdio::piped()).spawn().expect("lockkeeper runs");
    wait_until("the lock is held", || !scene.keys().is_empty());
    assert!(!scene.dir().join("asked").exists());
    let waiting = scene.lockkeeper(&["run", "lock", "--", "true"]).spawn().expect("lockkeeper runs");
    wait_until("the command hears it", || scene.dir().join("asked").exists());
    std::fs::write(scene.dir().join("end"), "").expect("a file");
    let output = holder.wait_with_output().expect("an end");
    assert_eq!(text(&output), "asked\n");
    assert!(waiting.wait_with_output().expect("an end").status.success());
}

#[test]
fn the_environment_has_the_owner_as_show_names_it() {
    let scene = Scene::new();
    for kind in ["rlock", "write"] {
        let script = "\"$0\" show lock | grep -qF \"($LOCKKEEPER_OWNER), 1 hold\"";
        let program = env!("CARGO_BIN_EXE_lockkeeper");
        let mut command =
            scene.lockkeeper(&["run", "--kind", kind, "lock", "--", "sh", "-c", script, program]);
        let output = command.env("LOCKKEEPER_OWNER", "other").output().expect("lockkeeper runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[test]
fn signals_reach_the_command() {
    let scene = Scene::new();
    for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("USR1", 10), ("USR2", 12), ("TERM", 15)] {
        let script =
            format!("trap 'echo {name} > got; exit 3' {name}; touch ready; while :; do sleep 0.01; done");
        let mut command = scene.lockkeeper(&["run", "lock", "--", "sh", "-c", &script]);
        let mut front = command.spawn().expect("lockkeeper runs");
        wait_until("the command runs", || scene.dir().join("ready").exists());
        signal(front.id(), name);
        assert_eq!(front.wait().expect("an end").code(), Some(3), "{name}");
        assert_eq!(scene.read("got"), format!("{name}\n"));
        scene.remove("ready");
        // And without a trap.
        let contender = Contender::start(&scene, name, &[], ALONE, None).enters();
        contender.signal_front(name);
        assert_eq!(contender.code(), Some(128 + number), "{name}");
    }
    assert!(scene.keys().is_empty());
}

#[test]
fn a_signal_ends_a_command_that_is_stopped() {
    let scene = Scene::new();
    for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15)] {
        let contender = Contender::start(&scene, name, &[], ALONE, None).enters();
        let command = contender.command().expect("a command");
        signal(command, "STOP");
        wait_until("it is stopped", || state_of(command) == 'T');
        contender.signal_front(name);
        assert_eq!(contender.code(), Some(128 + number), "{name}");
    }
}

#[test]
fn a_command_that_lives_on_after_a_signal_keeps_the_lock() {
    let scene = Scene::new();
    let contender = Contender::start(&scene, "first", &[], &format!("trap '' TERM; {ALONE}"), None).enters();
    contender.signal_front("TERM");
    let second = Contender::plain(&scene, "second").waits(&scene);
    assert_eq!(contender.finish(), Some(0));
    assert_eq!(second.enters().finish(), Some(0));
    scene.log().assert_apart("first", "second");
}

#[test]
fn ignored_signals_stay_ignored() {
    let scene = Scene::new();
    let script = r#"trap '' HUP; exec "$0" run lock -- sh -c 'kill -HUP $$; kill -HUP $PPID; exit 5'"#;
    let mut command = scene.shell(script);
    assert_eq!(command.status().expect("a shell").code(), Some(5));
}

#[test]
fn a_signal_to_the_keeper_as_well_ends_the_command_and_then_the_lock() {
    let scene = Scene::new();
    let contender = Contender::plain(&scene, "first").enters();
    contender.signal_keeper("TERM");
    contender.signal_front("TERM");
    assert_eq!(contender.code(), Some(143));
    assert!(scene.keys().is_empty());
}

#[test]
fn a_signal_ends_the_waiting_and_leaves_nothing_on_the_server() {
    let scene = Scene::new();
    let holder = Contender::start(&scene, "holder", &["--kind", "fair"], ALONE, None).enters();
    for (name, code) in [("TERM", Some(143)), ("INT", Some(130)), ("KILL", None)] {
        let waiter = Contender::start(&scene, "waiter", &["--kind", "fair"], ALONE, None);
        wait_until("it is queued", || scene.keys().len() > 1);
        waiter.signal_front(name);
        assert_eq!(waiter.code(), code);
        wait_until("nobody is queued", || scene.keys() == ["lock"]);
    }
    assert_eq!(holder.finish(), Some(0));
    assert!(scene.log().span("waiter").is_none());
}

#[test]
fn a_signal_while_the_lock_is_being_granted_releases_it() {
    for name in ["TERM", "KILL"] {
        let scene = Scene::new();
        scene.write("slow.toml", "[locks]\ncommand_timeout = \"5s\"\nstart_timeout = \"10s\"\n");
        let network = Network::to(&scene);
        let options = ["--lease", "1h", "--config", "slow.toml"];
        let holder = Contender::start(&scene, "holder", &options, ALONE, None).enters();
        let waiter = Contender::start(&scene, "waiter", &options, ALONE, Some(&network.proxy.url()));
        let waiter = waiter.waits(&scene);
        // The server grants the lock, and the waiter does not learn it. It perhaps attempts before that, as when it has subscribed.
        let server = scene.server.on_one_connection();
        network.proxy.swallow(0, false, move |words| {
            words.iter().any(|word| word == "lock") && server.run::<u32>(&["EXISTS", "lock"]) == 0
        });
        let owner = || scene.server.run::<Vec<String>>(&["HKEYS", "lock"]);
        let before = owner();
        assert_eq!(holder.finish(), Some(0));
        wait_until("it is granted", || !owner().is_empty() && owner() != before);
        network.black_hole();
        waiter.signal_front(name);
        waiter.code();
        // What was sent until now is lost.
        network.proxy.cut();
        network.proxy.set(Faults::default());
        wait_until("the lock is free", || scene.keys().is_empty());
        assert!(scene.log().span("waiter").is_none());
    }
}

//! The options of `lockkeeper run` that say how the lock is acquired and held.

use std::time::{Duration, Instant};

use lockkeeper_testkit::{Certificates, Server};

use super::support::{ALONE, Contender, LEASE, Scene, problem, wait_until};

/// At most so many commands at a time. The number stays on the server, and nothing else.
#[test]
fn so_many_commands_run_at_a_time_as_there_are_permits() {
    let scene = Scene::new();
    let permits = ["--permits", "2"];
    let first = Contender::start(&scene, "first", &permits, ALONE, None).enters();
    let second = Contender::start(&scene, "second", &permits, ALONE, None).enters();
    assert_eq!(scene.run(&["--permits", "2", "--try"], ":"), 75);
    assert_eq!(first.finish(), Some(0));
    assert_eq!(scene.run(&["--permits", "2", "--try"], ":"), 0);
    assert_eq!(second.finish(), Some(0));
    assert_eq!(scene.run(&["--permits", "0"], ":"), 64);
    assert_eq!(scene.run(&["--permits", "2", "--kind", "fair"], ":"), 64);
    assert_eq!(scene.keys(), ["lock"]);
}

#[test]
fn another_number_of_permits_on_the_server_is_told_before_the_wait() {
    let scene = Scene::new();
    let run = |permits: &'static str| {
        let output = scene.output(&["run", "--permits", permits, "--try", "lock", "--", "true"]);
        (output.status.code(), problem(&output))
    };
    assert_eq!(run("2"), (Some(0), String::new()));
    assert_eq!(run("2"), (Some(0), String::new()));
    let told = "`lock` has 2 permits on the server, and not 5";
    let (code, text) = run("5");
    assert!(code == Some(0) && text.lines().count() == 1 && text.contains(told), "{text}");
    let [first, second] = ["first", "second"]
        .map(|who| Contender::start(&scene, who, &["--permits", "2"], ALONE, None).enters());
    let (code, text) = run("5");
    assert!(code == Some(75) && text.matches(told).count() == 1, "{text}");
    assert_eq!((first.finish(), second.finish()), (Some(0), Some(0)));
}

#[test]
fn each_kind_excludes_and_releases() {
    let scene = Scene::new();
    for kind in ["rlock", "fair", "read", "write", "fenced"] {
        let options = ["--kind", kind];
        let holder = Contender::start(&scene, kind, &options, ALONE, None).enters();
        let other = if kind == "read" { "write" } else { kind };
        assert_eq!(scene.run(&["--kind", other, "--try"], ":"), 75, "{kind}");
        assert_eq!(holder.finish(), Some(0), "{kind}");
        assert!(scene.keys().is_empty(), "{kind}");
    }
}

#[test]
fn readers_run_together() {
    let scene = Scene::new();
    let first = Contender::start(&scene, "first", &["--kind", "read"], ALONE, None).enters();
    let second = Contender::start(&scene, "second", &["--kind", "read"], ALONE, None).enters();
    assert_eq!((first.finish(), second.finish()), (Some(0), Some(0)));
}

#[test]
fn a_waiter_runs_after_the_holder() {
    let scene = Scene::new();
    let first = Contender::plain(&scene, "first").enters();
    let second = Contender::start(&scene, "second", &["--wait", "20s"], ALONE, None).waits(&scene);
    assert_eq!(first.finish(), Some(0));
    assert_eq!(second.enters().finish(), Some(0));
    scene.log().assert_apart("first", "second");
}

#[test]
fn waits_are_added_to_a_file() {
    let scene = Scene::new();
    let record = ["--record", "waits.jsonl"];
    assert_eq!(scene.run(&record, ":"), 0);
    let first = Contender::plain(&scene, "first").enters();
    assert_eq!(scene.run(&[&record[..], &["--try"]].concat(), ":"), 75);
    assert_eq!(scene.run(&[&record[..], &["--wait", "100ms"]].concat(), ":"), 75);
    let second = Contender::start(&scene, "second", &record, ALONE, None).waits(&scene);
    let start = Instant::now();
    wait_until("a lease is over", || start.elapsed() > LEASE + Duration::from_secs(1));
    assert_eq!(first.finish(), Some(0));
    assert_eq!(second.enters().finish(), Some(0));
    let lines = scene.read("waits.jsonl");
    let waits: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let outcomes: Vec<_> = waits.iter().map(|wait| wait["outcome"].as_str().expect("text")).collect();
    assert_eq!(outcomes, ["timed_out", "granted"], "only calls that waited: {lines}");
    for wait in &waits {
        let time = |field: &str| wait[field].as_str().expect("text").to_owned();
        assert!(wait["lock"] == "lock" && time("from") < time("to"), "{wait}");
    }
    let seen = waits[1]["holders_seen"].as_array().expect("a list");
    assert!(seen.len() == 1 && seen[0].as_str().expect("text").contains('@'), "{lines}");
    assert_eq!(scene.run(&["--record", "no/such/folder"], ":"), 64);
    assert_eq!(scene.run(&["--record", "/dev/stdout"], ":"), 64);
}

#[test]
fn the_lock_is_renewed_while_the_command_runs() {
    let scene = Scene::new();
    let first = Contender::plain(&scene, "first").enters();
    let second = Contender::plain(&scene, "second").waits(&scene);
    let start = Instant::now();
    wait_until("two leases are over", || start.elapsed() > 2 * LEASE);
    assert!(!second.is_inside());
    assert_eq!(first.finish(), Some(0));
    assert_eq!(second.enters().finish(), Some(0));
    scene.log().assert_apart("first", "second");
}

#[test]
fn the_lock_stays_held_for_the_least_time() {
    let scene = Scene::new();
    let start = Instant::now();
    assert_eq!(scene.run(&["--at-least", "5s"], "exit 4"), 4);
    // The front does not wait for the least time.
    assert!(start.elapsed() < Duration::from_secs(4));
    assert_eq!(scene.run(&["--try"], ":"), 75);
    assert_eq!(scene.run(&[], ":"), 0);
    let held = start.elapsed();
    // Released in time, not left to the lease.
    assert!(held > Duration::from_secs(5), "{held:?}");
}

#[test]
fn a_fixed_lease_and_a_longest_hold_stop_the_command_before_their_end() {
    let scene = Scene::new();
    for option in ["--lease", "--max-hold"] {
        let time = Duration::from_millis(1500);
        let start = Instant::now();
        let contender = Contender::start(&scene, option, &[option, "1500ms"], ALONE, None).enters();
        assert_eq!(contender.code(), Some(76), "{option}");
        let span = scene.log().span(option).expect("it ran");
        assert!(span.last - span.first < time, "{option}: {span:?}");
        // With a quarter for the grace, and a tenth to be early, and a slow start.
        assert!(start.elapsed() > time / 2, "{option}");
        wait_until("the lock is free", || scene.keys().is_empty());
    }
}

#[test]
fn the_grace_lets_the_command_finish() {
    let scene = Scene::new();
    // Also a command that is stopped.
    for work in ["while :; do sleep 0.01; done", "kill -STOP $$"] {
        let script = format!("trap 'touch cleaned; exit 0' TERM; {work}");
        assert_eq!(scene.run(&["--max-hold", "2s", "--grace", "1s"], &script), 76);
        scene.remove("cleaned");
    }
}

#[test]
fn the_file_can_name_certificates() {
    let scene = Scene::new();
    let certificates = Certificates::new();
    let secured = Server::secured(&certificates, true, &[]);
    for file in ["ca.crt", "client.crt", "client.key"] {
        scene.write(file, &String::from_utf8(certificates.read(file)).expect("text"));
    }
    let files = "root_cert = \"ca.crt\"\nclient_cert = \"client.crt\"\nclient_key = \"client.key\"";
    scene.write("tls.toml", &format!("[server]\nurls = [\"{}\"]\n{files}\n", secured.url()));
    let mut command = scene.lockkeeper(&["run", "--config", "tls.toml", "lock", "--", "sh", "-c", "exit 7"]);
    let output = command.env_remove("LOCKKEEPER_URL").output().expect("lockkeeper runs");
    assert_eq!(output.status.code(), Some(7), "{}", problem(&output));
}

#[test]
fn the_server_of_the_file_is_used_without_a_url() {
    let scene = Scene::new();
    let (url, locks) = (scene.server.url(), "name_prefix = 'shop:'\nwatchdog_lease = '2s'");
    scene.write("server.toml", &format!("[server]\nurls = ['{url}']\n[locks]\n{locks}\n"));
    let script = "touch ready; until [ -e done ]; do sleep 0.01; done";
    let mut command = scene.lockkeeper(&["run", "--config", "server.toml", "lock", "--", "sh", "-c", script]);
    let mut front = command.env_remove("LOCKKEEPER_URL").spawn().expect("lockkeeper runs");
    wait_until("the command runs", || scene.dir().join("ready").exists());
    assert_eq!(scene.keys(), ["shop:lock"]);
    scene.write("done", "");
    assert_eq!(front.wait().expect("an end").code(), Some(0));
}

/// A job that names its Sentinels in a file must not lock on a single server because of a variable.
#[test]
fn arguments_come_before_variables() {
    let scene = Scene::new();
    scene.write("other.toml", "[server]\nurls = [\"redis://127.0.0.1:1/\"]\n");
    let code = |args: &[&str]| {
        let mut command = scene.lockkeeper(&[args, &["show", "lock"]].concat());
        command.output().expect("lockkeeper runs").status.code()
    };
    assert_eq!(code(&[]), Some(0));
    assert_eq!(code(&["--config", "other.toml"]), Some(69));
    assert_eq!(code(&["--config", "other.toml", "--url", &scene.server.url()]), Some(0));
    let mut both = scene.lockkeeper(&["show", "lock"]);
    let output = both.env("LOCKKEEPER_CONFIG", "other.toml").output().expect("lockkeeper runs");
    assert_eq!(output.status.code(), Some(0), "the variable with the URL comes before that with the file");
}

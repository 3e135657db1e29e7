//! The exit codes of `lockkeeper run`.

use super::support::{Contender, Network, Scene, problem, wait_until};

#[test]
fn the_exit_code_of_the_command_is_returned() {
    let scene = Scene::new();
    for code in [0, 1, 7, 75, 255] {
        assert_eq!(scene.run(&[], &format!("exit {code}")), code);
    }
    assert!(scene.keys().is_empty());
}

#[test]
fn a_signal_that_ends_the_command_is_returned_as_128_and_its_number() {
    let scene = Scene::new();
    assert_eq!(scene.run(&[], "kill -KILL $$"), 137);
    assert_eq!(scene.run(&[], "kill -TERM $$"), 143);
    assert!(scene.keys().is_empty());
}

#[test]
fn a_busy_lock_is_75_and_nothing_runs() {
    let scene = Scene::new();
    let holder = Contender::plain(&scene, "holder").enters();
    for options in [&["--try"][..], &["--wait", "100ms"], &["--wait", "0.1"]] {
        let output = scene.output(&[&["run"], options, &["lock", "--", "touch", "ran"]].concat());
        assert_eq!(output.status.code(), Some(75), "{options:?}");
        assert_eq!(problem(&output), "lockkeeper: `lock` is busy\n");
    }
    assert!(!scene.dir().join("ran").exists());
    assert_eq!(holder.finish(), Some(0));
}

#[test]
fn a_command_that_cannot_run_is_126_or_127() {
    let scene = Scene::new();
    let code = |command: &str| scene.output(&["run", "lock", "--", command]).status.code();
    assert_eq!(code("/no/such/program"), Some(127));
    assert_eq!(code("no-such-program"), Some(127));
    assert_eq!(code("/"), Some(126));
    assert_eq!(code("./config.toml"), Some(126));
    assert!(scene.keys().is_empty());
}

#[test]
fn bad_arguments_are_64_and_acquire_nothing() {
    let scene = Scene::new();
    for options in [
        &["--kind", "other"][..],
        &["--try", "--wait", "1s"],
        &["--wait", "soon"],
        &["--lease", "0s"],
        &["--grace", "10s"],
        &["--at-least", "2s", "--lease", "1s"],
        &["--max-hold", "4s", "--lease", "10s"],
        &["--when-wanted", "whenever"],
        &["--no-such-option"],
    ] {
        assert_eq!(scene.run(options, "touch ran"), 64, "{options:?}");
    }
    for args in [&["run"][..], &["run", "lock"], &["run", "", "--", "true"], &["nothing"], &[]] {
        assert_eq!(scene.output(args).status.code(), Some(64), "{args:?}");
    }
    assert!(!scene.dir().join("ran").exists());
    assert!(scene.keys().is_empty());
}

#[test]
fn a_bad_file_is_64() {
    let scene = Scene::new();
    let code = |file: &str| scene.output(&["run", "--config", file, "lock", "--", "true"]).status.code();
    assert_eq!(code("no-such-file"), Some(64));
    for text in ["[locks]\nwatchdog_lease = '1ms'", "[locks]\nunknown = 1", "[other]", "= ="] {
        scene.write("bad.toml", text);
        assert_eq!(code("bad.toml"), Some(64), "{text}");
    }
}

#[test]
fn a_key_with_other_data_is_64_and_stays() {
    let scene = Scene::new();
    for (data, found) in [
        (&["SET", "lock", "data"][..], "a string"),
        (&["RPUSH", "lock", "data"], "a list"),
        (&["SADD", "lock", "data"], "a set"),
        (&["ZADD", "lock", "1", "data"], "a sorted set"),
        (&["XADD", "lock", "*", "field", "data"], "a stream"),
    ] {
        scene.server.run::<()>(data);
        for args in
            [&["run", "lock", "--", "touch", "ran"][..], &["show", "lock"], &["unlock", "--yes", "lock"]]
        {
            let output = scene.output(args);
            assert_eq!(output.status.code(), Some(64), "{args:?}");
            assert!(
                problem(&output).contains(&format!("in use as {found}")),
                "{args:?}: {}",
                problem(&output)
            );
        }
        assert_eq!(scene.server.run::<u64>(&["DEL", "lock"]), 1);
    }
    assert!(!scene.dir().join("ran").exists());
}

#[test]
fn no_server_is_69() {
    let mut scene = Scene::new();
    scene.server.kill();
    scene.write("hasty.toml", "[locks]\nretry_timeout = '100ms'");
    for options in [&[][..], &["--try"], &["--wait", "100ms"]] {
        assert_eq!(
            scene.run(&[options, &["--config", "hasty.toml"]].concat(), "touch ran"),
            69,
            "{options:?}"
        );
    }
    assert!(!scene.dir().join("ran").exists());
}

#[test]
fn a_server_that_can_be_reached_later_is_waited_for() {
    let scene = Scene::new();
    for options in [&[][..], &["--try"], &["--wait", "20s"]] {
        let network = Network::to(&scene);
        network.proxy.lead_to(1); // no server listens there
        let url = network.proxy.url();
        let mut command =
            scene.lockkeeper(&[&["run", "--url", &url], options, &["lock", "--", "true"]].concat());
        let mut front = command.spawn().expect("lockkeeper runs");
        wait_until("it has tried again", || network.proxy.accepted() >= 6);
        network.proxy.lead_to(scene.server.port());
        assert_eq!(front.wait().expect("an end").code(), Some(0), "{options:?}");
    }
}

/// The outer ones end after the inner one, so it would wait for ever.
#[test]
fn a_lock_that_a_run_around_this_one_holds_is_75_at_once() {
    let scene = Scene::new();
    let run = |outer: &str, inner: &str| {
        let script = format!(
            r#""$0" run --kind {outer} lock -- "$0" run other -- "$0" run --kind {inner} lock -- touch ran"#
        );
        scene.shell(&script).output().expect("a shell")
    };
    for (outer, inner) in [("rlock", "rlock"), ("fair", "rlock"), ("write", "read"), ("read", "write")] {
        let output = run(outer, inner);
        assert_eq!(output.status.code(), Some(75), "{outer} {inner}");
        assert!(
            problem(&output).contains("`lock` is held by a `lockkeeper run` around this one"),
            "{output:?}"
        );
    }
    assert!(!scene.dir().join("ran").exists());
    assert_eq!(run("read", "read").status.code(), Some(0));
    assert!(scene.dir().join("ran").exists());
}

#[test]
fn a_closed_stderr_changes_no_exit_code() {
    let scene = Scene::new();
    for stderr in ["2>&-", "2>/dev/full"] {
        for (args, code) in
            [("--kind other lock -- true", 64), ("--grace 9s lock true", 64), ("lock /none", 127)]
        {
            let output = scene.shell(&format!("\"$0\" run {args} {stderr}")).output().expect("a shell");
            assert_eq!(output.status.code(), Some(code), "{args} {stderr}");
        }
    }
}

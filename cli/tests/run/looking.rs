//! `lockkeeper show`, `release`, `resize`, `completions`, `man` and `--help`.

use super::support::{ALONE, Contender, Scene, json, problem, text, wait_until};

#[test]
fn show_tells_who_holds_a_lock() {
    let scene = Scene::new();
    assert_eq!(text(&scene.output(&["show", "lock"])), "lock: free\n");
    assert_eq!(text(&scene.output(&["show", "--json", "lock"])).trim(), "null");
    let holder = Contender::plain(&scene, "holder").enters();
    let shown = text(&scene.output(&["show", "lock"]));
    assert!(shown.starts_with("lock: held, a lock, ends in "), "{shown}");
    assert!(shown.contains("@") && shown.contains("), 1 hold"), "{shown}");
    let is_recorded = || text(&scene.output(&["show", "lock"])).contains("), 1 hold, held for ");
    wait_until("the hold is recorded", is_recorded);
    let json = json(&scene.output(&["show", "--json", "lock"]));
    assert_eq!(
        (&json["name"], &json["kind"], &json["queued"]),
        (&"lock".into(), &"rlock".into(), &().into())
    );
    assert!(json["expires_in_ms"].as_u64().is_some_and(|left| left <= 2_000), "{json}");
    assert_eq!(json["holders"][0]["holds"], 1);
    assert_eq!(holder.finish(), Some(0));
}

#[test]
fn release_ends_a_lock_and_the_command_under_it() {
    let scene = Scene::new();
    for kind in ["rlock", "fair", "read", "write", "fenced"] {
        let holder = Contender::start(&scene, kind, &["--kind", kind], ALONE, None).enters();
        let refused = scene.output(&["release", "lock"]);
        assert_eq!(refused.status.code(), Some(64), "{kind}");
        assert!(problem(&refused).contains("--yes"), "{kind}");
        let name = if kind == "fair" { "unlock" } else { "release" };
        let released = text(&scene.output(&[name, "--yes", "--json", "lock"]));
        assert_eq!(released.trim(), r#"{"name":"lock","was_held":true}"#, "{kind}");
        assert_eq!(holder.code(), Some(76), "{kind}");
        let again = scene.output(&["release", "lock"]);
        assert_eq!(text(&again), "lock: free, nothing was released\n", "{kind}");
        assert_eq!(again.status.code(), Some(0), "{kind}");
    }
}

#[test]
fn resize_sets_the_permits_of_a_semaphore_and_changes_nothing_else() {
    let scene = Scene::new();
    let missing = scene.output(&["resize", "lock", "3"]);
    assert!(missing.status.code() == Some(64) && problem(&missing).contains("no semaphore `lock`"));
    let holder = Contender::plain(&scene, "holder").enters();
    let wrong = scene.output(&["resize", "lock", "3"]);
    assert!(wrong.status.code() == Some(64) && problem(&wrong).contains("`lock` is a lock"));
    assert_eq!(holder.finish(), Some(0));
    assert_eq!(scene.keys(), [""; 0]);

    let first = Contender::start(&scene, "first", &["--permits", "1"], ALONE, None).enters();
    let waiting = Contender::start(&scene, "waiting", &["--permits", "1"], ALONE, None).waits(&scene);
    assert_eq!(text(&scene.output(&["resize", "lock", "2"])), "lock: 2 permits, 1 before\n");
    let waiting = waiting.enters();
    let json = text(&scene.output(&["resize", "--json", "lock", "3"]));
    assert_eq!(json.trim(), r#"{"name":"lock","permits":3,"before":2}"#);
    assert_eq!(scene.output(&["resize", "lock", "0"]).status.code(), Some(64));
    assert_eq!((first.finish(), waiting.finish()), (Some(0), Some(0)));
}

#[test]
fn show_and_release_know_semaphores() {
    let scene = Scene::new();
    let holder = Contender::start(&scene, "holder", &["--permits", "2"], ALONE, None).enters();
    let other = Contender::start(&scene, "other", &["--permits", "2"], ALONE, None).enters();
    let shown = text(&scene.output(&["show", "lock"]));
    assert!(shown.starts_with("lock: a semaphore with 2 permits, 2 in use, 0 available\n"), "{shown}");
    assert_eq!(shown.matches("… ends in ").count(), 2, "{shown}");
    assert_eq!(shown.lines().filter(|line| line.contains('@') && line.contains(") of client ")).count(), 2);
    let show = || json(&scene.output(&["show", "--json", "lock"]));
    let found = show();
    assert_eq!(found["permits"], 2);
    let ids = [0, 1].map(|holder| found["holders"][holder]["owner"].as_str().expect("an id"));
    assert!(found["holders"][2].is_null() && found["kind"] == "semaphore", "{found}");

    let release = |args: &[&str]| scene.output(&[&["release", "--yes", "--json", "lock"], args].concat());
    assert_eq!(release(&["--permit", "none"]).status.code(), Some(64));
    let unknown = text(&release(&["--permit", &"0".repeat(32)]));
    assert_eq!(unknown.trim(), r#"{"name":"lock","was_held":false}"#);
    let unknown = text(&scene.output(&["release", "--yes", "lock", "--permit", &"0".repeat(32)]));
    assert_eq!(unknown, "lock: this permit is not in use, nothing was released\n");
    let one = text(&release(&["--permit", ids[0]]));
    assert_eq!(one.trim(), r#"{"name":"lock","was_held":true}"#);
    let left = show();
    assert_eq!((&left["permits"], &left["holders"][0]["owner"]), (&2.into(), &ids[1].into()));
    assert_eq!(text(&release(&[])).trim(), r#"{"name":"lock","was_held":true}"#);
    assert_eq!([holder.code(), other.code()], [Some(76), Some(76)]);
    let shown = text(&scene.output(&["show", "lock"]));
    assert_eq!(shown, "lock: a semaphore with 2 permits, 0 in use, 2 available\n");
    assert_eq!(show()["holders"], serde_json::json!([]));
    assert_eq!(text(&scene.output(&["release", "lock"])), "lock: free, nothing was released\n");

    let _: u64 = scene.server.run(&["HSET", "other", "0-0-0-0-a:1", "1"]);
    let refused = scene.output(&["release", "other", "--permit", ids[0]]);
    assert_eq!((refused.status.code(), problem(&refused).contains("--permit")), (Some(64), true));
}

/// The process of the first permit has ended, and the second one is of Java.
#[test]
fn a_permit_shows_whether_its_process_is_connected() {
    let scene = Scene::new();
    let permits = "local left = redis.call('time')[1] * 1000 + 60000 \
                   redis.call('set', 'sem', 1) \
                   redis.call('zadd', '{sem}:timeout', left, '\\135\\67\\201\\192\\7\\149\\137\\7\\0\\0\\0\\0\\0\\0\\0\\1') \
                   redis.call('zadd', '{sem}:timeout', left, 'sixteen bytes...')";
    let _: Option<String> = scene.server.run(&["EVAL", permits, "0"]);
    let shown = text(&scene.output(&["show", "sem"]));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "sem: a semaphore with 3 permits, 2 in use, 1 available");
    let java: String = "sixteen bytes...".bytes().map(|byte| format!("{byte:02x}")).collect();
    assert!(lines[1].starts_with(&format!("  {java} ends in ")), "{shown}");
    let dead = "  not connected (8743c9c0079589070000000000000001) of client 8743c9c0-0795-8907… ends in ";
    assert!(lines[2].starts_with(dead), "{shown}");
    let json = json(&scene.output(&["ls", "--json"]));
    let connected = [0, 1].map(|holder| &json[0]["holders"][holder]["is_connected"]);
    assert_eq!(connected, [&serde_json::Value::Null, &false.into()], "{json}");
}

#[test]
fn a_closed_stdout_is_no_panic() {
    let scene = Scene::new();
    for args in ["show lock", "release lock", "man", "completions bash", "--help"] {
        let output = scene.shell(&format!("\"$0\" {args} >/dev/full")).output().expect("a shell");
        assert!(output.status.code() != Some(101), "{args}");
        assert!(!problem(&output).contains("panicked"), "{args}: {}", problem(&output));
    }
}

#[test]
fn names_with_control_characters_do_not_reach_the_terminal() {
    let scene = Scene::new();
    let name = "no\u{1b}[2Jsuch";
    let _: () = scene.server.run(&["SET", "text\u{1b}[2J", "1"]);
    for args in [
        &["show", name][..],
        &["release", name],
        &["show", "text\u{1b}[2J"],
        &["run", "--try", name, "--", "sh", "-c", "\"$0\" run --try \"$LOCKKEEPER_NAME\" -- true"],
    ] {
        let mut args = args.to_vec();
        args.extend(args.contains(&"-c").then_some(env!("CARGO_BIN_EXE_lockkeeper")));
        let output = scene.output(&args);
        let shown = text(&output) + &problem(&output);
        assert!(!shown.contains('\u{1b}') && shown.contains("\\u{1b}"), "{args:?}: {shown}");
    }
}

#[test]
fn a_reader_that_is_gone_is_no_error() {
    let scene = Scene::new();
    for args in [&["ls"][..], &["show", "lock"], &["man", "run"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = scene.lockkeeper(args).stdout(writer).output().expect("lockkeeper runs");
        assert_eq!((output.status.code(), &*problem(&output)), (Some(141), ""), "{args:?}");
    }
}

#[test]
fn the_help_fits_a_screen() {
    let scene = Scene::new();
    for args in [&["--help"][..], &["run", "-h"], &["show", "--help"], &["release", "--help"]] {
        let mut command = scene.lockkeeper(args);
        let help = text(&command.env("COLUMNS", "80").output().expect("lockkeeper runs"));
        assert!(help.lines().count() <= 24, "{args:?}:\n{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{args:?}:\n{help}");
        assert!(args[0] != "run" || help.contains("<NAME> -- <COMMAND>..."), "{help}");
    }
}

#[test]
fn completions_and_the_man_page_name_the_commands() {
    let scene = Scene::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&scene.output(&["completions", shell]));
        assert!(script.contains("max-hold") && !script.contains("__keep"), "{shell}");
    }
    let (page, run) = (text(&scene.output(&["man"])), text(&scene.output(&["man", "run"])));
    for (page, words) in [
        (page, [".TH lockkeeper 1", "LOCKKEEPER_URL", "lockkeeper\\-run(1)"]),
        (run, [".TH lockkeeper-run 1", "max\\-hold", "the lock is busy, and nothing was run"]),
    ] {
        for word in words {
            assert!(page.contains(word), "{word}: {page}");
        }
        assert!(!page.contains("__"), "the hidden commands");
    }
    assert_eq!(scene.output(&["man", "__keep"]).status.code(), Some(64));
}

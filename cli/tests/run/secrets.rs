//! No password is ever printed, and none is among the arguments of a process that `lockkeeper` starts.

use super::support::{ALONE, Contender, Scene};

const SECRET: &str = "hunter2";

#[test]
fn no_error_shows_a_password() {
    let scene = Scene::new();
    let port = scene.server.port();
    let urls = [
        format!("redis://user:{SECRET}@127.0.0.1:{port}/"),
        format!("redis://user:{SECRET}@127.0.0.1:1/"),
        format!("redis://user:{SECRET}@127.0.0.1:none/"),
        format!("redis://user:{SECRET}@[::/"),
        format!("other://user:{SECRET}@127.0.0.1/"),
        format!("rediss://user:{SECRET}@127.0.0.1:{port}/"),
        format!("user:{SECRET}@127.0.0.1"),
        format!("redis://:{SECRET}@no.such.host.invalid/"),
    ];
    for url in &urls {
        for args in [
            &["run", "lock", "--", "true"][..],
            &["show", "lock"],
            &["release", "--yes", "lock"],
            &["run", "--help"],
        ] {
            let mut command = scene.lockkeeper(args);
            let output = command.env("LOCKKEEPER_URL", url).output().expect("lockkeeper runs");
            assert!(!format!("{output:?}").contains(SECRET), "{url} {args:?}: {output:?}");
            let as_argument = scene.output(&[&["--url", url], args].concat());
            assert!(!format!("{as_argument:?}").contains(SECRET), "{url} {args:?}: {as_argument:?}");
        }
    }
    for text in [
        "[server]\nurls = [\"redis://:hunter2@[\"]",
        "[server]\nurls = \"hunter2",
        "[locks]\nhunter2\n",
        "[server]\nkind = \"single\"\nurls = \"redis://:hunter2@localhost/\"",
        "[server]\nkind = \"redis://:hunter2@localhost/\"",
        "[server]\nkind = \"sentinel\"\nmaster = \"a\"\nsentinels = \"redis://:hunter2@localhost/\"",
        "[locks]\nwatchdog_lease = \"redis://:hunter2@localhost/\"",
        "[locks]\nwatchdog_lease = [[{ a = \"hunter2\" }]]",
        "[locks]\n\"hunter2\" = 1",
        "server = \"redis://:hunter2@localhost/\"",
        "server = [\"redis://:hunter2@localhost/\"]",
    ] {
        scene.write("bad.toml", text);
        let mut command = scene.lockkeeper(&["run", "--config", "bad.toml", "lock", "--", "true"]);
        let output = command.env_remove("LOCKKEEPER_URL").output().expect("lockkeeper runs");
        assert!(!output.status.success(), "{text}");
        assert!(!format!("{output:?}").contains(SECRET), "{text}: {output:?}");
    }
}

#[test]
fn no_process_has_the_password_among_its_arguments() {
    let scene = Scene::with(&["--requirepass", SECRET]);
    let url = format!("redis://:{SECRET}@127.0.0.1:{}/", scene.server.port());
    let contender = Contender::start(&scene, "first", &[], ALONE, Some(&url)).enters();
    assert!(!scene.processes.arguments().contains(SECRET));
    assert_eq!(contender.finish(), Some(0));
}

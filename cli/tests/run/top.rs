//! `lockkeeper top` at a terminal, which `script` makes.

use std::io::Read;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use lockkeeper_testkit::signal;

use super::support::{Contender, Scene, json, text, wait_until};
use super::terminals::Terminal;

/// The command at a terminal of a given size. Dropping it hangs up.
struct Top {
    terminal: Terminal,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Top {
    fn runs(scene: &Scene, (columns, lines): (u16, u16), args: &str) -> Self {
        let script = format!("stty cols {columns} rows {lines}; exec LOCKKEEPER top {args}");
        let mut terminal = Terminal::runs(scene, &script);
        let [columns, lines] = [columns, lines].map(|size| NonZero::new(size).expect("a size"));
        let screen = Arc::new(Mutex::new(vt100::Parser::new(lines, columns, 0)));
        let (mut output, to) = (terminal.0.stdout.take().expect("a pipe"), Arc::clone(&screen));
        thread::spawn(move || {
            let mut part = [0; 4_096];
            while let Ok(count @ 1..) = output.read(&mut part) {
                to.lock().unwrap_or_else(PoisonError::into_inner).process(&part[..count]);
            }
        });
        Self { terminal, screen }
    }

    fn types(&mut self, keys: &str) {
        self.terminal.types(keys);
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen().contents()
    }

    /// Waits until the screen shows this.
    #[track_caller]
    fn shows(&self, words: &str) {
        wait_until(words, || self.text().contains(words));
    }

    /// Waits for the end. The terminal is as it was. Returns the exit code.
    #[track_caller]
    fn code(self) -> Option<i32> {
        let code = self.terminal.code();
        let is_restored = || {
            let parser = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
            !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
        };
        wait_until("the terminal is as it was", is_restored);
        code
    }
}

/// As Redisson leaves it.
fn java_lock(scene: &Scene, name: &str) {
    let _: u64 = scene.server.run(&["HSET", name, "8743c9c0-0795-4907-87fd-6c719a6b4586:77", "1"]);
    let _: u64 = scene.server.run(&["PEXPIRE", name, "60000"]);
}

fn ten_thousand_locks(scene: &Scene) {
    let fill = "for i = 1, 10000 do local key = string.format('lock:%05d', i) \
                redis.call('hset', key, '0-0-0-0-a:' .. i, 1) redis.call('pexpire', key, 600000) end";
    let _: Option<String> = scene.server.run(&["EVAL", fill, "0"]);
}

#[test]
fn a_lock_is_shown_and_released_at_80_and_200_columns() {
    let scene = Scene::new();
    for (columns, who) in [(80, "first"), (200, "second")] {
        let mut top = Top::runs(&scene, (columns, 24), "");
        top.shows("lockkeeper top: 0 locks");
        let holder = Contender::plain(&scene, who).enters();
        top.shows("lockkeeper top: 1 lock");
        top.shows("lock  ");
        let shown = json(&scene.output(&["show", "--json", "lock"]));
        let word = |field: &str| shown["holders"][0][field].as_str().expect("text").to_owned();
        let (owner, process) = (word("owner"), word("identity"));
        if columns == 200 {
            top.shows(&process);
        }
        top.types("\r");
        top.shows(&format!("{process} ({owner}), 1 hold"));
        top.types("k");
        top.shows("Release the lock? [y/N]");
        assert!(top.text().contains(&format!("{process} ({owner})")), "{}", top.text());
        top.types("n");
        top.shows("nothing was released");
        assert!(holder.is_inside());
        top.types("ky");
        top.shows("lock: released");
        assert_eq!(holder.code(), Some(76));
        top.shows("lockkeeper top: 0 locks");
        top.types("q");
        assert_eq!(top.code(), Some(0));
    }
}

#[test]
fn details_say_for_what_the_holder_waits() {
    let scene = Scene::new();
    java_lock(&scene, "b");
    let holder = "0f5b3c8e-7d3a-8c1e-9f00-1a2b3c4d5e6f";
    let _: u64 = scene.server.run(&["HSET", "a", &format!("{holder}:1"), "1"]);
    let _: u64 = scene.server.run(&["PEXPIRE", "a", "60000"]);
    let told = r#"{"identity":"","waits":[{"is_exclusive":true,"held":["1"],"lock":"b","at":"src/main.rs:7","age":9000}],"holds":[],"more":0}"#;
    let _: String = scene.server.run(&["SET", &format!("lockkeeper_client:{holder}"), told, "PX", "120000"]);
    let mut top = Top::runs(&scene, (120, 24), "'[ab]'");
    top.shows("lockkeeper top: 2 locks");
    top.types("\r");
    top.shows("which has waited for b for ");
    top.shows("src/main.rs:7"); // on the next line
    top.types("q");
    top.shows("NAME");
    top.types("q");
    assert_eq!(top.code(), Some(0));
}

#[test]
fn a_server_that_goes_away_is_told_and_comes_back() {
    let mut scene = Scene::new();
    java_lock(&scene, "before");
    let mut top = Top::runs(&scene, (80, 24), "");
    top.shows("before");
    scene.server.kill();
    top.shows("no answer for ");
    // The locks stay on the screen as they were last seen, and the keys still work.
    top.types("\r");
    top.shows("┌ before ");
    top.types("\u{1b}");
    scene.server.start_again();
    java_lock(&scene, "after");
    top.shows("after  ");
    wait_until("the problem is gone", || !top.text().contains("no answer for "));
    assert!(!top.text().contains("before"), "{}", top.text());
    top.types("\x03");
    assert_eq!(top.code(), Some(0));
}

#[test]
fn a_signal_ends_it_and_restores_the_terminal() {
    let scene = Scene::new();
    for name in ["TERM", "HUP"] {
        let top = Top::runs(&scene, (80, 24), "");
        top.shows("lockkeeper top: 0 locks");
        let id = scene.processes.command_of(top.terminal.0.id()).expect("the command");
        signal(id, name);
        assert_eq!(top.code(), Some(0), "{name}");
    }
}

#[test]
fn ten_thousand_locks_are_shown_sorted_and_filtered() {
    let scene = Scene::new();
    ten_thousand_locks(&scene);
    let mut top = Top::runs(&scene, (80, 24), "'lock:*'");
    top.shows("lockkeeper top: 10000 locks");
    top.shows("lock:00021");
    top.types("\u{1b}[F");
    top.shows("lock:10000");
    top.types("/:0777");
    top.shows("10 with \":0777\"");
    top.types("\r");
    let _: u64 = scene.server.run(&["DEL", "lock:07771"]);
    top.shows("9 with \":0777\"");
    top.types("q");
    assert_eq!(top.code(), Some(0));
}

/// Between two lists of so many locks, only those on the screen are looked at.
#[test]
fn a_key_on_the_screen_that_becomes_other_data_disturbs_no_look() {
    let scene = Scene::new();
    ten_thousand_locks(&scene);
    let top = Top::runs(&scene, (80, 24), "'lock:*'");
    top.shows("lock:00021");
    let _: () = scene.server.run(&["SET", "lock:00001", "text"]);
    let mut problem = None;
    wait_until("it is gone", || {
        let text = top.text();
        problem = problem.take().or_else(|| text.contains("no answer for ").then(|| text.clone()));
        !text.contains("lock:00001")
    });
    assert_eq!(problem, None);
    top.shows("lock:00022");
}

#[test]
fn without_a_terminal_it_prints_one_table() {
    let scene = Scene::new();
    java_lock(&scene, "b");
    java_lock(&scene, "a");
    let printed = text(&scene.output(&["top"]));
    let names: Vec<_> =
        printed.lines().map(|line| line.split_whitespace().next().unwrap_or_default()).collect();
    assert_eq!(names, ["NAME", "a", "b"]);
}

#[test]
fn what_is_wrong_at_the_start_ends_it_without_a_screen() {
    let mut scene = Scene::new();
    scene.server.kill();
    let top = Top::runs(&scene, (80, 24), "");
    top.shows("the server cannot be reached");
    assert_eq!(top.code(), Some(69));
}

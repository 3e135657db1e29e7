//! `lockkeeper run` at a terminal, which `script` makes.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::support::{Contender, LEASE, Scene, wait_until};

/// A shell script at a terminal. Dropping it hangs up.
pub(crate) struct Terminal(pub(crate) Child);

impl Terminal {
    pub(crate) fn runs(scene: &Scene, script: &str) -> Self {
        let mut command = scene.program("script");
        let line = script.replace("LOCKKEEPER", &format!("{:?}", env!("CARGO_BIN_EXE_lockkeeper")));
        command.args(["-qefc", &line, "/dev/null"]).env("SHELL", "/bin/sh");
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script runs"))
    }

    /// A script that makes the file `ready` when its command runs.
    #[track_caller]
    fn is_ready(scene: &Scene, script: &str) -> Self {
        let terminal = Self::runs(scene, script);
        wait_until("the command runs", || scene.dir().join("ready").exists());
        scene.remove("ready");
        terminal
    }

    /// The command reads a line, writes it to the file `said`, and ends.
    #[track_caller]
    fn reads(mut self, scene: &Scene) {
        self.types("hello\n");
        assert_eq!(self.code(), Some(0));
        assert_eq!(scene.read("said"), "hello\n");
    }

    pub(crate) fn types(&mut self, keys: &str) {
        let input = self.0.stdin.as_mut().expect("a pipe");
        input.write_all(keys.as_bytes()).expect("the terminal is there");
        input.flush().expect("the terminal is there");
    }

    /// Waits until the shell has brought the job to the foreground.
    #[track_caller]
    fn wait_for_the_job(&self) {
        let script = i64::from(self.0.id());
        let foreground = || {
            let shell = fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
                let stat = fs::read_to_string(process.path().join("stat")).ok()?;
                // After the name: state, parent, group, session, terminal, foreground group of the terminal.
                let (_, rest) = stat.rsplit_once(')')?;
                let numbers = rest.split_whitespace().skip(1).take(5).map(str::parse);
                let [parent, group, .., foreground]: [i64; 5] =
                    numbers.collect::<Result<Vec<_>, _>>().ok()?.try_into().ok()?;
                (parent == script).then_some((group, foreground))
            });
            let (_, foreground) = shell.filter(|(group, foreground)| group != foreground)?;
            fs::read_to_string(format!("/proc/{foreground}/comm")).ok()
        };
        // Not one of the small commands of the script.
        let is_job = |name: String| ["lockkeeper", "sh"].contains(&name.trim());
        wait_until("the job is in the foreground", || foreground().is_some_and(is_job));
    }

    /// Waits for the end, and returns the exit code and what the terminal shows.
    #[track_caller]
    fn output(mut self) -> (Option<i32>, String) {
        let mut shown = String::new();
        let mut output = self.0.stdout.take().expect("a pipe");
        let code = self.code();
        output.read_to_string(&mut shown).expect("text");
        (code, shown)
    }

    /// Waits for the end, and returns the exit code.
    #[track_caller]
    pub(crate) fn code(mut self) -> Option<i32> {
        wait_until("the script ends", || self.0.try_wait().expect("a status").is_some());
        self.0.wait().expect("a status").code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_command_reads_from_the_terminal() {
    let scene = Scene::new();
    for redirect in ["", ">out"] {
        let script =
            format!("LOCKKEEPER run lock -- sh -c 'touch ready; read line; echo $line > said' {redirect}");
        Terminal::is_ready(&scene, &script).reads(&scene);
        scene.remove("said");
    }
}

#[test]
fn control_c_reaches_the_command() {
    let scene = Scene::new();
    for input in ["", "</dev/null"] {
        let script = format!("LOCKKEEPER run lock -- sh -c 'touch ready; exec sleep 60' {input}");
        let mut terminal = Terminal::is_ready(&scene, &script);
        terminal.types("\x03");
        assert_eq!(terminal.code(), Some(130), "{input}");
    }
    assert!(scene.keys().is_empty());
}

#[test]
fn the_terminal_comes_back() {
    let scene = Scene::new();
    let script = "LOCKKEEPER run lock -- true; touch ready; read line; echo $line > said";
    Terminal::is_ready(&scene, script).reads(&scene);
}

/// A command that was suspended with Ctrl-Z. Return continues it, and it ends when it has read a line.
fn suspended(scene: &Scene) -> Terminal {
    // It forks nothing: a process that is stopped between `vfork` and `exec` keeps its parent from being stopped.
    let command = "sh -c \": > ready; read line; echo \\$line > said\"";
    let script = format!("set -m; LOCKKEEPER run lock -- {command}; touch suspended; read x; fg; exit $?");
    let mut terminal = Terminal::is_ready(scene, &format!("bash -c '{script}'"));
    terminal.types("\x1a");
    wait_until("it is suspended", || scene.dir().join("suspended").exists());
    terminal
}

#[test]
fn control_z_suspends_both_and_fg_continues_them() {
    let scene = Scene::new();
    let mut terminal = suspended(&scene);
    assert_eq!(scene.keys(), ["lock"]);
    terminal.types("\n");
    terminal.reads(&scene);
}

/// The keeper renews the lock meanwhile, and tells so before anything else is done.
#[test]
fn a_suspension_that_is_longer_than_the_lease_costs_nothing() {
    let scene = Scene::new();
    let mut terminal = suspended(&scene);
    let start = Instant::now();
    wait_until("two leases are over", || start.elapsed() > 2 * LEASE);
    terminal.types("\n");
    terminal.reads(&scene);
}

#[test]
fn a_command_whose_input_is_a_pipe_reads_from_the_terminal_and_is_interrupted() {
    let scene = Scene::new();
    let command = "sh -c 'touch ready; read line </dev/tty; echo $line > said'";
    for (keys, code) in [("hello\n", 0), ("\x03", 130)] {
        let script = format!("echo data | LOCKKEEPER run lock -- {command}");
        let mut terminal = Terminal::is_ready(&scene, &script);
        terminal.types(keys);
        assert_eq!(terminal.code(), Some(code));
    }
    assert_eq!(scene.read("said"), "hello\n");
}

/// How much the command has written until now.
fn written(scene: &Scene) -> u64 {
    scene.dir().join("written").metadata().map_or(0, |file| file.len())
}

/// Types Ctrl-Z, and waits until the script goes on and the command does not.
#[track_caller]
fn suspend(scene: &Scene, terminal: &mut Terminal, file: &str) {
    terminal.types("\x1a");
    wait_until("it is suspended", || scene.dir().join(file).exists());
    let before = written(scene);
    sleep(Duration::from_millis(100));
    assert_eq!(written(scene), before);
}

#[track_caller]
fn wait_until_it_writes(scene: &Scene) {
    let before = written(scene);
    wait_until("the command writes", || written(scene) > before);
}

#[test]
fn control_z_suspends_a_command_that_does_not_have_the_terminal() {
    // It forks nothing: a process that is stopped between `vfork` and `exec` keeps its parent from being stopped.
    let command = "sh -c \"until [ -e leave ]; do echo >> written; done\"";
    for start in ["LOCK > out", "LOCK", "LOCK & until [ -s written ]; do sleep 0.01; done; fg"] {
        let scene = Scene::new();
        let start = start.replace("LOCK", &format!("LOCKKEEPER run lock -- {command}"));
        let script = format!(
            "set -m; {start}; touch first; read x; bg; read x; touch third; fg; touch second; read x; fg; exit $?"
        );
        let mut terminal = Terminal::runs(&scene, &format!("bash -c '{script}'"));
        wait_until_it_writes(&scene);
        terminal.wait_for_the_job();
        suspend(&scene, &mut terminal, "first");
        terminal.types("\n");
        wait_until_it_writes(&scene);
        terminal.types("\n");
        wait_until("it comes to the foreground", || scene.dir().join("third").exists());
        terminal.wait_for_the_job();
        wait_until_it_writes(&scene);
        suspend(&scene, &mut terminal, "second");
        assert_eq!(scene.keys(), ["lock"]);
        terminal.types("\n");
        wait_until_it_writes(&scene);
        scene.write("leave", "");
        assert_eq!(terminal.code(), Some(0));
    }
}

/// Nobody could continue it.
#[test]
fn control_z_without_a_shell_suspends_nothing() {
    for redirect in ["", ">out"] {
        let scene = Scene::new();
        let command = "sh -c ': > ready; until [ -e leave ]; do :; done; exit 4'";
        let script = format!("exec LOCKKEEPER run lock -- {command} {redirect}");
        let mut terminal = Terminal::is_ready(&scene, &script);
        terminal.types("\x1a");
        sleep(Duration::from_millis(200)); // nothing tells that it was not suspended
        scene.write("leave", "");
        assert_eq!(terminal.code(), Some(4), "{redirect}");
    }
}

#[test]
fn a_killed_command_leaves_no_raw_terminal_behind() {
    let scene = Scene::new();
    for (options, end, code) in [("--max-hold 1s", "sleep 30", 76), ("", "kill -9 $$", 137)] {
        let command = format!("sh -c 'stty raw -echo; stty -a > raw; {end}'");
        let script = format!(
            "stty -a > before; LOCKKEEPER run {options} lock -- {command}; code=$?; stty -a > after; exit $code"
        );
        assert_eq!(Terminal::runs(&scene, &script).code(), Some(code));
        assert_eq!(scene.read("after"), scene.read("before"));
        assert_ne!(scene.read("raw"), scene.read("before"));
    }
}

/// As without `lockkeeper`: `stty raw` is such a command.
#[test]
fn a_command_that_ends_by_itself_can_change_the_terminal() {
    let scene = Scene::new();
    let script = "LOCKKEEPER run lock -- sh -c 'stty raw -echo; stty -a > raw'; stty -a > after";
    assert_eq!(Terminal::runs(&scene, script).code(), Some(0));
    assert_eq!(scene.read("after"), scene.read("raw"));
}

#[test]
fn a_pager_keeps_the_terminal() {
    let scene = Scene::new();
    let command = "sh -c 'touch ready; until [ -e done ]; do sleep 0.01; done'";
    let pager = "sh -c 'read line </dev/tty; echo $line > said; touch done'";
    Terminal::is_ready(&scene, &format!("LOCKKEEPER run lock -- {command} | {pager}")).reads(&scene);
}

#[test]
fn a_question_comes_before_a_release() {
    let scene = Scene::new();
    for (answer, code) in [("n\n", 69), ("y\n", 0)] {
        let holder = Contender::plain(&scene, if code == 0 { "second" } else { "first" }).enters();
        let mut terminal = Terminal::runs(&scene, "LOCKKEEPER release lock");
        terminal.types(answer);
        assert_eq!(terminal.code(), Some(code));
        assert_eq!(holder.finish(), Some(if code == 0 { 76 } else { 0 }));
    }
}

/// While the user reads the question, the lock becomes free, and another owner acquires it.
#[test]
fn a_release_ends_no_hold_that_began_after_the_question() {
    const SHOWN: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
    const LATER: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:2";
    let scene = Scene::new();
    let hold = |owner: &str| {
        let _: u64 = scene.server.run(&["HSET", "lock", owner, "1"]);
        let _: u64 = scene.server.run(&["PEXPIRE", "lock", "60000"]);
    };
    hold(SHOWN);
    let mut terminal = Terminal::runs(&scene, "LOCKKEEPER release lock 2>question");
    let question = || fs::read_to_string(scene.dir().join("question")).unwrap_or_default();
    wait_until("it asks", || question().contains("[y/N]"));
    let _: u64 = scene.server.run(&["DEL", "lock"]);
    hold(LATER);
    terminal.types("y\n");
    let (code, shown) = terminal.output();
    assert_eq!(code, Some(0));
    assert!(shown.contains(SHOWN) && shown.contains("lock: nothing was released"), "{shown}");
    let holders: Vec<String> = scene.server.run(&["HKEYS", "lock"]);
    assert_eq!(holders, [LATER]);
}

#[test]
fn waiting_is_told_only_at_a_terminal() {
    let scene = Scene::new();
    let holder = Contender::plain(&scene, "holder").enters();
    for redirect in ["2>problems", ""] {
        let script = format!("LOCKKEEPER run --wait 1500ms lock -- true {redirect}");
        let (code, shown) = Terminal::runs(&scene, &script).output();
        assert_eq!(code, Some(75));
        assert_eq!(shown.contains("lockkeeper: waiting for `lock`"), redirect.is_empty(), "{shown}");
    }
    assert_eq!(scene.read("problems"), "lockkeeper: `lock` is busy\n");
    assert_eq!(holder.finish(), Some(0));
}

//! A server, a configuration and a directory for one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use lockkeeper_testkit::Server;

use super::log::Log;
use super::processes::Processes;

/// The lease of a lock without `--lease`.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

const CONFIG: &str = r#"
[locks]
watchdog_lease = "2s"
command_timeout = "1s"
retry_timeout = "5s"
"#;

pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) processes: Processes,
    dir: PathBuf,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// With arguments for the server.
    pub(crate) fn with(args: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("lockkeeper-cli-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(&mark);
        let _ = fs::remove_dir_all(&dir); // left by a killed process that had the same id
        fs::create_dir_all(&dir).expect("a directory");
        let scene = Self { server: Server::with(args), processes: Processes::marked(mark), dir };
        scene.write("config.toml", CONFIG);
        // A busy machine can take long to answer a contender for the first time.
        scene.write("contender.toml", &format!("{CONFIG}start_timeout = \"10s\"\n"));
        scene
    }

    /// Writes a file into the directory of the test.
    pub(crate) fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.dir.join(file);
        fs::write(&path, text).expect("a file");
        path
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.dir.join(file)).expect("a file")
    }

    pub(crate) fn remove(&self, file: &str) {
        fs::remove_file(self.dir.join(file)).expect("a file");
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(crate) fn log(&self) -> Log {
        Log::new(self.log_file())
    }

    /// The command, with the server of this test.
    pub(crate) fn lockkeeper(&self, args: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(args);
        command
    }

    /// A shell script, for which `$0` is the command.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut command = self.program("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_lockkeeper")]);
        command
    }

    /// A program in the directory of the test. Signals that are ignored here, as by `nohup`, are not ignored there.
    pub(crate) fn program(&self, program: &str) -> Command {
        let (variable, mark) = self.processes.mark();
        let mut command = Command::new("env");
        command.args(["--default-signal", program]).env(variable, mark).current_dir(&self.dir);
        command.env("LOCKKEEPER_URL", self.server.url()).env("LOCKKEEPER_CONFIG", "config.toml");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.server.keys()
    }

    /// Runs the command to its end.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.lockkeeper(args).output().expect("lockkeeper runs")
    }

    /// Runs a shell script under the lock `lock`, and returns the exit code.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> i32 {
        let output = self.output(&[&["run"], options, &["lock", "--", "sh", "-c", script]].concat());
        output.status.code().expect("an exit code")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if thread::panicking() {
            self.processes.kill_all();
        } else {
            self.processes.wait_until_gone();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The standard output as text.
pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The standard output as JSON.
pub(crate) fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The standard error as text.
pub(crate) fn problem(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

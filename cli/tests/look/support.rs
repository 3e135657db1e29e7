//! What all of these tests need.

use std::io::Read;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper::{BaseLock, LockClient, LockConfig, LockGuard};
use lockkeeper_testkit::Server;
use serde_json::Value;
use tokio::task::JoinHandle;

/// How long a test waits for what has to happen.
const LIMIT: Duration = Duration::from_secs(20);

/// The command, without a server.
pub(crate) fn lockkeeper(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(args).env_remove("LOCKKEEPER_URL").env_remove("LOCKKEEPER_CONFIG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The command, with this server.
pub(crate) fn at(url: &str, args: &[&str]) -> Command {
    let mut command = lockkeeper(args);
    command.env("LOCKKEEPER_URL", url);
    command
}

/// Runs the command to its end. Tests whose tasks have to go on meanwhile need a runtime with several threads.
pub(crate) fn run(command: &mut Command) -> Output {
    command.output().expect("lockkeeper runs")
}

/// Runs the command to its end, and returns what it printed. It must end well.
#[track_caller]
pub(crate) fn shown(command: &mut Command) -> String {
    let output = run(command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A client that stands long stalls of the machine.
pub(crate) async fn client(server: &Server) -> LockClient {
    let config = LockConfig::builder().command_timeout(LIMIT / 4).retry_timeout(LIMIT);
    LockClient::connect_with(server.url(), config.build().expect("settings")).await.expect("a client")
}

/// Starts to wait for a lock.
pub(crate) fn waiter(mut lock: impl BaseLock + 'static) -> JoinHandle<LockGuard> {
    tokio::spawn(async move { lock.lock().await.expect("the lock") })
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A command that runs until it is told to end. It is killed when this value is dropped.
pub(crate) struct Running {
    process: Child,
    printed: Arc<Mutex<String>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command.spawn().expect("lockkeeper runs");
        let printed = Arc::new(Mutex::new(String::new()));
        let (stdout, text) = (process.stdout.take().expect("a pipe"), Arc::clone(&printed));
        thread::spawn(move || collect(stdout, &text));
        Self { process, printed }
    }

    pub(crate) fn printed(&self) -> String {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the command has printed this.
    #[track_caller]
    pub(crate) fn prints(&self, text: &str) {
        wait_until(text, || self.printed().contains(text));
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the end. Returns the exit code, and what it wrote to its standard error.
    #[track_caller]
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        wait_until("lockkeeper ends", || self.process.try_wait().expect("a status").is_some());
        let mut problem = String::new();
        self.process.stderr.take().expect("a pipe").read_to_string(&mut problem).expect("text");
        (self.process.wait().expect("a status").code(), problem)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn collect(mut from: ChildStdout, to: &Mutex<String>) {
    let mut bytes = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..count]);
        to.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
    }
}

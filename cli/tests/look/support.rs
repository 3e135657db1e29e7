//! What all of these tests need.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use lockkeeper::{BaseLock, Lock, LockClient, LockConfig, LockGuard};
use lockkeeper_testkit::{Cluster, MASTER, Sentinels, Server};
use serde_json::Value;
use tokio::task;

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

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) printed: String,
    /// What it wrote to its standard error.
    pub(crate) said: String,
}

/// Runs the command to its end. Tests whose tasks have to go on meanwhile need a runtime with several threads.
pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.output().expect("lockkeeper runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ended { code: output.status.code(), printed: text(output.stdout), said: text(output.stderr) }
}

/// Runs the command to its end, and returns what it printed. It must end well.
#[track_caller]
pub(crate) fn shown(command: &mut Command) -> String {
    let ended = run(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.printed
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
pub(crate) fn waiter<K: BaseLock>(mut lock: Lock<'static, K>) -> task::JoinHandle<LockGuard<K::Extra>> {
    task::spawn(async move { lock.lock().await.expect("the lock") })
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    wait_within(LIMIT, what, is_so);
}

#[track_caller]
fn wait_within(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit, "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A configuration file, which is removed when this value is dropped.
pub(crate) struct Config(PathBuf);

impl Config {
    pub(crate) fn new(text: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("lockkeeper-look-{}-{number}.toml", process::id()));
        fs::write(&path, text).expect("a file");
        Self(path)
    }

    /// `more`: further settings of the server, and other tables.
    pub(crate) fn of_cluster(cluster: &Cluster, more: &str) -> Self {
        Self::new(&format!("[server]\nkind = 'cluster'\nurls = {:?}\n{more}", cluster.urls()))
    }

    pub(crate) fn of_sentinels(group: &Sentinels, more: &str) -> Self {
        let sentinels = group.urls();
        let group = format!("master = {MASTER:?}\nsentinels = {sentinels:?}\nurls = ['redis://{MASTER}/']");
        Self::new(&format!("[server]\nkind = 'sentinel'\n{group}\n{more}"))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A command that runs until it is told to end. It is killed when this value is dropped.
pub(crate) struct Running {
    process: Child,
    printed: Collected,
    complained: Collected,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command.spawn().expect("lockkeeper runs");
        let printed = Collected::from(process.stdout.take().expect("a pipe"));
        let complained = Collected::from(process.stderr.take().expect("a pipe"));
        Self { process, printed, complained }
    }

    pub(crate) fn printed(&self) -> String {
        self.printed.text()
    }

    /// Waits until the command has printed this.
    #[track_caller]
    pub(crate) fn prints(&self, text: &str) {
        wait_until(text, || self.printed.text().contains(text));
    }

    /// Waits until the command has written this to its standard error.
    #[track_caller]
    pub(crate) fn complains(&self, text: &str) {
        wait_until(text, || self.complained.text().contains(text));
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.process.try_wait().expect("a status").is_none()
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn end(self) -> Ended {
        self.end_within(LIMIT)
    }

    /// Waits for the end of a command that runs for long.
    #[track_caller]
    pub(crate) fn end_within(mut self, limit: Duration) -> Ended {
        wait_within(limit, "lockkeeper ends", || !self.runs());
        let code = self.process.wait().expect("a status").code();
        Ended { code, printed: self.printed.all(), said: self.complained.all() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What came out of a pipe so far.
struct Collected {
    text: Arc<Mutex<String>>,
    collector: Option<JoinHandle<()>>,
}

impl Collected {
    fn from(pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let to = Arc::clone(&text);
        Self { text, collector: Some(thread::spawn(move || collect(pipe, &to))) }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the end of the pipe.
    fn all(&mut self) -> String {
        if let Some(collector) = self.collector.take() {
            collector.join().expect("no panic");
        }
        self.text()
    }
}

fn collect(mut pipe: impl Read, to: &Mutex<String>) {
    // The bytes of one character can come in two parts.
    let (mut bytes, mut part) = (Vec::new(), [0; 4_096]);
    while let Ok(count @ 1..) = pipe.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
        *to.lock().unwrap_or_else(PoisonError::into_inner) = String::from_utf8_lossy(&bytes).into_owned();
    }
}

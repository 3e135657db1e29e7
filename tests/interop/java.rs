//! Redisson in a process of its own, which runs the commands that it is sent. The other end is `src/main/java`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use lockkeeper_testkit::Commands;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::jvm;
use crate::support::{MS, Scene, soon};

/// A Redisson client. Dropping it kills its process.
pub struct Java {
    process: Child,
    orders: Orders,
    version: String,
}

/// One Java thread, as the owner of locks of one type. The name of a `multi` lock is the names of its members, with
/// commas.
#[derive(Clone)]
pub struct Actor {
    name: String,
    kind: &'static str,
    orders: Orders,
}

/// An error is what Redisson threw: the name of the exception and its message.
pub type Answer<T> = Result<T, String>;

/// Prefix of the keys by which Redisson recognizes an unlock that is sent twice. Newer versions delete them when the
/// unlock is answered, older ones let them expire.
pub const LATCH: &str = "redisson_unlock_latch:";

/// How long a Java waiter waits that is to give up: longer than it takes to subscribe on a busy machine. If the wait ends
/// before, Redisson cancels its subscription and then never ends it (redisson/redisson#3821).
pub const IN_VAIN: Duration = Duration::from_secs(3);

/// Limit for what the JVM does by itself, which is not under test: on a busy machine it may start slowly.
const PATIENCE: Duration = Duration::from_secs(100);

/// `None`: no more orders.
type Orders = mpsc::UnboundedSender<Option<Order>>;

struct Order {
    text: String,
    answer: oneshot::Sender<Answer<String>>,
}

impl Java {
    pub async fn start(scene: &Scene) -> Self {
        Self::with(scene, &[]).await
    }

    /// With settings of `Settings.java`, as in `["watchdog=3000"]`.
    pub async fn with(scene: &Scene, settings: &[&str]) -> Self {
        Self::at(&scene.server.url(), settings).await
    }

    /// At this address. Several addresses, with commas, are those of a cluster.
    pub async fn at(address: &str, settings: &[&str]) -> Self {
        Self::run(program(address), settings).await
    }

    /// In a JVM whose clock is ahead of the server's by whole milliseconds.
    pub async fn ahead(scene: &Scene, by: Duration) -> Self {
        let mut program = program(&scene.server.url());
        program.env("LD_PRELOAD", fast_clock()).env("AHEAD_MS", by.as_millis().to_string());
        Self::run(program, &[]).await
    }

    async fn run(program: std::process::Command, settings: &[&str]) -> Self {
        let mut process = Command::from(program)
            .arg("small")
            .args(settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("java can be run (scripts/test interop installs it)");
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let ready = timeout(PATIENCE, output.next_line()).await.expect("the JVM starts").unwrap();
        let version = ready.as_deref().and_then(|line| line.strip_prefix("ready ")?.split(' ').next());
        let version = version.expect("Redisson could be started").to_owned();
        let (orders, receiver) = mpsc::unbounded_channel();
        tokio::spawn(carry(input, output, receiver));
        Self { process, orders, version }
    }

    /// Whether this version of Redisson is at least `major.minor`.
    pub fn is_at_least(&self, major: u32, minor: u32) -> bool {
        let mut numbers = self.version.split('.').map(|number| number.parse().unwrap());
        (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
    }

    pub fn actor(&self, name: &str, kind: &'static str) -> Actor {
        Actor { name: name.to_owned(), kind, orders: self.orders.clone() }
    }

    /// Kills the process, without any notice to the server.
    pub async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    /// Redisson closes its connections. Its keys that would expire later are deleted.
    pub async fn end(self, scene: &Scene) {
        self.end_on(&[&scene.server]).await;
    }

    /// The same for a client of several servers.
    pub async fn end_on(mut self, servers: &[&Commands]) {
        let _ = self.orders.send(None);
        let status =
            timeout(PATIENCE, self.process.wait()).await.expect("the JVM ends when its input ends").unwrap();
        assert!(status.success(), "{status}");
        for server in servers {
            for latch in server.run::<Vec<String>>(&["KEYS", &format!("{LATCH}*")]) {
                server.run::<()>(&["DEL", &latch]);
            }
        }
    }
}

fn program(address: &str) -> std::process::Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    jvm::command(root, &["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"], address)
}

/// Compiles a library that a process loads before the C library, with a clock that is ahead. Returns its path. Linux only.
fn fast_clock() -> PathBuf {
    const SOURCE: &str = r#"
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>

        int clock_gettime(clockid_t clock, struct timespec *now) {
            int code = syscall(SYS_clock_gettime, clock, now);
            const char *ahead = getenv("AHEAD_MS");
            if (code == 0 && clock == CLOCK_REALTIME && ahead) {
                long long nanos = now->tv_nsec + atoll(ahead) % 1000 * 1000000;
                now->tv_sec += atoll(ahead) / 1000 + nanos / 1000000000;
                now->tv_nsec = nanos % 1000000000;
            }
            return code;
        }
    "#;
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (source, library) = (folder.join("fast_clock.c"), folder.join("fast_clock.so"));
        std::fs::write(&source, SOURCE).unwrap();
        let compiler = ["-shared", "-fPIC", "-o"];
        let status =
            std::process::Command::new("cc").args(compiler).args([&library, &source]).status().expect("cc");
        assert!(status.success(), "{status}");
        library
    };
    BUILT.get_or_init(build).clone()
}

impl Actor {
    pub async fn lock(&self, name: &str) -> Answer<()> {
        self.order("lock", name, "").await.map(drop)
    }

    pub async fn lock_for(&self, name: &str, lease: Duration) -> Answer<()> {
        self.order("lock_for", name, &lease.as_millis().to_string()).await.map(drop)
    }

    /// Acquires a fenced lock and returns the token.
    pub async fn lock_token(&self, name: &str) -> Answer<u64> {
        self.ask("lock_token", name).await
    }

    pub async fn try_lock(&self, name: &str) -> Answer<bool> {
        self.ask("try_lock", name).await
    }

    pub async fn try_lock_within(&self, name: &str, wait: Duration) -> Answer<bool> {
        self.order("try_lock_within", name, &wait.as_millis().to_string()).await.map(read)
    }

    pub async fn unlock(&self, name: &str) -> Answer<()> {
        self.order("unlock", name, "").await.map(drop)
    }

    pub async fn force_unlock(&self, name: &str) -> Answer<bool> {
        self.ask("force_unlock", name).await
    }

    pub async fn is_locked(&self, name: &str) -> Answer<bool> {
        self.ask("is_locked", name).await
    }

    pub async fn is_held(&self, name: &str) -> Answer<bool> {
        self.ask("is_held", name).await
    }

    pub async fn hold_count(&self, name: &str) -> Answer<u64> {
        self.ask("hold_count", name).await
    }

    /// In milliseconds.
    pub async fn remaining(&self, name: &str) -> Answer<i64> {
        self.ask("remaining", name).await
    }

    /// Sets how many permits a semaphore has, if it does not exist. Returns whether it did not.
    pub async fn set_permits(&self, name: &str, permits: u32) -> Answer<bool> {
        self.order("permits_set", name, &permits.to_string()).await.map(read)
    }

    pub async fn available_permits(&self, name: &str) -> Answer<u32> {
        self.ask("permits_available", name).await
    }

    /// Waits for a permit, and returns its id. A lease of zero: none.
    pub async fn acquire_permit(&self, name: &str, lease: Duration) -> Answer<String> {
        self.order("permits_acquire", name, &lease.as_millis().to_string()).await
    }

    /// Waits for a permit for so long, and returns its id.
    pub async fn try_permit(&self, name: &str, wait: Duration, lease: Duration) -> Answer<Option<String>> {
        let rest = format!("{} {}", wait.as_millis(), lease.as_millis());
        let id = self.order("permits_try", name, &rest).await?;
        Ok(Some(id).filter(|id| id != "null"))
    }

    /// Returns whether the permit was in use.
    pub async fn release_permit(&self, name: &str, id: &str) -> Answer<bool> {
        self.order("permits_release", name, id).await.map(read)
    }

    /// The id of this owner in Redis.
    pub async fn who(&self) -> String {
        self.ask("who", "any").await.unwrap()
    }

    /// Increments a key in sections, for this time. Returns how often.
    pub async fn count(&self, name: &str, time: Duration, key: &str) -> Answer<u64> {
        self.order("count", name, &format!("{} {key}", time.as_millis())).await.map(read)
    }

    /// Reads a key in sections, for this time, and fails if it changes during a section. Returns how often.
    pub async fn look(&self, name: &str, time: Duration, key: &str) -> Answer<u64> {
        self.order("look", name, &format!("{} {key}", time.as_millis())).await.map(read)
    }

    /// Returns when the thread sleeps in Redisson's wait for a message. A message `1` that arrives just before would
    /// be lost to it: such a message wakes only threads that sleep already.
    pub async fn asleep(&self) {
        let watcher = Self { name: "watcher".to_owned(), ..self.clone() };
        soon(async {
            while !watcher.order("sleeps", "any", &self.name).await.map(read::<bool>).unwrap() {
                sleep(2 * MS).await;
            }
        })
        .await;
    }

    async fn ask<T: FromStr>(&self, verb: &str, name: &str) -> Answer<T> {
        self.order(verb, name, "").await.map(read)
    }

    async fn order(&self, verb: &str, name: &str, rest: &str) -> Answer<String> {
        let (answer, answered) = oneshot::channel();
        let text = format!("{} {verb} {} {name} {rest}", self.name, self.kind);
        let _ = self.orders.send(Some(Order { text, answer }));
        let answer = timeout(PATIENCE, answered).await.expect("the JVM answers");
        answer.unwrap_or_else(|_| Err("the process is gone".to_owned()))
    }
}

fn read<T: FromStr>(result: String) -> T {
    result.parse().unwrap_or_else(|_| panic!("unexpected result {result:?}"))
}

/// Carries orders in and answers out, until the orders end. Orders that still wait then fail: the process is gone.
async fn carry(
    mut input: ChildStdin,
    mut output: Lines<BufReader<ChildStdout>>,
    mut orders: mpsc::UnboundedReceiver<Option<Order>>,
) {
    let mut waiting = HashMap::new();
    for number in 0_u64.. {
        let order = loop {
            tokio::select! {
                order = orders.recv() => break order,
                line = output.next_line() => match line {
                    Ok(Some(line)) => deliver(&line, &mut waiting),
                    _ => return,
                },
            }
        };
        let Some(Some(order)) = order else { return };
        waiting.insert(number, order.answer);
        if input.write_all(format!("{number} {}\n", order.text).as_bytes()).await.is_err() {
            return;
        }
    }
}

fn deliver(line: &str, waiting: &mut HashMap<u64, oneshot::Sender<Answer<String>>>) {
    let mut words = line.splitn(3, ' ');
    let number = words.next().and_then(|number| number.parse().ok());
    let answer = number.and_then(|number: u64| waiting.remove(&number));
    let (Some(answer), Some(outcome)) = (answer, words.next()) else { panic!("not an answer: {line:?}") };
    let rest = words.next().unwrap_or_default().to_owned();
    let _ = answer.send(if outcome == "ok" { Ok(rest) } else { Err(rest) });
}

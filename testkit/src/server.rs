//! A Redis or Valkey server of its own, on a free port.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, RedisError, Value};

use crate::stats::CommandStats;
use crate::{ReservedPort, lua, process};

/// The time limit for the start of a server.
const START: Duration = Duration::from_secs(10);

/// The time limit for a command of a test itself.
const ANSWER: Duration = Duration::from_secs(5);

/// A server process, which is killed when this value is dropped.
///
/// The server keeps nothing on disk, unless its arguments say so. It knows all scripts of lockkeeper from the start, so
/// each call is exactly one command, and a test can count commands. The program is the one that `LOCKKEEPER_SERVER`
/// names, or `redis-server`, or `valkey-server`.
#[derive(Debug)]
pub struct Server {
    process: Option<Child>,
    port: ReservedPort,
    dir: PathBuf,
    args: Vec<String>,
}

/// Starting and stopping.
impl Server {
    /// Starts a server with default settings.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with further arguments, such as `["--maxmemory", "1mb"]`.
    pub fn with(args: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("lockkeeper-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir); // left by a killed process that had the same id
        std::fs::create_dir_all(&dir).expect("a directory for the server");
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut server = Self { process: None, port: ReservedPort::new(), dir, args };
        let started = (0..5).any(|_| server.launch());
        assert!(started, "no server could be started");
        server.load_scripts();
        server
    }

    /// Kills the server and starts it again on the same port.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Kills the server. Its port stays reserved.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts a killed server again on the same port.
    pub fn start_again(&mut self) {
        assert!(self.launch(), "the server does not start again");
        self.load_scripts();
    }

    /// Stops the server's process without ending it. The connections stay open, and no client gets an answer.
    pub fn freeze(&self) {
        process::signal(self.pid(), "STOP");
    }

    /// Lets a frozen server run on.
    pub fn thaw(&self) {
        process::signal(self.pid(), "CONT");
    }

    /// From its next start on, the server takes this long to load each key. It must have been started with
    /// `--key-load-delay`.
    pub fn slow_loading(&mut self, per_key: Duration) {
        let delay =
            self.args.iter().position(|arg| arg == "--key-load-delay").expect("started with the setting");
        self.args[delay + 1] = per_key.as_micros().to_string();
        self.args.extend(["--loading-process-events-interval-bytes".to_owned(), "1024".to_owned()]);
    }

    fn launch(&mut self) -> bool {
        let mut process = Command::new(program())
            .args(["--port", &self.port().to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--loglevel", "warning"])
            .arg("--dir")
            .arg(&self.dir)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server or valkey-server can be run (LOCKKEEPER_SERVER names another)");
        let start = Instant::now();
        while start.elapsed() < START {
            if process.try_wait().expect("the state of the process").is_some() {
                return false;
            }
            match self.try_run::<String>(&["INFO", "server"]) {
                // Another process has the port.
                Ok(info) if !info.contains(&format!("process_id:{}\r\n", process.id())) => break,
                Err(error) if error.code().is_none() => sleep(Duration::from_millis(2)),
                // A server that asks for a password is up as well.
                _ => {
                    self.process = Some(process);
                    return true;
                }
            }
        }
        let _ = process.kill();
        let _ = process.wait();
        false
    }

    /// If the server asks for a password, or the command has another name, the scripts are not loaded.
    fn load_scripts(&self) {
        for script in lua::sources() {
            let _: Result<String, _> = self.try_run(&["SCRIPT", "LOAD", &script]);
        }
    }
}

/// Addresses and commands.
impl Server {
    /// The port on which it listens, of the address 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running server").id()
    }

    /// Opens a connection. A command on it fails after five seconds without an answer.
    pub fn connect(&self) -> Result<Connection, RedisError> {
        let connection = redis::Client::open(self.url())?.get_connection_with_timeout(ANSWER)?;
        connection.set_read_timeout(Some(ANSWER))?;
        Ok(connection)
    }

    /// Runs a command on a connection of its own.
    pub fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_run(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Runs a command that may fail on a connection of its own.
    pub fn try_run<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, RedisError> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut self.connect()?)
    }

    /// Runs a command with many pairs of arguments, a thousand pairs at a time. Empty words are left out.
    pub fn run_many(&self, command: &[&str], pairs: &[[String; 2]]) {
        for pairs in pairs.chunks(1_000) {
            let words = pairs.iter().flatten().map(String::as_str).filter(|word| !word.is_empty());
            self.run::<()>(&[command, &words.collect::<Vec<_>>()].concat());
        }
    }

    /// Runs a script of lockkeeper, such as `"rlock/acquire.lua"`.
    pub fn script(&self, file: &str, keys: &[&str], args: &[&str]) -> Value {
        let (text, count) = (lua::source(file), keys.len().to_string());
        self.run(&[&["EVAL", &text, &count], keys, args].concat())
    }
}

/// What is on the server.
impl Server {
    /// Name and version, such as "Redis 7.0.15".
    pub fn version(&self) -> String {
        let info: String = self.run(&["INFO", "server"]);
        let fact = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        match (fact("valkey_version:"), fact("redis_version:")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, version) => format!("Redis {}", version.unwrap_or("of unknown version")),
        }
    }

    /// All keys, except the token counters of fenced locks, which no release removes.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.run(&["KEYS", "*"]);
        keys.retain(|key| !key.starts_with("redisson_lock_token:"));
        keys
    }

    /// All channels that have a subscriber.
    pub fn channels(&self) -> Vec<String> {
        self.run(&["PUBSUB", "CHANNELS"])
    }

    /// The connected clients as `CLIENT LIST` describes them, without the connection that asks.
    pub fn clients(&self) -> Vec<String> {
        let list: String = self.run(&["CLIENT", "LIST"]);
        list.lines().filter(|line| !line.contains("cmd=client|list")).map(str::to_owned).collect()
    }

    /// Milliseconds since 1970 by the server's clock.
    pub fn now_ms(&self) -> u64 {
        let time: Vec<u64> = self.run(&["TIME"]);
        time[0] * 1_000 + time[1] / 1_000
    }

    /// How often a command was called since the server started, by clients and by scripts.
    pub fn calls(&self, command: &str) -> u64 {
        self.command_stats().of(command, "calls")
    }

    /// Microseconds that the server spent on a command since it started.
    pub fn micros(&self, command: &str) -> u64 {
        self.command_stats().of(command, "usec")
    }

    /// How many scripts ran since the server started.
    pub fn scripts(&self) -> u64 {
        self.command_stats().scripts()
    }

    /// How many commands scripts ran since the server started. The number is right only if clients send no command that
    /// a script runs, too.
    pub fn calls_in_scripts(&self) -> u64 {
        self.command_stats().in_scripts()
    }

    fn command_stats(&self) -> CommandStats {
        CommandStats(self.run(&["INFO", "commandstats"]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn program() -> String {
    let runs = |program: &&str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    std::env::var("LOCKKEEPER_SERVER").unwrap_or_else(|_| {
        let found = ["redis-server", "valkey-server"].into_iter().find(runs);
        found.expect("redis-server or valkey-server is installed").to_owned()
    })
}

//! A Redis server of one's own, on a free port.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, RedisError};
use tokio::net::TcpSocket;

/// Ends with its value, also when a test fails.
pub struct Server {
    process: Option<Child>,
    port: TcpSocket,
    dir: PathBuf,
    args: Vec<String>,
}

impl Server {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With further words of a configuration: `["--maxmemory", "1mb"]`.
    pub fn with(args: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("lockkeeper-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir); // of another process of this number, which was killed
        std::fs::create_dir_all(&dir).expect("a directory for the server");
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut server = Self { process: None, port: free_port(), dir, args };
        let started = (0..5).any(|_| server.launch());
        assert!(started, "no server could be started");
        server.load_scripts();
        server
    }

    pub fn port(&self) -> u16 {
        number(&self.port)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    /// Runs a command on a connection of its own.
    pub fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_run(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub fn try_run<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, RedisError> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut self.connect()?)
    }

    pub fn connect(&self) -> Result<Connection, RedisError> {
        let connection =
            redis::Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(5))?;
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(connection)
    }

    /// How often a command was called so far.
    pub fn calls(&self, command: &str) -> u64 {
        self.stat(command, "calls")
    }

    /// How many scripts ran so far.
    /// Commands that were run inside of scripts.
    pub fn calls_in_scripts(&self) -> u64 {
        const OUTSIDE: [&str; 10] = [
            "client",
            "config",
            "eval",
            "evalsha",
            "hello",
            "info",
            "ping",
            "pubsub",
            "subscribe",
            "unsubscribe",
        ];
        let stats: String = self.run(&["INFO", "commandstats"]);
        let count = |line: &str| -> Option<u64> {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let is_outside = OUTSIDE.contains(&command.split('|').next()?);
            if is_outside { None } else { rest.split(',').next()?.parse().ok() }
        };
        stats.lines().filter_map(count).sum()
    }

    /// Runs one command with many arguments, a few thousand of them at a time.
    pub fn run_many(&self, command: &[&str], pairs: &[[String; 2]]) {
        for pairs in pairs.chunks(1_000) {
            let words = pairs.iter().flatten().map(String::as_str).filter(|word| !word.is_empty());
            self.run::<()>(&[command, &words.collect::<Vec<_>>()].concat());
        }
    }

    /// Milliseconds of its clock.
    pub fn now_ms(&self) -> u64 {
        let time: Vec<u64> = self.run(&["TIME"]);
        time[0] * 1_000 + time[1] / 1_000
    }

    pub fn scripts(&self) -> u64 {
        let stats: String = self.run(&["INFO", "commandstats"]);
        let stat = |command, what| stat(&stats, command, what);
        // Without those that it did not know yet.
        stat("eval", "calls") + stat("evalsha", "calls") - stat("evalsha", "failed_calls")
    }

    /// The time that the server spent on it.
    pub fn micros(&self, command: &str) -> u64 {
        self.stat(command, "usec")
    }

    fn stat(&self, command: &str, what: &str) -> u64 {
        stat(&self.run::<String>(&["INFO", "commandstats"]), command, what)
    }

    /// Clients that are connected, and that are not this one asking.
    pub fn clients(&self) -> Vec<String> {
        let list: String = self.run(&["CLIENT", "LIST"]);
        list.lines().filter(|line| !line.contains("cmd=client|list")).map(str::to_owned).collect()
    }

    /// All keys, but for the counters of fenced locks: these stay.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.run(&["KEYS", "*"]);
        keys.retain(|key| !key.starts_with("redisson_lock_token:"));
        keys
    }

    pub fn channels(&self) -> Vec<String> {
        self.run(&["PUBSUB", "CHANNELS"])
    }

    /// The process goes on existing, and does nothing.
    pub fn freeze(&self) {
        signal(self.pid(), "STOP");
    }

    pub fn thaw(&self) {
        signal(self.pid(), "CONT");
    }

    /// Ends the process without a word, and starts another on the same port.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// From its next start on, it takes this long for each key.
    pub fn slow_loading(&mut self, per_key: Duration) {
        let delay =
            self.args.iter().position(|arg| arg == "--key-load-delay").expect("started with the setting");
        self.args[delay + 1] = per_key.as_micros().to_string();
        self.args.extend(["--loading-process-events-interval-bytes".to_owned(), "1024".to_owned()]);
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub fn start_again(&mut self) {
        assert!(self.launch(), "the server does not start again");
        self.load_scripts();
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("the server runs").id()
    }

    fn launch(&mut self) -> bool {
        let mut process = Command::new(program())
            .args([
                "--port",
                &self.port().to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--loglevel",
                "warning",
            ])
            .arg("--dir")
            .arg(&self.dir)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server or valkey-server can be run (LOCKKEEPER_SERVER names another)");
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if process.try_wait().expect("its state is known").is_some() {
                return false;
            }
            match self.try_run::<String>(&["INFO", "server"]) {
                Ok(info) if !info.contains(&format!("process_id:{}\r\n", process.id())) => break, // another has the port
                // One with a password is up as well.
                Err(error) if error.code().is_none() => sleep(Duration::from_millis(2)),
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

    /// So that every script runs with its first command, and a test can count commands.
    /// Runs a script by hand.
    pub fn script(&self, file: &str, keys: &[&str], args: &[&str]) -> redis::Value {
        let (text, count) = (source(&lua_dir().join(file)), keys.len().to_string());
        self.run(&[&["EVAL", &text, &count], keys, args].concat())
    }

    pub fn load_scripts(&self) {
        for file in script_files() {
            let _: Result<String, _> = self.try_run(&["SCRIPT", "LOAD", &source(&file)]);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn stat(stats: &str, command: &str, what: &str) -> u64 {
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
    let value = line.and_then(|line| line.split(',').find_map(|part| part.strip_prefix(&format!("{what}="))));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill -{name} {pid}");
    // On a busy machine its threads may go on for a while.
    let start = Instant::now();
    while !has_arrived(pid, name) {
        assert!(start.elapsed() < Duration::from_secs(20), "kill -{name} {pid} does nothing");
        sleep(Duration::from_millis(1));
    }
}

fn has_arrived(pid: u32, signal: &str) -> bool {
    let state = match signal {
        "KILL" => "(zombie)",
        "STOP" => "(stopped)",
        _ => return true,
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let status = |path: PathBuf| std::fs::read_to_string(path.join("status")).unwrap_or_default();
    threads.map(|thread| status(thread.path())).all(|status| status.is_empty() || status.contains(state))
}

fn program() -> String {
    let runs = |program: &&str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    std::env::var("LOCKKEEPER_SERVER").unwrap_or_else(|_| {
        let found = ["redis-server", "valkey-server"].iter().copied().find(runs);
        found.expect("redis-server or valkey-server is installed").to_owned()
    })
}

/// A port that nobody else is given as long as this is kept. It is bound and does not listen, so a server can, and can
/// again after it was dead for a while.
pub fn free_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("a socket can be told that");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    socket
}

pub fn number(port: &TcpSocket) -> u16 {
    port.local_addr().expect("it is bound").port()
}

/// How the server calls a script: `"rlock/acquire.lua"`.
pub fn script_hash(file: &str) -> String {
    redis::Script::new(&source(&lua_dir().join(file))).get_hash().to_owned()
}

const SHARED: &str = "shared.lua";

fn lua_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lua")
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The script as the crate sends it: behind its first line stand the files that its header names.
fn source(file: &Path) -> String {
    let script = read(file);
    let with = script.lines().filter_map(|line| line.strip_prefix("  With  "));
    let shared: String =
        with.flat_map(str::split_whitespace).map(|file| read(&lua_dir().join(file))).collect();
    let (first_line, rest) = script.split_once('\n').expect("more than one line");
    format!("{first_line}\n{shared}{rest}")
}

fn script_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![lua_dir()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("lua/ is readable").flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "lua") && !path.ends_with(SHARED)
            {
                files.push(path);
            }
        }
    }
    files
}

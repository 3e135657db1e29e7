//! A Redis or Valkey server of its own, on a free port.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Connection, RedisError};

use crate::{Commands, ReservedPort, process};

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
    /// Each command runs on a connection of its own.
    commands: Commands,
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
        let port = ReservedPort::new();
        let number = port.number();
        let commands =
            Commands::new(move |words| redis::cmd(words[0]).arg(&words[1..]).query(&mut connect(number)?));
        let mut server = Self { process: None, port, commands, dir, args };
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
}

/// Addresses.
impl Server {
    /// The port on which it listens, of the address 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        url(self.port())
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running server").id()
    }

    /// Opens a connection. A command on it fails after five seconds without an answer.
    pub fn connect(&self) -> Result<Connection, RedisError> {
        connect(self.port())
    }
}

impl Deref for Server {
    type Target = Commands;

    fn deref(&self) -> &Commands {
        &self.commands
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/")
}

fn connect(port: u16) -> Result<Connection, RedisError> {
    let connection = redis::Client::open(url(port))?.get_connection_with_timeout(ANSWER)?;
    connection.set_read_timeout(Some(ANSWER))?;
    Ok(connection)
}

fn program() -> String {
    let runs = |program: &&str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    std::env::var("LOCKKEEPER_SERVER").unwrap_or_else(|_| {
        let found = ["redis-server", "valkey-server"].into_iter().find(runs);
        found.expect("redis-server or valkey-server is installed").to_owned()
    })
}

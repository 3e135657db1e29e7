//! A Redis or Valkey server of its own, on a free port.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Connection, RedisError};

use crate::{Certificates, Commands, ReservedPort, lua, process};

/// The time limit for the start of a server.
const START: Duration = Duration::from_secs(10);

/// The time limit for a connection of a test itself.
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
    /// The port for TLS. Commands of the test itself use the other one.
    tls: Option<ReservedPort>,
    /// Each command runs on a connection of its own.
    commands: Commands,
    dir: PathBuf,
    /// The file of a sentinel, which keeps its state there.
    file: Option<PathBuf>,
    /// The port for the other servers of a cluster.
    bus: Option<ReservedPort>,
    args: Vec<String>,
    is_frozen: AtomicBool,
}

/// Starting and stopping.
impl Server {
    /// Starts a server with default settings.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with further arguments, such as `["--maxmemory", "1mb"]`.
    pub fn with(args: &[&str]) -> Self {
        let mut server = Self::prepared(args);
        server.begin();
        server
    }

    /// Starts a server that speaks TLS with clients. `asks`: it accepts only clients with a certificate.
    pub fn secured(certificates: &Certificates, asks: bool, args: &[&str]) -> Self {
        let mut server = Self::prepared(&[]).with_tls(certificates, asks);
        server.args.extend(args.iter().map(|arg| (*arg).to_owned())); // later settings override earlier ones
        server.begin();
        server
    }

    /// Starts a sentinel with these settings.
    pub fn sentinel(settings: &str) -> Self {
        Self::sentinel_with(settings, None)
    }

    /// Starts a sentinel that speaks TLS if there are certificates.
    pub(crate) fn sentinel_with(settings: &str, certificates: Option<&Certificates>) -> Self {
        let mut server = Self::prepared(&["--sentinel"]);
        if let Some(certificates) = certificates {
            server = server.with_tls(certificates, true);
        }
        server.file = Some(server.write("sentinel.conf", settings));
        server.begin();
        server
    }

    /// Returns a server of a cluster. It does not run yet.
    pub(crate) fn of_cluster(args: &[&str], certificates: Option<&Certificates>) -> Self {
        let mut server = Self::prepared(args);
        if let Some(certificates) = certificates {
            server = server.with_tls(certificates, true);
        }
        let bus = ReservedPort::new();
        let port = bus.number().to_string();
        server.args.extend(["--cluster-enabled", "yes", "--cluster-port", &port].map(str::to_owned));
        server.bus = Some(bus);
        server
    }

    /// Returns a server with a port and a directory. It does not run yet.
    fn prepared(args: &[&str]) -> Self {
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
        let is_frozen = AtomicBool::new(false);
        Self { process: None, port, tls: None, commands, dir, file: None, bus: None, args, is_frozen }
    }

    fn with_tls(mut self, certificates: &Certificates, asks: bool) -> Self {
        let port = ReservedPort::new();
        self.args.extend(certificates.server_args(port.number(), asks));
        self.tls = Some(port);
        self
    }

    /// Writes a file into the directory of the server.
    pub(crate) fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.dir.join(file);
        std::fs::write(&path, text).expect("a file for the server");
        path
    }

    /// Starts the server for the first time.
    pub(crate) fn begin(&mut self) {
        let started = (0..5).any(|_| self.launch());
        assert!(started, "no server could be started");
        self.load_all_scripts();
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
        self.is_frozen.store(false, Ordering::Relaxed);
    }

    /// Starts a killed server again on the same port.
    pub fn start_again(&mut self) {
        assert!(self.launch(), "the server does not start again");
        self.load_all_scripts();
    }

    /// Loads all scripts of lockkeeper. If the server asks for a password, or the command has another name, no script
    /// is loaded.
    fn load_all_scripts(&self) {
        let mut loading = redis::pipe();
        for script in lua::sources() {
            loading.cmd("SCRIPT").arg("LOAD").arg(script).ignore();
            if self.bus.is_some() {
                loading.cmd("SCRIPT").arg("LOAD").arg(lua::sharded(script)).ignore();
            }
        }
        // All scripts are loaded on one connection, because nearly every test starts a server.
        let _ = self.connect().and_then(|mut connection| loading.exec(&mut connection));
    }

    /// Stops the server's process without ending it. The connections stay open, and no client gets an answer.
    pub fn freeze(&self) {
        self.is_frozen.store(true, Ordering::Relaxed);
        process::signal(self.pid(), "STOP");
    }

    /// Lets a frozen server run on.
    pub fn thaw(&self) {
        process::signal(self.pid(), "CONT");
        self.is_frozen.store(false, Ordering::Relaxed);
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
            .args(&self.file)
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
                // The server that answers is another process, which has the port.
                Ok(info) if !info.contains(&format!("process_id:{}\r\n", process.id())) => break,
                Err(error) if error.code().is_none() => sleep(Duration::from_millis(2)),
                // A server that refuses the command, because it asks for a password, is up as well.
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
    /// The port on which it listens without TLS, of the address 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The port for clients and other servers: that for TLS, if it speaks TLS.
    pub fn public_port(&self) -> u16 {
        self.tls.as_ref().unwrap_or(&self.port).number()
    }

    /// The port for the other servers of its cluster.
    pub(crate) fn bus_port(&self) -> u16 {
        self.bus.as_ref().expect("a server of a cluster").number()
    }

    /// Whether it runs, and is not frozen.
    pub fn answers(&self) -> bool {
        self.process.is_some() && !self.is_frozen.load(Ordering::Relaxed)
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        match &self.tls {
            Some(port) => format!("rediss://127.0.0.1:{}/", port.number()),
            None => url(self.port()),
        }
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running server").id()
    }

    /// Opens a connection. If the machine stops this program and lets it continue, a call with a time limit is interrupted
    /// (signal(7)). So commands have no limit, and opening, which has one, is repeated.
    pub fn connect(&self) -> Result<Connection, RedisError> {
        connect(self.port())
    }

    /// For a test that sends many commands, or whose commands outlive this value. Breaks no connection.
    pub fn on_one_connection(&self) -> Commands {
        let connection = Mutex::new(self.connect().expect("the server is up"));
        Commands::new(move |words| {
            redis::cmd(words[0]).arg(&words[1..]).query(&mut *connection.lock().expect("no panic"))
        })
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
    let client = redis::Client::open(url(port))?;
    loop {
        match client.get_connection_with_timeout(ANSWER) {
            Err(error) if error.to_string().contains("Interrupted") => {}
            outcome => return outcome,
        }
    }
}

/// The first two numbers of the version of the servers that are started.
pub(crate) static RELEASE: LazyLock<[u32; 2]> = LazyLock::new(|| {
    let (_, version) = VERSION.split_once("v=").expect("a version");
    let mut numbers = version.split('.').map(|number| number.parse().expect("a number"));
    [numbers.next(), numbers.next()].map(|number| number.expect("two numbers"))
});

/// Whether the servers that are started are Valkey, and not Redis.
pub(crate) static IS_VALKEY: LazyLock<bool> = LazyLock::new(|| VERSION.starts_with("Valkey"));

/// What the program says of its version.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let shown = Command::new(program()).arg("--version").output().expect("the server tells its version");
    String::from_utf8_lossy(&shown.stdout).into_owned()
});

fn program() -> String {
    let runs = |program: &&str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    std::env::var("LOCKKEEPER_SERVER").unwrap_or_else(|_| {
        let found = ["redis-server", "valkey-server"].into_iter().find(runs);
        found.expect("redis-server or valkey-server is installed").to_owned()
    })
}

//! A server of one's own, on a free port, that ends with its value.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub struct Server {
    process: Child,
    url: String,
}

impl Server {
    pub fn start() -> Self {
        let program = program();
        // Another process may take the port between finding it free and starting on it.
        let server = (0..5).find_map(|_| Self::launch(&program, free_port()));
        server.expect("a server that starts")
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Such as "Redis 7.0.15".
    pub fn version(&self) -> String {
        let facts = self.ask("INFO", "server").unwrap_or_default();
        let fact = |name: &str| facts.lines().find_map(|line| line.strip_prefix(name));
        match (fact("valkey_version:"), fact("redis_version:")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, version) => format!("Redis {}", version.unwrap_or("of unknown version")),
        }
    }

    /// Its connections stay open, and nobody gets an answer.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("a process of ours");
    }

    fn launch(program: &str, port: u16) -> Option<Self> {
        let mut command = Command::new(program);
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a process");
        let mut server = Self { process, url: format!("redis://127.0.0.1:{port}/") };
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) && !server.has_ended() {
            if server.ask("ECHO", "up").is_some() {
                return Some(server);
            }
            sleep(Duration::from_millis(5));
        }
        None
    }

    fn has_ended(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|status| status.is_some())
    }

    fn ask(&self, command: &str, word: &str) -> Option<String> {
        let mut connection = redis::Client::open(self.url()).ok()?.get_connection().ok()?;
        redis::cmd(command).arg(word).query(&mut connection).ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// LOCKKEEPER_SERVER, as in the tests, or what is installed.
fn program() -> String {
    let runs = |program: &&str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    std::env::var("LOCKKEEPER_SERVER").unwrap_or_else(|_| {
        let found = ["redis-server", "valkey-server"].into_iter().find(runs);
        found.expect("redis-server or valkey-server is installed").to_owned()
    })
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

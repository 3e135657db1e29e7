//! The server of a test: a real one, or with `LOCKKEEPER_STORE=memory` one in this process. With
//! `LOCKKEEPER_SOURCE=cluster`, a real one that is a cluster by itself.
//!
//! With the in-memory server, the clock is paused, so that nothing takes time, if the runtime of the test can be
//! paused. A test that needs more than this server has fails on it. `tests/real_only.txt` names these tests, and
//! `scripts/test fast` leaves them out.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use lockkeeper::Source;
use lockkeeper_memory::{Data, MemoryServer};
use lockkeeper_testkit::{Commands, Server as RealServer, Strict, Wants};
use redis::{Connection, FromRedisValue, RedisError, Value};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::Way;

const REAL_ONLY: &str = "this test needs a real server: add it to tests/real_only.txt";

/// The in-memory servers of this process, by their URLs.
static IN_MEMORY: LazyLock<Mutex<HashMap<String, MemoryServer>>> = LazyLock::new(Mutex::default);

pub enum Server {
    Memory {
        server: MemoryServer,
        url: String,
        commands: Commands,
    },
    /// Perhaps behind a service that refuses some scripts.
    Real(RealServer, Option<Strict>),
}

/// What the services of the conformance suite want of scripts: what `LOCKKEEPER_WANTS` says.
fn wanted() -> Option<Wants> {
    match std::env::var("LOCKKEEPER_WANTS").as_deref() {
        Ok("a-key") => Some(Wants::AKey),
        Ok("all-keys") => Some(Wants::AllKeys),
        Ok(other) => panic!("LOCKKEEPER_WANTS is {other}, and not a-key or all-keys"),
        Err(_) => None,
    }
}

/// Whether tests run on the in-memory server.
pub fn is_memory() -> bool {
    match std::env::var("LOCKKEEPER_STORE").as_deref() {
        Ok("memory") => true,
        Ok("redis") | Err(_) => false,
        Ok(other) => panic!("LOCKKEEPER_STORE is {other}, and not memory or redis"),
    }
}

/// What a client connects to, by its URL.
pub fn source(url: &str) -> Source {
    let servers = IN_MEMORY.lock().unwrap();
    servers.get(url).map_or_else(|| url.into(), |server| Source::stream(server.connector()))
}

/// Once in each runtime.
fn pause_clock() {
    static PAUSED: Mutex<Vec<tokio::runtime::Id>> = Mutex::new(Vec::new());
    let Ok(runtime) = Handle::try_current() else { return };
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
        let mut paused = PAUSED.lock().unwrap();
        if !paused.contains(&runtime.id()) {
            paused.push(runtime.id());
            tokio::time::pause();
        }
    }
}

impl Server {
    pub fn start() -> Self {
        if Way::wanted() == Way::Cluster {
            return Self::real_one(RealServer::cluster_of_one());
        }
        if !is_memory() {
            return Self::real_one(RealServer::start());
        }
        pause_clock();
        let server = MemoryServer::new();
        let mut servers = IN_MEMORY.lock().unwrap();
        let url =
            (0..).map(|number| format!("memory:{number}")).find(|url| !servers.contains_key(url)).unwrap();
        servers.insert(url.clone(), server.clone());
        let commands = Commands::new({
            let server = server.clone();
            move |words| run(&server, words)
        });
        commands.load_scripts();
        Self::Memory { server, url, commands }
    }

    pub fn with(args: &[&str]) -> Self {
        if is_memory() && args.is_empty() { Self::start() } else { Self::real_one(RealServer::with(args)) }
    }

    fn real_one(server: RealServer) -> Self {
        let strict = wanted().map(|wants| Strict::before(server.port(), wants));
        if let (Some(strict), Way::Cluster) = (&strict, Way::wanted()) {
            server.announce(strict.port());
        }
        Self::Real(server, strict)
    }

    /// For a test that sends many commands, and breaks no connection.
    pub fn on_one_connection(&self) -> Commands {
        match self {
            Self::Memory { server, .. } => {
                let server = server.clone();
                Commands::new(move |words| run(&server, words))
            }
            Self::Real(server, _) => server.on_one_connection(),
        }
    }

    fn real(&self) -> &RealServer {
        match self {
            Self::Memory { .. } => panic!("{REAL_ONLY}"),
            Self::Real(server, _) => server,
        }
    }

    pub fn restart(&mut self) {
        match self {
            Self::Memory { server, commands, .. } => {
                server.start(Data::Lost);
                commands.load_scripts();
            }
            Self::Real(server, _) => server.restart(),
        }
    }

    pub fn kill(&mut self) {
        match self {
            Self::Memory { server, .. } => server.stop(),
            Self::Real(server, _) => server.kill(),
        }
    }

    pub fn start_again(&mut self) {
        match self {
            Self::Memory { .. } => self.restart(),
            Self::Real(server, _) => server.start_again(),
        }
    }

    pub fn freeze(&self) {
        match self {
            Self::Memory { server, .. } => server.freeze(true),
            Self::Real(server, _) => server.freeze(),
        }
    }

    pub fn thaw(&self) {
        match self {
            Self::Memory { server, .. } => server.freeze(false),
            Self::Real(server, _) => server.thaw(),
        }
    }

    pub fn slow_loading(&mut self, per_key: Duration) {
        match self {
            Self::Memory { .. } => panic!("{REAL_ONLY}"),
            Self::Real(server, _) => server.slow_loading(per_key),
        }
    }

    pub fn port(&self) -> u16 {
        match self {
            Self::Real(_, Some(strict)) => strict.port(),
            server => server.real().port(),
        }
    }

    pub fn url(&self) -> String {
        match self {
            Self::Memory { url, .. } => url.clone(),
            Self::Real(_, Some(strict)) => strict.url(),
            Self::Real(server, None) => server.url(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.real().pid()
    }

    pub fn connect(&self) -> Result<Connection, RedisError> {
        self.real().connect()
    }
}

impl Deref for Server {
    type Target = Commands;

    fn deref(&self) -> &Commands {
        match self {
            Self::Memory { commands, .. } => commands,
            Self::Real(server, _) => server,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Memory { url, .. } = self {
            IN_MEMORY.lock().unwrap().remove(url);
        }
    }
}

/// Runs a command. A command that only tests use is replaced by commands that the in-memory server has.
fn run(server: &MemoryServer, words: &[&str]) -> Result<Value, RedisError> {
    let ask = |words: &[&str]| redis::parse_redis_value(&server.execute(words))?.extract_error();
    let text = |value: &Value| String::from_redis_value_ref(value).unwrap_or_default();
    match words {
        ["CLIENT", "KILL", ..] => {
            server.cut();
            Ok(Value::Int(1))
        }
        ["CLIENT", "LIST", "TYPE", "PUBSUB"] => {
            let list = text(&ask(&["CLIENT", "LIST"])?);
            let subscribers = list.lines().filter(|line| !line.ends_with(" sub=0"));
            Ok(Value::BulkString(subscribers.flat_map(|line| [line, "\n"]).collect::<String>().into_bytes()))
        }
        ["DBSIZE"] => match ask(&["KEYS", "*"])? {
            Value::Array(keys) => Ok(Value::Int(i64::try_from(keys.len()).unwrap())),
            other => Ok(other),
        },
        ["EXPIRE", key, seconds] => ask(&["PEXPIRE", key, &format!("{seconds}000")]),
        ["FLUSHALL"] => match ask(&["KEYS", "*"])? {
            Value::Array(keys) => {
                keys.iter().for_each(|key| drop(ask(&["DEL", &text(key)])));
                Ok(Value::Okay)
            }
            other => Ok(other),
        },
        ["HVALS", key] => match ask(&["HGETALL", key])? {
            Value::Array(fields) => Ok(Value::Array(fields.into_iter().skip(1).step_by(2).collect())),
            other => Ok(other),
        },
        ["KEYS", pattern] if *pattern != "*" => {
            let prefix = pattern.strip_suffix('*').filter(|prefix| !prefix.contains('*')).expect(REAL_ONLY);
            match ask(&["KEYS", "*"])? {
                Value::Array(keys) => {
                    Ok(Value::Array(keys.into_iter().filter(|key| text(key).starts_with(prefix)).collect()))
                }
                other => Ok(other),
            }
        }
        ["TTL", key] => match ask(&["PTTL", key])? {
            Value::Int(ms @ 0..) => Ok(Value::Int((ms + 500) / 1_000)),
            other => Ok(other),
        },
        words => ask(words),
    }
}

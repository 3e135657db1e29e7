//! The server of a test: a real one, or with the feature `memory` and `LOCKKEEPER_STORE=memory` one in this process.
//!
//! With the in-memory server, the clock is paused, so that nothing takes time, if the runtime of the test can be
//! paused. A test that needs more than this server has fails on it. `tests/real_only.txt` names these tests, and
//! `scripts/test fast` leaves them out.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use lockkeeper::Source;
use lockkeeper::memory::{Data, MemoryServer};
use lockkeeper_testkit::{Server as RealServer, lua};
use redis::{Connection, FromRedisValue, RedisError, Value};
use tokio::runtime::{Handle, RuntimeFlavor};

const REAL_ONLY: &str = "this test needs a real server: add it to tests/real_only.txt";

/// The in-memory servers of this process, by their URLs.
static IN_MEMORY: LazyLock<Mutex<HashMap<String, MemoryServer>>> = LazyLock::new(Mutex::default);

pub enum Server {
    Memory { server: MemoryServer, url: String },
    Real(RealServer),
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
    IN_MEMORY.lock().unwrap().get(url).map_or_else(|| url.into(), Source::from)
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
        if !is_memory() {
            return Self::Real(RealServer::start());
        }
        pause_clock();
        let server = MemoryServer::new();
        let mut servers = IN_MEMORY.lock().unwrap();
        let url =
            (0..).map(|number| format!("memory:{number}")).find(|url| !servers.contains_key(url)).unwrap();
        servers.insert(url.clone(), server.clone());
        let server = Self::Memory { server, url };
        server.load_scripts();
        server
    }

    pub fn with(args: &[&str]) -> Self {
        if is_memory() && args.is_empty() { Self::start() } else { Self::Real(RealServer::with(args)) }
    }

    fn real(&self) -> &RealServer {
        match self {
            Self::Memory { .. } => panic!("{REAL_ONLY}"),
            Self::Real(server) => server,
        }
    }

    fn load_scripts(&self) {
        for script in lua::sources() {
            self.run::<String>(&["SCRIPT", "LOAD", &script]);
        }
    }

    pub fn restart(&mut self) {
        match self {
            Self::Memory { server, .. } => {
                server.start(Data::Lost);
                self.load_scripts();
            }
            Self::Real(server) => server.restart(),
        }
    }

    pub fn kill(&mut self) {
        match self {
            Self::Memory { server, .. } => server.stop(),
            Self::Real(server) => server.kill(),
        }
    }

    pub fn start_again(&mut self) {
        match self {
            Self::Memory { .. } => self.restart(),
            Self::Real(server) => server.start_again(),
        }
    }

    pub fn freeze(&self) {
        match self {
            Self::Memory { server, .. } => server.freeze(true),
            Self::Real(server) => server.freeze(),
        }
    }

    pub fn thaw(&self) {
        match self {
            Self::Memory { server, .. } => server.freeze(false),
            Self::Real(server) => server.thaw(),
        }
    }

    pub fn slow_loading(&mut self, per_key: Duration) {
        match self {
            Self::Memory { .. } => panic!("{REAL_ONLY}"),
            Self::Real(server) => server.slow_loading(per_key),
        }
    }

    pub fn port(&self) -> u16 {
        self.real().port()
    }

    pub fn url(&self) -> String {
        match self {
            Self::Memory { url, .. } => url.clone(),
            Self::Real(server) => server.url(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.real().pid()
    }

    pub fn connect(&self) -> Result<Connection, RedisError> {
        self.real().connect()
    }

    pub fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_run(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub fn try_run<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, RedisError> {
        match self {
            Self::Memory { server, .. } => Ok(T::from_redis_value(run(server, words)?)?),
            Self::Real(server) => server.try_run(words),
        }
    }

    pub fn run_many(&self, command: &[&str], pairs: &[[String; 2]]) {
        for pairs in pairs.chunks(1_000) {
            let words = pairs.iter().flatten().map(String::as_str).filter(|word| !word.is_empty());
            self.run::<()>(&[command, &words.collect::<Vec<_>>()].concat());
        }
    }

    pub fn script(&self, file: &str, keys: &[&str], args: &[&str]) -> Value {
        let (text, count) = (lua::source(file), keys.len().to_string());
        self.run(&[&["EVAL", &text, &count], keys, args].concat())
    }

    pub fn version(&self) -> String {
        self.real().version()
    }

    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.run(&["KEYS", "*"]);
        keys.retain(|key| !key.starts_with("redisson_lock_token:"));
        keys
    }

    pub fn channels(&self) -> Vec<String> {
        self.run(&["PUBSUB", "CHANNELS"])
    }

    pub fn clients(&self) -> Vec<String> {
        match self {
            Self::Memory { .. } => {
                self.run::<String>(&["CLIENT", "LIST"]).lines().map(str::to_owned).collect()
            }
            Self::Real(server) => server.clients(),
        }
    }

    pub fn now_ms(&self) -> u64 {
        let time: Vec<u64> = self.run(&["TIME"]);
        time[0] * 1_000 + time[1] / 1_000
    }

    pub fn calls(&self, command: &str) -> u64 {
        match self {
            Self::Memory { .. } => self.all_calls().get(command).copied().unwrap_or(0),
            Self::Real(server) => server.calls(command),
        }
    }

    pub fn micros(&self, command: &str) -> u64 {
        self.real().micros(command)
    }

    pub fn scripts(&self) -> u64 {
        match self {
            Self::Memory { .. } => self.calls("eval") + self.calls("evalsha"),
            Self::Real(server) => server.scripts(),
        }
    }

    pub fn calls_in_scripts(&self) -> u64 {
        const NOT_IN_SCRIPTS: [&str; 8] =
            ["client", "eval", "evalsha", "hello", "info", "ping", "subscribe", "unsubscribe"];
        match self {
            Self::Memory { .. } => {
                let calls = self.all_calls().into_iter();
                calls.filter(|(name, _)| !NOT_IN_SCRIPTS.contains(&&**name)).map(|(_, calls)| calls).sum()
            }
            Self::Real(server) => server.calls_in_scripts(),
        }
    }

    fn all_calls(&self) -> HashMap<String, u64> {
        let stats: String = self.run(&["INFO", "commandstats"]);
        let parse = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        stats.lines().filter_map(parse).collect()
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

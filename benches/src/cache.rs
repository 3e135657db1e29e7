//! A cache in a web service: with no lock, with a read lock, and with one that lingers.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use lockkeeper::{LockClient, LockOptions};
use redis::cmd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use crate::connection::{connect, run};
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::runtime::{cpu_time, many_threads};
use crate::sides;
use crate::stats::{Latencies, Ratio, at_most, median};

/// The argument of the process that serves.
pub const SIDE: &str = "cache-side";

const NAME: &str = "cache:prices";

/// How the service reads its cache.
const MODES: [(&str, Option<u64>); 4] =
    [("no lock", None), ("read lock", Some(0)), ("linger 20 ms", Some(20)), ("linger 50 ms", Some(50))];

/// The cache is filled anew so often, under the write lock.
const REFRESH: Duration = Duration::from_secs(1);

struct Sample {
    requests: f64,
    /// Microseconds of the service's CPU for each request.
    cpu: f64,
    /// Commands for each request.
    commands: f64,
    waits: Latencies,
}

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    let mut table = Table::new([
        "connections",
        "cache",
        "requests/s",
        "ratio to no lock",
        "aim",
        "CPU µs a request",
        "more than no lock",
        "bar",
        "commands a request",
        "bar",
        "p50 µs",
        "p99 µs",
    ]);
    let effort = effort.longer(8);
    for (connections, aim) in [(64, 0.9), (1, 0.6)] {
        let samples = interleave(effort.rounds, MODES.len(), |which| {
            let linger = MODES[which].1;
            many_threads().block_on(sample(url, linger, connections, effort.slice))
        });
        for ((name, linger), rounds) in MODES.iter().zip(&samples) {
            let is_measured = *linger == Some(50);
            let ratio = Ratio::new(rounds, &samples[0], |sample| sample.requests);
            let more = median(rounds.iter().zip(&samples[0]).map(|(sample, none)| sample.cpu - none.cpu));
            let commands = median(rounds.iter().map(|sample| sample.commands));
            let waits = Latencies::merged(rounds.iter().map(|sample| &sample.waits));
            let bar = |is_one: bool, text: String| if is_one { text } else { String::new() };
            table.row([
                connections.to_string(),
                (*name).to_owned(),
                number(median(rounds.iter().map(|sample| sample.requests)), 0),
                ratio.to_string(),
                bar(is_measured, ratio.at_least(aim)),
                number(median(rounds.iter().map(|sample| sample.cpu)), 1),
                number(more, 1),
                bar(is_measured, at_most(more, 4.0)),
                number(commands, 3),
                bar(is_measured, at_most(commands, 0.05)),
                number(waits.micros(0.5), 0),
                number(waits.micros(0.99), 0),
            ]);
        }
    }
    report.section(
        "A cache in a web service",
        "A service reads a price under a read lock for each request, and fills the cache anew each second, under the write\n\
         lock. The clients are in another process, and ask again at once. CPU is that of the service.",
        &table,
    );
}

async fn sample(url: &str, linger: Option<u64>, connections: usize, time: Duration) -> Sample {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = free.local_addr().expect("an address").to_string();
    drop(free);
    let linger = linger.map_or("none".to_owned(), |linger| linger.to_string());
    let service = sides::start(&[SIDE, url, &address, &linger]);
    while TcpStream::connect(&address).await.is_err() {
        sleep(Duration::from_millis(5)).await;
    }
    load(&address, connections, time / 8).await;
    let mut redis = connect(url).await;
    let mut commands = async || -> f64 {
        let info: String = run(&mut redis, cmd("INFO").arg("commandstats")).await;
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or_default()
    };
    let (before, cpu) = (commands().await, ask(&address, "/cpu").await);
    let start = Instant::now();
    let waits = load(&address, connections, time).await;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = ask(&address, "/cpu").await - cpu;
    let sent = commands().await - before;
    ask(&address, "/end").await;
    sides::output(service);
    let requests = waits.count() as f64;
    Sample { requests: requests / seconds, cpu: cpu / 1e3 / requests, commands: sent / requests, waits }
}

/// Asks for a price again and again, with each connection. Returns how long each request took.
async fn load(address: &str, connections: usize, time: Duration) -> Latencies {
    let until = Instant::now() + time;
    let mut running = JoinSet::new();
    for _ in 0..connections {
        let address = address.to_owned();
        running.spawn(async move {
            let mut stream = TcpStream::connect(&address).await.expect("the service");
            stream.set_nodelay(true).expect("an option");
            let mut took = Vec::new();
            while Instant::now() < until {
                let start = Instant::now();
                request(&mut stream, "/price").await;
                took.push(start.elapsed());
            }
            took
        });
    }
    running.join_all().await.into_iter().flatten().collect()
}

/// Sends a request, and returns the number in the answer.
async fn request(stream: &mut TcpStream, path: &str) -> f64 {
    let request = format!("GET {path} HTTP/1.1\r\nhost: cache\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the service");
    let (mut answer, mut length) = ([0; 1024], 0);
    loop {
        length += stream.read(&mut answer[length..]).await.expect("the service");
        let text = std::str::from_utf8(&answer[..length]).expect("text");
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Some(expected) = head.lines().find_map(|line| line.strip_prefix("content-length: "))
            && body.len().to_string() == expected
        {
            return body.parse().expect("a number");
        }
    }
}

async fn ask(address: &str, path: &str) -> f64 {
    request(&mut TcpStream::connect(address).await.expect("the service"), path).await
}

struct Cache {
    locks: LockClient,
    /// `None`: no lock is taken.
    options: Option<LockOptions>,
    prices: RwLock<HashMap<String, u32>>,
}

impl Cache {
    async fn price(&self) -> u32 {
        let read = || *self.prices.read().expect("nothing panics").get("a").unwrap_or(&0);
        let Some(options) = &self.options else { return read() };
        let mut lock = self.locks.read_write_lock(NAME).into_read().with(options);
        let guard = lock.lock().await.expect("a lock");
        let price = read();
        guard.unlock().await.expect("it was held");
        price
    }

    async fn refresh(&self) {
        let write = || *self.prices.write().expect("nothing panics").entry("a".to_owned()).or_default() += 1;
        if self.options.is_none() {
            return write();
        }
        let mut lock = self.locks.read_write_lock(NAME).into_write();
        let guard = lock.lock().await.expect("a lock");
        write();
        guard.unlock().await.expect("it was held");
    }
}

/// The process that serves.
pub fn side([url, address, linger]: [&str; 3]) {
    many_threads().block_on(async {
        let locks = LockClient::connect(url).await.expect("a client");
        let options = match linger {
            "none" => None,
            "0" => Some(LockOptions::default()),
            linger => {
                let linger = Duration::from_millis(linger.parse().expect("a number"));
                Some(LockOptions::builder().linger(linger).build().expect("valid"))
            }
        };
        let cache = Arc::new(Cache { locks: locks.clone(), options, prices: RwLock::default() });
        let refreshing = Arc::clone(&cache);
        let refreshes = tokio::spawn(async move {
            let mut times = interval(REFRESH);
            loop {
                times.tick().await;
                refreshing.refresh().await;
            }
        });
        let (end, ended) = tokio::sync::watch::channel(false);
        let service = Router::new()
            .route("/price", get(async |State(cache): State<Arc<Cache>>| cache.price().await.to_string()))
            .route("/cpu", get(async || cpu_time().to_string()))
            .route("/end", get(async move || end.send(true).map_or("0", |()| "1")))
            .with_state(cache);
        let listener = TcpListener::bind(address).await.expect("a free port");
        let mut ended = ended;
        tokio::select! {
            result = axum::serve(listener, service).into_future() => result.expect("it serves"),
            _ = async { ended.changed().await.expect("the service"); sleep(Duration::from_millis(20)).await } => {}
        }
        refreshes.abort();
        locks.shutdown().await.expect("all is released");
    });
}

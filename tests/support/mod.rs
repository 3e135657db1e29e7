//! What tests share: clients, waiting with a limit, types of locks, and the check that a test leaves nothing behind.
//!
//! Servers and the fault proxy are in the crate `lockkeeper-testkit`.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    unused_macros,
    reason = "every test file includes it, and none uses all of it"
)]

pub mod child;
pub mod events;
pub mod fixture;
pub mod late;
pub mod load;
pub mod options;
pub mod panics;
pub mod readers;
pub mod sentinel;
pub mod sources;
pub mod store;
pub mod verify;
pub mod waiter;

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockkeeper::leader::{Candidate, LeaderWatch};
use lockkeeper::{Error, LockClient, LockConfig, LockConfigBuilder, LockGuard, RedLock, Source};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_test::task::Spawn;

pub use child::Child;
use fixture::{FairLocks, FencedLocks, Fixture, RLocks, ReadLocks, WriteLocks};
pub use lockkeeper_testkit::lua::hash as script_hash;
pub use lockkeeper_testkit::{Commands, Faults, Proxy, ReservedPort, lua};
pub use options::{at_least, at_most, fixed, grouped, lingering, renewing};
pub use readers::Readers;
pub use sentinel::Sentinel;
pub use store::Server;
pub use waiter::{waiter, woken_by_message};

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);

/// The limit for every condition that a test waits for. It is long enough for a busy machine.
pub const LIMIT: Duration = Duration::from_secs(20);

/// How the clients of the conformance suite find their server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Url,
    Sentinel,
    /// Each server is a cluster by itself.
    Cluster,
}

impl Way {
    /// What `LOCKKEEPER_SOURCE` says.
    pub fn wanted() -> Self {
        match std::env::var("LOCKKEEPER_SOURCE").as_deref() {
            Ok("url") | Err(_) => Self::Url,
            Ok("sentinel") => Self::Sentinel,
            Ok("cluster") => Self::Cluster,
            Ok(other) => panic!("LOCKKEEPER_SOURCE is {other}, and not url, sentinel or cluster"),
        }
    }
}

/// A server for one test, and the check that nothing is left on it.
pub struct Scene {
    pub server: Server,
    _sentinel: Option<Sentinel>,
    tasks: usize,
}

impl Scene {
    pub fn start() -> Self {
        Self::with(Server::start())
    }

    pub fn with(server: Server) -> Self {
        panics::notice();
        Self { _sentinel: Sentinel::if_wanted(&server), server, tasks: tasks() }
    }

    pub async fn with_client() -> (Self, LockClient) {
        Self::with_client_of(patient()).await
    }

    pub async fn with_client_of(config: LockConfigBuilder) -> (Self, LockClient) {
        let scene = Self::start();
        let locks = scene.client_with(config).await;
        (scene, locks)
    }

    pub async fn with_two_clients() -> (Self, LockClient, LockClient) {
        let (scene, locks) = Self::with_client().await;
        let other = scene.client().await;
        (scene, locks, other)
    }

    pub async fn behind_proxy(config: LockConfigBuilder) -> (Self, Proxy, LockClient) {
        let scene = Self::start();
        let proxy = scene.proxy().await;
        let locks = connect(proxy.url(), config).await;
        (scene, proxy, locks)
    }

    pub async fn client(&self) -> LockClient {
        self.client_with(patient()).await
    }

    pub async fn client_with(&self, config: LockConfigBuilder) -> LockClient {
        connect(self.server.url(), config).await
    }

    pub async fn proxy(&self) -> Proxy {
        Proxy::to(self.server.port()).await
    }

    /// Gives these rights to the user `u`, or takes them. Returns the URL of the server for this user.
    pub fn user(&self, rights: &str) -> String {
        let words: Vec<&str> =
            ["ACL", "SETUSER", "u", "on", ">secret"].into_iter().chain(rights.split(' ')).collect();
        self.server.run::<()>(&words);
        format!("redis://u:secret@127.0.0.1:{}/", self.server.port())
    }

    /// Waits until the lease of a key is renewed.
    pub async fn raised(&self, key: &str) {
        raised(&self.server, key).await;
    }

    /// Closes the connections on which clients send commands. Returns when the clients have noticed: the task of each
    /// connection has ended.
    pub async fn disconnect(&self) {
        // The server also lists connections that this test has closed, for as long as a process that is about to start has them, too.
        // They have neither a name nor a user.
        let is_of_test = |client: &str| client.contains(" name= ") && client.contains(" user=default ");
        let connected = || {
            let mut clients = self.server.clients();
            clients.retain(|client| client.contains(" flags=N ") && !is_of_test(client));
            clients
        };
        let (before, clients) = (tasks(), connected());
        let ids = clients.iter().filter_map(|client| client.strip_prefix("id=")?.split(' ').next());
        let closed: usize = ids.map(|id| self.server.run::<usize>(&["CLIENT", "KILL", "ID", id])).sum();
        assert!(closed > 0, "no client is connected");
        // A client connects again at once if a renewal is due.
        let left_and_new = || (tasks(), connected().len());
        eventually("the clients notice", left_and_new, |(left, new)| left + closed <= before + new).await;
    }

    /// Waits until no lock is held and no client listens.
    pub async fn quiet(&self) {
        let keys = || {
            let mut keys = self.server.keys();
            keys.retain(|key| !key.starts_with(fixture::PERMITS_OF));
            keys
        };
        nothing_is_left(keys, || self.server.channels()).await;
    }

    /// Drops the last clients of the test, and waits until no key, channel, connection or task is left.
    pub async fn end<T>(self, last: T) {
        drop(last);
        self.quiet().await;
        if !child::was_at(&self.server.url()) {
            eventually("no record is left", || self.server.records(), Vec::is_empty).await;
        }
        // On a busy machine a command can time out. Then the client undoes the attempt in the background, for its validity after the
        // server has answered.
        within(3 * LIMIT, "no connection is left", || self.server.clients(), Vec::is_empty).await;
        within(3 * LIMIT, "no task is left", tasks, |&left| left <= self.tasks).await;
        panics::none();
    }
}

/// Settings for tests that are not about time-outs: on a busy machine, a command can take long.
pub fn patient() -> LockConfigBuilder {
    LockConfig::builder().command_timeout(LIMIT / 2)
}

/// Connects a client. It retries, because `connect` tries only once, and a busy machine can need longer.
pub async fn connect(url: impl Into<String>, config: LockConfigBuilder) -> LockClient {
    let (url, start) = (url.into(), Instant::now());
    let config = config.build().unwrap();
    loop {
        match LockClient::connect_with(source(&url), config.clone()).await {
            Err(error) if error.is_transient() && start.elapsed() < LIMIT => sleep(10 * MS).await,
            client => return client.expect("the server is up"),
        }
    }
}

/// What a client connects to, by the URL of a test's server.
pub fn source(url: &str) -> Source {
    if let Some(source) = sentinel::source(url) {
        return source;
    }
    if Way::wanted() == Way::Cluster {
        return Source::cluster([url]);
    }
    store::source(url)
}

/// Returns the address of a test's server, given its URL, as the errors of a client state it.
pub fn address(url: &str) -> String {
    if url.starts_with("memory:") {
        "the server of a stream"
    } else {
        url.trim_start_matches("redis://").trim_end_matches('/')
    }
    .to_owned()
}

/// Opens a connection for the test itself. Its time limits are longer than those of redis-rs, which are 500 ms for an answer and
/// one second for a connection.
pub async fn connection(url: &str) -> MultiplexedConnection {
    let patient =
        AsyncConnectionConfig::new().set_connection_timeout(Some(LIMIT)).set_response_timeout(Some(LIMIT));
    let server = redis::Client::open(url).expect("a good address");
    server.get_multiplexed_async_connection_with_config(&patient).await.expect("the server is up")
}

/// The number of tasks of this runtime that have not ended.
pub fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Calls `find` until its result is right, and returns that result. Panics after [`LIMIT`].
pub async fn eventually<T: Debug>(what: &str, find: impl FnMut() -> T, is_right: impl Fn(&T) -> bool) -> T {
    within(LIMIT, what, find, is_right).await
}

/// Like [`eventually`], with another limit.
pub async fn within<T: Debug>(
    limit: Duration,
    what: &str,
    mut find: impl FnMut() -> T,
    is_right: impl Fn(&T) -> bool,
) -> T {
    let start = Instant::now();
    loop {
        let found = find();
        if is_right(&found) {
            return found;
        }
        let waited = start.elapsed();
        assert!(waited < limit, "not within {limit:?}: {what}; found {found:?}");
        // Each look can be a connection and a command. What takes longer is looked at less often.
        sleep((waited / 20).clamp(2 * MS, 25 * MS)).await;
    }
}

/// Waits until there is no key and no channel.
pub async fn nothing_is_left(keys: impl FnMut() -> Vec<String>, channels: impl FnMut() -> Vec<String>) {
    eventually("no key is left", keys, Vec::is_empty).await;
    eventually("no channel is left", channels, Vec::is_empty).await;
}

/// Waits until clients use this server.
pub async fn works(server: &Commands) {
    let before = server.scripts();
    eventually("the server works", || server.scripts(), |scripts| *scripts > before + 50).await;
}

/// Waits until so many replicas have all that this server has. `WAIT` does not: it counts what its own connection wrote.
pub async fn replicated(master: &Commands, replicas: usize) {
    let info = || master.run::<String>(&["INFO", "replication"]);
    let number = |text: &str, name: &str| -> Option<u64> { text.trim().strip_prefix(name)?.parse().ok() };
    let written = info().lines().find_map(|line| number(line, "master_repl_offset:"));
    let has_all = |line: &&str| line.split(',').any(|fact| number(fact, "offset=") >= written);
    let count = || info().lines().filter(|line| line.starts_with("slave")).filter(has_all).count();
    eventually("the replicas have it", count, |count| *count >= replicas).await;
}

/// Waits until a waiter is subscribed on this server.
pub async fn listens(server: &Commands) {
    eventually("a waiter subscribes", || server.channels(), |channels| !channels.is_empty()).await;
}

/// Whether these clients use three servers, so that a `RedLock` accepts them.
pub fn are_apart(clients: [&LockClient; 3]) -> bool {
    RedLock::new(clients.map(|client| client.rlock("a"))).is_ok()
}

/// Waits until the lease of a key is renewed.
pub async fn raised(server: &Commands, key: &str) {
    let left = || server.run::<i64>(&["PTTL", key]);
    let mut before = left();
    let is_longer = || std::mem::replace(&mut before, left()) < before;
    eventually("it is renewed", is_longer, |&longer| longer).await;
}

/// Waits until the lease of a hold is renewed.
pub async fn renewed<T: Sync>(guard: &LockGuard<T>) {
    // Each call reads two clocks, one after the other. Each deadline comes from two clocks that are read one after the other. The
    // first deadline can only be too late, and the later ones too early: if a later one is greater, the hold was certainly
    // renewed.
    let left = guard.remaining();
    let before = Instant::now() + left;
    eventually("it is renewed", || Instant::now() + guard.remaining(), |&now| now > before + MS).await;
    // The deadline of a lost hold is always now, so it grows as well.
    assert!(!guard.is_lost(), "{} was lost, and not renewed", guard.name());
}

/// Checks that only the guard of this name is lost, and that the others are renewed.
pub async fn only_this_is_lost<T: Send + Sync>(guards: Vec<LockGuard<T>>, name: &str) {
    let lost = || guards.iter().filter(|guard| guard.is_lost()).count();
    eventually("one guard is lost", lost, |&count| count == 1).await;
    join_all(guards.iter().filter(|guard| guard.name() != name).map(renewed)).await;
    assert!(guards.iter().all(|guard| guard.is_lost() == (guard.name() == name)));
    for guard in guards {
        let is_it = guard.name() == name;
        assert_eq!(guard.unlock().await.is_err(), is_it);
    }
}

/// Runs a check repeatedly for this time.
pub async fn throughout(time: Duration, mut check: impl AsyncFnMut()) {
    let start = Instant::now();
    while start.elapsed() < time {
        check().await;
        sleep(10 * MS).await;
    }
}

/// Polls a future until a condition holds. The future must not complete before that.
pub async fn poll_until(future: &mut (impl Future + Unpin), is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(future.now_or_never().is_none(), "it completed");
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}");
        sleep(MS).await;
    }
}

/// Polls an acquire of `a`, which others hold, until it waits to be woken: it has subscribed and attempted again, and its last poll
/// begins no attempt. A waiter whose attempt is under way keeps those behind it waiting. On a busy machine it attempts more than
/// twice, because it also polls while messages are late.
pub async fn poll_until_it_waits(
    server: &Commands,
    locks: &LockClient,
    mut is_pending: impl FnMut() -> bool,
) {
    let (scripts, start) = (|| server.calls("evalsha"), Instant::now());
    // One script on the connection of all commands about the lock, so earlier answers have arrived when it ends. The answer itself does
    // not matter: perhaps the lock is of another type.
    let answered = async || drop(locks.rlock("a").is_locked().await);
    let (first, mut own) = (scripts(), 0);
    loop {
        answered().await;
        let before = scripts();
        assert!(is_pending(), "it completed");
        answered().await;
        own += 2;
        let attempts = scripts() - first - own;
        if scripts() == before + 1 && attempts >= 2 {
            return;
        }
        assert!(start.elapsed() < LIMIT, "it does not wait within {LIMIT:?}");
    }
}

/// Waits until a future that a test polls by hand was woken since its last poll.
pub async fn woken<F>(future: &mut Spawn<F>) {
    let start = Instant::now();
    while !future.is_woken() {
        assert!(start.elapsed() < LIMIT, "not woken within {LIMIT:?}");
        sleep(MS).await;
    }
}

/// Waits until a count no longer grows, and returns it.
pub async fn quiet(count: impl Fn() -> u64) -> u64 {
    let start = Instant::now();
    let mut last = count();
    loop {
        sleep(300 * MS).await;
        let now = count();
        if now == last {
            return now;
        }
        assert!(start.elapsed() < LIMIT, "the count still grows, at {now}");
        last = now;
    }
}

/// Awaits a future. Panics after [`LIMIT`].
pub async fn soon<F: Future>(future: F) -> F::Output {
    timeout(LIMIT, future).await.expect("not within the limit")
}

/// Awaits a future, and returns how long it took.
pub async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let start = Instant::now();
    let output = soon(future).await;
    (output, start.elapsed())
}

/// Matches the calls of one script in a [`Proxy`].
pub fn calls_of(file: &str) -> impl Fn(&[String]) -> bool + Send + Sync + 'static {
    let hashes = hashes_of(file);
    move |command| {
        command.first().is_some_and(|word| word == "EVALSHA")
            && command.get(1).is_some_and(|hash| hashes.contains(hash))
    }
}

/// The hashes of one script: on a single server, and in a cluster, for one call and for several.
fn hashes_of(file: &str) -> [String; 4] {
    let [batch, sharded_batch] = lua::batch_hashes(file);
    [script_hash(file), lua::sharded_hash(file), batch, sharded_batch]
}

/// Holders of both locks ask whether somebody waits, and then somebody does.
pub async fn are_wanted(locks: &LockClient, rlock: &str, fair: &str) {
    let (one, two) = (locks.rlock(rlock).lock().await.unwrap(), locks.fair_lock(fair).lock().await.unwrap());
    let waiting = [waiter(locks.rlock(rlock)), waiter(locks.fair_lock(fair))];
    soon(async { tokio::join!(one.wanted(), two.wanted()) }).await;
    drop((one, two));
    for waiting in waiting {
        soon(waiting).await.unwrap().unlock().await.unwrap();
    }
}

/// Hands a lock over to another client, which takes a message.
pub async fn is_handed_over<F: Fixture>(
    [ours, theirs]: [&LockClient; 2],
    name: &str,
    channels: impl Fn() -> Vec<String> + Sync,
) {
    F::lock(ours, name).check().await.unwrap();
    let guard = F::lock(ours, name).lock().await.unwrap();
    assert!(F::rival(theirs, name).try_lock().await.unwrap().is_none());
    let waiting = waiter(F::rival(theirs, name));
    eventually("the waiter subscribes", &channels, |channels| !channels.is_empty()).await;
    guard.unlock().await.unwrap();
    woken_by_message(waiting).await.unlock().await.unwrap();
    eventually("no subscription is left", channels, Vec::is_empty).await;
}

/// The same for each type of lock. `name` makes a name of a word.
pub async fn each_is_handed_over(
    clients: [&LockClient; 2],
    name: impl Fn(&str) -> String + Sync,
    channels: impl Fn() -> Vec<String> + Sync,
) {
    is_handed_over::<FairLocks>(clients, &name("fair"), &channels).await;
    is_handed_over::<FencedLocks>(clients, &name("fenced"), &channels).await;
    is_handed_over::<ReadLocks>(clients, &name("read"), &channels).await;
    is_handed_over::<RLocks>(clients, &name("rlock"), &channels).await;
    is_handed_over::<WriteLocks>(clients, &name("write"), &channels).await;
}

/// Leads for a moment, until a follower knows what the leader announces.
pub async fn announces(locks: &LockClient, follower: &LockClient, name: &str) {
    let (mut watch, is_known) = (LeaderWatch::new(follower, name), Notify::new());
    assert_eq!(soon(watch.changed()).await.unwrap(), None, "nobody leads, and the watch listens");
    let mut candidate = Candidate::new(locks, name).announce("here").unwrap();
    let known = async {
        let is_here = |said: Option<Vec<u8>>| said.is_some_and(|said| said == b"here");
        while !watch.changed().await.unwrap().is_some_and(|leader| is_here(leader.announcement)) {}
        is_known.notify_one();
    };
    let (led, ()) = soon(async { tokio::join!(candidate.run(|_| is_known.notified()), known) }).await;
    led.unwrap();
}

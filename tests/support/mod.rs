//! What the tests stand on: real servers, a proxy that makes faults, and the proof that a test left nothing behind.

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
pub mod proxy;
pub mod resp;
pub mod server;

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockkeeper::{LockClient, LockConfig, LockConfigBuilder, LockGuard};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

pub use child::Child;
pub use proxy::{Faults, Proxy};
pub use server::{Server, script_hash};

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);

/// Longer than anything here takes, also on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(20);

/// A test with a server of its own.
pub struct Scene {
    pub server: Server,
    tasks: usize,
}

impl Scene {
    pub fn start() -> Self {
        Self::with(Server::start())
    }

    pub fn with(server: Server) -> Self {
        Self { server, tasks: tasks() }
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

    /// Waits until somebody makes the lease of a key longer.
    pub async fn raised(&self, key: &str) {
        let left = || self.server.run::<i64>(&["PTTL", key]);
        let mut before = left();
        let is_longer = || std::mem::replace(&mut before, left()) < before;
        eventually("it is renewed", is_longer, |&longer| longer).await;
    }

    /// Nobody holds and nobody listens.
    pub async fn quiet(&self) {
        eventually("no key is left", || self.server.keys(), Vec::is_empty).await;
        eventually("no channel is left", || self.server.channels(), Vec::is_empty).await;
    }

    /// The end of a test, after it dropped its clients: no key, channel, connection or task is left.
    pub async fn end(self) {
        self.quiet().await;
        // What got no answer in time, on a busy machine, is undone for longer than anything else takes.
        within(2 * LIMIT, "no connection is left", || self.server.clients(), Vec::is_empty).await;
        within(2 * LIMIT, "no task is left", tasks, |&left| left <= self.tasks).await;
    }
}

/// Settings for what is not about time-outs: an answer may take long on a busy machine.
pub fn patient() -> LockConfigBuilder {
    LockConfig::builder().command_timeout(LIMIT / 2)
}

/// A client tries once to connect, for no longer than a command: a busy machine may need more.
pub async fn connect(url: impl Into<String>, config: LockConfigBuilder) -> LockClient {
    let (url, start) = (url.into(), Instant::now());
    let config = config.build().unwrap();
    loop {
        match LockClient::connect_with(url.as_str(), config.clone()).await {
            Err(error) if error.is_transient() && start.elapsed() < LIMIT => sleep(10 * MS).await,
            client => return client.expect("the server is up"),
        }
    }
}

/// For what a test does itself. By default, redis-rs waits 500 ms for an answer, and a second for a connection.
pub async fn connection(url: &str) -> MultiplexedConnection {
    let patient =
        AsyncConnectionConfig::new().set_connection_timeout(Some(LIMIT)).set_response_timeout(Some(LIMIT));
    let server = redis::Client::open(url).expect("a good address");
    server.get_multiplexed_async_connection_with_config(&patient).await.expect("the server is up")
}

/// Tasks of this runtime that have not ended.
pub fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Looks until what is found is as it should be.
pub async fn eventually<T: Debug>(what: &str, find: impl FnMut() -> T, is_right: impl Fn(&T) -> bool) -> T {
    within(LIMIT, what, find, is_right).await
}

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
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}; found {found:?}");
        sleep(2 * MS).await;
    }
}

/// Waits until the lease of a hold is renewed.
pub async fn renewed(guard: &LockGuard) {
    // Two clocks are read, one after the other: before at the latest then, and now no earlier than that.
    let left = guard.remaining();
    let before = Instant::now() + left;
    eventually("it is renewed", || Instant::now() + guard.remaining(), |&now| now > before + MS).await;
}

/// The guard of this name is told that it is lost, and costs the others nothing: they are renewed.
pub async fn only_this_is_lost(guards: Vec<LockGuard>, name: &str) {
    let lost = || guards.iter().filter(|guard| guard.is_lost()).count();
    eventually("its guard is told", lost, |&count| count == 1).await;
    join_all(guards.iter().filter(|guard| guard.name() != name).map(renewed)).await;
    assert!(guards.iter().all(|guard| guard.is_lost() == (guard.name() == name)));
    for guard in guards {
        let is_it = guard.name() == name;
        assert_eq!(guard.unlock().await.is_err(), is_it);
    }
}

/// Checks something again and again, for as long as that.
pub async fn throughout(time: Duration, mut check: impl AsyncFnMut()) {
    let start = Instant::now();
    while start.elapsed() < time {
        check().await;
        sleep(10 * MS).await;
    }
}

/// Polls a future until it is so, and leaves it.
pub async fn poll_until(future: &mut (impl Future + Unpin), is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(future.now_or_never().is_none(), "it completed");
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}");
        sleep(MS).await;
    }
}

/// What is counted, once it does not grow any more.
pub async fn quiet(count: impl Fn() -> u64) -> u64 {
    let start = Instant::now();
    let mut last = count();
    loop {
        sleep(300 * MS).await;
        let now = count();
        if now == last {
            return now;
        }
        assert!(start.elapsed() < LIMIT, "it goes on, at {now}");
        last = now;
    }
}

/// The result of a future, which must not take for ever.
pub async fn soon<F: Future>(future: F) -> F::Output {
    timeout(LIMIT, future).await.expect("not within the limit")
}

/// How long a future takes.
pub async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let start = Instant::now();
    let output = soon(future).await;
    (output, start.elapsed())
}

/// Matches the calls of one script in a [`Proxy`].
pub fn calls_of(file: &str) -> impl Fn(&[String]) -> bool + Send + Sync + 'static {
    let hash = script_hash(file);
    move |command| command.first().is_some_and(|word| word == "EVALSHA") && command.get(1) == Some(&hash)
}

//! A thousand tasks that wait for one lock. Each acquires it once.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper::LockClient;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::bare::{Bare, BareFair};
use crate::peer::{AsyncRedisLock, Distkit, Fair, Lock, Peer, Rlock, Rslock};
use crate::redisson::{self, Jvm};
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::runtime::one_thread;
use crate::stats::{Latencies, Ratio, median};

const WAITERS: usize = 1_000;

/// The time until all tasks wait.
const SETTLE: Duration = Duration::from_millis(500);

/// Tasks that still wait after this are cancelled.
const LIMIT: Duration = Duration::from_secs(2);

/// Cancelled tasks may leave something on the server, so each round has another lock.
static ROUNDS: AtomicUsize = AtomicUsize::new(0);

/// Returns the time from the release to each section.
type Candidate = (&'static str, Box<dyn Fn() -> Latencies>);

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort, report: &mut Report) {
    let candidates = [
        candidate::<Bare>("bare", url),
        candidate::<LockClient>("lockkeeper", url),
        candidate::<BareFair>("bare fair", url),
        candidate::<Fair>("lockkeeper fair", url),
        in_java(jvm),
        candidate::<Rslock>("rslock", url),
        candidate::<Rlock>("rlock", url),
        candidate::<Distkit>("distkit", url),
        candidate::<AsyncRedisLock>("async-redis-lock", url),
    ];
    let samples = interleave(effort.rounds, candidates.len(), |which| candidates[which].1());
    let mut table =
        Table::new(["candidate", "acquired", "p50 ms", "p99 ms", "last ms", "sections/s", "ratio to bare"]);
    for ((name, _), rounds) in candidates.iter().zip(&samples) {
        let ms = |share| number(median(rounds.iter().map(|times| times.micros(share) / 1e3)), 1);
        table.row([
            (*name).to_owned(),
            number(median(rounds.iter().map(|times| times.count() as f64)), 0),
            ms(0.5),
            ms(0.99),
            ms(1.0),
            number(median(rounds.iter().map(rate)), 0),
            Ratio::new(rounds, &samples[0], rate).to_string(),
        ]);
    }
    report.section(
        format!("{WAITERS} waiters for one lock"),
        format!(
            "The time from the first release until each waiter has acquired and released the lock once, for at most\n\
             {} s. *Sections/s* counts until the last acquire. All waiters begin at the same moment, which is the worst case\n\
             for crates that poll at fixed intervals.",
            LIMIT.as_secs()
        ),
        &table,
    );
}

fn rate(times: &Latencies) -> f64 {
    times.count() as f64 / times.micros(1.0) * 1e6
}

fn candidate<P: Peer + 'static>(name: &'static str, url: &str) -> Candidate {
    let runtime = one_thread();
    let peer = runtime.block_on(P::connect(url));
    (name, Box::new(move || runtime.block_on(run(&peer))))
}

/// Redisson, with one thread per waiter.
fn in_java(jvm: &Rc<Jvm>) -> Candidate {
    let jvm = Rc::clone(jvm);
    let run = move || {
        jvm.order("wait", "rlock", &new_name(), &[WAITERS as u128]);
        let times = jvm.order("serve", "any", "any", &[LIMIT.as_millis()]);
        times.into_iter().map(Duration::from_nanos).collect()
    };
    (redisson::NAME, Box::new(run))
}

fn new_name() -> String {
    format!("wanted:{}", ROUNDS.fetch_add(1, Ordering::Relaxed))
}

async fn run(peer: &impl Peer) -> Latencies {
    let name = new_name();
    let mut holder = peer.lock(&name);
    let guard = holder.lock().await;
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        waiters.spawn(once(peer.lock(&name)));
    }
    sleep(SETTLE).await;
    let released = Instant::now();
    holder.unlock(guard).await;
    let mut times = Vec::new();
    while let Ok(Some(acquired)) = timeout_at(released + LIMIT, waiters.join_next()).await {
        times.push(acquired.expect("no panic") - released);
    }
    waiters.shutdown().await;
    times.into_iter().collect()
}

async fn once(mut lock: impl Lock) -> Instant {
    let guard = lock.lock().await;
    let acquired = Instant::now();
    lock.unlock(guard).await;
    acquired
}

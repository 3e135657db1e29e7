//! A thousand tasks that wait for one lock, and each wants it once.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper::LockClient;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::bare::{Bare, BareFair, BareRedisson};
use crate::flavor::Flavor;
use crate::peer::{AsyncRedisLock, Distkit, Fair, Lock, Peer, Rlock, Rslock};
use crate::redisson::{self, Jvm};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median, percentile};
use crate::table::Table;

const WAITERS: usize = 1_000;

const FLAVOR: Flavor = Flavor::CurrentThread;

/// Until all of them wait.
const SETTLE: Duration = Duration::from_millis(500);

/// After this, who still waits is sent away.
const PATIENCE: Duration = Duration::from_secs(2);

/// Those who are sent away may leave something behind, so each time it is another lock.
static TIMES: AtomicUsize = AtomicUsize::new(0);

/// Milliseconds from the release to each section.
type Sample = Vec<f64>;

type Candidate = (&'static str, Box<dyn Fn() -> Sample>);

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort) {
    let candidates = [
        candidate::<Bare>("bare", url),
        candidate::<LockClient>("lockkeeper", url),
        candidate::<BareFair>("bare fair", url),
        candidate::<Fair>("lockkeeper fair", url),
        candidate::<BareRedisson>("Redisson's scripts, bare", url),
        in_java(jvm),
        candidate::<Rslock>("rslock", url),
        candidate::<Rlock>("rlock", url),
        candidate::<Distkit>("distkit", url),
        candidate::<AsyncRedisLock>("async-redis-lock", url),
    ];
    println!("\n## {WAITERS} waiters for one lock, {}\n", FLAVOR.name());
    println!(
        "From the release by somebody else until each has had it, once, for no time; but {} s at most.",
        PATIENCE.as_secs()
    );
    println!(
        "Sections per second: until the last of them. All begin to wait at the same moment, so those who ask at"
    );
    println!(
        "fixed intervals ask all together, which is the worst case for them. A thousand waiters are too many for the"
    );
    println!("fair lock of Redisson: each has a channel to itself, and by default it hears 250 at most.\n");
    let samples = interleave(effort.rounds.min(5), candidates.len(), |which| candidates[which].1());
    let mut table =
        Table::new(["candidate", "had it", "p50 ms", "p99 ms", "last ms", "sections/s", "ratio to bare"]);
    for ((name, _), rounds) in candidates.iter().zip(&samples) {
        let ms = |part| format!("{:.1}", median(rounds.iter().map(|sample| at(sample, part))));
        table.row([
            (*name).to_owned(),
            format!("{:.0}", median(rounds.iter().map(|sample| sample.len() as f64))),
            ms(0.5),
            ms(0.99),
            ms(1.0),
            format!("{:.0}", median(rounds.iter().map(rate))),
            Ratio::new(rounds, &samples[0], rate).to_string(),
        ]);
    }
    print!("{table}");
}

fn at(sample: &Sample, part: f64) -> f64 {
    percentile(&mut sample.clone(), part)
}

fn rate(sample: &Sample) -> f64 {
    sample.len() as f64 / at(sample, 1.0) * 1e3
}

fn candidate<P: Peer + 'static>(name: &'static str, url: &str) -> Candidate {
    let runtime = FLAVOR.runtime();
    let peer = runtime.block_on(P::connect(url));
    (name, Box::new(move || runtime.block_on(run(&peer))))
}

/// Redisson, with a thread for each waiter.
fn in_java(jvm: &Rc<Jvm>) -> Candidate {
    let jvm = Rc::clone(jvm);
    let run = move || {
        jvm.order("wait", "rlock", &new_name(), &[WAITERS as u128]);
        let times = jvm.order("serve", "any", "any", &[PATIENCE.as_millis()]);
        times.into_iter().map(|nanos| nanos as f64 / 1e6).collect()
    };
    (redisson::NAME, Box::new(run))
}

fn new_name() -> String {
    format!("wanted:{}", TIMES.fetch_add(1, Ordering::Relaxed))
}

async fn run(peer: &impl Peer) -> Sample {
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
    while let Ok(Some(entered)) = timeout_at(released + PATIENCE, waiters.join_next()).await {
        times.push((entered.expect("no panic") - released).as_secs_f64() * 1e3);
    }
    waiters.shutdown().await;
    times
}

async fn once(mut lock: impl Lock) -> Instant {
    let guard = lock.lock().await;
    let entered = Instant::now();
    lock.unlock(guard).await;
    entered
}

//! Many guards of one client that end at once.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::iter;
use lockkeeper::{LockClient, LockConfig, LockGuard};
use tokio::time::{Instant, sleep};

use crate::report::{Report, Table, number};
use crate::rounds::Effort;
use crate::runtime::one_thread;
use crate::stats::median;

/// How many calls acquire at a time.
const ACQUIRE_TOGETHER: usize = 128;

/// Locks of the same client that have nothing to do with it.
const OTHERS: usize = 100;

#[derive(Clone, Copy)]
enum End {
    Dropped,
    DroppedAndShutDown,
    UnlocksJoined,
}

struct Ended {
    acquiring: Duration,
    ending: Duration,
    /// Locks that the server still had.
    left: usize,
    /// Calls that failed, and the other locks that were lost.
    failed: usize,
    lost: usize,
}

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    let scale = if effort.is_quick() { 100 } else { 1 };
    let mut table = Table::new([
        "guards",
        "lease in s",
        "how they end",
        "acquired in s",
        "free after s",
        "left",
        "failed",
        "others lost",
    ]);
    // The last lease is so short that releases which hang cost the other locks their leases.
    for (count, lease, how, end) in [
        (200_000, 30, "dropped", End::Dropped),
        (200_000, 30, "dropped, then `shutdown`", End::DroppedAndShutDown),
        (100_000, 6, "`unlock` of all joined", End::UnlocksJoined),
    ] {
        let count = count / scale;
        let rounds: Vec<_> = (0..effort.rounds.min(3)).map(|_| run(url, count, lease, end)).collect();
        let seconds = |time: fn(&Ended) -> Duration| {
            number(median(rounds.iter().map(|ended| time(ended).as_secs_f64())), 2)
        };
        let sum = |of: fn(&Ended) -> usize| rounds.iter().map(of).sum::<usize>().to_string();
        table.row([
            count.to_string(),
            lease.to_string(),
            how.to_owned(),
            seconds(|ended| ended.acquiring),
            seconds(|ended| ended.ending),
            sum(|ended| ended.left),
            sum(|ended| ended.failed),
            sum(|ended| ended.lost),
        ]);
    }
    report.section(
        "Many guards that end at once".to_owned(),
        format!(
            "One client acquires RLocks, {ACQUIRE_TOGETHER} calls at a time, beside {OTHERS} other locks. Then all guards end. *Free after*:\n\
             until the server has none of the locks, or until the calls ended. *Left*, *failed* and *others lost* are sums over the\n\
             rounds, and should be 0."
        ),
        &table,
    );
}

fn run(url: &str, count: usize, lease: u64, end: End) -> Ended {
    one_thread().block_on(async {
        let config = LockConfig::builder().watchdog_lease(Duration::from_secs(lease)).build().expect("valid");
        let locks = LockClient::connect_with(url, config).await.expect("connects");
        let others = acquire(&locks, "others", OTHERS).await;
        let start = Instant::now();
        let guards = acquire(&locks, "ends", count).await;
        let (acquiring, start) = (start.elapsed(), Instant::now());
        let mut failed = 0;
        match end {
            End::Dropped => {
                drop(guards);
                // Beside the other locks, the client keeps what it tells of itself.
                while keys(url).await > OTHERS + 1 {
                    sleep(Duration::from_millis(5)).await;
                }
            }
            End::DroppedAndShutDown => {
                drop(guards);
                failed = usize::from(locks.shutdown().await.is_err());
            }
            End::UnlocksJoined => {
                let ended = join_all(guards.into_iter().map(LockGuard::unlock)).await;
                failed = ended.iter().filter(|ended| ended.is_err()).count();
            }
        }
        let ending = start.elapsed();
        let lost = others.iter().filter(|guard| guard.is_lost()).count();
        let ended = Ended { acquiring, ending, left: left(url).await, failed, lost };
        drop(others);
        let _ = locks.shutdown().await;
        ended
    })
}

async fn acquire(locks: &LockClient, prefix: &str, count: usize) -> Vec<LockGuard> {
    let acquiring = (0..count).map(|number| {
        let mut lock = locks.rlock(format!("{prefix}:{number}"));
        async move { lock.lock().await.expect("granted") }
    });
    iter(acquiring).buffer_unordered(ACQUIRE_TOGETHER).collect().await
}

/// Counts the locks on the server that should end.
async fn left(url: &str) -> usize {
    let keys: Vec<String> = ask(url, redis::cmd("KEYS").arg("ends:*")).await;
    keys.len()
}

/// Counts the keys of the server.
async fn keys(url: &str) -> usize {
    ask(url, &redis::cmd("DBSIZE")).await
}

async fn ask<T: redis::FromRedisValue>(url: &str, command: &redis::Cmd) -> T {
    let client = redis::Client::open(url).expect("a URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("connects");
    command.query_async(&mut connection).await.expect("answers")
}

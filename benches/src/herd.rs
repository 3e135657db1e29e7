//! Many processes that wait for one lock: here, many clients in one process. Each acquires the lock once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper::LockClient;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::connection::{Info, connect};
use crate::peer::{Fair, Lock, Peer, Permits};
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::runtime::many_threads;
use crate::stats::{Ratio, median};

/// As many processes wait.
const CLIENTS: [usize; 3] = [50, 200, 500];

/// The time until all clients wait.
const SETTLE: Duration = Duration::from_secs(2);

/// Each round has another lock.
static ROUNDS: AtomicUsize = AtomicUsize::new(0);

struct Sample {
    /// From the first release to the last acquire.
    time: Duration,
    /// The scripts that ran in this time.
    scripts: f64,
}

type Candidate = (&'static str, fn(&str, usize) -> Sample);

const CANDIDATES: [Candidate; 3] =
    [("FairLock", herd::<Fair>), ("RLock", herd::<LockClient>), ("Semaphore, 1 permit", herd::<Permits>)];

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    let mut table = Table::new([
        "clients",
        "lock",
        "a grant, ms",
        "ratio to the FairLock",
        "scripts for a grant",
        "all served, s",
    ]);
    for clients in if effort.is_quick() { &CLIENTS[..1] } else { &CLIENTS } {
        let samples = interleave(effort.rounds, CANDIDATES.len(), |which| CANDIDATES[which].1(url, *clients));
        let seconds = |sample: &Sample| sample.time.as_secs_f64();
        for ((name, _), rounds) in CANDIDATES.iter().zip(&samples) {
            let time = median(rounds.iter().map(seconds));
            let scripts = median(rounds.iter().map(|sample| sample.scripts));
            table.row([
                clients.to_string(),
                (*name).to_owned(),
                number(time * 1e3 / *clients as f64, 2),
                Ratio::new(rounds, &samples[0], seconds).to_string(),
                number(scripts / *clients as f64, 1),
                number(time, 2),
            ]);
        }
    }
    report.section(
        "Many processes that wait for one lock",
        "Each client stands for a process: it has connections and a subscription of its own. All clients wait, and each\n\
         acquires the lock once and releases it at once. *A grant*: the time from the first release to the last acquire,\n\
         divided by the clients. A release wakes all clients that wait for an `RLock` or a permit, and all but one are\n\
         refused. It wakes one waiter of a `FairLock`.",
        &table,
    );
}

fn herd<P: Peer>(url: &str, clients: usize) -> Sample
where
    P::Lock: Send,
{
    many_threads().block_on(async {
        let name = format!("herd:{}", ROUNDS.fetch_add(1, Ordering::Relaxed));
        let mut connection = connect(url).await;
        let mut holder = P::connect(url).await.lock(&name);
        let guard = holder.lock().await;
        let (mut peers, mut waiting) = (Vec::new(), JoinSet::new());
        for _ in 0..clients {
            let peer = P::connect(url).await;
            let mut lock = peer.lock(&name);
            peers.push(peer);
            waiting.spawn(async move {
                let guard = lock.lock().await;
                let acquired = Instant::now();
                lock.unlock(guard).await;
                acquired
            });
        }
        sleep(SETTLE).await;
        let before = Info::read(&mut connection, "commandstats").await.scripts();
        let released = Instant::now();
        holder.unlock(guard).await;
        let last = waiting.join_all().await.into_iter().max().expect("clients");
        Sample {
            time: last - released,
            scripts: Info::read(&mut connection, "commandstats").await.scripts() - before,
        }
    })
}

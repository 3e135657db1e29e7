//! A waiter that attempts while another has the turn, and does not learn what came of it.
//!
//! The drawn worlds do not find this: it needs replies that are late by several safety polls, and a release in between.

use std::time::Duration;

use fastrand::Rng;
use lockkeeper::{LockClient, LockConfig, RLock, Source};
use lockkeeper_memory::{MemoryServer, Network};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::plan::{MS, SECOND, one, up_to};

const NAME: &str = "lock:a";
const WAITERS: usize = 3;

/// If the lock stays held by a copy of an attempt, it is for this long.
const LEASE: Duration = Duration::from_secs(600);

/// While messages are under way, the lock is free for a moment.
const NETWORK: Network = Network {
    most_delay: Duration::from_millis(100),
    holds_requests: false,
    holds_replies: false,
    holds_existing: false,
    refuses: false,
    only_messages: false,
    denies_messages: false,
};

async fn hold_for_a_moment(mut lock: RLock<'_>) {
    let guard = lock.lock().await.expect("the server answers in time");
    sleep(MS).await;
    guard.unlock().await.expect("the lock is held");
}

/// The waiters' network is in this state for `silent`. After `until_release` of that, the holder releases.
async fn all_waiters_get_the_lock(
    fault: Network,
    command_timeout: Duration,
    until_release: Duration,
    silent: Duration,
) -> bool {
    let server = MemoryServer::new();
    let network = server.over_network(1);
    network.set_network(NETWORK);
    let config = LockConfig::builder()
        .watchdog_lease(LEASE)
        .safety_poll(500 * MS)
        .command_timeout(command_timeout)
        .retry_timeout(60 * SECOND)
        .connections(1)
        .build()
        .expect("valid");
    let connect = async |server: &MemoryServer| {
        let source = Source::stream(server.connector());
        LockClient::connect_with(source, config.clone()).await.expect("a server in memory")
    };
    let (holder, locks) = (connect(&server).await, connect(&network).await);
    let guard = holder.rlock(NAME).lock().await.expect("the lock is free");
    let mut waiting = JoinSet::new();
    for _ in 0..WAITERS {
        waiting.spawn(hold_for_a_moment(locks.rlock(NAME)));
        sleep(100 * MS).await;
    }
    network.set_network(fault);
    let releasing = async {
        sleep(until_release).await;
        guard.unlock().await.expect("the lock is held");
    };
    let thawing = async {
        sleep(silent).await;
        network.set_network(NETWORK);
    };
    tokio::join!(releasing, thawing);
    timeout(20 * SECOND, waiting.join_all()).await.is_ok()
}

/// Such an attempt was neither repeated nor undone if the next one could not be sent, and after a refusal. What it or a late copy
/// was granted kept the lock for a whole lease.
#[test]
fn a_waiter_finds_out_what_its_attempt_out_of_turn_was_granted() {
    let faults = [
        Network { holds_replies: true, ..NETWORK },
        // The waiters soon have new connections, and the copies on the old ones run later.
        Network { holds_requests: true, holds_existing: true, ..NETWORK },
    ];
    // The last two are about late copies.
    for seed in (0..300).chain([1_794, 3_363]) {
        let runtime =
            Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        fastrand::seed(seed);
        let mut rng = Rng::with_seed(seed);
        let fault = one(&mut rng, &faults);
        let command_timeout = 600 * MS + up_to(&mut rng, 2 * SECOND);
        let silent = SECOND + up_to(&mut rng, 5 * SECOND);
        let until_release = silent.mul_f64(rng.f64());
        let is_well =
            runtime.block_on(all_waiters_get_the_lock(fault, command_timeout, until_release, silent));
        assert!(is_well, "seed {seed}: {fault:?}, {command_timeout:?}, {silent:?}, {until_release:?}");
    }
}

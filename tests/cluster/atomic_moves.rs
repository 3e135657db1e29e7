//! Slots that move atomically, under load: all keys of a slot change their master at one moment.
//!
//! Redis before 8.4 and Valkey before 9.0 cannot do that, so this test is ignored unless `scripts/test servers` asks for them.

use std::ops::RangeInclusive;
use std::time::Duration;

use lockkeeper::{LockClient, LockGuard};
use lockkeeper_testkit::Cluster;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep_until};

use crate::cluster::{client_with, end};
use crate::support::fixture::{FairLocks, FencedLocks, Fixture, RLocks, ReadLocks, WriteLocks};
use crate::support::load::Load;
use crate::support::{LIMIT, SECOND, patient, works};

/// Nearly all slots of each master. A master without slots would become a replica.
const OF_FIRST: RangeInclusive<u16> = 1..=8_191;
const OF_SECOND: RangeInclusive<u16> = 8_192..=16_382;

/// Each move begins so long after the one before.
const EVERY: Duration = SECOND;

/// Without a message, a waiter would sleep until the end of the lease that it knows of, or longer.
const WOKEN: Duration = Duration::from_secs(6);

/// Two masters, clients that hold, wait and hand over, and the moves between the masters.
struct Scene {
    group: Cluster,
    clients: [LockClient; 2],
    held: Vec<LockGuard>,
    load: Load,
}

impl Scene {
    async fn start() -> Self {
        let group = Cluster::with(2, 0, 20 * SECOND, &[]);
        // Each hold is renewed during the moves, and only a message wakes a waiter.
        let config = || {
            let config = patient().command_timeout(LIMIT).retry_timeout(60 * SECOND);
            config.watchdog_lease(9 * SECOND).safety_poll(3_600 * SECOND)
        };
        let clients = [client_with(&group, config()).await, client_with(&group, config()).await];
        let mut held = Vec::new();
        for number in 0..120 {
            held.push(hold::<FairLocks>(&clients[0], "fair", number).await);
            held.push(hold::<FencedLocks>(&clients[0], "fenced", number).await);
            held.push(hold::<ReadLocks>(&clients[0], "read", number).await);
            held.push(hold::<RLocks>(&clients[0], "rlock", number).await);
            held.push(hold::<WriteLocks>(&clients[0], "write", number).await);
        }
        let load = Load::of_all_types(&clients.each_ref());
        for server in &group.servers[..2] {
            works(server).await;
        }
        Self { group, clients, held, load }
    }

    /// Nothing was lost, nothing granted twice, and nobody slept through a message.
    async fn end(self) {
        let Self { group, clients, held, load } = self;
        let work = load.end().await;
        println!("{work:?}");
        assert!(work.lost == 0 && work.gap < WOKEN, "{work:?}");
        let lost = held.iter().filter(|guard| guard.is_lost()).map(LockGuard::name);
        assert_eq!(lost.collect::<Vec<_>>(), Vec::<&str>::new());
        for guard in held {
            guard.unlock().await.unwrap();
        }
        end(&group, &clients).await;
    }
}

async fn hold<F: Fixture>(locks: &LockClient, kind: &str, number: usize) -> LockGuard {
    F::lock(locks, &format!("held:{kind}:{number}")).lock().await.unwrap().into_plain()
}

/// Guarantees 1, 6, 7 and 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "Redis 8.4 or Valkey 9.0 is needed: scripts/test servers"]
async fn slots_that_move_to_and_fro_each_second_cost_no_lock_and_no_message() {
    let scene = Scene::start().await;
    let before = scene.group.errors("MOVED");
    let mut next = Instant::now();
    for (slots, to) in [(OF_FIRST, 1), (OF_FIRST, 0), (OF_SECOND, 0), (OF_SECOND, 1)].iter().cycle().take(12)
    {
        block_in_place(|| scene.group.move_atomically(slots, *to));
        next += EVERY;
        sleep_until(next).await;
    }
    let [moved, asked, again] = ["MOVED", "ASK", "TRYAGAIN"].map(|code| scene.group.errors(code));
    assert!(moved > before && asked == 0 && again == 0, "{moved} MOVED, {asked} ASK, {again} TRYAGAIN");
    scene.end().await;
}

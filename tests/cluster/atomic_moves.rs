//! Slots that move atomically, under load: all keys of a slot change their master at one moment.
//!
//! Redis before 8.4 and Valkey before 9.0 cannot do that, so this test is ignored unless `scripts/test servers` asks for them.

use std::ops::RangeInclusive;
use std::time::Duration;

use lockkeeper_testkit::Cluster;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep_until};

use crate::cluster::{client_with, end};
use crate::support::load::Load;
use crate::support::{LIMIT, SECOND, patient, works};

/// Nearly all slots of each master. A master without slots would become a replica.
const OF_FIRST: RangeInclusive<u16> = 1..=8_191;
const OF_SECOND: RangeInclusive<u16> = 8_192..=16_382;

/// Each move begins so long after the one before.
const EVERY: Duration = SECOND;

/// Without a message, a waiter would sleep until the end of the lease that it knows of, or longer.
const WOKEN: Duration = Duration::from_secs(6);

/// Guarantees 1, 6, 7 and 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "Redis 8.4 or Valkey 9.0 is needed: scripts/test servers"]
async fn slots_that_move_to_and_fro_each_second_cost_no_lock_and_no_message() {
    let group = Cluster::with(2, 0, 20 * SECOND, &[]);
    // Each hold is renewed during the moves, and only a message wakes a waiter.
    let config = || {
        let config = patient().command_timeout(LIMIT).retry_timeout(60 * SECOND);
        config.watchdog_lease(9 * SECOND).safety_poll(3_600 * SECOND)
    };
    let clients = [client_with(&group, config()).await, client_with(&group, config()).await];
    let mut held = Vec::new();
    for number in 0..300 {
        let guard = clients[0].rlock(format!("held:{number}")).lock().await.unwrap();
        held.push(guard);
        let reader = clients[0].read_write_lock(format!("read:{number}")).into_read();
        held.push({ reader }.lock().await.unwrap());
    }
    let load = Load::of_all_types(&clients.each_ref());
    for server in &group.servers[..2] {
        works(server).await;
    }

    let before = group.errors("MOVED");
    let mut next = Instant::now();
    for (slots, to) in [(OF_FIRST, 1), (OF_FIRST, 0), (OF_SECOND, 0), (OF_SECOND, 1)].iter().cycle().take(12)
    {
        block_in_place(|| group.move_atomically(slots, *to));
        next += EVERY;
        sleep_until(next).await;
    }
    let [moved, asked, again] = ["MOVED", "ASK", "TRYAGAIN"].map(|code| group.errors(code));
    assert!(moved > before && asked == 0 && again == 0, "{moved} MOVED, {asked} ASK, {again} TRYAGAIN");

    let work = load.end().await;
    assert!(work.lost == 0 && work.gap < WOKEN, "{work:?}");
    for guard in held {
        guard.unlock().await.unwrap();
    }
    end(&group, &clients).await;
}

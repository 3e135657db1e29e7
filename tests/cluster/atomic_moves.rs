//! Slots that move atomically, under load: all keys of a slot change their master at one moment.
//!
//! Redis before 8.4 and Valkey before 9.0 cannot do that, so this test is ignored unless `scripts/test servers` asks for them.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{LockClient, LockGuard};
use lockkeeper_testkit::Cluster;
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster::{client_with, end};
use crate::support::fixture::{FairLocks, FencedLocks, Fixture, RLocks, ReadLocks, WriteLocks};
use crate::support::load::{Load, Section};
use crate::support::verify::check;
use crate::support::{LIMIT, MS, SECOND, patient, soon, works};

/// Nearly all slots of each master. A master without slots would become a replica.
const OF_FIRST: RangeInclusive<u16> = 1..=8_191;
const OF_SECOND: RangeInclusive<u16> = 8_192..=16_382;

/// Each move begins so long after the one before.
const EVERY: Duration = SECOND;

/// The bar is 300 ms. A busy machine takes longer. Without a message, a waiter would sleep until the end of the lease that it knows of.
const WOKEN: Duration = Duration::from_secs(4);

/// Owners of two clients that hand a lock over to each other again and again, and how long the next one took each time.
struct Relay {
    stop: Arc<AtomicBool>,
    runners: Vec<JoinHandle<Vec<Section>>>,
    ends: Arc<Mutex<Vec<Option<Instant>>>>,
    waits: Arc<Mutex<Vec<Duration>>>,
}

impl Relay {
    /// Two owners for each name: one always holds the lock, and the other waits.
    fn start(clients: [&LockClient; 2], names: usize) -> Self {
        let relay = Self {
            stop: Arc::default(),
            runners: Vec::new(),
            ends: Arc::new(Mutex::new(vec![None; names])),
            waits: Arc::default(),
        };
        let runners = clients.into_iter().flat_map(|locks| (0..names).map(|number| relay.run(locks, number)));
        let runners = runners.collect();
        Self { runners, ..relay }
    }

    fn run(&self, locks: &LockClient, number: usize) -> JoinHandle<Vec<Section>> {
        let mut lock = locks.rlock(format!("relay:{number}"));
        let (stop, ends, waits) = (Arc::clone(&self.stop), Arc::clone(&self.ends), Arc::clone(&self.waits));
        tokio::spawn(async move {
            let mut sections = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let guard = lock.lock().await.unwrap();
                let start = Instant::now();
                if let Some(end) = ends.lock().unwrap()[number].take() {
                    waits.lock().unwrap().push(start - end);
                }
                sleep(20 * MS).await; // the section, in which the other one begins to wait
                let end = Instant::now();
                guard.unlock().await.unwrap();
                ends.lock().unwrap()[number] = Some(Instant::now());
                sections.push(Section { start, end, is_shared: false, token: None });
                sleep(5 * MS).await; // or this owner would be faster than the message
            }
            sections
        })
    }

    /// Ends it. No two sections overlapped. Returns how long the waits took, the shortest first.
    async fn end(self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        let names = self.ends.lock().unwrap().len();
        let mut sections = vec![Vec::new(); names];
        for (index, runner) in self.runners.into_iter().enumerate() {
            sections[index % names].extend(soon(runner).await.unwrap());
        }
        for (number, sections) in sections.into_iter().enumerate() {
            check(&format!("relay:{number}"), &sections);
        }
        let mut waits = self.waits.lock().unwrap().clone();
        waits.sort_unstable();
        waits
    }
}

/// Two masters, clients that hold, wait and hand over, and the moves between the masters.
struct Scene {
    group: Cluster,
    clients: [LockClient; 2],
    held: Vec<LockGuard>,
    load: Load,
    relay: Relay,
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
        let relay = Relay::start(clients.each_ref(), 8);
        for server in &group.servers[..2] {
            works(server).await;
        }
        Self { group, clients, held, load, relay }
    }

    /// Nothing was lost, nothing granted twice, and nobody slept through a message.
    async fn end(self) {
        let Self { group, clients, held, load, relay } = self;
        let waits = relay.end().await;
        let at = |percent: usize| waits[(waits.len() - 1) * percent / 100];
        println!(
            "{} hand-overs: half in {:?}, 99 % in {:?}, all in {:?}",
            waits.len(),
            at(50),
            at(99),
            at(100)
        );
        let work = load.end().await;
        println!("{work:?}");
        assert!(work.lost == 0 && work.gap < WOKEN + 5 * SECOND, "{work:?}");
        assert!(at(100) < WOKEN, "{:?}", &waits[waits.len() - 20.min(waits.len())..]);
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

//! Promises at the edges of their times, each in a world of one process and one server.

use std::cell::Cell;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use lockkeeper::{Error, Limits, LockClient, LockConfig, LockOptions, Process};
use lockkeeper_memory::{MemoryServer, Network};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::plan::{MS, SECOND};
use crate::process_stream;
use crate::trace::Script;

/// When the server ran a script.
type Ran = Arc<Mutex<Vec<(Instant, &'static str)>>>;

struct Scene {
    process: Process,
    /// The server, as this process reaches it.
    network: MemoryServer,
    ran: Ran,
    locks: LockClient,
}

impl Scene {
    fn times_of(&self, file: &str) -> Vec<Instant> {
        let ran = self.ran.lock().expect("nothing panics");
        ran.iter().filter(|(_, ran)| *ran == file).map(|(at, _)| *at).collect()
    }
}

/// No connection is there, and none can be made.
fn refuses(network: &MemoryServer) {
    network.set_network(Network { refuses: true, ..Network::default() });
    network.cut();
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(Scene) -> F) {
    fastrand::seed(7);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let server = MemoryServer::simulated(Duration::from_secs(1_700_000_000), 7);
        let ran = Ran::default();
        let seen = Arc::clone(&ran);
        server.observe(move |_, words, _, _| {
            if let Some(script) = Script::of(words) {
                seen.lock().expect("nothing panics").push((Instant::now(), script.file));
            }
        });
        let process = Process::new(60 * SECOND, 0);
        process.set_limits(Limits { releases: 1, ..Limits::default() });
        let network = server.over_network(7);
        let config = LockConfig::builder()
            .connections(1)
            .command_timeout(3 * SECOND)
            .safety_poll(60 * SECOND)
            .build()
            .expect("valid");
        let connecting = LockClient::connect_with(process_stream::source(&network, &process), config);
        let locks = process.run(connecting).await.expect("a client");
        let scene = process.enter(|| test(Scene { process: process.clone(), network, ran, locks }));
        process.run(scene).await;
    });
}

/// Panics at the event of a loss.
struct Panics;

impl<S: Subscriber> Layer<S> for Panics {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        assert!(!event.metadata().target().ends_with("hold"), "a layer of the user");
    }
}

/// The first unlock is under way, so the background sends the second release.
#[test]
fn an_unlock_learns_the_answer_although_code_of_the_user_panics_in_the_background() {
    run(async |Scene { network, locks, .. }| {
        let (mut first, mut second) = (locks.rlock("a"), locks.rlock("b"));
        let mut unlocking = pin!(first.lock().await.expect("it is free").unlock());
        let guard = second.lock().await.expect("it is free");
        assert!(unlocking.as_mut().now_or_never().is_none());
        network.execute(&["DEL", "b"]);
        let panics = tracing::subscriber::set_default(tracing_subscriber::registry().with(Panics));
        let unlocked = guard.unlock().await;
        drop(panics);
        assert!(matches!(unlocked, Err(Error::NotHeld(_))), "{unlocked:?}");
        unlocking.await.expect("it was held");
    });
}

/// Guarantee 10. The connection for messages is silent. Without a probe, the waiter would ask when the lease ends, or after `safety_poll`,
/// which is a minute here.
#[test]
fn a_silent_connection_for_messages_is_replaced() {
    run(async |Scene { process, network, locks, .. }| {
        let source = process_stream::source(&network, &process);
        let other = LockClient::connect_with(source, LockConfig::default()).await.expect("a client");
        let guard = other.rlock("a").lock().await.expect("it is free");
        let mut lock = locks.rlock("a");
        let mut waiting = pin!(lock.lock());
        assert!(timeout(SECOND, &mut waiting).await.is_err(), "it is held");
        let silent = Network { holds_replies: true, holds_existing: true, ..Network::default() };
        network.set_network(Network { only_messages: true, ..silent });
        assert!(timeout(5 * SECOND, &mut waiting).await.is_err(), "it is held");
        guard.unlock().await.expect("it is held");
        drop(timeout(SECOND / 2, waiting).await.expect("it is woken").expect("it is free"));
    });
}

/// Nobody waits for a long time, and then somebody does.
#[test]
fn a_holder_hears_soon_that_somebody_waits_however_long_it_was_alone() {
    run(async |Scene { locks, .. }| {
        let guard = locks.rlock("a").lock().await.expect("it is free");
        let mut wanted = pin!(guard.wanted());
        for alone in [1, 10, 60] {
            assert!(timeout(alone * SECOND, &mut wanted).await.is_err(), "nobody waits");
        }
        let mut other = locks.rlock("a");
        let waiting = pin!(other.lock());
        tokio::select! {
            biased;
            _ = waiting => unreachable!("it is held"),
            heard = timeout(SECOND, wanted) => heard.expect("it hears within a second"),
        }
    });
}

/// Guarantee 3: an attempt without an answer is released at once, and once more when no copy of it can run: `command_timeout`, which is 3 s
/// here, and a second after its call gave up. A shutdown waits for that.
#[test]
fn an_attempt_is_released_at_once_and_when_no_copy_of_it_can_run() {
    for is_shut_down in [false, true] {
        run(async |scene| {
            let mut lock = scene.locks.rlock("a");
            // What is sent now does not arrive, and what is sent over a later connection does.
            scene.network.set_network(Network {
                holds_requests: true,
                holds_existing: true,
                ..Network::default()
            });
            let start = Instant::now();
            assert!(timeout(50 * MS, lock.try_lock()).await.is_err());
            if is_shut_down {
                scene.locks.shutdown().await.expect("all is released");
            } else {
                sleep(60 * SECOND).await;
            }
            let released = scene.times_of("rlock/release.lua");
            let times: Vec<_> = released.iter().map(|time| *time - start).collect();
            let last = *times.last().expect("it is released");
            assert!(times.len() <= 3 && last > 4 * SECOND && last < 5 * SECOND, "{times:?}");
        });
    }
}

/// Guarantee 12. A guard is dropped during an outage, after which the lease lasts for minutes.
#[test]
fn a_dropped_guard_is_released_soon_after_the_server_is_back() {
    run(async |Scene { network, locks, .. }| {
        let options = LockOptions::builder().fixed(300 * SECOND).build().expect("valid");
        let guard = locks.rlock("a").with(&options).lock().await.expect("it is free");
        refuses(&network);
        drop(guard);
        sleep(30 * SECOND).await;
        network.set_network(Network::default());
        sleep(2 * SECOND).await;
        assert_eq!(network.execute(&["EXISTS", "a"]), b":0\r\n");
    });
}

/// Guarantee 19: after the lock was deleted, readers begin for at most 1.25 times the time of `linger`, counted from the question whose
/// answer said that it was there. That answer comes late, and the next one not at all.
#[test]
fn readers_begin_for_at_most_five_quarters_of_the_time_after_a_question() {
    const LINGER: Duration = Duration::from_millis(300); // after a second, a confirmation makes a gap
    run(async |scene| {
        let options = LockOptions::builder().linger(LINGER).build().expect("valid");
        let mut reader = scene.locks.read_write_lock("a").into_read().with(&options);
        let last = Cell::new(Instant::now());
        let mut reads_until = async |condition: &dyn Fn() -> bool| {
            while !condition() {
                let Ok(guard) = timeout(50 * MS, reader.lock()).await else { return };
                last.set(Instant::now());
                drop(guard.expect("it is free"));
                sleep(5 * MS).await;
            }
        };
        let holds =
            |holds_replies| scene.network.set_network(Network { holds_replies, ..Network::default() });
        let since = |start: Instant, time: Duration| move || start.elapsed() >= time;
        // The server gets to know the scripts.
        reads_until(&since(Instant::now(), LINGER * 3 / 2)).await;
        sleep(LINGER * 3).await;
        scene.ran.lock().expect("nothing panics").clear();
        let first = Instant::now();
        reads_until(&since(first, LINGER * 9 / 10)).await;
        holds(true);
        reads_until(&|| !scene.times_of("read/confirm.lua").is_empty()).await;
        let asked = scene.times_of("read/confirm.lua")[0];
        reads_until(&since(asked, LINGER / 5)).await;
        holds(false);
        reads_until(&since(asked, LINGER / 2)).await;
        holds(true);
        scene.network.execute(&["DEL", "a"]);
        reads_until(&|| false).await;
        let (last, asked) = (last.get() - asked, scene.times_of("read/confirm.lua").len());
        assert_eq!(asked, 2, "one is answered late, and one is not answered");
        assert!(last <= LINGER * 5 / 4 && last > LINGER * 6 / 5, "{last:?}");
        holds(false);
    });
}

/// Guarantee 2. The answer to the release is lost, and the next release finds nothing.
#[test]
fn a_release_that_ran_and_was_not_answered_is_no_loss() {
    run(async |Scene { network, locks, .. }| {
        // The server gets to know the scripts.
        locks.rlock("a").lock().await.expect("it is free").unlock().await.expect("it is held");
        let guard = locks.rlock("a").lock().await.expect("it is free");
        network.set_network(Network { holds_replies: true, ..Network::default() });
        let mut unlocking = pin!(guard.unlock());
        assert!(timeout(50 * MS, &mut unlocking).await.is_err());
        network.cut();
        network.set_network(Network::default());
        unlocking.await.expect("it was held until then");
    });
}

/// Guarantee 18. A call was dropped, and its line leaves the queue when the shutdown begins. The server is silent.
#[test]
fn a_shutdown_knows_of_a_place_that_a_line_is_leaving() {
    run(async |Scene { network, locks, .. }| {
        network.execute(&["HSET", "a", "00000000-0000-8000-8000-000000000000:1", "1"]);
        let mut lock = locks.fair_lock("a");
        let mut waiting = Box::pin(lock.lock());
        assert!(timeout(SECOND, &mut waiting).await.is_err());
        network.freeze(true);
        drop(waiting);
        sleep(MS).await; // the release is on its way
        locks.shutdown().await.expect_err("a place is left");
        network.freeze(false);
    });
}

/// Guarantee 2. The lock is deleted before there is a connection, and nobody polls the unlock until the background has released.
#[test]
fn an_unlock_that_the_background_sends_reports_a_loss() {
    run(async |Scene { network, locks, .. }| {
        let guard = locks.rlock("a").lock().await.expect("it is free");
        refuses(&network);
        sleep(10 * MS).await; // the client notices it before it sends
        let mut unlocking = pin!(guard.unlock());
        assert!(timeout(2 * SECOND, &mut unlocking).await.is_err());
        network.execute(&["DEL", "a"]);
        network.set_network(Network::default());
        sleep(10 * SECOND).await;
        assert!(matches!(unlocking.await, Err(Error::NotHeld(_))));
    });
}

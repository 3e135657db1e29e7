//! Promises 8, 9 and 10: a waiter is woken by a message, costs little, and sleeps on through no fault.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use lockkeeper::{LockClient, LockConfigBuilder, Source};
use support::{
    Faults, LIMIT, MS, SECOND, Scene, Server, connect, eventually, patient, soon, throughout, timed,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

/// Nothing but messages wakes anybody.
fn never_polls() -> LockConfigBuilder {
    patient().safety_poll(Duration::from_secs(3_600))
}

/// Far below the lease of 30 s, at the end of which they would look.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A waiter, and when it got the lock.
fn wait_for(locks: &LockClient, name: &'static str) -> JoinHandle<Instant> {
    let locks = locks.clone();
    tokio::spawn(async move {
        let guard = locks.rlock(name).lock().await.unwrap();
        let at = Instant::now();
        guard.unlock().await.unwrap();
        at
    })
}

async fn listens(scene: &Scene, channels: usize) {
    eventually("it listens", || scene.server.channels(), |found| found.len() == channels).await;
}

/// A waiter that attempted, listens, attempted again, and sleeps from here on.
async fn sleeper(scene: &Scene, locks: &LockClient) -> JoinHandle<Instant> {
    let attempts = || scene.server.calls("pttl"); // only what acquires calls it
    let before = attempts();
    let waiting = wait_for(locks, "a");
    listens(scene, 1).await;
    eventually("it attempts again", attempts, |&now| now >= before + 2).await;
    waiting
}

/// The ids of the connections that hear messages.
fn listeners(scene: &Scene) -> Vec<String> {
    let list: String = scene.server.run(&["CLIENT", "LIST", "TYPE", "PUBSUB"]);
    list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_message_and_not_by_polling() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client_with(never_polls()).await, scene.client_with(never_polls()).await);
    let guard = theirs.rlock("a").lease(60 * SECOND).unwrap().lock().await.unwrap(); // so that it is not renewed
    let waiting = sleeper(&scene, &ours).await;
    let before = scene.server.calls("evalsha");
    throughout(500 * MS, async || assert_eq!(scene.server.calls("evalsha"), before, "a waiter asks nothing"))
        .await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    assert!(soon(waiting).await.unwrap() - released < AT_ONCE);
    drop((ours, theirs));
    scene.end().await;
}

/// The release falls between the attempt that was refused and the subscription, again and again.
#[tokio::test]
async fn a_release_while_the_waiter_subscribes_is_not_missed() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client_with(never_polls()).await, scene.client_with(never_polls()).await);
    for round in 0..200_u64 {
        let guard = theirs.rlock("a").lock().await.unwrap();
        let waiting = wait_for(&ours, "a");
        sleep(Duration::from_micros(round * 13 % 1_500)).await; // at another moment in each round
        guard.unlock().await.unwrap();
        soon(waiting).await.unwrap();
    }
    drop((ours, theirs));
    scene.end().await;
}

/// It was refused, and when it listens the lock is free: nothing but that it listens makes it look at once.
#[tokio::test]
async fn a_release_before_the_waiter_listens_is_found_when_it_does() {
    const ROUNDS: usize = 10;
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let theirs = scene.client().await;
    let mut at_once = 0;
    for _ in 0..ROUNDS {
        let ours = connect(proxy.url(), never_polls().connections(1)).await;
        let guard = theirs.rlock("a").lock().await.unwrap();
        proxy.set(Faults { hold_requests: true, ..Faults::default() });
        proxy.set_existing(Faults::default());
        let made = proxy.accepted();
        let waiting = wait_for(&ours, "a");
        eventually("it subscribes", || proxy.accepted(), |&accepted| accepted > made).await;
        guard.unlock().await.unwrap();
        proxy.set(Faults::default());
        at_once += usize::from(timed(waiting).await.1 < 100 * MS); // while it does not listen, it polls more rarely
    }
    assert!(at_once > ROUNDS / 2, "{at_once} of {ROUNDS}");
    drop((theirs, proxy));
    scene.end().await;
}

#[tokio::test]
async fn a_killed_subscription_is_made_anew_and_nothing_is_missed() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client_with(never_polls()).await, scene.client().await);
    for released_before_it_is_back in [true, false] {
        let guard = theirs.rlock("a").lock().await.unwrap();
        let waiting = wait_for(&ours, "a");
        listens(&scene, 1).await;
        let old = listeners(&scene);
        let killed: u32 = scene.server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(killed, 1);
        if !released_before_it_is_back {
            eventually("it listens anew", || listeners(&scene), |new| new.len() == 1 && *new != old).await;
        }
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let woken = soon(waiting).await.unwrap() - released;
        assert!(woken < AT_ONCE, "{woken:?}");
    }
    drop((ours, theirs));
    scene.end().await;
}

#[tokio::test]
async fn a_silent_subscription_is_noticed_and_made_anew() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let ours = connect(proxy.url(), never_polls().command_timeout(SECOND)).await;
    let theirs = scene.client().await;
    let guard = theirs.rlock("a").lock().await.unwrap();
    let waiting = sleeper(&scene, &ours).await;
    proxy.set_existing(Faults::black_hole());
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let woken = soon(waiting).await.unwrap() - released;
    assert!(woken > 500 * MS, "{woken:?}: it was woken by the old connection");
    assert!(woken < AT_ONCE, "{woken:?}");
    ours.shutdown().await.unwrap();
    drop((ours, theirs, proxy));
    scene.end().await;
}

#[tokio::test]
async fn without_any_message_the_safety_poll_gets_it() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let ours = connect(proxy.url(), patient().safety_poll(400 * MS)).await;
    let theirs = scene.client().await;
    proxy.set(Faults { lose_messages: true, ..Faults::default() });
    let guard = theirs.rlock("a").lock().await.unwrap();
    let waiting = sleeper(&scene, &ours).await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let woken = soon(waiting).await.unwrap() - released;
    assert!(proxy.lost_messages() > 0);
    assert!(woken < AT_ONCE, "{woken:?}");
    drop((ours, theirs, proxy));
    scene.end().await;
}

/// Also with a pool that does not say where the server is.
#[tokio::test]
async fn without_a_subscription_waiting_degrades_to_polling() {
    let scene = Scene::start();
    scene.server.run::<()>(&["ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-subscribe"]);
    let deaf = format!("redis://deaf:secret@127.0.0.1:{}/", scene.server.port());
    let pool = deadpool_redis::Config::from_url(scene.server.url())
        .create_pool(Some(deadpool_redis::Runtime::Tokio1))
        .unwrap();
    let theirs = scene.client().await;
    for source in [Source::from(deaf), Source::from(pool)] {
        let ours = LockClient::connect_with(source, never_polls().build().unwrap()).await.unwrap();
        let guard = theirs.rlock("a").lock().await.unwrap();
        let waiting = wait_for(&ours, "a");
        throughout(500 * MS, async || {
            assert!(!waiting.is_finished() && scene.server.channels().is_empty());
        })
        .await;
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let woken = soon(waiting).await.unwrap() - released;
        assert!(woken < AT_ONCE, "{woken:?}");
        drop(ours);
    }
    let tries = scene.server.calls("client|setinfo");
    assert!(tries < 60, "{tries}: it reconnects in a hurry to a server that refuses to be subscribed");
    drop(theirs);
    scene.end().await;
}

/// It listened, and from some time on it can not: nobody will tell it that it has to look for itself.
#[tokio::test]
async fn a_subscription_that_is_lost_for_good_degrades_to_polling() {
    let scene = Scene::start();
    scene.server.run::<()>(&["ACL", "SETUSER", "u", "on", ">s", "~*", "&*", "+@all"]);
    let url = format!("redis://u:s@127.0.0.1:{}/", scene.server.port());
    let (ours, theirs) = (connect(url, never_polls()).await, scene.client().await);
    let guard = theirs.rlock("a").lock().await.unwrap();
    let waiting = sleeper(&scene, &ours).await;
    scene.server.run::<()>(&["ACL", "SETUSER", "u", "-subscribe"]);
    scene.server.run::<u32>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    throughout(500 * MS, async || assert!(!waiting.is_finished())).await;
    guard.unlock().await.unwrap();
    let (woken, took) = timed(waiting).await;
    woken.unwrap();
    assert!(took < AT_ONCE, "{took:?}");
    drop((ours, theirs));
    scene.end().await;
}

/// A pool of the user's own, with an address: woken by messages.
#[tokio::test]
async fn a_pool_with_an_address_is_woken_by_messages() {
    let scene = Scene::start();
    let pool = deadpool_redis::Config::from_url(scene.server.url())
        .create_pool(Some(deadpool_redis::Runtime::Tokio1))
        .unwrap();
    let source = Source::pool(pool.clone(), scene.server.url());
    let ours = LockClient::connect_with(source, never_polls().build().unwrap()).await.unwrap();
    let guard = ours.rlock("a").lock().await.unwrap();
    let waiting = wait_for(&ours, "a");
    listens(&scene, 1).await;
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    assert_eq!(
        pool.status().size,
        0,
        "the connections are out of the pool, which may make others in their place"
    );
    drop((ours, pool));
    scene.end().await;
}

#[tokio::test]
async fn a_thousand_waiters_cost_one_subscription_and_one_attempt_per_release() {
    const WAITERS: u64 = 1_000;
    let scene = Scene::start();
    let locks = scene.client().await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let before = scene.server.calls("evalsha");
    let mut waiting = JoinSet::new();
    for _ in 0..WAITERS {
        let locks = locks.clone();
        waiting.spawn(async move {
            let guard = locks.rlock("a").lock().await.unwrap();
            sleep(MS).await; // the section
            guard.unlock().await.unwrap();
        });
    }
    listens(&scene, 1).await;
    sleep(200 * MS).await; // all have joined the line, of which there is nothing to be seen
    assert_eq!(listeners(&scene).len(), 1);
    let subscribers: (String, u32) = scene.server.run(&["PUBSUB", "NUMSUB", "redisson_lock__channel:{a}"]);
    assert_eq!(subscribers.1, 1);
    guard.unlock().await.unwrap();
    soon(waiting.join_all()).await;

    let releases = WAITERS + 1;
    let attempts = scene.server.calls("evalsha") - before - releases;
    println!("{attempts} attempts for {releases} releases");
    assert!(attempts as f64 <= 1.2 * releases as f64, "{attempts} attempts for {releases} releases");
    assert_eq!(scene.server.calls("subscribe"), 1);
    drop(locks);
    scene.end().await;
}

/// Whoever is chosen by a wake and goes away passes it on.
#[tokio::test]
async fn a_waiter_that_goes_away_as_it_is_woken_passes_the_wake_on() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client_with(never_polls()).await, scene.client().await);
    for round in 0..150_u64 {
        let guard = theirs.rlock("a").lock().await.unwrap();
        let first = wait_for(&ours, "a");
        if round == 0 {
            listens(&scene, 1).await;
        }
        tokio::task::yield_now().await;
        let second = wait_for(&ours, "a");
        eventually("it listens", || listeners(&scene).len(), |&count| count == 1).await;
        guard.unlock().await.unwrap();
        // Somewhere between the message and the guard.
        sleep(Duration::from_micros(round * 7 % 1_000)).await;
        first.abort();
        let (woken, took) = timed(second).await;
        woken.unwrap();
        assert!(took < AT_ONCE, "round {round}: {took:?}");
        let _ = first.await;
    }
    drop((ours, theirs));
    scene.end().await;
}

/// `a` and `{a}` are two locks, with one channel.
#[tokio::test]
async fn locks_that_share_a_channel_do_not_wait_for_one_another() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client_with(never_polls()).await, scene.client().await);
    let held = theirs.rlock("a").lock().await.unwrap();
    let waiting = wait_for(&ours, "a");
    listens(&scene, 1).await;
    let other = soon(ours.rlock("{a}").try_lock_for(LIMIT)).await.unwrap().expect("it is free");

    // Who waits for the second listens on, when the last who waited for the first has gone.
    let mut waiting_too = Box::pin(async {
        let mut lock = ours.rlock("{a}");
        lock.lock().await.unwrap().unlock().await.unwrap();
    });
    assert!(timeout(100 * MS, &mut waiting_too).await.is_err());
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let (_, took) = timed(async { tokio::join!(waiting_too, other.unlock()) }).await;
    assert!(took < AT_ONCE, "{took:?}");
    held.unlock().await.unwrap();
    drop((ours, theirs));
    scene.end().await;
}

/// One channel that this user may not hear, among others.
#[tokio::test]
async fn a_channel_that_is_refused_makes_nobody_else_deaf() {
    let scene = Scene::start();
    let rule = ["ACL", "SETUSER", "u", "on", ">s", "~*", "resetchannels", "&*{shop*", "+@all"];
    scene.server.run::<()>(&rule);
    let url = format!("redis://u:s@127.0.0.1:{}/", scene.server.port());
    let ours = connect(url, never_polls()).await;
    let theirs = scene.client().await;
    let mut first_connected = None;
    for round in 0..5 {
        let other = theirs.rlock("other").lock().await.unwrap();
        let shops =
            [theirs.rlock("shop:1").lock().await.unwrap(), theirs.rlock("shop:2").lock().await.unwrap()];
        let waiting = [wait_for(&ours, "other"), wait_for(&ours, "shop:1"), wait_for(&ours, "shop:2")];
        listens(&scene, 2).await;
        let connected = listeners(&scene);
        for guard in shops {
            guard.unlock().await.unwrap();
        }
        let [refused, first, second] = waiting;
        for heard in [first, second] {
            assert!(timed(heard).await.1 < AT_ONCE, "round {round}");
        }
        other.unlock().await.unwrap();
        soon(refused).await.unwrap(); // by polling
        assert_eq!(connected.len(), 1, "round {round}");
        assert_eq!(
            *first_connected.get_or_insert_with(|| connected.clone()),
            connected,
            "round {round}: it broke"
        );
    }
    drop((ours, theirs));
    scene.end().await;
}

/// A server that is busy with a script refuses to subscribe, and is asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_was_refused_for_a_moment_is_made_later() {
    let scene = Scene::with(Server::with(&["--busy-reply-threshold", "50"]));
    let (ours, theirs) = (scene.client_with(never_polls()).await, scene.client().await);
    let guard = theirs.rlock("a").lock().await.unwrap();
    let url = scene.server.url();
    let busy = std::thread::spawn(move || {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection).is_err()
    });
    let is_busy = || {
        let refused = scene.server.try_run::<redis::Value>(&["SUBSCRIBE", "x"]);
        refused.is_err_and(|error| error.code() == Some("BUSY"))
    };
    eventually("it is busy", is_busy, |&busy| busy).await;
    let waiting = wait_for(&ours, "a");
    sleep(500 * MS).await; // in which it is refused
    scene.server.run::<()>(&["SCRIPT", "KILL"]);
    assert!(busy.join().unwrap());
    listens(&scene, 1).await;
    guard.unlock().await.unwrap();
    assert!(timed(waiting).await.1 < AT_ONCE);
    drop((ours, theirs));
    scene.end().await;
}

/// The one that is chosen goes away before it could send anything, so no release of its own wakes the next.
#[tokio::test]
async fn a_wake_that_was_taken_and_not_used_is_passed_on() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let ours = connect(proxy.url(), never_polls().connections(1).command_timeout(SECOND)).await;
    let theirs = scene.client().await;
    let guard = theirs.rlock("a").lock().await.unwrap();
    let first = sleeper(&scene, &ours).await;
    let second = wait_for(&ours, "a");

    // Messages still arrive; commands wait for a connection that does not come about.
    proxy.set(Faults::black_hole());
    proxy.set_existing(Faults::default());
    let made = proxy.accepted();
    scene.server.run::<u32>(&["CLIENT", "KILL", "TYPE", "NORMAL"]);
    let asking = tokio::spawn({
        let ours = ours.clone();
        async move { ours.rlock("a").is_locked().await }
    });
    eventually("it connects anew", || proxy.accepted(), |&accepted| accepted > made).await;
    guard.unlock().await.unwrap();
    sleep(100 * MS).await; // the message is there, and the first in line is at it
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled(), "it had to wait for a connection");

    proxy.set(Faults::default());
    let (woken, took) = timed(second).await;
    woken.unwrap();
    assert!(took < AT_ONCE, "{took:?}");
    soon(asking).await.unwrap().unwrap();
    drop((ours, theirs, proxy));
    scene.end().await;
}

/// Many channels on one connection, subscribed and left together.
#[tokio::test]
async fn one_connection_hears_any_number_of_channels() {
    const NAMES: usize = 500;
    let scene = Scene::start();
    let (ours, theirs) = (scene.client_with(never_polls()).await, scene.client().await);
    let mut held = Vec::new();
    for name in 0..NAMES {
        held.push(theirs.rlock(format!("{name}")).lock().await.unwrap());
    }
    let mut waiting = JoinSet::new();
    for name in 0..NAMES {
        let ours = ours.clone();
        waiting.spawn(
            async move { ours.rlock(format!("{name}")).lock().await.unwrap().unlock().await.unwrap() },
        );
    }
    listens(&scene, NAMES).await;
    assert_eq!(listeners(&scene).len(), 1);
    let commands = scene.server.calls("subscribe");
    assert!(commands < 50, "{commands} commands for {NAMES} channels");
    scene.server.run::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    listens(&scene, NAMES).await;
    assert!(scene.server.calls("subscribe") <= commands + 2, "all are subscribed anew in one command");
    for guard in held {
        guard.unlock().await.unwrap();
    }
    soon(waiting.join_all()).await;
    drop((ours, theirs));
    scene.end().await;
}

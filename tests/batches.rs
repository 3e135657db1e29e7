//! Calls that go out together: many tasks share the connections of one client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use lockkeeper::{Error, LockClient, LockConfigBuilder, LockGuard, Result};
use tokio::time::timeout;

use crate::support::events::Events;
use crate::support::fixture::{Acquire, Fixture};
use crate::support::{
    Faults, LIMIT, MS, Proxy, SECOND, Scene, calls_of, connect, eventually, lua, patient, poll_until, soon,
    timed,
};

/// So many calls of an idle connection are sent alone. The others go out together.
const ALONE: usize = 1;

/// The sender of a connection has at most so many writes in flight.
const WRITES: usize = 8;

/// The most calls in one command, and in one write.
const MOST: usize = 64;

fn on_one_connection() -> LockConfigBuilder {
    patient().connections(1)
}

async fn lock_all(locks: &LockClient, names: &[String]) -> Vec<Result<LockGuard>> {
    let all = names.iter().map(|name| {
        let mut lock = locks.rlock(name.as_str());
        async move { lock.lock().await }
    });
    soon(join_all(all)).await
}

/// Lets the server know the scripts in all forms.
async fn warm(locks: &LockClient) {
    let guards = lock_all(locks, &names(ALONE + 2)).await;
    let released = soon(join_all(guards.into_iter().map(|guard| guard.unwrap().unlock()))).await;
    assert!(released.iter().all(Result::is_ok), "{released:?}");
}

/// Fills a connection whose replies do not come: each of these calls is in a write of its own, and further calls wait.
async fn fill<F: Future + Unpin>(calls: &mut [F], acquires: &[AtomicUsize; 2]) {
    assert_eq!(calls.len(), ALONE + WRITES);
    for call in calls {
        let sent = read(acquires)[0];
        poll_until(call, || read(acquires)[0] > sent).await;
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number}")).collect()
}

/// Counts the calls and the commands of a script.
fn counted(proxy: &Proxy, file: &'static str) -> Arc<[AtomicUsize; 2]> {
    let (is_it, counts) = (calls_of(file), Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]));
    let seen = Arc::clone(&counts);
    proxy.answer(move |words| {
        if is_it(words) {
            seen[0].fetch_add(words[2].parse().unwrap(), Ordering::SeqCst);
            seen[1].fetch_add(1, Ordering::SeqCst);
        }
        None
    });
    counts
}

fn read(counts: &[AtomicUsize; 2]) -> [usize; 2] {
    [0, 1].map(|index| counts[index].load(Ordering::SeqCst))
}

#[tokio::test]
async fn calls_of_many_tasks_go_out_together() {
    let (scene, proxy, locks) = Scene::behind_proxy(on_one_connection()).await;
    warm(&locks).await;
    let acquires = counted(&proxy, "rlock/acquire.lua");
    let guards = lock_all(&locks, &names(ALONE + MOST + 5)).await;
    assert_eq!(read(&acquires), [ALONE + MOST + 5, ALONE + 2]);
    let releases = counted(&proxy, "rlock/release.lua");
    let released = soon(join_all(guards.into_iter().map(|guard| guard.unwrap().unlock()))).await;
    assert!(released.iter().all(Result::is_ok), "{released:?}");
    assert_eq!(read(&releases), [ALONE + MOST + 5, ALONE + 2]);
    assert_eq!(scene.server.keys(), [""; 0]);
    scene.end((locks, proxy)).await;
}

/// A call that fails while others of the same command are granted. None is sent again.
#[tokio::test]
async fn an_error_of_one_call_is_none_of_the_others() {
    let (scene, proxy, locks) = Scene::behind_proxy(on_one_connection()).await;
    warm(&locks).await;
    scene.server.run::<()>(&["SET", "20", "data"]);
    let acquires = counted(&proxy, "rlock/acquire.lua");
    let names = names(ALONE + MOST);
    let mut guards = lock_all(&locks, &names).await;
    assert_eq!(read(&acquires), [ALONE + MOST, ALONE + 1]);
    let refused = guards.remove(20);
    assert!(matches!(refused, Err(Error::WrongKind { .. })), "{refused:?}");
    for guard in guards {
        guard.unwrap().unlock().await.unwrap();
    }
    assert_eq!(scene.server.keys(), ["20"]);
    scene.server.run::<()>(&["DEL", "20"]);
    scene.end((locks, proxy)).await;
}

/// Guarantee 1. Of the locks of a full command, another process holds each second one. `most`: the calls in it.
async fn each_call_gets_its_own_answer<F: Fixture>(most: usize) {
    let (scene, proxy, locks) = Scene::behind_proxy(on_one_connection()).await;
    let beside = scene.client().await;
    let names = names(ALONE + most);
    let mut handles: Vec<_> = names.iter().map(|name| F::lock(&locks, name)).collect();
    let mut attempt = async || soon(join_all(handles.iter_mut().map(Acquire::try_lock))).await;
    drop(attempt().await); // the server knows the scripts in all forms
    scene.quiet().await;
    let mut theirs = Vec::new();
    for name in names.iter().skip(1).step_by(2) {
        theirs.push(F::rival(&beside, name).lock().await.unwrap());
    }
    let acquires = counted(&proxy, F::ACQUIRE);
    let ours = attempt().await;
    assert_eq!(read(&acquires)[1], ALONE + 1, "commands");
    for (number, (name, guard)) in names.iter().zip(ours).enumerate() {
        let guard = guard.unwrap();
        assert_eq!(guard.is_some(), number % 2 == 0, "{name}");
        if let Some(guard) = guard {
            assert!(scene.server.run::<bool>(&["HEXISTS", name, &guard.owner_id()]));
            guard.unlock().await.unwrap();
        }
    }
    scene.end((handles, theirs, locks, beside, proxy)).await;
}

macro_rules! full_commands {
    ($($kind:ident: $fixture:ty, $most:literal;)*) => {
        mod a_full_command_of {
            $(#[tokio::test]
            async fn $kind() {
                super::each_call_gets_its_own_answer::<$fixture>($most).await;
            })*
        }
    };
}

full_commands! {
    rlock: crate::support::fixture::RLocks, 64;
    fair: crate::support::fixture::FairLocks, 64;
    fenced: crate::support::fixture::FencedLocks, 64;
    read: crate::support::fixture::ReadLocks, 48;
    write: crate::support::fixture::WriteLocks, 64;
}

/// More calls than fit in two writes reach the server before it answers one.
async fn is_sent_before_an_answer(proxy: &Proxy, locks: &LockClient) {
    let acquires = counted(proxy, "rlock/acquire.lua");
    proxy.set(Faults::replies_held());
    let mut all: Vec<_> = names(3 * MOST).iter().map(|name| locks.rlock(name.as_str())).collect();
    let mut calls = join_all(all.iter_mut().map(|lock| Box::pin(lock.lock())));
    poll_until(&mut calls, || read(&acquires)[0] == 3 * MOST).await;
    proxy.set(Faults::default());
    for guard in soon(calls).await {
        guard.unwrap().unlock().await.unwrap();
    }
}

/// A command timed out, and the connection turned out to work.
#[tokio::test]
async fn after_a_silence_as_many_commands_are_in_flight_as_before() {
    let (scene, proxy, locks) = Scene::behind_proxy(on_one_connection().command_timeout(2 * SECOND)).await;
    warm(&locks).await;
    is_sent_before_an_answer(&proxy, &locks).await;
    let accepted = proxy.accepted();
    proxy.set(Faults::replies_held());
    let late = locks.rlock("late");
    let waiting = tokio::spawn(async move { late.is_locked().await });
    let pings = pings(&proxy);
    let asks = || pings.load(Ordering::SeqCst) > 0;
    eventually("the client asks whether the connection works", asks, |&asks| asks).await;
    proxy.set(Faults::default());
    assert!(!soon(waiting).await.unwrap().unwrap());
    assert_eq!(proxy.accepted(), accepted, "the connection was replaced");
    is_sent_before_an_answer(&proxy, &locks).await;
    scene.end((locks, proxy)).await;
}

fn pings(proxy: &Proxy) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    proxy.answer(move |words| {
        seen.fetch_add((words[0] == "PING").into(), Ordering::SeqCst);
        None
    });
    count
}

/// The event says what was wrong with the connection, and nothing else.
#[tokio::test]
async fn a_connection_that_is_replaced_is_reported_with_its_reason() {
    let scene = Scene::start();
    for (reason, is_cut) in [("it is silent", false), ("it broke", true)] {
        let proxy = scene.proxy().await;
        let locks = connect(proxy.url(), on_one_connection().command_timeout(SECOND)).await;
        let events = Events::default();
        let _collecting = events.collect();
        if is_cut {
            proxy.cut();
        } else {
            proxy.set_existing(Faults::replies_held());
        }
        assert!(!soon(locks.rlock("a").is_locked()).await.unwrap());
        let text = events.text();
        let found: Vec<_> = text.lines().filter(|line| line.contains("replacing a connection")).collect();
        assert!(found.len() == 1 && found[0].contains(&format!("reason=\"{reason}\"")), "{text}");
        drop((locks, proxy));
    }
    scene.end(()).await;
}

/// The server refuses a whole command because of one key in it.
#[tokio::test]
async fn a_forbidden_key_harms_no_other_call() {
    let scene = Scene::start();
    let url = scene.user("+@all ~{lock}* ~*lockkeeper* &*");
    let locks = connect(url, on_one_connection()).await;
    let mut names: Vec<String> = (0..ALONE + 20).map(|number| format!("{{lock}}{number}")).collect();
    names.push("other".to_owned());
    for _ in 0..2 {
        let mut guards = lock_all(&locks, &names).await;
        let refused = guards.pop().unwrap();
        assert!(matches!(refused, Err(Error::Permission(_))), "{refused:?}");
        let released = soon(join_all(guards.into_iter().map(|guard| guard.unwrap().unlock()))).await;
        assert!(released.iter().all(Result::is_ok), "{released:?}");
    }
    assert_eq!(scene.server.keys(), [""; 0]);
    scene.end(locks).await;
}

/// A server that forgot the scripts, such as one that was restarted.
#[tokio::test]
async fn an_unknown_script_is_sent_once_for_all() {
    let (scene, locks) = Scene::with_client_of(on_one_connection()).await;
    for _ in 0..3 {
        scene.server.run::<()>(&["SCRIPT", "FLUSH"]);
        for guard in lock_all(&locks, &names(ALONE + 10)).await {
            drop(guard.unwrap());
        }
        eventually("they are released", || scene.server.keys(), Vec::is_empty).await;
    }
    assert!(scene.server.calls("eval") <= 3 * 4, "{}", scene.server.calls("eval"));
    scene.end(locks).await;
}

#[tokio::test]
async fn a_call_that_was_dropped_while_it_waited_is_not_sent() {
    let (scene, proxy, locks) = Scene::behind_proxy(on_one_connection().command_timeout(10 * SECOND)).await;
    warm(&locks).await;
    let acquires = counted(&proxy, "rlock/acquire.lua");
    proxy.set(Faults::replies_held());
    let names = names(ALONE + WRITES);
    let mut first: Vec<_> = names.iter().map(|name| locks.rlock(format!("first {name}"))).collect();
    let mut sent: Vec<_> = first.iter_mut().map(|lock| Box::pin(lock.lock())).collect();
    fill(&mut sent, &acquires).await;
    let mut late = locks.rlock("late");
    let (dropped, took) = timed(timeout(300 * MS, late.lock())).await;
    assert!(dropped.is_err() && took < SECOND, "{took:?}");
    let acquires = counted(&proxy, "rlock/acquire.lua");
    proxy.set(Faults::default());
    for call in &mut sent {
        soon(call).await.unwrap().unlock().await.unwrap();
    }
    assert_eq!(read(&acquires), [0, 0]);
    late.lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(read(&acquires), [1, 1]);
    drop(sent);
    scene.end((first, late, locks, proxy)).await;
}

/// Many calls of one moment. A slow server answers the first ones while the last ones wait.
#[tokio::test]
async fn a_burst_is_answered_as_the_server_answers() {
    let (scene, proxy, locks) = Scene::behind_proxy(on_one_connection()).await;
    warm(&locks).await;
    // The reply to the third command does not come, so no later one comes either.
    proxy.swallow(2, false, calls_of("rlock/acquire.lua"));
    let mut all: Vec<_> = names(1_000).iter().map(|name| locks.rlock(name.as_str())).collect();
    let mut calls: FuturesUnordered<_> = all.iter_mut().map(|lock| Box::pin(lock.lock())).collect();
    let mut guards = Vec::new();
    // The second write has at most as many calls as a command, and its reply comes before commands time out.
    while guards.len() <= ALONE {
        guards.push(timeout(LIMIT / 4, calls.next()).await.unwrap().unwrap().unwrap());
    }
    eventually("the third write was sent", || proxy.swallowed(), |&count| count == 1).await;
    proxy.cut();
    while let Some(guard) = soon(calls.next()).await {
        guards.push(guard.unwrap());
    }
    drop((calls, guards));
    drop(all);
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(scene.server.keys(), [""; 0]);
    scene.end((locks, proxy)).await;
}

/// The server still has to answer them, so the connection takes no further calls for them.
#[tokio::test]
async fn calls_that_were_given_up_are_in_flight_until_they_are_answered() {
    let (scene, proxy, locks) = Scene::behind_proxy(on_one_connection().command_timeout(LIMIT * 2)).await;
    warm(&locks).await;
    let acquires = counted(&proxy, "rlock/acquire.lua");
    proxy.set(Faults::replies_held());
    let names = names(ALONE + WRITES);
    let mut first: Vec<_> = names.iter().map(|name| locks.rlock(format!("first {name}"))).collect();
    let mut given_up: Vec<_> = first.iter_mut().map(|lock| Box::pin(lock.lock())).collect();
    fill(&mut given_up, &acquires).await;
    drop(given_up);
    for name in ["late", "later"] {
        assert!(timeout(200 * MS, locks.rlock(name).lock()).await.is_err());
    }
    assert_eq!(read(&acquires)[0], ALONE + WRITES);
    proxy.set(Faults::default());
    drop(first);
    soon(locks.shutdown()).await.unwrap();
    assert_eq!((read(&acquires)[0], scene.server.keys()), (ALONE + WRITES, vec![]));
    scene.end((locks, proxy)).await;
}

/// The server runs none of many calls, and their callers leave before they learn it. A call that was sent once more would come after the
/// undo, and leave a lock.
#[tokio::test]
async fn calls_that_were_refused_together_and_then_dropped_are_not_sent_again() {
    let (scene, proxy, locks) = Scene::behind_proxy(on_one_connection()).await;
    warm(&locks).await;
    let is_acquire = calls_of("rlock/acquire.lua");
    let [refused, alone] = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
    let seen = [Arc::clone(&refused), Arc::clone(&alone)];
    proxy.answer(move |words| {
        let is_one = words.get(2).is_some_and(|count| count == "1");
        if is_acquire(words) {
            seen[usize::from(is_one)].fetch_add(1, Ordering::SeqCst);
        }
        (is_acquire(words) && !is_one).then(|| "-TRYAGAIN one by one\r\n".to_owned())
    });
    // The refusal is on its way for this long.
    proxy.set(Faults { delay: 300 * MS, ..Faults::default() });
    let mut all: Vec<_> = names(ALONE + 20).iter().map(|name| locks.rlock(name.as_str())).collect();
    let mut calls = Box::pin(join_all(all.iter_mut().map(|lock| Box::pin(lock.lock()))));
    poll_until(&mut calls, || refused.load(Ordering::SeqCst) == 1).await;
    drop(calls);
    drop(all);
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(alone.load(Ordering::SeqCst), ALONE, "only those that were sent at first");
    assert_eq!(scene.server.keys(), [""; 0]);
    scene.end((locks, proxy)).await;
}

/// Releases never go out together with acquires, which need memory.
#[tokio::test]
async fn a_server_without_memory_releases_many_locks() {
    let (scene, locks) = Scene::with_client_of(on_one_connection()).await;
    let guards = lock_all(&locks, &names(100)).await;
    scene.server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let mut more: Vec<_> = (0..20).map(|number| locks.rlock(format!("more {number}"))).collect();
    let acquiring = join_all(more.iter_mut().map(|lock| lock.try_lock()));
    let releasing = join_all(guards.into_iter().map(|guard| guard.unwrap().unlock()));
    let (acquired, released) = soon(futures_util::future::join(acquiring, releasing)).await;
    assert!(released.iter().all(Result::is_ok), "{released:?}");
    assert!(acquired.iter().all(Result::is_err), "{acquired:?}");
    scene.server.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(scene.server.keys(), [""; 0]);
    scene.end((more, locks)).await;
}

/// A list of one text stands for an error, and no script that runs for several calls replies such a list.
#[test]
fn the_batch_form_of_a_script_has_its_keys_and_arguments() {
    let text = lua::batch(&lua::source("read/acquire.lua"));
    let call = "pcall(of_one, KEYS[i * 2 + 1], KEYS[i * 2 + 2], ARGV[i * 4 + 1], ARGV[i * 4 + 2], ARGV[i * 4 + 3], ARGV[i * 4 + 4])";
    assert!(text.contains(call), "{text}");
    for file in lua::files().into_iter().filter(|file| lua::has_batch(file)) {
        let body = lua::batch(&lua::source(&file));
        let (_, body) = body.split_once("\nlocal function of_one(").unwrap();
        let (body, _) = body.split_once("\nlocal replies = {}\n").unwrap();
        let left = body.lines().any(|line| line.contains("KEYS[") || line.contains("ARGV["));
        assert!(!left, "{file}: {body}");
    }
}

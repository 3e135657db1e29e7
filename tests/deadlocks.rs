//! Who waits for whom: chains, deadlocks, and the last waits of a client.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::json;

use crate::support::events::Events;
use crate::support::{MS, SECOND, Scene, eventually, patient, soon, throughout, waiter};
use lockkeeper::{Error, LockClient, Owner, WaitChain};
use tokio::sync::Barrier;
use tokio::time::sleep;

const DEADLOCK: &str = "a deadlock: this call waits for an owner that waits";

/// The names of the locks of each chain, and whether it is a deadlock.
fn shape(chains: &[WaitChain]) -> Vec<(Vec<&str>, bool)> {
    let shape =
        chains.iter().map(|chain| (chain.links.iter().map(|link| &*link.lock).collect(), chain.is_deadlock));
    shape.collect()
}

/// Waits until the chains of a lock have this shape.
async fn explained(locks: &LockClient, name: &str, expected: &[(&[&str], bool)]) -> Vec<WaitChain> {
    let start = Instant::now();
    loop {
        let chains = soon(locks.why(name)).await.unwrap();
        let found = shape(&chains);
        let found: Vec<(&[&str], bool)> =
            found.iter().map(|(names, is_deadlock)| (&names[..], *is_deadlock)).collect();
        if found == expected {
            return chains;
        }
        assert!(start.elapsed() < crate::support::LIMIT, "{chains:#?}");
        sleep(10 * MS).await;
    }
}

/// How an owner wants the lock `a` or `b`.
#[derive(Clone, Copy, Debug)]
enum Side {
    Read,
    Write,
}

/// Guarantee 18. A deadlock through a read lock is named by both sides, by `why` of each lock, and once in the list. Each owner
/// holds one lock and waits for the other.
#[tokio::test]
async fn a_deadlock_through_a_read_lock_is_named_in_both_directions() {
    use Side::{Read, Write};
    let lease = 2 * SECOND;
    let scene = Scene::start();
    let client = |name: &str| scene.client_with(patient().watchdog_lease(lease).identity(name));
    let (one, two, looking) = (client("one").await, client("two").await, scene.client().await);
    let events = Events::default();
    let _collecting = events.collect();
    let acquire = async |me: &mut Owner, name: &str, side: Side| match side {
        Read => me.read_write_lock(name).into_read().try_lock_for(4 * lease).await.unwrap(),
        Write => me.read_write_lock(name).into_write().try_lock_for(4 * lease).await.unwrap(),
    };
    // What the first owner holds of `a` and wants of `b`, and what the second one holds of `b` and wants of `a`. Two that read and want
    // to read exclude nobody.
    for (number, [(a, wants_b), (b, wants_a)]) in
        [[(Read, Write), (Read, Write)], [(Read, Read), (Write, Write)], [(Write, Write), (Read, Read)]]
            .into_iter()
            .enumerate()
    {
        let have_one = Barrier::new(2);
        let both = async |locks: &LockClient, held: (&str, Side), wanted: (&str, Side)| {
            let mut me = locks.owner();
            let outer = acquire(&mut me, held.0, held.1).await.expect("it is free");
            have_one.wait().await;
            let inner = acquire(&mut me, wanted.0, wanted.1).await;
            let is_acquired = inner.is_some();
            drop((inner, outer));
            is_acquired
        };
        let looks = async {
            let told = 2 * (number + 1);
            eventually("both sides name it", || events.text(), |text| text.matches(DEADLOCK).count() == told)
                .await;
            let text = events.text();
            for (lock, other, held) in [("b", "two", "a"), ("a", "one", "b")] {
                let chain = format!("chain=\"`{lock}` is held by {other} (");
                let line =
                    text.lines().find(|line| line.contains(&chain)).unwrap_or_else(|| panic!("{text}"));
                let waits = format!("which waits for `{held}` at tests/deadlocks.rs:");
                assert!(line.contains(DEADLOCK) && line.contains(&waits), "{line}");
            }
            for (start, names, holders) in
                [("a", ["a", "b"], ["one", "two"]), ("b", ["b", "a"], ["two", "one"])]
            {
                let chains = explained(&looking, start, &[(&names, true)]).await;
                let found: Vec<_> =
                    chains[0].links.iter().map(|link| link.holder.identity.as_deref()).collect();
                assert_eq!(found, holders.map(Some));
            }
            let all = looking.wait_chains().await.unwrap();
            assert!(all.len() == 1 && all[0].is_deadlock, "it is listed once: {all:#?}");
        };
        let (first, second, ()) =
            tokio::join!(both(&one, ("a", a), ("b", wants_b)), both(&two, ("b", b), ("a", wants_a)), looks);
        assert!(!(first && second), "one of them gave up");
        scene.quiet().await;
    }
    scene.end((one, two, looking)).await;
}

/// A hold of a client, by its owner, and the lock for which the same `Owner` has waited for five seconds.
type Told<'a> = (&'a str, &'a str, &'a str);

/// Writes what a client tells.
fn tell(scene: &Scene, client: &str, told: &[Told<'_>]) {
    let short = |owner: &str| owner.split_once(':').map_or(owner, |(_, short)| short).to_owned();
    let waits = told.iter().map(|(owner, _, lock)| {
        json!({"is_exclusive": true, "held": [short(owner)], "lock": lock, "at": "src/main.rs:7", "age": 5_000})
    });
    let holds = told.iter().map(|(owner, held, _)| {
        json!({"owner": short(owner), "lock": held, "kind": "rlock", "at": "src/main.rs:6", "age": 5_000})
    });
    let (waits, holds) = (waits.collect::<Vec<_>>(), holds.collect::<Vec<_>>());
    let text = json!({"identity": "", "waits": waits, "holds": holds, "more": 0}).to_string();
    scene.server.run::<()>(&["SET", &format!("lockkeeper_client:{client}"), &text, "PX", "120000"]);
}

/// A client that tells nothing, so that a test can tell something for it.
async fn silent(scene: &Scene) -> LockClient {
    scene.client_with(patient().diagnosis(false)).await
}

/// The same for the event.
#[tokio::test]
async fn the_event_of_a_deadlock_needs_two_looks() {
    let scene = Scene::start();
    let events = Events::default();
    let _collecting = events.collect();
    let (one, two) = (scene.client_with(patient().watchdog_lease(2 * SECOND)).await, silent(&scene).await);
    let (mut first, mut second) = (one.owner(), two.owner());
    let (a, b) = (first.rlock("a").lock().await.unwrap(), second.rlock("b").lock().await.unwrap());
    tell(&scene, &two.id(), &[(&b.owner_id(), "b", "a")]);
    let waiting = tokio::spawn(async move { first.rlock("b").lock().await.unwrap().unlock().await.unwrap() });
    let looks = || scene.server.calls("get");
    // One for each of the two clients.
    eventually("it sees a cycle", looks, |&looks| looks >= 2).await;
    scene.server.run::<()>(&["DEL", &format!("lockkeeper_client:{}", two.id())]);
    eventually("it looks once more", looks, |&looks| looks >= 3).await;
    assert_eq!(events.text().matches(DEADLOCK).count(), 0, "{}", events.text());
    tell(&scene, &two.id(), &[(&b.owner_id(), "b", "a")]);
    events.tell(DEADLOCK).await;
    scene.server.remove_records();
    b.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    a.unlock().await.unwrap();
    scene.end((second, one, two)).await;
}

/// Guarantee 5.
#[tokio::test]
async fn why_of_other_data_is_an_error() {
    let scene = Scene::start();
    let locks = silent(&scene).await;
    for data in [&["HSET", "data", "title", "1"][..], &["SET", "data", "text"], &["RPUSH", "data", "1"]] {
        scene.server.run::<()>(data);
        let [inspected, explained] =
            [locks.inspect("data").await.map(drop), soon(locks.why("data")).await.map(drop)]
                .map(|answer| answer.unwrap_err());
        assert!(matches!(explained, Error::WrongKind { .. }), "{data:?}: {explained:?}");
        assert_eq!(explained.to_string(), inspected.to_string());
        // Further along a chain, the holder is told all the same.
        let mut me = locks.owner();
        let outer = me.rlock("a").lock().await.unwrap();
        tell(&scene, &locks.id(), &[(&outer.owner_id(), "a", "data")]);
        assert_eq!(shape(&soon(locks.why("a")).await.unwrap()), [(vec!["a"], false)]);
        scene.server.remove_records();
        outer.unlock().await.unwrap();
        scene.server.run::<()>(&["DEL", "data"]);
    }
    scene.end(locks).await;
}

/// Two handles are two owners: perhaps other tasks release what they hold.
#[tokio::test]
async fn what_is_not_certain_is_no_link() {
    let (scene, locks) = Scene::with_client_of(patient().watchdog_lease(SECOND)).await;
    let events = Events::default();
    let _collecting = events.collect();
    let [a, b] = [locks.rlock("a").lock().await.unwrap(), locks.rlock("b").lock().await.unwrap()];
    let waiting = [waiter(locks.rlock("a")), waiter(locks.rlock("b"))];
    let told = || scene.server.run::<Option<String>>(&["GET", &format!("lockkeeper_client:{}", locks.id())]);
    let has_both =
        |told: &Option<String>| told.as_ref().is_some_and(|told| told.matches("\"held\"").count() == 2);
    eventually("the waits are told", told, has_both).await;
    throughout(2 * SECOND, async || {
        let chains = locks.why("a").await.unwrap();
        assert_eq!(shape(&chains), [(vec!["a"], false)]);
        // But one of these calls is perhaps the holder's.
        let waits = &chains[0].links[0].client_waits;
        let locks: BTreeSet<_> = waits.iter().map(|wait| &*wait.lock).collect();
        assert_eq!(locks, BTreeSet::from(["a", "b"]));
        assert!(waits.iter().all(|wait| wait.age >= SECOND && wait.at.contains(".rs:")), "{waits:?}");
    })
    .await;
    assert!(!events.text().contains(DEADLOCK), "{}", events.text());
    assert!(locks.wait_chains().await.unwrap().is_empty());
    for guard in [a, b] {
        guard.unlock().await.unwrap();
    }
    for waiting in waiting {
        soon(waiting).await.unwrap().unlock().await.unwrap();
    }
    assert!(locks.why("a").await.unwrap().is_empty(), "it is free");
    scene.end(locks).await;
}

/// Of the calls of which one is perhaps the holder's, a link names the eight that have waited longest.
#[tokio::test]
async fn of_many_calls_that_perhaps_are_the_holders_the_oldest_are_named_first() {
    let scene = Scene::start();
    let locks = silent(&scene).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let key = format!("lockkeeper_client:{}", locks.id());
    // The order of neither the names nor the numbers.
    let ages = [5, 12, 7, 3, 11, 9, 4, 8, 10, 6];
    let waits = ages.iter().enumerate().map(|(number, age)| {
        let lock = format!("lock {number}");
        json!({"is_exclusive": true, "held": [], "lock": lock, "at": "src/main.rs:7", "age": age * 1_000})
    });
    let waits = waits.collect::<Vec<_>>();
    let text = json!({"identity": "", "waits": waits, "holds": [], "more": 0}).to_string();
    scene.server.run::<()>(&["SET", &key, &text, "PX", "120000"]);
    let chains = locks.why("a").await.unwrap();
    let found: Vec<_> = chains[0].links[0].client_waits.iter().map(|wait| &*wait.lock).collect();
    assert_eq!(found, [1, 4, 8, 5, 7, 2, 9, 0].map(|number| format!("lock {number}")));
    scene.server.run::<()>(&["DEL", &key]);
    guard.unlock().await.unwrap();
    scene.end(locks).await;
}

#[tokio::test]
async fn a_chain_ends_with_its_wait_and_a_hold_that_it_names_is_not_handed_over() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client_with(patient().sharing(SECOND)).await, scene.client().await);
    let blocking = beside.rlock("b").lock().await.unwrap();
    let mut me = locks.owner();
    let outer = me.rlock("a").lock().await.unwrap();
    let named = outer.owner_id();
    let waiting = tokio::spawn(async move { me.rlock("b").lock().await.unwrap().unlock().await });
    explained(&beside, "a", &[(&["a", "b"], false)]).await;
    // Another task releases the lock that the owner holds.
    let next = waiter(locks.rlock("a"));
    crate::support::listens(&scene.server).await;
    outer.unlock().await.unwrap();
    let next = soon(next).await.unwrap();
    assert_ne!(next.owner_id(), named);
    assert_eq!(
        shape(&beside.why("a").await.unwrap()),
        [(vec!["a"], false)],
        "the next holder waits for nothing"
    );
    next.unlock().await.unwrap();
    blocking.unlock().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    scene.end((locks, beside)).await;
}

//! Several locks as one: all of them or none, for all types and servers, and in any order.

use crate::support::{
    Faults, LIMIT, MS, SECOND, Scene, Server, connect, eventually, fixed, patient, poll_until_it_waits,
    quiet, renewed, soon, timed,
};
use lockkeeper::{ConfigError, Error, LockClient, LockOptions, Member, MultiLock, RemainingLease};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_test::task::{self, Spawn};

fn of(locks: &LockClient, names: &[&str]) -> MultiLock {
    MultiLock::new(names.iter().map(|name| locks.rlock(name))).unwrap()
}

/// Guarantee 1. Redisson: RedissonMultiLockTest.test, testLockUnlock, testMultiThreads.
#[tokio::test]
async fn a_multi_lock_holds_all_members_or_none() {
    let scene = Scene::start();
    let other = Server::start();
    let config = patient().safety_poll(3_600 * SECOND).fair_allowance(60 * SECOND); // no waiter polls
    let (ours, theirs) = (scene.client_with(config.clone()).await, connect(other.url(), config).await);
    let members = || -> [Member; 6] {
        [
            ours.rlock("plain").into(),
            ours.fair_lock("fair").into(),
            ours.fenced_lock("fenced").into(),
            ours.read_write_lock("read").into_read().into(),
            ours.read_write_lock("write").into_write().into(),
            theirs.rlock("plain").into(),
        ]
    };
    let mut lock = MultiLock::new(members()).unwrap();
    assert_eq!(lock.name(), "fair, fenced, plain, plain, read, write");
    let listening = || [scene.server.channels(), other.channels()].concat();
    let held_alone: [(&LockClient, &str); 3] = [(&ours, "plain"), (&ours, "fenced"), (&theirs, "plain")];
    for (locks, name) in held_alone {
        let guard = locks.rlock(name).lock().await.unwrap();
        assert!(lock.try_lock().await.unwrap().is_none(), "{name}");
        assert!(lock.try_lock_for(100 * MS).await.unwrap().is_none(), "{name}");
        let held = || scene.server.keys().len() + other.keys().len();
        eventually("a failed acquire releases every other member", held, |&held| held == 1).await;
        let (got, _) = tokio::join!(timed(lock.lock()), async {
            eventually("the waiter subscribes", || listening().len(), |&count| count == 1).await;
            guard.unlock().await.unwrap();
        });
        let (guard, took) = got;
        assert!(took < 10 * SECOND, "{took:?}");
        guard.unwrap().unlock().await.unwrap();
    }
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    assert!(lock.is_held() && lock.is_locked().await.unwrap());
    assert_eq!((lock.hold_count(), outer.hold_count()), (2, 2));
    assert!(
        lock.remaining_lease().await.unwrap().is_some_and(|left| left > RemainingLease::For(20 * SECOND))
    );
    assert!(ours.read_write_lock("read").into_write().try_lock().await.unwrap().is_none());
    inner.unlock().await.unwrap();
    assert!(theirs.rlock("plain").try_lock().await.unwrap().is_none());
    outer.unlock().await.unwrap();
    assert!(scene.server.keys().is_empty() && other.keys().is_empty());
    assert!(!lock.is_locked().await.unwrap() && lock.remaining_lease().await.unwrap().is_none());
    scene.end((lock, ours, theirs)).await;
}

/// Guarantee 6.
#[tokio::test]
async fn a_multi_lock_is_lost_with_its_first_lost_member() {
    let (scene, locks) = Scene::with_client_of(patient().watchdog_lease(5 * SECOND)).await;
    let mut lock = of(&locks, &["a", "b", "c"]);
    let guard = lock.lock().await.unwrap();
    renewed(&guard).await;
    let watch = guard.watch();
    scene.server.run::<()>(&["DEL", "b"]);
    soon(guard.ended()).await.unwrap_err();
    assert!(watch.is_lost() && watch.remaining().is_zero());
    assert!(!lock.is_locked().await.unwrap() && lock.hold_count() == 0);
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld(lost)) if lost.lock.name == "a, b, c"));
    assert!(scene.server.keys().is_empty(), "the other members are released");

    // All members can be acquired again while the lost guard is still alive. Its end leaves them alone.
    let guard = lock.lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "c"]);
    soon(guard.ended()).await.unwrap_err();
    let again = soon(lock.lock()).await.unwrap();
    assert!(guard.unlock().await.is_err() && !again.is_lost() && lock.hold_count() == 1);
    again.unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    assert_eq!(scene.server.keys().len(), 3);
    assert!(lock.force_unlock().await.unwrap());
    assert!(scene.server.keys().is_empty());
    assert!(guard.unlock().await.is_err());
    scene.end((lock, locks)).await;
}

/// Guarantee 9. While it waits for one member, it holds no other member, and it does not poll in a loop.
#[tokio::test]
async fn a_waiter_sleeps_and_holds_nothing() {
    let (scene, locks) = Scene::with_client_of(patient().safety_poll(60 * SECOND)).await;
    let guard = locks.rlock("b").with(&fixed(60 * SECOND)).lock().await.unwrap(); // a fixed lease is not renewed
    let mut waiting = JoinSet::new();
    for _ in 0..10 {
        let locks = locks.clone();
        waiting.spawn(async move { of(&locks, &["a", "b"]).lock().await.unwrap().unlock().await.unwrap() });
    }
    eventually("the waiters subscribe", || scene.server.channels(), |channels| channels.len() == 1).await;
    eventually("nothing is held", || scene.server.keys(), |keys| *keys == ["b"]).await;
    let before = quiet(|| scene.server.calls("evalsha")).await;
    sleep(2 * SECOND).await; // nothing may happen in this time
    let asked = scene.server.calls("evalsha") - before;
    assert!(asked <= 10, "{asked} commands in two seconds");
    guard.unlock().await.unwrap();
    soon(waiting.join_all()).await;
    scene.end(locks).await;
}

/// A call that was refused attempts once more when it has subscribed, as the message about the release can have come before. It does not
/// attempt in between.
#[tokio::test]
async fn a_refused_call_attempts_once_more() {
    let (scene, locks) = Scene::with_client_of(patient().safety_poll(60 * SECOND)).await;
    let guard = locks.rlock("b").with(&fixed(60 * SECOND)).lock().await.unwrap();
    let attempts = || scene.server.calls("pttl"); // each attempt has one, and no other script of this test
    let before = attempts();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { of(&locks, &["a", "b"]).lock().await.unwrap().unlock().await.unwrap() }
    });
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    let asked = quiet(attempts).await - before;
    assert_eq!(asked, 2 + 2, "it acquires one, is refused the other, and attempts twice where it waits");
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    scene.end(locks).await;
}

/// The limit counts from the call on, however many members it waits for, one after the other.
#[tokio::test]
async fn the_time_limit_is_one_for_all_members() {
    let (scene, locks, other) = Scene::with_two_clients().await;
    let [a, b] = [other.rlock("a").lock().await.unwrap(), other.rlock("b").lock().await.unwrap()];
    let mut both = of(&locks, &["a", "b"]);
    let (got, _) = tokio::join!(timed(both.try_lock_for(SECOND)), async {
        sleep(600 * MS).await; // most of the limit
        a.unlock().await.unwrap();
    });
    assert!(got.0.unwrap().is_none(), "b is held");
    assert!((SECOND..1_500 * MS).contains(&got.1), "{:?}", got.1);
    eventually("nothing else is held", || scene.server.keys(), |keys| *keys == ["b"]).await;
    let (got, _) = tokio::join!(timed(both.try_lock_for(10 * SECOND)), b.unlock());
    got.0.unwrap().expect("both are free").unlock().await.unwrap();
    scene.end((both, locks, other)).await;
}

/// What fails is named alone. What concerns the whole has all names.
#[tokio::test]
async fn an_error_names_the_member_that_failed() {
    let scene = Scene::start();
    let mut other = Server::start();
    let config = patient().retry_timeout(300 * MS);
    let (ours, theirs) = (scene.client_with(config.clone()).await, connect(other.url(), config).await);
    let mut both = MultiLock::new([ours.rlock("a"), theirs.rlock("b")]).unwrap();
    let address = |server: &Server| format!("127.0.0.1:{}", server.port());
    let names = |error: &Error| {
        let lock = error.lock().expect("it names a lock");
        (lock.name.clone(), lock.server.clone())
    };
    scene.server.run::<()>(&["SET", "a", "text"]);
    let error = both.try_lock().await.unwrap_err();
    assert!(matches!(error, Error::WrongKind { .. }), "{error:?}");
    assert_eq!(names(&error), ("a".to_owned(), address(&scene.server)));
    scene.server.run::<()>(&["DEL", "a"]);

    let guard = both.lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "a"]);
    let error = guard.unlock().await.unwrap_err();
    assert!(matches!(error, Error::NotHeld(_)), "{error:?}");
    assert_eq!(names(&error).0, "a, b");

    other.kill();
    let error = both.try_lock().await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert_eq!(names(&error), ("b".to_owned(), address(&other)));
    let error = both.lock().await.unwrap_err();
    assert_eq!(names(&error), ("b".to_owned(), address(&other)));
    eventually("nothing is held", || scene.server.keys(), Vec::is_empty).await;
    other.start_again();
    ours.shutdown().await.unwrap();
    theirs.shutdown().await.unwrap();
    scene.end((both, ours, theirs)).await;
}

/// Guarantee 20. The shortest hold is that of the whole lock.
#[tokio::test]
async fn a_failed_round_is_not_kept_for_the_shortest_hold() {
    let (scene, locks, other) = Scene::with_two_clients().await;
    let options = LockOptions::builder().min_hold(2 * SECOND).build().unwrap();
    let mut both = of(&locks, &["a", "b"]).with(&options);
    let b = other.rlock("b").lock().await.unwrap();
    assert!(both.try_lock().await.unwrap().is_none());
    other.rlock("a").try_lock().await.unwrap().expect("it is free").unlock().await.unwrap();
    b.unlock().await.unwrap();
    both.lock().await.unwrap().unlock().await.unwrap();
    assert!(other.rlock("a").try_lock().await.unwrap().is_none(), "it is held for its shortest time");
    eventually("the members are released", || scene.server.keys(), Vec::is_empty).await;
    scene.end((both, locks, other)).await;
}

/// The call waits for a member of another client.
#[tokio::test]
async fn a_shutdown_of_one_client_ends_the_wait_for_all() {
    let (scene, ours, theirs) = Scene::with_two_clients().await;
    let guard = ours.rlock("a").lock().await.unwrap();
    let mut both = MultiLock::new([ours.rlock("a"), theirs.rlock("b")]).unwrap();
    let waiting = tokio::spawn(async move { both.lock().await.map(drop) });
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    theirs.shutdown().await.unwrap();
    assert!(matches!(soon(waiting).await.unwrap(), Err(Error::Closed)));
    guard.unlock().await.unwrap();
    scene.end((ours, theirs)).await;
}

/// Guarantee 11. One member is granted, and the server of the other is silent.
#[tokio::test]
async fn a_shutdown_of_one_client_ends_a_round_and_releases_its_members() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let (ours, theirs) = (scene.client().await, connect(proxy.url(), patient()).await);
    let mut both = MultiLock::new([ours.rlock("a"), theirs.rlock("b")]).unwrap();
    proxy.set(Faults::replies_held());
    let acquiring = tokio::spawn(async move { both.lock().await.map(drop) });
    eventually("one is granted", || scene.server.keys(), |keys| keys.contains(&"a".to_owned())).await;
    let (shut, took) = timed(ours.shutdown()).await;
    shut.unwrap();
    assert!(!scene.server.keys().contains(&"a".to_owned()) && took < LIMIT / 4, "{took:?}");
    assert!(matches!(soon(acquiring).await.unwrap(), Err(Error::Closed)));
    proxy.set(Faults::default());
    theirs.shutdown().await.unwrap();
    assert_eq!(scene.server.keys(), [""; 0]);
    scene.end((ours, theirs, proxy)).await;
}

/// Polls a call for `a` and `b` until the server granted both, and the call knows only of `a`.
async fn polls_until_one_is_granted(scene: &Scene, call: &mut Spawn<impl Future>) {
    let keys = || {
        assert!(call.poll().is_pending());
        scene.server.keys()
    };
    eventually("both are granted", keys, |keys| keys.len() == 2).await;
}

/// Guarantee 11. As before, and nobody polls the call: neither if `a` was free, nor if it waited for `a`.
#[tokio::test]
async fn a_shutdown_takes_back_what_a_call_was_granted_that_nobody_polls() {
    let scene = Scene::start();
    let rival = scene.client().await;
    for waits in [false, true] {
        let proxy = scene.proxy().await;
        let (ours, theirs) = (scene.client().await, connect(proxy.url(), patient().connections(1)).await);
        let mut both = MultiLock::new([ours.rlock("a"), theirs.rlock("b")]).unwrap();
        proxy.set(Faults::replies_held());
        let guard = if waits { Some(rival.rlock("a").lock().await.unwrap()) } else { None };
        let mut call = task::spawn(both.lock());
        if let Some(guard) = guard {
            poll_until_it_waits(&scene.server, &rival, || call.poll().is_pending()).await;
            guard.unlock().await.unwrap();
        }
        polls_until_one_is_granted(&scene, &mut call).await;
        soon(ours.shutdown()).await.unwrap();
        assert_eq!(scene.server.keys(), ["b"], "waits: {waits}");
        proxy.set(Faults::default());
        assert!(matches!(soon(call).await, Err(Error::Closed)));
        theirs.shutdown().await.unwrap();
        assert_eq!(scene.server.keys(), [""; 0]);
        drop((both, ours, theirs, proxy));
    }
    scene.end(rival).await;
}

/// Nothing renews what such a call was granted.
#[tokio::test]
async fn what_a_call_was_granted_that_nobody_polls_ends_with_its_lease() {
    let scene = Scene::start();
    let (proxy, rival) = (scene.proxy().await, scene.client().await);
    let config = || patient().connections(1).watchdog_lease(2 * SECOND);
    let (ours, theirs) = (scene.client_with(config()).await, connect(proxy.url(), config()).await);
    let mut both = MultiLock::new([ours.rlock("a"), theirs.rlock("b")]).unwrap();
    proxy.set(Faults::replies_held());
    let mut call = task::spawn(both.lock());
    polls_until_one_is_granted(&scene, &mut call).await;
    soon(rival.rlock("a").lock()).await.unwrap().unlock().await.unwrap();
    proxy.set(Faults::default());
    drop(call);
    soon(theirs.shutdown()).await.unwrap();
    scene.end((both, ours, theirs, proxy, rival)).await;
}

/// Guarantee 6. A call re-enters `a`, which is deleted before `b` answers: the call acquires it again.
#[tokio::test]
async fn a_re_entry_that_is_lost_before_the_others_answer_does_not_count() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let (ours, theirs) = (scene.client().await, connect(proxy.url(), patient().connections(1)).await);
    let mut both = MultiLock::new([ours.rlock("a"), theirs.rlock("b")]).unwrap();
    let outer = both.lock().await.unwrap();
    renewed(&outer).await;
    proxy.set(Faults::replies_held());
    let mut call = task::spawn(both.lock());
    let shown = || {
        assert!(call.poll().is_pending());
        ["a", "b"].map(|name| scene.server.run::<Vec<String>>(&["HVALS", name]))
    };
    eventually("both are re-entered", shown, |counts| counts.iter().all(|count| *count == ["2"])).await;
    scene.server.run::<()>(&["DEL", "a"]);
    soon(outer.ended()).await.unwrap_err();
    proxy.set(Faults::default());
    let inner = soon(call).await.unwrap();
    assert!(scene.server.keys().contains(&"a".to_owned()), "it holds both");
    assert!(outer.unlock().await.is_err());
    inner.unlock().await.unwrap();
    soon(theirs.shutdown()).await.unwrap();
    scene.end((both, ours, theirs, proxy)).await;
}

/// docs/deploy.md: while a deployment changes the prefix, each process locks the old name and the new one.
#[tokio::test]
async fn the_names_of_two_prefixes_are_locked_together() {
    let scene = Scene::start();
    let (old, new) = (scene.client().await, scene.client_with(patient().name_prefix("new:")).await);
    let mut both = MultiLock::new([old.rlock("a"), new.rlock("a")]).unwrap();
    let guard = both.lock().await.unwrap();
    assert!(old.rlock("a").try_lock().await.unwrap().is_none());
    assert!(new.rlock("a").try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    scene.end((both, old, new)).await;
}

#[tokio::test]
async fn invalid_members_are_refused() {
    let (scene, ours, theirs) = Scene::with_two_clients().await;
    let problem = |result: Result<MultiLock, ConfigError>| result.unwrap_err().problem().to_owned();
    let none: [Member; 0] = [];
    assert!(problem(MultiLock::new(none)).contains("missing"));
    assert!(problem(MultiLock::new([ours.rlock("a"), ours.rlock("b"), ours.rlock("a")])).contains("twice"));
    // Another client for the same database, under another host name.
    let elsewhere = connect(scene.server.url().replace("127.0.0.1", "localhost"), patient()).await;
    assert!(problem(MultiLock::new([theirs.rlock("a"), elsewhere.rlock("a")])).contains("twice"));
    let apart = connect(format!("{}1", scene.server.url()), patient()).await;
    drop(
        MultiLock::new([ours.rlock("a"), apart.rlock("a")]).expect("one name in two databases is two locks"),
    );
    let leased = [ours.rlock("a"), ours.rlock("b").with(&fixed(SECOND))];
    assert!(problem(MultiLock::new(leased)).contains("different options"));

    // If all members have the same lease, it is the lease of the multi lock.
    let leased = || [ours.rlock("a").with(&fixed(20 * SECOND)), ours.rlock("b").with(&fixed(20 * SECOND))];
    let mut lock = MultiLock::new(leased()).unwrap();
    let guard = lock.lock().await.unwrap();
    assert!(guard.remaining() <= 20 * SECOND);
    guard.unlock().await.unwrap();
    let empty = MultiLock::new([ours.rlock("a"), ours.rlock("")]).unwrap().lock().await;
    assert!(matches!(empty, Err(Error::InvalidName { .. })));
    scene.end((lock, ours, theirs, elsewhere, apart)).await;
}

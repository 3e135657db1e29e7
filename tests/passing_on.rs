//! Guarantees 1, 3 and 8 where the owners of one client pass a lock on to each other: no command is sent, and nothing is lost.

use std::pin::Pin;
use std::time::Instant;

use crate::support::{
    LIMIT, MS, SECOND, Scene, at_most, connect, eventually, fixed, patient, poll_until_it_waits, soon,
    throughout, timed,
};
use futures_util::FutureExt;
use futures_util::future::join_all;
use lockkeeper::{BaseLock, Lock, LockClient, LockConfigBuilder, LockGuard, WriteLock};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

/// Passes on for long enough that no budget ends in a test.
fn passes() -> LockConfigBuilder {
    patient().sharing(SECOND)
}

/// The first waiter of a queue attempts before it subscribes, and after that. Then it waits to be woken.
async fn attempted_twice(scene: &Scene, before: u64) {
    eventually("it was refused twice", || scene.server.calls("evalsha"), |&scripts| scripts >= before + 2)
        .await;
}

/// A task that waits for a lock which is held. It waits to be woken when this returns.
async fn queued(
    scene: &Scene,
    locks: &LockClient,
    mut lock: Lock<'static, impl BaseLock>,
) -> JoinHandle<LockGuard> {
    let before = scene.server.calls("evalsha");
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap().into_plain() });
    attempted_twice(scene, before).await;
    answers_arrive(locks).await;
    waiting
}

/// Waits until the client has the answers to all attempts that were sent before. All commands about a lock take the same connection.
async fn answers_arrive(locks: &LockClient) {
    locks.inspect("a").await.unwrap();
    yield_now().await; // to the task that waits
}

/// Polls an acquire until it waits to be woken.
async fn waits<F: Future>(scene: &Scene, locks: &LockClient, acquire: &mut Pin<Box<F>>) {
    poll_until_it_waits(&scene.server, locks, || acquire.now_or_never().is_none()).await;
}

fn writes(locks: &LockClient) -> WriteLock<'static> {
    locks.read_write_lock("a").into_write()
}

/// Sections of 3 ms, for which `sharing` was made longer: a hold goes round for all of that time, however many sections that are.
#[tokio::test]
async fn sections_of_milliseconds_are_handed_over_for_as_long_as_sharing_says() {
    let (scene, locks) = Scene::with_client_of(passes()).await;
    let (before, start) = (scene.server.scripts(), Instant::now());
    let tasks = (0..8).map(|_| {
        let mut lock = locks.rlock("a");
        tokio::spawn(async move {
            for _ in 0..60 {
                let guard = lock.lock().await.unwrap();
                sleep(3 * MS).await;
                guard.unlock().await.unwrap();
            }
        })
    });
    soon(join_all(tasks)).await.into_iter().for_each(Result::unwrap);
    let (scripts, took) = (scene.server.scripts() - before, start.elapsed());
    // The waiters attempt when they come, and each second there is a release and an acquire. With 5 ms, there would be 480.
    let most = 12 + 12 * took.as_secs();
    assert!(scripts <= most, "{scripts} scripts for 480 sections in {took:?}");
    scene.end(locks).await;
}

/// The server sees one holder all the time, and every owner sees its own holds only.
#[tokio::test]
async fn the_hold_moves_and_its_id_stays() {
    let (scene, locks) = Scene::with_client_of(passes()).await;
    let (mut one, mut other) = (locks.rlock("a"), locks.rlock("a"));
    let first = one.lock().await.unwrap();
    let mut waiting = Box::pin(other.lock());
    waits(&scene, &locks, &mut waiting).await;
    let (id, before) = (first.owner_id(), scene.server.calls("evalsha"));
    let ended = first.ended();
    first.unlock().await.unwrap();
    assert!(!one.is_held(), "it gave its hold away");
    let second = soon(waiting).await.unwrap();
    assert_eq!(
        (second.owner_id(), second.hold_count(), scene.server.calls("evalsha")),
        (id.clone(), 1, before)
    );
    assert!(second.remaining() > 25 * SECOND);
    assert!(matches!(ended.now_or_never(), Some(Ok(()))), "it was not lost");

    assert!(one.try_lock().await.unwrap().is_none(), "the former owner does not re-enter");
    let inner = other.lock().await.unwrap();
    assert_eq!((inner.hold_count(), inner.owner_id(), other.hold_count()), (2, id, 2));
    let info = locks.inspect("a").await.unwrap().unwrap();
    assert_eq!((info.holders.len(), info.holders[0].holds), (1, 2));
    second.unlock().await.unwrap();
    assert!(one.try_lock().await.unwrap().is_none());
    inner.unlock().await.unwrap();
    one.try_lock().await.unwrap().expect("it is free").unlock().await.unwrap();
    scene.end((one, other, locks)).await;
}

/// While somebody waits who needs a command, all releases are sent, so that the order stays.
#[tokio::test]
async fn waiters_with_a_lease_or_a_token_are_granted_by_the_server() {
    let (scene, locks) = Scene::with_client_of(passes()).await;
    let lock = || locks.rlock("a");
    for (name, make) in [
        (
            "lease",
            Box::new(|| queued(&scene, &locks, lock().with(&fixed(30 * SECOND))).boxed_local())
                as Box<dyn Fn() -> _>,
        ),
        ("max_hold", Box::new(|| queued(&scene, &locks, lock().with(&at_most(60 * SECOND))).boxed_local())),
        ("token", Box::new(|| queued(&scene, &locks, locks.fenced_lock("a")).boxed_local())),
    ] {
        let first = lock().lock().await.unwrap();
        let id = first.owner_id();
        let waiting = make().await;
        first.unlock().await.unwrap();
        let second = soon(waiting).await.unwrap();
        assert_ne!(second.owner_id(), id, "{name}: the server granted it anew");
        second.unlock().await.unwrap();
    }
    // Nor is a hold passed on that has a lease, or a longest hold.
    for (name, mut first) in
        [("lease", lock().with(&fixed(20 * SECOND))), ("max_hold", lock().with(&at_most(20 * SECOND)))]
    {
        let first = first.lock().await.unwrap();
        let (id, waiting) = (first.owner_id(), queued(&scene, &locks, lock()).await);
        first.unlock().await.unwrap();
        let second = soon(waiting).await.unwrap();
        assert_ne!(second.owner_id(), id, "{name}");
        second.unlock().await.unwrap();
    }
    scene.end(locks).await;
}

/// An owner that reads within its write keeps the read lock when it ends the write: a downgrade.
#[tokio::test]
async fn a_writer_that_also_reads_passes_nothing_on() {
    let (scene, locks) = Scene::with_client_of(passes()).await;
    let mut me = locks.read_write_lock("a");
    let write = me.write().lock().await.unwrap();
    let read = me.read().lock().await.unwrap();
    let mut waiting = queued(&scene, &locks, writes(&locks)).await;
    write.unlock().await.unwrap();
    throughout(200 * MS, async || {
        assert!((&mut waiting).now_or_never().is_none(), "a writer entered beside a reader");
        sleep(5 * MS).await;
    })
    .await;
    assert!(!read.is_lost());
    read.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    scene.end((me, locks)).await;
}

/// The waiter in front is a future that nobody polls. The lock is released for others after a moment.
#[tokio::test]
async fn what_nobody_takes_is_released() {
    let scene = Scene::start();
    let (locks, other) = (scene.client_with(passes()).await, scene.client().await);
    let (mut holder, mut sleeper) = (locks.rlock("a"), locks.rlock("a"));
    let first = holder.lock().await.unwrap();
    let mut unpolled = Box::pin(sleeper.lock());
    waits(&scene, &locks, &mut unpolled).await;
    first.unlock().await.unwrap();
    let (guard, took) = timed(other.rlock("a").lock()).await;
    assert!(took < 2 * SECOND, "{took:?}: without a message it would take three seconds");
    // And the owner that passed it on is not in its own way.
    guard.unwrap().unlock().await.unwrap();
    soon(holder.lock()).await.unwrap().unlock().await.unwrap();
    soon(unpolled).await.unwrap().unlock().await.unwrap();
    scene.end((holder, sleeper, locks, other)).await;
}

/// An owner that holds twice gives away nothing with its first release.
#[tokio::test]
async fn a_hold_of_two_is_not_passed_on() {
    let (scene, locks) = Scene::with_client_of(passes()).await;
    let mut me = locks.rlock("a");
    let outer = me.lock().await.unwrap();
    let mut waiting = queued(&scene, &locks, locks.rlock("a")).await;
    let inner = me.lock().await.unwrap();
    for guard in [inner, outer] {
        assert!((&mut waiting).now_or_never().is_none(), "two owners hold the lock");
        guard.unlock().await.unwrap();
        yield_now().await;
    }
    soon(waiting).await.unwrap().unlock().await.unwrap();
    scene.end((me, locks)).await;
}

/// The next owner needs time for its section: a hold is passed on only with half of its lease left.
#[tokio::test]
async fn a_hold_with_little_of_its_lease_left_is_not_passed_on() {
    let lease = SECOND; // the longest `sharing`, so that it does not end before half of the lease
    let (scene, locks) = Scene::with_client_of(passes().watchdog_lease(lease)).await;
    let first = locks.rlock("a").lock().await.unwrap();
    let waiting = queued(&scene, &locks, locks.rlock("a")).await;
    let id = first.owner_id();
    // The server answers each renewal, so no command is under way, which would also keep the hold from being passed on.
    let refuses_writes =
        |replicas| scene.server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
    refuses_writes("1");
    eventually("it is not renewed", || first.remaining(), |&left| left < lease / 2).await;
    drop(first);
    refuses_writes("0");
    let second = soon(waiting).await.unwrap();
    assert_ne!(second.owner_id(), id);
    second.unlock().await.unwrap();
    scene.end(locks).await;
}

/// The same for a hold that is forced while it is offered to a waiter. An offer lasts for a moment: if the client took it back before the
/// removal, there is nothing left to remove, and the next hold is offered.
#[tokio::test]
async fn a_hold_that_is_forced_while_it_is_offered_is_not_taken() {
    let scene = Scene::start();
    scene.server.run::<()>(&["ACL", "SETUSER", "u", "on", ">s", "~*", "&*", "+@all", "-publish"]);
    let locks = connect(format!("redis://u:s@127.0.0.1:{}/", scene.server.port()), passes()).await;
    let start = Instant::now();
    loop {
        let (first, mut sleeper) = (locks.rlock("a").lock().await.unwrap(), locks.rlock("a"));
        let mut unpolled = Box::pin(sleeper.lock());
        waits(&scene, &locks, &mut unpolled).await;
        let id = first.owner_id();
        first.unlock().await.expect("it asks no server");
        let was_offered = locks.rlock("a").force_unlock().await.unwrap();
        let second = soon(unpolled).await.unwrap();
        assert_ne!(second.owner_id(), id);
        second.unlock().await.unwrap();
        if was_offered {
            break;
        }
        assert!(start.elapsed() < LIMIT, "each offer was taken back before the removal");
    }
    scene.end(locks).await;
}

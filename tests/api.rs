//! What the types guarantee, and which failures are reported only through `tracing`.

use std::sync::Arc;

use crate::support::events::Events;
use crate::support::{MS, SECOND, Scene, connect, eventually, patient, soon, waiter};
use lockkeeper::leader::{Candidate, CandidateHandle, LeaderWatch, Leadership};
use lockkeeper::{
    BaseLock, ConfigError, Error, FairLock, FencedLock, FencingToken, HoldWatch, Lock, LockClient,
    LockConfig, LockGuard, LockInfo, LockOptions, Member, MultiLock, Owner, PermitId, RLock, ReadLock,
    ReadWriteLock, RedLock, Result, Source, WriteLock,
};

fn is_send<T: Send>(_: &T) {}

#[test]
fn types_can_be_sent_shared_and_kept() {
    fn is_all<T: Send + Sync + 'static>() {}
    fn is_send_and_sync<T: Send + Sync>() {}
    is_all::<LockClient>();
    is_all::<LockConfig>();
    is_all::<LockOptions>();
    is_all::<ConfigError>();
    is_all::<HoldWatch>();
    is_all::<LockGuard>();
    is_all::<LockGuard<FencingToken>>();
    is_all::<LockGuard<PermitId>>();
    is_all::<Owner>();
    is_all::<RLock<'static>>();
    is_all::<FairLock<'static>>();
    is_all::<FencedLock<'static>>();
    is_all::<ReadLock<'static>>();
    is_all::<WriteLock<'static>>();
    is_all::<ReadWriteLock<'static>>();
    is_all::<MultiLock>();
    is_all::<RedLock>();
    is_all::<Member>();
    is_all::<Error>();
    is_all::<LockInfo>();
    is_all::<Source>();
    is_all::<Candidate>();
    is_all::<CandidateHandle>();
    is_all::<Leadership>();
    is_all::<LeaderWatch>();
    is_send_and_sync::<RLock<'_>>();
}

/// Is never run. It only has to compile.
#[allow(unused)]
async fn futures_can_be_sent(
    locks: LockClient,
    mut lock: RLock<'static>,
    mut owner: Owner,
    guard: LockGuard,
) {
    is_send(&LockClient::connect("redis://127.0.0.1/"));
    is_send(&locks.inspect("a"));
    is_send(&locks.list("*"));
    is_send(&locks.list_parts("*").next());
    is_send(&locks.servers());
    is_send(&LeaderWatch::new(&locks, "a").changed());
    is_send(&Candidate::new(&locks, "a").run(|_| async {}));
    is_send(&locks.shutdown());
    is_send(&lock.lock());
    is_send(&lock.try_lock());
    is_send(&lock.try_lock_for(SECOND));
    is_send(&lock.run(async {}));
    is_send(&lock.try_run(async {}));
    is_send(&lock.try_run_for(SECOND, async {}));
    is_send(&lock.is_locked());
    is_send(&lock.remaining_lease());
    is_send(&lock.force_unlock());
    is_send(&owner.rlock("a").lock());
    is_send(&owner.read_write_lock("a").write().lock());
    is_send(&locks.read_write_lock("a").read().try_lock_for(SECOND));
    let mut both = MultiLock::new([Member::from(locks.rlock("a")), locks.fenced_lock("b").into()]).unwrap();
    is_send(&both.lock());
    is_send(&both.is_locked());
    is_send(&both.force_unlock());
    tokio::spawn(generic(both));
    is_send(&guard.extend(SECOND));
    is_send(&guard.run(async {}));
    tokio::spawn(guard.ended());
    tokio::spawn(guard.unlock());
    tokio::spawn(generic(lock));
}

/// Generic code over the type of lock can be spawned.
async fn generic<K: BaseLock>(mut lock: Lock<'static, K>) -> Result<()> {
    let guard = lock.lock().await?;
    assert!(lock.is_held() && lock.is_locked().await?);
    guard.unlock().await
}

/// A function names one type for owned and lent handles.
#[tokio::test]
async fn a_function_takes_owned_and_lent_handles() {
    async fn rlock(lock: &mut RLock<'_>) {
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    async fn fair(lock: &mut FairLock<'_>) {
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    async fn fenced(lock: &mut FencedLock<'_>) {
        let guard: LockGuard<FencingToken> = lock.lock().await.unwrap();
        guard.unlock().await.unwrap();
    }
    async fn read_write(lock: &mut ReadWriteLock<'_>) {
        lock.read().run(async {}).await.unwrap();
        lock.write().run(async {}).await.unwrap();
    }
    async fn sides(mut read: ReadLock<'_>, mut write: WriteLock<'_>) {
        read.run(async {}).await.unwrap();
        write.run(async {}).await.unwrap();
    }
    async fn any(lock: &mut Lock<'_, impl BaseLock>) {
        lock.run(async {}).await.unwrap();
    }
    let (scene, locks) = Scene::with_client().await;
    let mut me = locks.owner();
    rlock(&mut locks.rlock("a")).await;
    rlock(&mut me.rlock("a")).await;
    fair(&mut locks.fair_lock("b")).await;
    fair(&mut me.fair_lock("b")).await;
    fenced(&mut locks.fenced_lock("c")).await;
    fenced(&mut me.fenced_lock("c")).await;
    read_write(&mut locks.read_write_lock("d")).await;
    read_write(&mut me.read_write_lock("d")).await;
    sides(locks.read_write_lock("d").into_read(), locks.read_write_lock("d").into_write()).await;
    let read = me.read_write_lock("d").into_read();
    sides(read, locks.read_write_lock("d").into_write()).await;
    any(&mut locks.rlock("a")).await;
    any(&mut me.rlock("a")).await;
    any(&mut MultiLock::new([locks.rlock("a"), locks.rlock("e")]).unwrap()).await;
    drop((me, locks));
    scene.server.run::<()>(&["DEL", "redisson_lock_token:{c}"]);
    scene.end(()).await;
}

/// A guard has no more than its hold, except for its token or its id.
#[test]
fn a_guard_is_as_large_as_its_hold() {
    let with = size_of::<LockGuard<FencingToken>>() - size_of::<LockGuard>();
    assert_eq!(with, size_of::<FencingToken>());
    assert_eq!(size_of::<LockGuard<PermitId>>() - size_of::<LockGuard>(), size_of::<PermitId>());
}

#[tokio::test]
async fn debug_output_is_one_short_line() {
    let (scene, locks) = Scene::with_client().await;
    let mut owner = locks.owner();
    let mut guards = Vec::new();
    for name in ["a", "b", "c", "d"] {
        guards.push(owner.fair_lock(name).lock().await.unwrap());
    }
    let both = MultiLock::new([locks.rlock("e"), locks.rlock("f")]).unwrap();
    let error = locks.rlock("").lock().await.unwrap_err();
    let printed = [
        format!("{locks:?}"),
        format!("{owner:?}"),
        format!("{:?}", guards[0]),
        format!("{:?}", locks.rlock("a")),
        format!("{:?}", locks.fair_lock("a")),
        format!("{:?}", locks.fenced_lock("a")),
        format!("{:?}", locks.read_write_lock("a")),
        format!("{:?}", locks.claims("jobs")),
        format!("{:?}", owner.rlock("a")),
        format!("{:?}", Member::from(locks.rlock("a"))),
        format!("{both:?}"),
        format!("{:?}", Source::from("redis://user:secret@127.0.0.1/")),
        format!("{error:?}"),
    ];
    for line in printed {
        println!("{line}");
        assert!(line.len() < 160 && !line.contains('\n') && !line.contains("secret"), "{line}");
    }
    scene.end((guards, both, owner, locks)).await;
}

#[tokio::test]
async fn handles_are_cheap_and_leave_nothing_in_an_owner() {
    let (scene, locks) = Scene::with_client().await;
    let mut owner = locks.owner();
    let kept = owner.rlock("kept").lock().await.unwrap();
    for name in 0..200 {
        let guard = owner.rlock(format!("{name}")).lock().await.unwrap();
        guard.unlock().await.unwrap();
    }
    let again = owner.rlock("kept").lock().await.expect("the owner does not forget a held lock");
    assert_eq!(kept.hold_count(), 2);
    let printed = format!("{owner:?}");
    let remembered = printed.rsplit("names: ").next().and_then(|rest| rest.strip_suffix(" }"));
    let remembered: usize = remembered.expect(&printed).parse().expect(&printed);
    assert!(remembered < 100, "{remembered} names are remembered");
    again.unlock().await.unwrap();
    kept.unlock().await.unwrap();
    scene.end((owner, locks)).await;
}

/// Guarantee 18. Failures that only the log can report, because no call returns them.
#[tokio::test]
async fn faults_that_no_call_returns_are_events() {
    let events = Events::default();
    let _collecting = events.collect();
    let scene = Scene::start();
    let locks = connect(scene.user("~* &* +@all"), patient()).await;

    let guard = locks.rlock("a").lock().await.unwrap();
    let waiting = waiter(locks.rlock("a"));
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    scene.server.run::<u32>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    events.tell("no messages, reconnecting").await;
    guard.unlock().await.unwrap();
    let guard = soon(waiting).await.unwrap();

    scene.user("-evalsha");
    drop(guard);
    events.tell("a release was refused, it is repeated until the lease has ended").await;
    scene.server.run::<()>(&["FLUSHALL"]);
    scene.end(locks).await;
}

/// Guarantee 18. A waiter that sent no heartbeat for too long finds that its queue entry is gone.
#[tokio::test]
async fn a_lost_place_in_the_queue_is_an_event() {
    let events = Events::default();
    let _collecting = events.collect();
    let (scene, locks) = Scene::with_client_of(patient().fair_allowance(600 * MS)).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let waiting = waiter(locks.fair_lock("a"));
    let queued = || scene.server.run::<usize>(&["LLEN", "redisson_lock_queue:{a}"]);
    eventually("the waiter queues", queued, |&len| len == 1).await;
    let keys = ["redisson_lock_queue:{a}", "redisson_lock_timeout:{a}", "lockkeeper_fair:{a}"];
    scene.server.run::<()>(&["DEL", keys[0], keys[1], keys[2], "lockkeeper_fair_tickets:{a}"]);
    events.tell("queues again at the end").await;
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    scene.end(locks).await;
}

/// Guarantee 18.
#[tokio::test]
async fn sharing_a_handle_between_tasks_is_warned_about() {
    let events = Events::default();
    let _collecting = events.collect();
    let (scene, locks) = Scene::with_client().await;
    let shared = Arc::new(tokio::sync::Mutex::new(locks.rlock("a")));
    let enter = || {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move { shared.lock().await.lock().await.unwrap() })
    };
    let first = enter().await.unwrap();
    let second = enter().await.unwrap();
    events.tell("tasks must not share it").await;
    first.unlock().await.unwrap();
    second.unlock().await.unwrap();
    scene.end((shared, locks)).await;
}

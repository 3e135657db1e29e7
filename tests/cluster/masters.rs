//! Locks on several masters at the same time.

use futures_util::future::join_all;
use lockkeeper::{LockClient, MultiLock};
use lockkeeper_testkit::Cluster;

use crate::cluster::{clients, end};
use crate::support::{LIMIT, eventually, listens, timed, waiter, woken_by_message};

/// Guarantee 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_woken_by_messages_of_every_master() {
    let group = Cluster::start(3, 0);
    let [ours, theirs] = clients(&group).await;
    let names: Vec<String> = (0..3).map(|index| group.name_on(index, "a")).collect();
    let guards = join_all(names.iter().map(async |name| ours.rlock(name).lock().await.unwrap())).await;
    let waiting: Vec<_> = names.iter().map(|name| waiter(theirs.rlock(name))).collect();
    for index in 0..3 {
        listens(&group.servers[index]).await;
    }
    // One after the other: a message from one master must not wake all.
    for (guard, waiting) in guards.into_iter().zip(waiting) {
        guard.unlock().await.unwrap();
        woken_by_message(waiting).await.unlock().await.unwrap();
    }
    end(&group, [&ours, &theirs]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_has_members_on_several_masters() {
    let group = Cluster::start(3, 0);
    let [ours, theirs] = clients(&group).await;
    let names: Vec<String> = (0..3).map(|index| group.name_on(index, "a")).collect();
    let multi = |locks: &LockClient| {
        MultiLock::new(names.iter().map(|name| locks.rlock(name)).collect::<Vec<_>>()).unwrap()
    };
    let guard = multi(&ours).lock().await.unwrap();
    for (index, name) in names.iter().enumerate() {
        assert_eq!(group.servers[index].keys(), [name.as_str()]);
        assert!(theirs.rlock(name).try_lock().await.unwrap().is_none(), "{name} is held");
    }
    let mut beside = multi(&theirs);
    assert!(beside.try_lock().await.unwrap().is_none());
    let waiting = waiter(beside);
    eventually("the waiter subscribes", || group.channels(), |channels| !channels.is_empty()).await;
    guard.unlock().await.unwrap();
    let (guard, waited) = timed(waiting).await;
    assert!(waited < LIMIT / 2, "{waited:?}");
    guard.unwrap().unlock().await.unwrap();
    end(&group, [&ours, &theirs]).await;
}

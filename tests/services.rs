//! Managed services that refuse some scripts: those without a key, or those that use keys which are not declared. Each stands before
//! a real server. `docs/deploy.md` says which locks work there.

use std::future::{pending, ready};

use futures_util::future::{join_all, try_join_all};
use lockkeeper::leader::{Candidate, LeaderWatch, Leadership};
use lockkeeper::{Error, LockClient, LockGuard, Result, Source};
use lockkeeper_testkit::{Cluster, Server, Strict, Wants};

use crate::support::events::Events;
use crate::support::fixture::{FairLocks, FencedLocks, Fixture, RLocks, ReadLocks, WriteLocks};
use crate::support::{SECOND, eventually, listens, nothing_is_left, patient, renewed, soon, waiter};

async fn client(source: impl Into<Source>) -> LockClient {
    LockClient::connect_with(source, patient().watchdog_lease(3 * SECOND).build().unwrap()).await.unwrap()
}

/// A lock is held, entered again, renewed, refused to others, and handed over.
async fn works<F: Fixture>(server: &Server, [ours, theirs]: &[LockClient; 2]) {
    let mut lock = F::lock(ours, "a");
    F::rival(theirs, "a").check().await.unwrap();
    let guard = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    inner.unlock().await.unwrap();
    assert!(F::rival(theirs, "a").try_lock().await.unwrap().is_none());
    let waiting = waiter(F::rival(theirs, "a"));
    listens(server).await;
    renewed(&guard).await;
    let info = ours.inspect("a").await.unwrap().expect("it is held");
    assert_eq!(info.holders.len(), 1);
    assert_eq!(theirs.why("a").await.unwrap().len(), 1);
    guard.unlock().await.unwrap();
    let guard = soon(waiting).await.unwrap();
    let rival = F::rival(theirs, "a");
    assert!(rival.force_unlock().await.unwrap() && !rival.is_locked().await.unwrap());
    drop(guard);
}

async fn semaphores_work(server: &Server, [ours, theirs]: &[LockClient; 2]) {
    let (semaphore, beside) = (ours.semaphore("s", 1), theirs.semaphore("s", 1));
    semaphore.check().await.unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { beside.acquire().await.unwrap() });
    listens(server).await;
    assert_eq!(semaphore.available_permits().await.unwrap(), 0);
    permit.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    semaphore.resize(2).await.unwrap();
    assert!(semaphore.delete().await.unwrap());
}

async fn leaders_work([ours, theirs]: &[LockClient; 2]) {
    let mut watch = LeaderWatch::new(theirs, "l");
    assert_eq!(soon(watch.changed()).await.unwrap(), None);
    let mut candidate = Candidate::new(ours, "l").announce("here").unwrap();
    let leader = tokio::select! {
        leader = soon(watch.changed()) => leader.unwrap().expect("it leads"),
        ended = candidate.run(async |_: Leadership| pending::<()>().await) => panic!("{ended:?}"),
    };
    assert_eq!((leader.holder.client, leader.announcement), (Some(ours.id()), Some(b"here".to_vec())));
}

/// The error is typed, and says what the service refuses.
#[track_caller]
fn is_refused<T: std::fmt::Debug>(result: Result<T>, wants: Wants) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::UnsupportedServer { .. }) && !error.is_transient(), "{error:?}");
    assert!(error.to_string().contains(wants.refusal()), "{error}");
}

async fn refused<F: Fixture>(locks: &LockClient) {
    let mut lock = F::lock(locks, "rw");
    is_refused(lock.lock().await.map(drop), Wants::AllKeys);
    is_refused(lock.try_lock().await.map(drop), Wants::AllKeys);
    is_refused(lock.is_locked().await, Wants::AllKeys);
    is_refused(lock.force_unlock().await, Wants::AllKeys);
    is_refused(lock.check().await, Wants::AllKeys);
    let error = lock.run(ready(())).await.unwrap_err().to_string();
    assert!(error.contains("`rw`") && error.contains("readers"), "{error}");
}

/// The service stands before a single server.
async fn what_works(wants: Wants) {
    let server = Server::start();
    let service = Strict::before(server.port(), wants);
    let events = Events::default();
    let collecting = events.collect();
    let clients = [client(service.url()).await, client(service.url()).await];
    drop(collecting);
    works::<RLocks>(&server, &clients).await;
    works::<FairLocks>(&server, &clients).await;
    works::<FencedLocks>(&server, &clients).await;
    semaphores_work(&server, &clients).await;
    leaders_work(&clients).await;
    match wants {
        Wants::AKey => {
            works::<ReadLocks>(&server, &clients).await;
            works::<WriteLocks>(&server, &clients).await;
        }
        Wants::AllKeys => {
            events.tell("read-write locks and lists of all locks do not work there").await;
            nothing_is_left(|| server.keys(), || server.channels()).await;
            refused::<ReadLocks>(&clients[0]).await;
            refused::<WriteLocks>(&clients[0]).await;
            nothing_is_left(|| server.keys(), || server.channels()).await;
            // As another program can write it.
            server.run::<()>(&["HSET", "rw", "mode", "read", "8743c9c0-0795-4907-87fd-6c719a6b4586:77", "1"]);
            is_refused(clients[0].inspect("rw").await, wants);
            server.run::<()>(&["DEL", "rw"]);
        }
    }
    is_refused(clients[0].list("*").await, wants);
    assert!(clients[0].wait_chains().await.unwrap().is_empty());
    for locks in &clients {
        locks.shutdown().await.unwrap();
    }
    nothing_is_left(|| server.keys(), || server.channels()).await;
}

#[tokio::test]
async fn where_a_script_needs_a_key_all_locks_work_and_lists_are_refused() {
    what_works(Wants::AKey).await;
}

#[tokio::test]
async fn where_scripts_have_to_declare_all_keys_read_write_locks_and_lists_are_refused() {
    what_works(Wants::AllKeys).await;
}

/// Guarantee 7. Each renewal names its keys.
async fn a_cluster_loses_no_lock(wants: Wants) {
    const HOLDS: usize = 60;
    let group = Cluster::start(3, 0);
    let services: Vec<_> = group.servers.iter().map(|server| Strict::before(server.port(), wants)).collect();
    for (server, service) in group.servers.iter().zip(&services) {
        server.announce(service.port());
    }
    let announces =
        |nodes: String| services.iter().all(|service| nodes.contains(&format!(":{}@", service.port())));
    let all_announced = || group.servers.iter().all(|server| announces(server.run(&["CLUSTER", "NODES"])));
    eventually("the nodes know the services", all_announced, |known| *known).await;
    let locks = client(Source::cluster(services.iter().map(Strict::url))).await;
    let mut guards = Vec::new();
    for number in 0..HOLDS / 4 {
        guards.push(locks.rlock(format!("a:{number}")).lock().await.unwrap());
        guards.push(locks.fair_lock(format!("b:{number}")).lock().await.unwrap());
        guards.push(locks.fenced_lock(format!("c:{number}")).lock().await.unwrap().into_plain());
        if wants == Wants::AKey {
            guards.push(locks.read_write_lock(format!("d:{number}")).into_read().lock().await.unwrap());
        }
    }
    let permits: Vec<_> = (0..HOLDS / 4).map(|number| locks.semaphore(format!("e:{number}"), 1)).collect();
    let permits = try_join_all(permits.iter().map(|semaphore| semaphore.acquire())).await.unwrap();
    for _ in 0..3 {
        join_all(guards.iter().map(renewed)).await;
    }
    is_refused(locks.list("*").await, wants);
    assert!(guards.iter().all(|guard| !guard.is_lost()) && permits.iter().all(|permit| !permit.is_lost()));
    try_join_all(guards.into_iter().map(LockGuard::unlock)).await.unwrap();
    try_join_all(permits.into_iter().map(|permit| permit.unlock())).await.unwrap();
    for number in 0..HOLDS / 4 {
        locks.semaphore(format!("e:{number}"), 1).delete().await.unwrap();
    }
    locks.shutdown().await.unwrap();
    nothing_is_left(|| group.keys(), || group.channels()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_scripts_need_a_key_loses_no_lock() {
    a_cluster_loses_no_lock(Wants::AKey).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_scripts_have_to_declare_all_keys_loses_no_lock() {
    a_cluster_loses_no_lock(Wants::AllKeys).await;
}

/// A user without the right to the key of the first look. Elsewhere, such a user looks without the key.
#[tokio::test]
async fn where_a_script_needs_a_key_the_user_has_to_have_the_right_to_it() {
    let server = Server::start();
    server.run::<()>(&["ACL", "SETUSER", "locker", "on", ">secret", "~shop:*", "&*", "+@all"]);
    let user = |url: String| url.replace("redis://", "redis://locker:secret@");
    let locks = client(user(server.url())).await;
    locks.rlock("shop:a").check().await.unwrap();
    let error = locks.rlock("bank:a").check().await.unwrap_err();
    assert!(
        matches!(error, Error::Permission(_))
            && error.to_string().contains("`hset`, `persist`, `pexpire`, `pttl` on `bank:a`"),
        "{error}"
    );
    let service = Strict::before(server.port(), Wants::AKey);
    let connect = |prefix: &str| {
        let config = patient().name_prefix(prefix).build().unwrap();
        LockClient::connect_with(user(service.url()), config)
    };
    let error = connect("shop:").await.unwrap_err();
    assert!(matches!(error, Error::Permission(_)), "{error:?}");
    assert!(error.to_string().contains("`lockkeeper_client:shop:{lockkeeper:self-test}`"), "{error}");
    server.run::<()>(&["ACL", "SETUSER", "locker", "~lockkeeper_client:shop:*"]);
    connect("shop:").await.unwrap().rlock("a").check().await.unwrap();
    assert!(matches!(connect("").await.unwrap_err(), Error::Permission(_)));
    server.run::<()>(&["ACL", "SETUSER", "locker", "~lockkeeper_client:*"]);
    let there = client(user(service.url())).await;
    there.rlock("shop:a").check().await.unwrap();
    let error = there.rlock("bank:a").check().await.unwrap_err();
    assert!(matches!(error, Error::Permission(_)), "{error:?}");
}

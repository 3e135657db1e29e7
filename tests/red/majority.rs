//! What counts as a majority, and what it needs.

use std::future::ready;

use futures_util::FutureExt;
use lockkeeper::{Error, RLock, RedLock, RemainingLease};

use crate::red::{Three, both, lasting, members, red};
use crate::support::events::Events;
use crate::support::{Faults, MS, SECOND, connect, eventually, fixed, patient, soon, throughout, timed};

/// Guarantee 1. Redisson: testLockSuccess, testLockSuccess2, testLockFailed.
#[tokio::test]
async fn a_majority_is_enough_and_less_is_not() {
    let three = Three::start().await;
    let config = patient().safety_poll(3_600 * SECOND); // no waiter polls
    let (ours, theirs) = (three.clients(config.clone()).await, three.clients(config).await);
    let mut lock = red(&ours);
    for blocked in 0..3 {
        let foreign = theirs[blocked].rlock("a").lock().await.unwrap();
        let guard = lock.try_lock().await.unwrap().expect("two members are free");
        assert!(lock.is_locked().await.unwrap() && red(&theirs).try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
        foreign.unlock().await.unwrap();
        assert_eq!(three.held(), 0);
    }
    let foreign = [theirs[0].rlock("a").lock().await.unwrap(), theirs[2].rlock("a").lock().await.unwrap()];
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(lock.try_lock_for(200 * MS).await.unwrap().is_none());
    eventually("the failed round releases what it acquired", || three.held(), |&held| held == 2).await;
    let (got, _) = tokio::join!(timed(lock.lock()), async {
        eventually("the waiter subscribes", || three.heard(), |&count| count == 1).await;
        for guard in foreign {
            guard.unlock().await.unwrap();
        }
    });
    assert!(got.1 < 10 * SECOND, "{:?}", got.1);
    let outer = got.0.unwrap();
    let inner = lock.lock().await.unwrap();
    assert_eq!(lock.hold_count(), 2);
    assert!(three.held() >= 2);
    assert!(
        lock.remaining_lease().await.unwrap().is_some_and(|left| left > RemainingLease::For(20 * SECOND))
    );
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    drop(lock);
    three.end(both(ours, theirs)).await;
}

/// Guarantee 1. All three servers granted the lock, and one loses its data. No second owner gets a majority, and the
/// holder keeps the lock.
#[tokio::test]
async fn a_server_that_forgets_does_not_make_a_second_majority() {
    let mut three = Three::start().await;
    let (ours, theirs) = (three.clients(lasting()).await, three.clients(lasting()).await);
    let mut lock = red(&ours);
    let guard = three.held_by_all(&mut lock).await;
    three.others[1].restart();
    throughout(5 * SECOND, async || {
        assert!(red(&theirs).try_lock().await.unwrap().is_none());
        assert!(!guard.is_lost());
    })
    .await;
    guard.unlock().await.unwrap();
    soon(red(&theirs).lock()).await.unwrap().unlock().await.unwrap();
    drop(lock);
    three.end(both(ours, theirs)).await;
}

/// Guarantee 6. One server lost the hold and another answers slowly. `extend` waits for a majority.
#[tokio::test]
async fn a_lease_is_extended_when_a_majority_confirms_it() {
    let three = Three::start().await;
    let clients = three.clients(patient()).await;
    let guard = three.held_by_all(&mut red(&clients).with(&fixed(20 * SECOND))).await;
    three.others[0].run::<()>(&["DEL", "a"]);
    three.proxies[2].set(Faults { delay: 100 * MS, ..Faults::default() });
    guard.extend(60 * SECOND).await.unwrap();
    assert!(guard.remaining() > 50 * SECOND, "{:?}", guard.remaining());
    three.proxies[2].set(Faults::default());
    guard.unlock().await.unwrap();
    three.end(clients).await;
}

/// Guarantee 18. A member that is gone is no loss of the lock while a majority is held. An event names each lost member.
#[tokio::test]
async fn a_release_reports_a_loss_only_without_a_majority() {
    let events = Events::default();
    let _collecting = events.collect();
    let three = Three::start().await;
    let clients = three.clients(patient()).await;
    let mut lock = red(&clients);
    let guard = three.held_by_all(&mut lock).await;
    let losses = || {
        let text = events.text();
        let lost: Vec<&str> = text.lines().filter(|line| line.contains("a lock was lost")).collect();
        three
            .proxies
            .iter()
            .map(|proxy| format!("127.0.0.1:{}", proxy.port()))
            .map(|server| lost.iter().filter(|line| line.contains(&server)).count())
            .collect::<Vec<_>>()
    };
    three.others[0].run::<()>(&["DEL", "a"]);
    // Before the release: a majority can be released before that member answers, and then nobody waits for its answer.
    eventually("one loss is reported", losses, |losses| *losses == [0, 1, 0]).await;
    assert!(guard.run(ready(())).await.is_ok() && guard.ended().now_or_never().is_none());
    guard.unlock().await.unwrap();
    eventually("all members are released", || three.held(), |&held| held == 0).await;
    let guard = three.held_by_all(&mut lock).await;
    for server in &three.others {
        server.run::<()>(&["DEL", "a"]);
    }
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld(_))));
    eventually("all members are released", || three.held(), |&held| held == 0).await;
    eventually("each loss is reported", losses, |losses| *losses == [0, 2, 1]).await;
    drop(lock);
    three.end(clients).await;
}

/// Guarantee 5. On one server, the name is in use as another kind. That costs its vote only; without a majority it is
/// an error.
#[tokio::test]
async fn a_key_of_another_kind_costs_one_vote() {
    let three = Three::start().await;
    let clients = three.clients(patient()).await;
    let mut lock = red(&clients);
    for in_use in [
        &["HSET", "a", "mode", "write", "8743c9c0-0795-4907-87fd-6c719a6b4586:77:write", "1"][..],
        &["SET", "a", "text"],
    ] {
        three.others[1].run::<()>(in_use);
        let guard = lock.try_lock().await.unwrap().expect("two members are free");
        assert!(lock.is_locked().await.unwrap());
        guard.unlock().await.unwrap();
        assert!(!lock.is_locked().await.unwrap());
        three.others[0].run::<()>(in_use);
        assert!(matches!(lock.try_lock().await, Err(Error::WrongKind { .. })));
        for server in &three.others {
            server.run::<()>(&["DEL", "a"]);
        }
    }
    drop(lock);
    three.end(clients).await;
}

#[tokio::test]
async fn servers_that_are_not_independent_are_refused() {
    let three = Three::start().await;
    let clients = three.clients(patient()).await;
    let problem = |members: Vec<RLock<'static>>| RedLock::new(members).unwrap_err().problem().to_owned();
    assert!(problem(Vec::new()).contains("missing"));
    assert!(problem(members(&clients[..2])).contains("two"));
    let again = connect(three.scene.server.url().replace("127.0.0.1", "localhost"), patient()).await;
    let same = vec![clients[0].rlock("a"), clients[1].rlock("a"), again.rlock("b")];
    assert!(problem(same).contains("one server"));
    drop(RedLock::new([again.rlock("a")]).expect("one server is a majority of one"));
    three.scene.server.run::<()>(&["ACL", "SETUSER", "u", "on", ">s", "~*", "&*", "+@all", "-info"]);
    let url = format!("redis://u:s@127.0.0.1:{}/", three.scene.server.port());
    let shy = connect(url, patient()).await;
    let unknown = vec![shy.rlock("a"), clients[1].rlock("a"), clients[2].rlock("a")];
    assert!(problem(unknown).contains("INFO"));
    three.end(both(clients, vec![again, shy])).await;
}

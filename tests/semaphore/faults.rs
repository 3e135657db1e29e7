//! Faults of the connection: a lost reply, a copy that runs late, a cut. curator#855: a semaphore that stopped granting under network
//! stress. redisson#6302 and #3573 are about replies and leases of permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lockkeeper::{Error, LockConfig};
use tokio::time::sleep;

use super::{end, is_whole};
use crate::support::late::{deliver, stuck};
use crate::support::{LIMIT, MS, SECOND, Scene, calls_of, connect, eventually, fixed, patient, soon};

#[tokio::test]
async fn a_command_whose_reply_is_lost_counts_once() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().command_timeout(500 * MS).connections(1);
    let (locks, beside) = (connect(proxy.url(), config).await, scene.client().await);
    let other = beside.semaphore("a", 3);
    for then_cut in [true, false] {
        for wanted in [1, 2] {
            let semaphore = locks.semaphore("a", 3);
            let swallow = |file| {
                proxy.swallow(0, then_cut, calls_of(file));
                proxy.swallowed()
            };
            let before = swallow("semaphore/acquire.lua");
            let permit = soon(semaphore.acquire_many(wanted)).await.unwrap();
            assert_eq!(
                (proxy.swallowed(), other.available_permits().await.unwrap()),
                (before + 1, 3 - wanted)
            );
            let before = swallow("semaphore/renew.lua");
            soon(permit.extend(60 * SECOND)).await.unwrap();
            assert_eq!(proxy.swallowed(), before + 1);
            assert!(permit.remaining() > 50 * SECOND);
            let before = swallow("semaphore/release.lua");
            soon(permit.unlock()).await.expect("the lost reply was that of this release");
            assert_eq!((proxy.swallowed(), other.available_permits().await.unwrap()), (before + 1, 3));
        }
    }
    locks.shutdown().await.unwrap();
    is_whole(&scene, &other, 3).await;
    drop((other, proxy, locks));
    end(scene, [beside]).await;
}

/// A copy of a first acquire runs after its permit was released: it leaves an orphan for seconds, and not for a lease.
#[tokio::test]
async fn a_late_acquire_leaves_an_orphan_for_seconds_not_for_a_lease() {
    let scene = Scene::start();
    crate::support::late::log_all_commands(&scene.server);
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().command_timeout(500 * MS).connections(1);
    let (locks, beside) = (connect(proxy.url(), config).await, scene.client().await);
    let semaphore = locks.semaphore("a", 2);
    stuck(&proxy);
    let permit = soon(semaphore.acquire_many(2)).await.unwrap();
    soon(permit.unlock()).await.unwrap();
    deliver(&scene.server, &proxy, "semaphore/acquire.lua", 1).await;
    soon(beside.semaphore("a", 2).acquire_many(2)).await.unwrap().unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    is_whole(&scene, &beside.semaphore("a", 2), 2).await;
    drop((semaphore, proxy, locks));
    end(scene, [beside]).await;
}

/// curator#855 and curator#835: connections are cut all the time while permits are acquired and released. Afterwards, none is missing.
#[tokio::test]
async fn no_permit_is_missing_after_many_cuts() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = || patient().command_timeout(500 * MS).retry_timeout(20 * SECOND);
    let locks = connect(proxy.url(), config()).await;
    let semaphore = locks.semaphore("a", 3);
    let acquired = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for number in 0..6_u32 {
        let (semaphore, acquired) = (semaphore.clone(), Arc::clone(&acquired));
        tasks.push(tokio::spawn(async move {
            for round in 0..30 {
                let wanted = 1 + (number + round) % 2;
                let permit = semaphore.acquire_many(wanted).await.unwrap();
                acquired.fetch_add(1, Ordering::Relaxed);
                sleep(MS).await;
                // A cut can cost a permit its renewal, but never another one.
                if round % 2 == 0 { drop(permit) } else { permit.unlock().await.unwrap() }
            }
        }));
    }
    let all = async {
        for task in tasks {
            task.await.unwrap();
        }
    };
    let mut cuts = 0;
    let cutting = async {
        loop {
            // On a busy machine, a command takes longer than the pause. Between two cuts somebody acquires, or no command would ever
            // succeed.
            let before = acquired.load(Ordering::Relaxed);
            sleep(30 * MS).await;
            eventually("somebody acquires", || acquired.load(Ordering::Relaxed), |&now| now > before).await;
            proxy.cut();
            cuts += 1;
        }
    };
    tokio::select! {
        () = all => {}
        () = cutting => {}
        () = sleep(3 * LIMIT) => panic!("the tasks did not end"),
    }
    assert!(cuts >= 5, "{cuts} cuts");
    let beside = scene.client().await;
    locks.shutdown().await.unwrap();
    is_whole(&scene, &beside.semaphore("a", 3), 3).await;
    drop((semaphore, proxy, locks));
    end(scene, [beside]).await;
}

/// The number of available permits is the number -16 of a reply.
#[tokio::test]
async fn a_copy_that_finds_its_permit_beside_too_many_others_is_granted() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().command_timeout(500 * MS).connections(1);
    let (locks, beside) = (connect(proxy.url(), config).await, scene.client().await);
    let other = beside.semaphore("a", 20);
    let held = other.acquire_many(19).await.unwrap();
    let semaphore = locks.semaphore("a", 20);
    proxy.swallow(0, false, calls_of("semaphore/acquire.lua"));
    let before = proxy.swallowed();
    let call = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    eventually("the reply is lost", || proxy.swallowed(), |swallowed| *swallowed > before).await;
    other.resize(4).await.unwrap();
    soon(call).await.unwrap().expect("it was granted before").unlock().await.unwrap();
    held.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    is_whole(&scene, &other, 4).await;
    drop((semaphore, other, proxy, locks));
    end(scene, [beside]).await;
}

/// The server refuses a script in the middle, because the user may not run one of its commands.
#[tokio::test]
async fn a_user_without_a_right_costs_no_permit_and_adds_none() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let semaphore = locks.semaphore("a", 3);
    for right in ["incrby", "pttl", "pexpire"] {
        let rules = ["ACL", "SETUSER", "narrow", "reset", "on", ">secret", "~*", "&*", "+@all"];
        scene.server.run::<()>(&[&rules[..], &[&format!("-{right}")]].concat());
        let url = scene.server.url().replace("//", "//narrow:secret@");
        let narrow = connect(url, patient()).await;
        let theirs = narrow.semaphore("a", 3);
        let may_fail = |found: &Result<_, Error>| {
            assert!(right != "incrby" || matches!(found, Err(Error::Permission(_))), "{found:?}");
        };
        drop(semaphore.acquire().await.unwrap()); // the semaphore is there
        is_whole(&scene, &semaphore, 3).await;
        for _ in 0..5 {
            may_fail(&theirs.try_acquire().await.map(|permit| permit.map(drop)));
        }
        is_whole(&scene, &semaphore, 3).await;
        // The permit stays, as one whose lease has ended.
        let permit = semaphore.acquire().await.unwrap();
        may_fail(&theirs.force_unlock(permit.id()).await.map(Some).map(|permit| permit.map(drop)));
        drop(permit);
        soon(semaphore.acquire_many(3)).await.unwrap().unlock().await.unwrap();
        is_whole(&scene, &semaphore, 3).await;
        // Those of a process that died.
        let dead = semaphore.clone().with(&fixed(200 * MS)).acquire_many(3).await.unwrap();
        dead.leak();
        soon(async { while semaphore.available_permits().await.unwrap() < 3 {} }).await;
        may_fail(&theirs.try_acquire().await.map(|permit| permit.map(drop)));
        soon(semaphore.acquire_many(3)).await.unwrap().unlock().await.unwrap();
        is_whole(&scene, &semaphore, 3).await;
        drop((theirs, narrow));
    }
    drop(semaphore);
    end(scene, [locks]).await;
}

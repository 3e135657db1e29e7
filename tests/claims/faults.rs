//! Lost replies, late copies, dropped futures: a copy of a claim can acquire any of its names, and each of them is released.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Claims, Error, FencingToken, LockClient, LockConfig, LockGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{COUNTER, JOBS, claim};
use crate::support::late::{ORPHAN_LIMIT, deliver, log_all_commands, stuck};
use crate::support::{
    Faults, LIMIT, MS, Proxy, SECOND, Scene, calls_of, connect, eventually, fixed, patient, poll_until, soon,
    throughout, timed,
};

const ACQUIRE: &str = "claims/acquire.lua";

/// A client behind a proxy that soon notices a silent connection, and a client without a proxy.
async fn clients(scene: &Scene) -> (Proxy, LockClient, LockClient) {
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().command_timeout(500 * MS).connections(1);
    let locks = connect(proxy.url(), config).await;
    (proxy, locks, scene.client().await)
}

async fn end(scene: Scene, proxy: Proxy, clients: [LockClient; 2]) {
    for locks in &clients {
        locks.shutdown().await.unwrap();
    }
    drop((proxy, clients));
    scene.end().await;
}

/// Holds this job for another client.
async fn hold(beside: &LockClient, job: &str) -> LockGuard {
    soon(beside.rlock(format!("{{jobs}}:{job}")).try_lock()).await.unwrap().expect("it is free")
}

/// Guarantee 3. The reply is lost, an earlier name becomes free, and the call is repeated: it has only what it returns.
#[tokio::test]
async fn a_claim_whose_reply_is_lost_is_released_before_the_next_one() {
    let scene = Scene::start();
    let (proxy, locks, beside) = clients(&scene).await;
    let jobs = locks.claims("jobs");
    for round in 0..3 {
        let earlier = hold(&beside, "1").await;
        let before = proxy.swallowed();
        proxy.swallow(0, false, calls_of(ACQUIRE));
        let claiming = tokio::spawn(jobs.claim(JOBS));
        eventually("the reply is lost", || proxy.swallowed(), |&now| now == before + 1).await;
        assert!(scene.server.run::<bool>(&["EXISTS", "{jobs}:2"]));
        let first: u64 = scene.server.run(&["GET", COUNTER]);
        earlier.unlock().await.unwrap();
        let claim = soon(claiming).await.unwrap().unwrap().unwrap();
        assert_eq!((claim.name(), scene.server.keys()), ("1", vec!["{jobs}:1".to_owned()]), "{round}");
        let last: u64 = scene.server.run(&["GET", COUNTER]);
        assert!(claim.token().get() == last && last > first, "{first}, {last}: {:?}", claim.token());
        let hash: Vec<String> = scene.server.run(&["HGETALL", "{jobs}:1"]);
        assert_eq!(hash, [claim.owner_id(), "1".to_owned()]);
        soon(claim.unlock()).await.unwrap();
    }
    drop(jobs);
    end(scene, proxy, [locks, beside]).await;
}

/// Others claim between the two attempts. A token that the second attempt read and did not raise would be that of another claim.
#[tokio::test]
async fn a_claim_that_is_found_again_has_a_token_of_its_own() {
    let scene = Scene::start();
    let (proxy, locks, beside) = clients(&scene).await;
    let before = proxy.swallowed();
    proxy.swallow(0, false, calls_of(ACQUIRE));
    let claiming = tokio::spawn(locks.claims("jobs").claim(JOBS));
    eventually("the reply is lost", || proxy.swallowed(), |&now| now == before + 1).await;
    let theirs = claim(&beside.claims("jobs")).await.unwrap();
    let ours = soon(claiming).await.unwrap().unwrap().unwrap();
    assert_eq!((ours.name(), theirs.name()), ("1", "2"));
    assert_ne!(ours.token(), theirs.token());
    drop((ours, theirs));
    end(scene, proxy, [locks, beside]).await;
}

/// Guarantee 3. A copy runs when the claim was released, and finds another of its names free.
#[tokio::test]
async fn a_late_copy_leaves_an_orphan_on_any_name_for_seconds_not_for_a_lease() {
    let scene = Scene::start();
    log_all_commands(&scene.server);
    let (proxy, locks, beside) = clients(&scene).await;
    let jobs = locks.claims("jobs");
    for taken in [0, 1, 2] {
        stuck(&proxy);
        let claim = claim(&jobs).await.unwrap();
        assert_eq!(claim.name(), "1");
        soon(claim.unlock()).await.unwrap();
        let mut guards = Vec::new();
        for job in &JOBS[..taken] {
            guards.push(hold(&beside, job).await);
        }
        deliver(&scene.server, &proxy, ACQUIRE, 1).await;
        let orphaned = format!("{{jobs}}:{}", JOBS[taken]);
        let (rival, waited) = timed(async { beside.rlock(&orphaned).lock().await }).await;
        assert!(waited < ORPHAN_LIMIT, "the orphan of {orphaned} lived for {waited:?}");
        rival.unwrap().unlock().await.unwrap();
        for guard in guards {
            guard.unlock().await.expect("a copy and its undo touch no hold of others");
        }
        scene.quiet().await;
    }
    drop(jobs);
    end(scene, proxy, [locks, beside]).await;
}

/// Guarantee 3. The caller has its error before the copy runs.
#[tokio::test]
async fn a_claim_that_failed_leaves_an_orphan_for_seconds_not_for_a_lease() {
    let scene = Scene::start();
    log_all_commands(&scene.server);
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().command_timeout(200 * MS).connections(1).retry_timeout(Duration::ZERO);
    let (locks, beside) = (connect(proxy.url(), config).await, scene.client().await);
    let jobs = locks.claims("jobs");
    stuck(&proxy);
    let error = soon(jobs.claim(JOBS)).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut(_)) && error.outcome_unknown(), "{error:?}");
    assert_eq!(error.lock().unwrap().name, "jobs");
    let guards = [hold(&beside, "1").await, hold(&beside, "2").await];
    deliver(&scene.server, &proxy, ACQUIRE, 1).await;
    let (rival, waited) = timed(async { beside.rlock("{jobs}:3").lock().await }).await;
    assert!(waited < ORPHAN_LIMIT, "the orphan lived for {waited:?}");
    drop((rival, guards, jobs));
    end(scene, proxy, [locks, beside]).await;
}

/// Guarantee 1.
#[tokio::test]
async fn a_claim_whose_lease_ended_before_its_answer_came_is_not_returned() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let (locks, beside) = (connect(proxy.url(), patient().retry_timeout(SECOND)).await, scene.client().await);
    let jobs = locks.claims("jobs").with(&fixed(100 * MS));
    proxy.set(Faults { delay: 60 * MS, ..Faults::default() }); // there and back
    let error = soon(jobs.claim(JOBS)).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
    proxy.set(Faults::default());
    drop(claim(&jobs).await.unwrap());
    scene.quiet().await;
    drop(jobs);
    end(scene, proxy, [locks, beside]).await;
}

/// All names of a claim are on one connection, so one answer to a release there says that no copy can follow.
#[tokio::test]
async fn each_name_of_a_dropped_claim_is_released_once() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().connections(8)).await;
    let jobs = locks.claims("jobs");
    drop(claim(&jobs).await.unwrap()); // its connection is open
    scene.quiet().await;
    // Each release deletes a field, and several can go out in one command.
    let released = || scene.server.calls("hdel");
    let sent = released();
    scene.server.freeze();
    tokio::time::timeout(50 * MS, jobs.claim(JOBS)).await.expect_err("the server stands still");
    scene.server.thaw();
    eventually("each is released", released, |&now| now >= sent + 3).await;
    throughout(300 * MS, async || assert_eq!(released(), sent + 3)).await;
    locks.shutdown().await.unwrap();
    drop((jobs, locks));
    scene.end().await;
}

/// Guarantee 11. Nobody polls the future, and the client shuts down.
#[tokio::test]
async fn a_shutdown_undoes_a_claim_that_nobody_polls() {
    let scene = Scene::start();
    let (proxy, locks, beside) = clients(&scene).await;
    let jobs = locks.claims("jobs");
    let sent = scene.server.scripts();
    let mut claiming = Box::pin(jobs.claim(JOBS));
    poll_until(&mut claiming, || scene.server.scripts() > sent).await;
    assert_eq!(scene.server.keys(), ["{jobs}:1"]);
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(scene.server.keys(), [""; 0]);
    assert!(matches!(soon(claiming).await, Err(Error::Closed)));
    drop(jobs);
    end(scene, proxy, [locks, beside]).await;
}

/// Guarantee 11. Claims in flight when the client shuts down end with `Closed`, and the server has nothing of them.
#[tokio::test]
async fn shutdown_leaves_no_claim_in_flight() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let names: Vec<u32> = (0..64).collect();
    for round in 0..6_u32 {
        proxy.set(Faults::default());
        let locks = connect(proxy.url(), patient()).await;
        proxy.set(Faults { delay: 5 * MS, ..Faults::default() });
        let mut calls = JoinSet::new();
        (0..32).for_each(|_| _ = calls.spawn(locks.claims("jobs").claim(names.clone())));
        sleep(3 * MS * round).await;
        soon(locks.shutdown()).await.unwrap();
        let claims: Vec<LockGuard<FencingToken>> =
            soon(calls.join_all()).await.into_iter().filter_map(|claim| claim.ok().flatten()).collect();
        let mut held: Vec<String> = claims.iter().map(|claim| format!("{{jobs}}:{}", claim.name())).collect();
        let mut left = scene.server.keys();
        held.sort();
        left.sort();
        assert_eq!(left, held, "round {round}");
        drop(claims);
        scene.quiet().await;
    }
    drop(proxy);
    scene.end().await;
}

/// Claims while connections are cut, again and again: no name has two holders, a later holder has a greater token, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_exclude_each_other_while_connections_are_cut() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().command_timeout(100 * MS);
    let ours = [connect(proxy.url(), config.clone()).await, connect(proxy.url(), config).await];
    // For each name, who is in the section, and the last token.
    let sections = Arc::new(JOBS.map(|_| std::sync::Mutex::new((false, 0))));
    let until = Instant::now() + 4 * SECOND;
    let work = |jobs: Claims, sections: Arc<[std::sync::Mutex<(bool, u64)>; 3]>| async move {
        let mut done = 0;
        while Instant::now() < until {
            let Ok(Some(claim)) = jobs.claim(JOBS).await else {
                sleep(2 * MS).await;
                continue;
            };
            let place = JOBS.iter().position(|job| *job == claim.name()).unwrap();
            let section = &sections[place];
            {
                let mut section = section.lock().unwrap();
                assert!(
                    !section.0 && section.1 < claim.token().get(),
                    "{place}: {section:?}, {:?}",
                    claim.token()
                );
                *section = (true, claim.token().get());
            }
            sleep(MS).await;
            section.lock().unwrap().0 = false;
            done += 1;
            drop(claim);
        }
        done
    };
    let mut workers = JoinSet::new();
    for locks in ours.iter().cycle().take(8) {
        workers.spawn(work(locks.claims("jobs"), Arc::clone(&sections)));
    }
    let mut round = 0;
    while Instant::now() < until {
        round += 1;
        sleep(40 * MS).await;
        match round % 3 {
            0 => proxy.swallow(round % 5, true, calls_of(ACQUIRE)),
            1 => proxy.swallow(round % 5, false, calls_of(ACQUIRE)),
            _ => proxy.cut(),
        }
    }
    let done: u32 = soon(workers.join_all()).await.into_iter().sum();
    assert!(done > 50, "{done}");
    for locks in &ours {
        soon(locks.shutdown()).await.unwrap();
    }
    crate::support::within(LIMIT, "nothing is left", || scene.server.keys(), Vec::is_empty).await;
    drop((ours, proxy));
    scene.end().await;
}

//! Lost replies, late copies, dropped futures: a copy of a claim can acquire any of its names, and each of them is released.

use lockkeeper::{Error, LockClient, LockConfig, LockGuard};

use super::{JOBS, claim};
use crate::support::late::{ORPHAN_LIMIT, deliver, log_all_commands, stuck};
use crate::support::{
    Faults, MS, Proxy, SECOND, Scene, connect, eventually, fixed, patient, soon, throughout, timed,
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
    scene.end((proxy, clients)).await;
}

/// Holds this job for another client.
async fn hold(beside: &LockClient, job: &str) -> LockGuard {
    soon(beside.rlock(format!("{{jobs}}:{job}")).try_lock()).await.unwrap().expect("it is free")
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
    let error = soon(locks.rlock("a").with(&fixed(100 * MS)).lock()).await.unwrap_err();
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
    let (scene, locks) = Scene::with_client_of(patient().connections(8)).await;
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
    assert_eq!(released(), sent + 3, "none had to wait until no acquire could run");
    scene.end((jobs, locks)).await;
}

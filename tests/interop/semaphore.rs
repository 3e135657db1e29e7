//! Permits of one semaphore in both languages: Redisson's `RPermitExpirableSemaphore`.

use std::time::Duration;

use lockkeeper::{Error, LockClient, PermitId};

use crate::java::Actor;
use crate::support::{MS, SECOND, eventually, fixed, listens, patient, quiet, timed};
use crate::{Java, Stage};

const LEASE: Duration = Duration::from_secs(30);

/// The actor's kind is of no importance for permits.
fn actor(java: &Java, name: &str) -> Actor {
    java.actor(name, "rlock")
}

async fn end(stage: Stage) {
    stage.locks.semaphore("a", 1).delete().await.unwrap();
    stage.end().await;
}

/// Each side counts the permits of the other, whoever made the semaphore.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_semaphore_refuses_from_either_side() {
    let stage = Stage::start().await;
    let java = actor(&stage.java, "one");
    for java_first in [true, false] {
        let semaphore = stage.locks.semaphore("a", 2);
        if java_first {
            assert!(java.set_permits("a", 2).await.unwrap());
        } else {
            drop(semaphore.acquire().await.unwrap());
            eventually("it is back", || stage.scene.server.run::<u32>(&["GET", "a"]), |&left| left == 2)
                .await;
            assert!(!java.set_permits("a", 7).await.unwrap(), "it exists");
        }
        let ours = semaphore.acquire().await.unwrap();
        assert_eq!(java.available_permits("a").await.unwrap(), 1);
        let theirs = java.acquire_permit("a", LEASE).await.unwrap();
        assert_eq!(
            (java.available_permits("a").await, semaphore.available_permits().await.unwrap()),
            (Ok(0), 0)
        );
        assert_eq!(java.try_permit("a", Duration::ZERO, LEASE).await.unwrap(), None);
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        let listed: Vec<String> = stage
            .locks
            .inspect("a")
            .await
            .unwrap()
            .unwrap()
            .holders
            .into_iter()
            .map(|holder| holder.owner)
            .collect();
        assert!(listed.contains(&theirs) && listed.contains(&ours.id().to_string()), "{listed:?}");
        // Each side releases a permit of the other, by its id.
        assert!(java.release_permit("a", &ours.id().to_string()).await.unwrap());
        assert!(!java.release_permit("a", &ours.id().to_string()).await.unwrap());
        assert!(matches!(ours.unlock().await, Err(Error::NotHeld(_))));
        let theirs: PermitId = theirs.parse().unwrap();
        assert!(semaphore.force_unlock(theirs).await.unwrap());
        assert!(!semaphore.force_unlock(theirs).await.unwrap());
        assert_eq!(
            (java.available_permits("a").await, semaphore.available_permits().await.unwrap()),
            (Ok(2), 2)
        );
        assert!(semaphore.delete().await.unwrap());
    }
    end(stage).await;
}

/// A message wakes the waiter, or it would sleep on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_waiters_of_the_other_side() {
    let stage = Stage::start().await;
    let java = actor(&stage.java, "one");
    let semaphore = stage.locks.semaphore("a", 2);
    for round in 0..10 {
        let batch = semaphore.acquire_many(2).await.unwrap();
        let waiting = tokio::spawn({
            let java = java.clone();
            async move { java.acquire_permit("a", LEASE).await.unwrap() }
        });
        listens(&stage.scene.server).await;
        quiet(|| stage.scene.server.scripts()).await; // it attempts once more
        if round % 2 == 0 {
            batch.unlock().await.unwrap()
        } else {
            drop(batch)
        }
        let (theirs, waited) = timed(waiting).await;
        assert!(waited < 5 * SECOND, "{waited:?}");
        let theirs = theirs.unwrap();

        let other = java.try_permit("a", Duration::ZERO, LEASE).await.unwrap().unwrap();
        let before = stage.scene.server.scripts();
        let waiting = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire().await.unwrap() }
        });
        eventually("it asked twice", || stage.scene.server.scripts(), |&scripts| scripts >= before + 2).await;
        assert!(java.release_permit("a", &theirs).await.unwrap());
        let (ours, waited) = timed(waiting).await;
        assert!(waited < 5 * SECOND, "{waited:?}");
        assert!(java.release_permit("a", &other).await.unwrap());
        ours.unwrap().unlock().await.unwrap();
    }
    assert_eq!(java.available_permits("a").await, Ok(2));
    drop(semaphore);
    end(stage).await;
}

/// Java ends leases by its own clock. While that is ahead by less than the slack, Java gets no permit before the guard in Rust is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_clock_that_is_ahead_takes_no_permit_within_the_slack() {
    let stage = Stage::start().await;
    let ahead = 400 * MS;
    let fast = Java::ahead(&stage.scene, ahead).await;
    let java = actor(&fast, "one");
    let locks = client(&stage, 3 * SECOND).await;
    let semaphore = locks.semaphore("a", 1);
    let permit = semaphore.acquire().await.unwrap();
    let renewals = 5 * SECOND;
    assert_eq!(java.try_permit("a", renewals, LEASE).await.unwrap(), None, "{ahead:?} ahead");
    assert!(!permit.is_lost());
    permit.unlock().await.unwrap();

    let permit = semaphore.clone().with(&fixed(2 * SECOND)).acquire().await.unwrap();
    let theirs = java.acquire_permit("a", LEASE).await.unwrap();
    assert!(permit.is_lost(), "Java ended its lease early");
    assert!(java.release_permit("a", &theirs).await.unwrap());
    semaphore.delete().await.unwrap();
    drop((semaphore, permit));
    locks.shutdown().await.unwrap();
    drop(locks);
    fast.end(&stage.scene).await;
    end(stage).await;
}

/// Beyond the slack, Java takes a permit early. Its holder is told at its next renewal, and not only at the end of its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_clock_that_is_ahead_of_the_slack_takes_a_permit_and_its_renewal_says_so() {
    let stage = Stage::start().await;
    let fast = Java::ahead(&stage.scene, Duration::from_secs(3_600)).await;
    let java = actor(&fast, "one");
    let lease = 30 * SECOND;
    let locks = client(&stage, lease).await;
    let semaphore = locks.semaphore("a", 1);
    let permit = semaphore.acquire().await.unwrap();
    let theirs = java
        .try_permit("a", Duration::ZERO, LEASE)
        .await
        .unwrap()
        .expect("its clock says that the lease has ended");
    // The server perhaps tells of the change before Java has its answer.
    let (_, waited) = timed(permit.ended()).await;
    assert!(waited < lease / 2, "{waited:?}");
    assert!(semaphore.try_acquire().await.unwrap().is_none(), "Java has the permit");
    assert!(java.release_permit("a", &theirs).await.unwrap());
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    drop((semaphore, permit, locks));
    fast.end(&stage.scene).await;
    end(stage).await;
}

async fn client(stage: &Stage, lease: Duration) -> LockClient {
    stage.scene.client_with(patient().watchdog_lease(lease)).await
}

//! Guarantee 16: no client clock reaches the server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::fixture::{FairLocks, FencedLocks, Fixture, Lending, RLocks, ReadLocks, WriteLocks};
use crate::support::{
    MS, Proxy, SECOND, Scene, announces, are_wanted, calls_of, connect, eventually, lingering, patient,
    renewed, soon, waiter,
};
use lockkeeper::{BaseLock, LockClient};
use lockkeeper_testkit::lua;
use tokio::time::sleep;

/// The longest duration that this test asks for, and the wait of a Java client for a fair lock. Every number that any clock shows is
/// greater: also one that counts from the start of the machine, if that is five minutes ago.
const LONGEST: Duration = Duration::from_secs(300);

/// Runs every operation on a type of lock.
async fn use_all<F: Lending>(locks: &LockClient, proxy: &Proxy) {
    let mut lock = F::lock(locks, "a");
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    renewed(&outer).await;
    outer.extend(LONGEST).await.unwrap();
    assert!(lock.is_locked().await.unwrap() && lock.remaining_lease().await.unwrap().is_some());
    assert!(locks.inspect("a").await.unwrap().is_some());
    assert!(F::rival(locks, "a").try_lock().await.unwrap().is_none());
    lock.check().await.unwrap();
    inner.unlock().await.unwrap();

    let mut rival = F::rival(locks, "a");
    let waiting = async { rival.lock().await.unwrap().unlock().await.unwrap() };
    let releasing = async {
        if F::ACQUIRE == FairLocks::ACQUIRE {
            let is_heartbeat = calls_of("fair/heartbeat.lua");
            let sent = || proxy.recorded().iter().filter(|command| is_heartbeat(command)).count();
            eventually("a heartbeat is sent", sent, |&count| count > 0).await;
        }
        drop(outer);
    };
    soon(async { tokio::join!(waiting, releasing) }).await;

    let mut owner = locks.owner();
    let bounded = F::bounded(locks, "b", LONGEST).lock().await.unwrap();
    renewed(&bounded).await;
    bounded.unlock().await.unwrap();
    let leased = F::lent_leased(&mut owner, "b", LONGEST).lock().await.unwrap();
    let renewed_beside = F::lent(&mut owner, "b").lock().await.unwrap();
    renewed(&renewed_beside).await;
    assert!(F::lock(locks, "b").force_unlock().await.unwrap());
    drop((leased, renewed_beside));
}

/// The hold is confirmed, because it is joined.
async fn use_lingering(locks: &LockClient) {
    for _ in 0..2 {
        drop(locks.read_write_lock("f").into_read().with(&lingering(100 * MS)).lock().await.unwrap());
    }
    let is_held = async || locks.read_write_lock("f").read().is_locked().await.unwrap();
    soon(async {
        while is_held().await {
            sleep(10 * MS).await;
        }
    })
    .await;
}

async fn use_semaphore(locks: &LockClient) {
    let semaphore = locks.semaphore("c", 2);
    let permit = semaphore.acquire().await.unwrap();
    renewed(&permit).await;
    permit.unlock().await.unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), 2);
    assert!(locks.inspect("c").await.unwrap().unwrap().holders.is_empty());
    semaphore.resize(3).await.unwrap();
    semaphore.delete().await.unwrap();
}

/// The greatest number in a command. The id of the client, which is random, is not counted.
fn greatest(command: &[String], client: &str) -> u64 {
    // `EVALSHA` and the hash, which the server made up.
    let words = if command[0] == "EVALSHA" { &command[2..] } else { command };
    let text = words.join(" ").replace(client, "");
    let numbers = text.split(|letter: char| !letter.is_ascii_digit()).filter(|digits| !digits.is_empty());
    numbers.map(|digits| digits.parse().unwrap_or(u64::MAX)).max().unwrap_or(0)
}

/// Guarantee 16. Every number in every command is a count or one of the configured durations, and no point in time.
#[tokio::test]
async fn no_number_that_a_client_sends_is_a_point_in_time() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    proxy.record();
    let config = patient().identity("program").watchdog_lease(2 * SECOND).fair_allowance(1_500 * MS);
    let locks = connect(proxy.url(), config).await;
    use_all::<FairLocks>(&locks, &proxy).await;
    use_all::<FencedLocks>(&locks, &proxy).await;
    use_all::<RLocks>(&locks, &proxy).await;
    use_all::<ReadLocks>(&locks, &proxy).await;
    use_all::<WriteLocks>(&locks, &proxy).await;
    use_lingering(&locks).await;
    are_wanted(&locks, "g", "h").await;
    use_semaphore(&locks).await;
    locks.claims("jobs").claim(["1"]).await.unwrap().unwrap().unlock().await.unwrap();
    announces(&locks, &locks, "e").await;
    soon(locks.list("*")).await.unwrap();
    let guard = locks.fair_lock("d").lock().await.unwrap();
    assert_eq!(soon(locks.why("d")).await.unwrap().len(), 1);
    let waiting = waiter(locks.fair_lock("d"));
    let is_question = calls_of("place.lua");
    let asked = || proxy.recorded().iter().filter(|command| is_question(command)).count();
    eventually("a call that waited for a lease is reported", asked, |&asked| asked > 0).await;
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    soon(locks.shutdown()).await.unwrap();

    let client = locks.id().to_string();
    let commands = proxy.recorded();
    for command in &commands {
        let greatest = greatest(command, &client);
        assert!(u128::from(greatest) <= LONGEST.as_millis(), "{greatest} in {command:?}");
    }
    let hash = |source: &String| redis::Script::new(source).get_hash().to_owned();
    let all: BTreeSet<String> = lua::sources().iter().map(hash).collect();
    // Several calls together have another one.
    let forms: BTreeMap<String, String> = lua::files()
        .iter()
        .flat_map(|file| lua::batch_hashes(file).map(|batch| (batch, lua::hash(file))))
        .collect();
    let ran = commands.iter().filter(|command| command[0] == "EVALSHA").map(|command| &command[1]);
    let ran = ran.map(|hash| forms.get(hash).unwrap_or(hash).clone());
    assert_eq!(ran.collect::<BTreeSet<_>>(), all, "this test runs every script");
    drop((locks, proxy));
    scene.end().await;
}

//! Guarantee 16: a client sends durations, and times that this server told it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::fixture::{FairLocks, FencedLocks, Fixture, Lending, RLocks, ReadLocks, WriteLocks};
use crate::support::{
    LIMIT, MS, Proxy, SECOND, Scene, announces, are_wanted, calls_of, connect, eventually, lingering,
    patient, renewed, soon, waiter,
};
use lockkeeper::{Error, LockClient, Source};
use lockkeeper_memory::{MemoryServer, Network};
use lockkeeper_testkit::lua;
use tokio::time::{Instant, sleep};

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

/// Guarantee 16. Every number in every command is a count or one of the configured durations, and no point in time. Only acquires end by
/// the server's own time.
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
    let expire: Vec<String> = lua::files()
        .iter()
        .filter(|file| lua::in_time(file).is_some())
        .flat_map(|file| [lua::batch_hashes(file).to_vec(), vec![lua::hash(file)]].concat())
        .collect();
    for command in &commands {
        // A server gets back, as the last argument of an acquire or heartbeat, its own time.
        let (last, others) = command.split_last().unwrap();
        let expires = expire.contains(command.get(1).unwrap_or(last));
        let command = if expires { others } else { &command[..] };
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
    scene.end((locks, proxy)).await;
}

const KINDS: [&str; 7] = ["rlock", "fair", "fenced", "read", "write", "semaphore", "claims"];

/// Acquires and releases. Fails if the hold was lost.
async fn hold(locks: &LockClient, kind: &str) -> Result<(), Error> {
    let (rw, name) = (locks.read_write_lock(kind), kind);
    match kind {
        "rlock" => locks.rlock(name).lock().await.unwrap().unlock().await,
        "fair" => locks.fair_lock(name).lock().await.unwrap().unlock().await,
        "fenced" => locks.fenced_lock(name).lock().await.unwrap().unlock().await,
        "read" => rw.into_read().lock().await.unwrap().unlock().await,
        "write" => rw.into_write().lock().await.unwrap().unlock().await,
        "semaphore" => locks.semaphore(name, 2).acquire().await.unwrap().unlock().await,
        _ => match locks.claims(name).claim(["1", "2"]).await.unwrap() {
            Some(guard) => guard.unlock().await,
            None => Ok(()),
        },
    }
}

/// A client of a server that has the scripts already, so that each acquire is sent once.
async fn in_memory(server: &MemoryServer) -> LockClient {
    let config = patient().command_timeout(500 * MS).connections(1).build().unwrap();
    let locks = LockClient::connect_with(Source::stream(server.connector()), config).await.unwrap();
    for kind in KINDS {
        hold(&locks, kind).await.unwrap();
    }
    locks
}

/// The keys, without those that no release removes and the records of clients. Of a semaphore, what its number is.
fn left(server: &MemoryServer) -> Vec<String> {
    let reply = server.execute(&["SCAN", "0", "COUNT", "10000"]);
    let found = String::from_utf8_lossy(&reply).into_owned();
    let is_key = |line: &&str| !["$", "*"].iter().any(|start| line.starts_with(start)) && *line != "0";
    let stays = |line: &&str| ["token", "claims:", "_holds", "_waits"].iter().any(|part| line.contains(part));
    let mut keys: Vec<String> =
        found.lines().filter(is_key).filter(|key| !stays(key)).map(str::to_owned).collect();
    keys.sort();
    keys.push(String::from_utf8_lossy(&server.execute(&["GET", "semaphore"])).into_owned());
    keys
}

/// Guarantee 3, for each type. The client gave up a connection, and an acquire arrives there so many seconds later.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_arrives_after_its_end_changes_nothing() {
    for kind in KINDS {
        for seconds in [0, 12, 28, 60] {
            let server = MemoryServer::new();
            let locks = in_memory(&server).await;
            let late = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&late);
            server.observe(move |_, _, reply, _| {
                if *reply == *format!(":{}\r\n", lua::reply("LATE")).as_bytes() {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
            // A connection learns the time again after a minute, so a step back counts for no longer.
            server.step_clock(-20);
            sleep(61 * SECOND).await;
            hold(&locks, kind).await.unwrap();
            let held = Network { holds_requests: true, holds_existing: true, ..Network::default() };
            server.set_network(held);
            let began = Instant::now();
            hold(&locks, kind).await.unwrap();
            // The limit of a command, and a second.
            sleep((1_500 * MS).saturating_sub(began.elapsed())).await;
            let before = left(&server);
            server.step_clock(seconds);
            server.set_network(Network::default());
            for _ in 0..1_000 {
                sleep(3 * MS).await;
                assert_eq!(left(&server), before, "{kind}, {seconds} s later");
            }
            assert_eq!(late.load(Ordering::Relaxed), 1, "{kind}, {seconds} s later");
            locks.shutdown().await.unwrap();
        }
    }
}

/// Guarantee 16. Only a step that ends leases, here by an hour, costs anybody a hold.
#[tokio::test(start_paused = true)]
async fn no_call_fails_while_the_clock_of_the_server_is_set() {
    for seconds in [3_600, 20, 1] {
        let server = MemoryServer::new();
        let locks = Arc::new(in_memory(&server).await);
        let is_over = Arc::new(AtomicBool::new(false));
        let (mut tasks, calls) = (Vec::new(), Arc::new(AtomicUsize::new(0)));
        for kind in KINDS.into_iter().cycle().take(3 * KINDS.len()) {
            let (locks, is_over, calls) = (Arc::clone(&locks), Arc::clone(&is_over), Arc::clone(&calls));
            tasks.push(tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    match hold(&locks, kind).await {
                        Err(Error::NotHeld(_)) if seconds == 3_600 => {}
                        result => result.unwrap(),
                    }
                    calls.fetch_add(1, Ordering::Relaxed);
                    sleep(10 * MS).await;
                }
            }));
        }
        for step in [seconds, -seconds, -seconds, seconds] {
            sleep(200 * MS).await;
            server.step_clock(step);
            let before = calls.load(Ordering::Relaxed);
            let enough = |&count: &usize| count > before + 100;
            eventually("the calls go on", || calls.load(Ordering::Relaxed), enough).await;
        }
        is_over.store(true, Ordering::Relaxed);
        for task in tasks {
            tokio::time::timeout(LIMIT, task).await.unwrap().unwrap();
        }
        locks.shutdown().await.unwrap();
        let left = left(&server);
        assert_eq!(left, ["semaphore", "$1\r\n2\r\n"], "{seconds} s");
    }
}

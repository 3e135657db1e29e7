//! A majority of independent servers: what one of them may do without harm, and what happens when too few are left.

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{Error, LockClient, LockConfig, RLock, RedLock};
use support::{Faults, MS, Proxy, SECOND, Scene, Server, eventually, quiet, soon, timed};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Three servers, behind a proxy each.
struct Three {
    scene: Scene,
    others: [Server; 2],
    proxies: Vec<Proxy>,
}

impl Three {
    async fn start() -> Self {
        let others = [Server::start(), Server::start()];
        let scene = Scene::start();
        let ports = [scene.server.port(), others[0].port(), others[1].port()];
        let proxies = join_all(ports.map(Proxy::to)).await;
        Self { scene, others, proxies }
    }

    fn servers(&self) -> [&Server; 3] {
        [&self.scene.server, &self.others[0], &self.others[1]]
    }

    /// A client of each.
    async fn clients(&self, config: LockConfig) -> Vec<LockClient> {
        join_all(
            self.proxies
                .iter()
                .map(async |proxy| LockClient::new(proxy.url(), config.clone()).await.unwrap()),
        )
        .await
    }

    fn held(&self) -> usize {
        self.servers().iter().filter(|server| server.run::<bool>(&["EXISTS", "a"])).count()
    }

    async fn end(self, clients: Vec<LockClient>) {
        for locks in clients {
            let _ = locks.shutdown().await;
        }
        for server in &self.others {
            eventually("no key is left", || server.keys(), Vec::is_empty).await;
            eventually("no channel is left", || server.channels(), Vec::is_empty).await;
        }
        drop(self.proxies);
        self.scene.end().await;
    }
}

fn members(clients: &[LockClient]) -> Vec<RLock> {
    clients.iter().map(|locks| locks.rlock("a")).collect()
}

fn red(clients: &[LockClient]) -> RedLock {
    RedLock::new(members(clients)).unwrap()
}

fn both(ours: Vec<LockClient>, theirs: Vec<LockClient>) -> Vec<LockClient> {
    ours.into_iter().chain(theirs).collect()
}

fn impatient() -> LockConfig {
    LockConfig::default().watchdog_lease(1_500 * MS).command_timeout(400 * MS).retry_timeout(SECOND)
}

/// Redisson: testLockSuccess, testLockSuccess2, testLockFailed.
#[tokio::test]
async fn a_majority_is_enough_and_less_is_not() {
    let three = Three::start().await;
    let (ours, theirs) =
        (three.clients(LockConfig::default()).await, three.clients(LockConfig::default()).await);
    let mut lock = red(&ours);
    for blocked in 0..3 {
        let foreign = theirs[blocked].rlock("a").lock().await.unwrap();
        let guard = lock.try_lock().await.unwrap().expect("two are free");
        assert!(lock.is_locked().await.unwrap() && red(&theirs).try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
        foreign.unlock().await.unwrap();
        assert_eq!(three.held(), 0);
    }
    let foreign = [theirs[0].rlock("a").lock().await.unwrap(), theirs[2].rlock("a").lock().await.unwrap()];
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(lock.try_lock_for(200 * MS).await.unwrap().is_none());
    assert_eq!(three.held(), 2, "what was had is given back");
    let (got, _) = tokio::join!(timed(lock.lock()), async {
        sleep(100 * MS).await;
        for guard in foreign {
            guard.unlock().await.unwrap();
        }
    });
    assert!(got.1 < SECOND, "{:?}", got.1);
    let outer = got.0.unwrap();
    let inner = lock.lock().await.unwrap();
    assert_eq!((lock.hold_count(), three.held()), (2, 3));
    assert!(lock.remaining_lease().await.unwrap().is_some_and(|left| left > 25 * SECOND));
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    drop(lock);
    three.end(both(ours, theirs)).await;
}

/// Fault 33, and Redisson: testConnectionFailed. Silent in any way, or dead: the others go on at their own pace.
#[tokio::test]
async fn one_server_of_three_that_fails_delays_nobody() {
    for (how, faults) in [("black hole", Faults::black_hole()), ("mute", Faults::replies_held())] {
        let three = Three::start().await;
        let clients = three.clients(impatient()).await;
        let mut lock = red(&clients);
        let held = lock.lock().await.unwrap();
        three.proxies[1].set(faults);
        // It is renewed by the other two, over several leases.
        let start = Instant::now();
        while start.elapsed() < 4 * SECOND {
            assert!(!held.is_lost(), "{how}, after {:?}", start.elapsed());
            sleep(50 * MS).await;
        }
        let (released, took) = timed(held.unlock()).await;
        released.unwrap();
        assert!(took < 200 * MS, "{how}: released in {took:?}");
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            let (guard, acquired) = timed(lock.lock()).await;
            let (released, done) = timed(guard.unwrap().unlock()).await;
            released.unwrap();
            slowest = slowest.max(acquired).max(done);
        }
        println!("{how}: the slowest of 20 took {slowest:?}");
        assert!(slowest < 200 * MS, "{how}: {slowest:?}");
        let (is_locked, took) = timed(lock.is_locked()).await;
        assert!(!is_locked.unwrap() && took < 200 * MS, "{how}: {took:?}");
        three.proxies[1].set(Faults::default());
        drop(lock);
        three.end(clients).await;
    }
}

#[tokio::test]
async fn one_server_of_three_that_is_stopped_or_dead_delays_nobody() {
    let mut three = Three::start().await;
    let clients = three.clients(impatient()).await;
    let mut lock = red(&clients);
    for round in 0..2 {
        if round == 0 {
            three.others[0].freeze();
        } else {
            three.others[0].kill();
        }
        for _ in 0..5 {
            let (guard, acquired) = timed(lock.lock()).await;
            let (released, done) = timed(guard.unwrap().unlock()).await;
            released.unwrap();
            assert!(acquired.max(done) < 300 * MS, "round {round}: {acquired:?} and {done:?}");
        }
        if round == 0 {
            three.others[0].thaw();
        } else {
            three.others[0].start_again();
        }
    }
    drop(lock);
    three.end(clients).await;
}

/// Fault 34.
#[tokio::test]
async fn without_a_majority_a_holder_is_told_and_a_waiter_gets_an_answer() {
    let three = Three::start().await;
    let clients = three.clients(impatient()).await;
    let mut lock = red(&clients);
    let guard = lock.lock().await.unwrap();
    sleep(SECOND).await;
    three.proxies[0].set(Faults::black_hole());
    three.proxies[2].set(Faults::black_hole());
    let left = guard.remaining() + 500 * MS; // an answer may be under way
    let (_, took) = timed(guard.lost()).await;
    assert!(took < left && guard.is_lost(), "{took:?} of {left:?}");

    let mut other = red(&clients);
    let (got, took) = timed(other.try_lock_for(600 * MS)).await;
    assert!(!matches!(got, Ok(Some(_))) && took < 2 * SECOND, "{got:?} after {took:?}");
    let (error, took) = timed(other.lock()).await;
    let error = error.unwrap_err();
    assert!(error.is_transient() && took < 4 * SECOND, "{error:?} after {took:?}");
    assert!(matches!(other.is_locked().await, Err(error) if error.is_transient()));
    // That the one which is left is held by somebody else makes it no matter of waiting.
    let foreign = clients[1].rlock("a").lock().await.unwrap();
    let (error, took) = timed(other.lock()).await;
    assert!(error.unwrap_err().is_transient() && took < 4 * SECOND, "after {took:?}");
    foreign.unlock().await.unwrap();
    for proxy in &three.proxies {
        proxy.set(Faults::default());
    }
    assert!(matches!(soon(guard.unlock()).await, Err(Error::NotHeld { .. })));
    soon(other.lock()).await.unwrap().unlock().await.unwrap();
    drop((lock, other));
    three.end(clients).await;
}

/// What was held by all is not had by a second when one of them forgets; and the first keeps it.
#[tokio::test]
async fn a_server_that_forgets_does_not_make_a_second_majority() {
    let mut three = Three::start().await;
    let (ours, theirs) = (three.clients(impatient()).await, three.clients(impatient()).await);
    let mut lock = red(&ours);
    let guard = lock.lock().await.unwrap();
    assert_eq!(three.held(), 3);
    three.others[1].restart();
    let start = Instant::now();
    while start.elapsed() < 3 * SECOND {
        assert!(red(&theirs).try_lock().await.unwrap().is_none());
        assert!(!guard.is_lost());
        sleep(50 * MS).await;
    }
    guard.unlock().await.unwrap();
    soon(red(&theirs).lock()).await.unwrap().unlock().await.unwrap();
    drop(lock);
    three.end(both(ours, theirs)).await;
}

/// What got no answer is undone, also where it may have been had.
#[tokio::test]
async fn what_came_too_late_is_given_back() {
    let three = Three::start().await;
    let (ours, theirs) = (three.clients(impatient()).await, three.clients(impatient()).await);
    three.others[0].freeze();
    let mut lock = red(&ours);
    let guard = soon(lock.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    three.others[0].thaw();
    let (guard, took) = timed(async { theirs[1].rlock("a").lock().await }).await;
    assert!(took < 3 * SECOND, "an orphan for {took:?}");
    guard.unwrap().unlock().await.unwrap();
    drop(lock);
    three.end(both(ours, theirs)).await;
}

/// Five clients, three servers: votes are split, and all get on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_votes_do_not_last() {
    const CLIENTS: u32 = 5;
    const ROUNDS: u32 = 40;
    let three = Three::start().await;
    let inside = Arc::new(AtomicU32::new(0));
    let mut all = Vec::new();
    let mut working = JoinSet::new();
    let start = Instant::now();
    for _ in 0..CLIENTS {
        let clients = three.clients(LockConfig::default()).await;
        all.extend(clients.iter().cloned());
        let inside = Arc::clone(&inside);
        working.spawn(async move {
            let (mut lock, mut longest) = (red(&clients), Duration::ZERO);
            for _ in 0..ROUNDS {
                let (guard, waited) = timed(lock.lock()).await;
                let guard = guard.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.unlock().await.unwrap();
                longest = longest.max(waited);
            }
            longest
        });
    }
    let longest = tokio::time::timeout(60 * SECOND, working.join_all()).await.expect("they get on");
    println!("{} sections in {:?}, longest waits {longest:?}", CLIENTS * ROUNDS, start.elapsed());
    three.end(all).await;
}

/// A waiter sleeps; it does not ask again and again.
#[tokio::test]
async fn whoever_waits_for_a_majority_sleeps() {
    let three = Three::start().await;
    let (ours, theirs) =
        (three.clients(LockConfig::default()).await, three.clients(LockConfig::default()).await);
    let guard = red(&theirs).lock().await.unwrap();
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { red(&ours).lock().await.unwrap().unlock().await }
    });
    let heard = || three.servers().iter().map(|server| server.channels().len()).sum::<usize>();
    eventually("it listens", heard, |&count| count == 1).await;
    let asked = || three.servers().iter().map(|server| server.calls("evalsha")).sum::<u64>();
    let before = quiet(asked).await;
    sleep(2 * SECOND).await;
    assert!(asked() - before <= 6, "{} commands in two seconds", asked() - before);
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    three.end(both(ours, theirs)).await;
}

/// One member was not had at first. In the line of what is ours stand those who wait for us.
#[tokio::test]
async fn a_holder_enters_again_past_those_who_wait_for_it() {
    let three = Three::start().await;
    let (ours, theirs) =
        (three.clients(LockConfig::default()).await, three.clients(LockConfig::default()).await);
    for (blocked, locks) in theirs.iter().enumerate() {
        let foreign = locks.rlock("a").lock().await.unwrap();
        let mut lock = red(&ours);
        let outer = lock.lock().await.unwrap();
        foreign.unlock().await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..6 {
            let ours = ours.clone();
            waiting.spawn(async move { red(&ours).lock().await.unwrap().unlock().await.unwrap() });
        }
        let heard = || three.servers().iter().map(|server| server.channels().len()).sum::<usize>();
        eventually("they listen", heard, |&count| count > 0).await;
        let (inner, took) = timed(lock.lock()).await;
        assert!(took < SECOND, "{blocked}: {took:?}");
        inner.unwrap().unlock().await.unwrap();
        outer.unlock().await.unwrap();
        soon(waiting.join_all()).await;
    }
    three.end(both(ours, theirs)).await;
}

/// One server is dead and another far away: that the lock is held is no error.
#[tokio::test]
async fn a_fault_beside_a_slow_server_is_no_error() {
    let three = Three::start().await;
    let theirs = three.clients(LockConfig::default()).await;
    let guard = red(&theirs).lock().await.unwrap();
    let ours = three.clients(LockConfig::default().retry_timeout(SECOND)).await;
    three.proxies[0].refuse(true);
    three.proxies[0].cut();
    three.proxies[2].set(Faults { delay: 20 * MS, ..Faults::default() });
    let mut lock = red(&ours);
    let (got, took) = timed(lock.try_lock()).await;
    assert!(got.unwrap().is_none() && took < SECOND, "{took:?}");
    assert!(lock.try_lock_for(500 * MS).await.unwrap().is_none());
    let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
    sleep(3 * SECOND).await; // longer than it goes on through faults
    assert!(!waiting.is_finished());
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().expect("it waited");
    three.proxies[0].refuse(false);
    three.proxies[2].set(Faults::default());
    three.end(both(ours, theirs)).await;
}

/// What one server lost, and another is slow to answer for, is not taken for made longer.
#[tokio::test]
async fn a_lease_is_longer_when_a_majority_says_so() {
    let three = Three::start().await;
    let clients = three.clients(LockConfig::default()).await;
    let guard = red(&clients).lease(2 * SECOND).lock().await.unwrap();
    three.others[0].run::<()>(&["DEL", "a"]);
    three.proxies[2].set(Faults { delay: 100 * MS, ..Faults::default() });
    guard.extend(60 * SECOND).await.unwrap();
    assert!(guard.remaining() > 50 * SECOND, "{:?}", guard.remaining());
    three.proxies[2].set(Faults::default());
    guard.unlock().await.unwrap();
    three.end(clients).await;
}

/// Its waiters have a place on one server, and the majority may become free on the others.
#[tokio::test]
async fn fair_members_do_not_sleep_on() {
    const CLIENTS: usize = 5;
    let three = Three::start().await;
    let (mut all, mut working) = (Vec::new(), JoinSet::new());
    for _ in 0..CLIENTS {
        let clients = three.clients(LockConfig::default().safety_poll(300 * MS)).await;
        all.extend(clients.iter().cloned());
        working.spawn(async move {
            for _ in 0..15 {
                let mut lock = RedLock::new(clients.iter().map(|locks| locks.fair_lock("a"))).unwrap();
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        });
    }
    tokio::time::timeout(60 * SECOND, working.join_all()).await.expect("they get on");
    for server in three.servers() {
        server.run::<()>(&["DEL", "redisson_lock_timeout:{a}", "lockkeeper_fair:{a}"]); // nobody is in them
    }
    three.end(all).await;
}

/// One server has something else under that name.
#[tokio::test]
async fn a_name_in_other_use_on_one_server_costs_that_server() {
    let three = Three::start().await;
    let clients = three.clients(impatient()).await;
    let mut lock = red(&clients);
    for in_use in [&["HSET", "a", "mode", "write", "x:1:write", "1"][..], &["SET", "a", "text"]] {
        three.others[1].run::<()>(in_use);
        let guard = lock.try_lock().await.unwrap().expect("two are free");
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
    let clients = three.clients(LockConfig::default()).await;
    let problem = |members: Vec<RLock>| match RedLock::new(members).unwrap_err() {
        Error::InvalidMembers { problem, .. } => problem,
        other => panic!("{other:?}"),
    };
    assert!(problem(Vec::new()).contains("none"));
    assert!(problem(members(&clients[..2])).contains("two"));
    let again =
        LockClient::connect(three.scene.server.url().replace("127.0.0.1", "localhost")).await.unwrap();
    let same = vec![clients[0].rlock("a"), clients[1].rlock("a"), again.rlock("b")];
    assert!(problem(same).contains("one server"));
    drop(RedLock::new([again.rlock("a")]).expect("one is a majority of one"));
    three.scene.server.run::<()>(&["ACL", "SETUSER", "u", "on", ">s", "~*", "&*", "+@all", "-info"]);
    let url = format!("redis://u:s@127.0.0.1:{}/", three.scene.server.port());
    let shy = LockClient::connect(url).await.unwrap();
    let unknown = vec![shy.rlock("a"), clients[1].rlock("a"), clients[2].rlock("a")];
    assert!(problem(unknown).contains("INFO"));
    three.end(both(clients, vec![again, shy])).await;
}

//! Guarantee 17, for a URL whose name moves: a service promotes a replica, and then the name of the master leads to that.
//!
//! A test cannot change the DNS of its host. A proxy takes the place of the name: open connections stay with the server to which they
//! led when they were made, and new ones lead to the server that the name means by then. A client cannot tell the difference.

use futures_util::future::join_all;
use lockkeeper::{Error, LockClient, LockConfigBuilder, LockGuard};
use redis::Value;
use tokio::task::JoinHandle;

use crate::support::{
    Commands, Proxy, SECOND, connect, eventually, listens, nothing_is_left, patient, renewed, replicated,
    soon, timed, waiter, woken_by_message,
};
use lockkeeper_testkit::Server;

/// So many that each of the two connections for commands has some.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Two servers, and the name that leads to the first one.
struct Scene {
    old: Server,
    new: Server,
    name: Proxy,
}

impl Scene {
    /// The second server is a replica of the first one.
    async fn with_replica() -> Self {
        let scene = Self::with_stranger().await;
        scene.new.run::<()>(&["REPLICAOF", "127.0.0.1", &scene.old.port().to_string()]);
        replicated(&scene.old, 1).await;
        scene
    }

    /// The second server has nothing of the first one.
    async fn with_stranger() -> Self {
        let old = Server::start();
        let name = Proxy::to(old.port()).await;
        Self { old, new: Server::start(), name }
    }

    async fn client(&self) -> LockClient {
        self.client_with(patient().watchdog_lease(6 * SECOND)).await
    }

    async fn client_with(&self, config: LockConfigBuilder) -> LockClient {
        connect(self.name.url(), config.connections(2)).await
    }

    /// The old master and its replica change places. No write is lost.
    async fn change_places(&self) {
        // The replica has to be in step.
        let begins = || {
            let failover = ["FAILOVER", "TO", "127.0.0.1", &self.new.port().to_string()];
            self.old.try_run::<()>(&failover).is_ok()
        };
        eventually("the failover begins", begins, |begun| *begun).await;
        eventually("the old master is a replica", || role(&self.old), |role| role == "slave").await;
        eventually("its replica is the master", || role(&self.new), |role| role == "master").await;
    }

    /// Two names: one whose commands take the connection with which each client begins, and one whose commands take the other one.
    async fn names_of_two_connections(&self) -> [&'static str; 2] {
        let (mut first, mut second) = (None, None);
        for name in NAMES {
            let probe = self.client().await;
            let before = self.name.accepted();
            assert!(!probe.rlock(name).is_locked().await.unwrap());
            let needs_other = self.name.accepted() > before;
            *(if needs_other { &mut second } else { &mut first }) = Some(name);
            probe.shutdown().await.unwrap();
        }
        [first.unwrap(), second.unwrap()]
    }

    fn move_name(&self) {
        self.name.lead_to(self.new.port());
    }

    async fn end(self, clients: impl IntoIterator<Item = LockClient>) {
        for locks in clients {
            soon(locks.shutdown()).await.unwrap();
        }
        nothing_is_left(|| self.new.keys(), || self.new.channels()).await;
    }
}

fn role(server: &Commands) -> String {
    let role: Vec<Value> = server.run(&["ROLE"]);
    redis::from_redis_value(role[0].clone()).unwrap()
}

/// The connections of lock clients to a server, by their ids.
fn connections(server: &Commands) -> Vec<String> {
    let is_of_replication = |line: &String| line.contains("flags=M") || line.contains("flags=S");
    let clients = server.clients().into_iter().filter(|line| !is_of_replication(line));
    clients.map(|line| line.split(' ').next().unwrap().replace("id=", "")).collect()
}

/// Waits until lock clients have so many connections to a server. Those of the test itself end a moment after their commands.
async fn connected(server: &Commands, count: usize) -> Vec<String> {
    let what = format!("{count} connections");
    eventually(&what, || connections(server), |connections| connections.len() == count).await
}

async fn nobody_is_connected(server: &Commands) {
    connected(server, 0).await;
}

async fn hold(locks: &LockClient, names: &[&str]) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for name in names {
        guards.push(locks.rlock(*name).lock().await.unwrap());
    }
    guards
}

/// Two clients: one holds locks, and the other waits for the same locks.
struct Crowd {
    ours: LockClient,
    theirs: LockClient,
    guards: Vec<LockGuard>,
    waiters: Vec<JoinHandle<LockGuard>>,
}

impl Crowd {
    async fn of(scene: &Scene, config: impl Fn() -> LockConfigBuilder) -> Self {
        let (ours, theirs) = (scene.client_with(config()).await, scene.client_with(config()).await);
        let guards = hold(&ours, &NAMES).await;
        let waiters: Vec<_> = NAMES.iter().map(|name| waiter(theirs.rlock(*name))).collect();
        let all = |channels: &Vec<String>| channels.len() == NAMES.len();
        eventually("all waiters listen", || scene.old.channels(), all).await;
        connected(&scene.old, 2 + 3).await; // each client has two for commands, and the waiters' client has one for messages
        Self { ours, theirs, guards, waiters }
    }

    /// The new master has all holds except the first one. Checks that this one is lost, that the others go on, and that each lock
    /// passes to its waiter there.
    async fn goes_on(self, scene: &Scene) -> [LockClient; 2] {
        let (new, mut pairs) = (&scene.new, self.guards.into_iter().zip(self.waiters));
        let (missing, its_waiter) = pairs.next().unwrap();
        soon(missing.ended()).await.unwrap_err();
        let next = soon(its_waiter).await.unwrap();
        assert!(new.run::<bool>(&["EXISTS", "a"]));
        assert!(matches!(missing.unlock().await, Err(Error::NotHeld(_))));
        next.unlock().await.unwrap();
        let (held, waiters): (Vec<_>, Vec<_>) = pairs.unzip();
        join_all(held.iter().map(renewed)).await;
        for (guard, waiting) in held.into_iter().zip(waiters) {
            let name = guard.name().to_owned();
            assert!(!waiting.is_finished() && new.run::<u32>(&["HLEN", &name]) == 1, "{name}");
            guard.unlock().await.unwrap();
            woken_by_message(waiting).await.unlock().await.unwrap();
        }
        [self.ours, self.theirs]
    }
}

/// The old connections stay open, and are refused (`READONLY`). This begins before the name moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_on_when_the_old_master_becomes_a_replica() {
    let scene = Scene::with_replica().await;
    let crowd = Crowd::of(&scene, || patient().watchdog_lease(6 * SECOND)).await;
    scene.change_places().await;
    scene.new.run::<()>(&["DEL", "a"]);
    eventually("a client is refused", || scene.old.errors("READONLY"), |errors| *errors > 0).await;
    scene.move_name();
    let clients = crowd.goes_on(&scene).await;
    nobody_is_connected(&scene.old).await;
    scene.end(clients).await;
}

/// The old master stays a master. No answer tells the client that its name leads elsewhere, until a connection ends. The loss of one
/// connection is enough: otherwise the client would have locks on both servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lost_connection_leads_the_others_away_from_an_old_master() {
    let scene = Scene::with_stranger().await;
    let locks = scene.client().await;
    let guards = hold(&locks, &NAMES).await;
    let both = connected(&scene.old, 2).await;
    for server in [&scene.old, &scene.new] {
        server.run::<()>(&["HSET", "waited", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1"]);
    }
    let waiting = waiter(locks.rlock("waited"));
    listens(&scene.old).await;

    join_all(guards.iter().map(renewed)).await; // all connections are open
    scene.move_name();
    join_all(guards.iter().map(renewed)).await; // by the old master: nothing told the client
    assert_eq!(scene.new.keys(), ["waited"]);

    scene.old.run::<()>(&["CLIENT", "KILL", "ID", &both[0]]);
    let mut found = Vec::new();
    for name in NAMES.iter().chain(&NAMES) {
        found.push(locks.rlock(*name).is_locked().await.unwrap());
    }
    assert_eq!(found[NAMES.len()..], [false; NAMES.len()], "the new master has none of these holds");
    for guard in &guards {
        soon(guard.ended()).await.unwrap_err();
    }
    nobody_is_connected(&scene.old).await;
    listens(&scene.new).await;
    assert!(!waiting.is_finished());
    let beside = connect(scene.new.url(), patient()).await;
    assert!(beside.rlock("waited").force_unlock().await.unwrap());
    woken_by_message(waiting).await.unlock().await.unwrap();
    drop(guards);
    scene.end([locks, beside]).await;
}

/// A connection that is made for the first time is enough as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_connection_leads_the_others_away_from_an_old_master() {
    let scene = Scene::with_stranger().await;
    let [first, second] = scene.names_of_two_connections().await;
    let locks = scene.client().await;
    let guard = locks.rlock(first).lock().await.unwrap();
    scene.move_name();
    let beside = locks.rlock(second).lock().await.unwrap();
    assert_eq!(scene.new.keys(), [second]);
    assert!(!locks.rlock(first).is_locked().await.unwrap(), "the new master has no such hold");
    soon(guard.ended()).await.unwrap_err();
    beside.unlock().await.unwrap();
    drop(guard);
    scene.end([locks]).await;
}

/// The same when the connection for messages is the one that ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_subscription_leads_the_commands_away_from_an_old_master() {
    let scene = Scene::with_stranger().await;
    let crowd = Crowd::of(&scene, || patient().watchdog_lease(6 * SECOND)).await;
    scene.move_name();
    assert_eq!(scene.old.run::<usize>(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
    for (name, waiting) in NAMES.iter().zip(crowd.waiters) {
        let (guard, waited) = timed(waiting).await;
        assert!(waited < 2 * SECOND, "{waited:?}");
        assert!(scene.new.run::<bool>(&["EXISTS", name]));
        guard.unwrap().unlock().await.unwrap();
    }
    connected(&scene.old, 2).await; // the holder lost none, and still uses the old master
    drop(crowd.guards);
    scene.end([crowd.ours, crowd.theirs]).await;
}

//! Databases in a cluster, which Valkey has from 9.0 on. Elsewhere, these tests are ignored unless `scripts/test servers` asks for them.

use lockkeeper::{LockClient, Source};
use lockkeeper_testkit::{Cluster, Server};
use redis::{Connection, cmd};
use tokio::task::block_in_place;

use crate::cluster::end;
use crate::support::{
    SECOND, each_is_handed_over, eventually, listens, patient, renewed, waiter, woken_by_message,
};

async fn client(group: &Cluster, database: u32) -> LockClient {
    let urls = group.urls().into_iter().map(|url| format!("{url}{database}"));
    let config = patient().watchdog_lease(6 * SECOND).safety_poll(3_600 * SECOND);
    LockClient::connect_with(Source::cluster(urls), config.build().unwrap()).await.unwrap()
}

fn connection(server: &Server, database: u32) -> Connection {
    let mut connection = server.connect().unwrap();
    cmd("SELECT").arg(database).exec(&mut connection).unwrap();
    connection
}

/// How many keys the servers have in a database.
fn keys(group: &Cluster, database: u32) -> u64 {
    let size = |server| cmd("DBSIZE").query::<u64>(&mut connection(server, database)).unwrap();
    group.servers.iter().map(size).sum()
}

/// Guarantees 1, 7 and 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "Valkey 9.0 is needed: scripts/test servers"]
async fn locks_are_in_the_database_that_the_urls_name() {
    let group = Cluster::with(2, 0, SECOND, &["--cluster-databases", "16"]);
    let [ours, theirs, apart] = [client(&group, 3).await, client(&group, 3).await, client(&group, 0).await];
    each_is_handed_over([&ours, &theirs], str::to_owned, || group.channels()).await;

    let guard = ours.rlock("a").lock().await.unwrap();
    assert_eq!((keys(&group, 3), keys(&group, 0)), (2, 0), "the lock, and the counter of the fenced one");
    let other = apart.rlock("a").try_lock().await.unwrap().expect("another lock: it is in database 0");
    assert_eq!(theirs.list("a").await.unwrap().locks.len(), 1);
    let slot = group.slot_of("a");
    let to = 1 - group.master_of(slot);
    block_in_place(|| group.move_atomically(&(slot..=slot), to));
    let found: bool = cmd("EXISTS").arg("a").query(&mut connection(&group.servers[to], 3)).unwrap();
    assert!(found && group.master_of(slot) == to);
    renewed(&guard).await;
    renewed(&other).await;
    let waiting = waiter(theirs.rlock("a"));
    listens(&group.servers[to]).await;
    guard.unlock().await.unwrap();
    woken_by_message(waiting).await.unlock().await.unwrap();
    other.unlock().await.unwrap();
    end(&group, [&ours, &theirs, &apart]).await;
    eventually("only the counter of the fenced lock is left", || keys(&group, 3), |keys| *keys == 1).await;
}

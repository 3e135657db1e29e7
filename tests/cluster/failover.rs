//! Masters that end, fall silent or give way under load: no call fails, and no two sections overlap.

use futures_util::{StreamExt, stream};
use lockkeeper_testkit::Cluster;

use crate::cluster::{client, client_with, end, loaded};
use crate::support::{LIMIT, MS, SECOND, eventually, fixed, patient, replicated, within, works};

/// A name that the load uses.
const NAME: &str = "rlock:0";

/// Contract: test 1. Another one takes the place of a master that fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_after_a_master_was_killed_and_when_it_is_back() {
    let mut group = Cluster::start(3, 1);
    let (clients, load) = loaded(&group).await;
    let slot = group.slot_of(NAME);
    let before = group.master_of(slot);
    works(&group.servers[before]).await;
    group.kill(before);
    let after = group.switched(slot, before);
    // Both clients have left the old master: if it runs on before, it grants what they had sent to it. No client can help that.
    for locks in &clients {
        locks.rlock(format!("{{{NAME}}}")).lock().await.unwrap().unlock().await.unwrap();
    }
    works(&group.servers[after]).await;
    assert!(group.errors("CLUSTERDOWN") > 0, "the other masters refused meanwhile");
    group.servers[before].start_again();
    within(3 * LIMIT, "it becomes a replica", || group.is_master(before), |is_master| !is_master).await;
    works(&group.servers[after]).await;
    let work = load.end().await;
    // Without the fault there is no such gap. And it is shorter than `retry_timeout`.
    assert!((700 * MS..50 * SECOND).contains(&work.gap), "{work:?}");
    end(&group, &clients).await;
}

/// Two failovers within seconds: the first new master gets the release again, and the second one lacks it as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_two_new_masters_lack_is_repeated_on_each() {
    // The others take no server for dead. So each failover happens when the test says so.
    let mut group = Cluster::with(1, 2, 60 * SECOND, &[]);
    let locks = client(&group).await;
    let guard = locks.rlock("a").with(&fixed(300 * SECOND)).lock().await.unwrap();
    replicated(&group.servers[0], 2).await;
    for replica in [1, 2] {
        group.servers[replica].freeze();
    }
    let cut: usize = group.servers[0].run(&["CLIENT", "KILL", "TYPE", "replica"]);
    assert_eq!(cut, 2);
    guard.unlock().await.unwrap();
    assert_eq!(group.servers[0].keys(), Vec::<String>::new());
    for next in [1, 2] {
        group.kill(next - 1);
        let server = &group.servers[next];
        server.thaw();
        assert_eq!(server.keys(), ["a"], "it lacks the release");
        server.run::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        eventually("the release is repeated", || server.keys(), Vec::is_empty).await;
    }
    end(&group, [&locks]).await;
}

/// Guarantee 7. A silent master keeps only the releases of its own locks waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_master_delays_no_release_at_another_master() {
    // More than are under way at a time, so some have not begun.
    const LOCKS: usize = 3_000;
    // None takes the silent one for dead.
    let group = Cluster::with(3, 0, 120 * SECOND, &[]);
    let locks = client_with(&group, patient()).await;
    let [silent, well] = [0, 1].map(|index| group.name_on(index, "name"));
    let acquiring = (0..LOCKS).map(|number| {
        let mut lock = locks.rlock(format!("{{{silent}}}:{number}"));
        async move { lock.lock().await.unwrap() }
    });
    let guards: Vec<_> = stream::iter(acquiring).buffer_unordered(64).collect().await;
    let guard = locks.rlock(&well).lock().await.unwrap();
    group.servers[0].freeze();
    drop(guards);
    drop(guard);
    let is_free = |keys: &Vec<String>| !keys.contains(&well);
    within(3 * SECOND, "it is released", || group.servers[1].keys(), is_free).await;
    group.servers[0].thaw();
    end(&group, [&locks]).await;
}

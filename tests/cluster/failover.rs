//! Masters that end, fall silent or give way under load: no call fails, and no two sections overlap.

use futures_util::{StreamExt, stream};
use lockkeeper_testkit::{Cluster, Server};

use crate::cluster::{client, client_with, end, loaded};
use crate::support::{LIMIT, MS, SECOND, eventually, fixed, patient, replicated, timed, within, works};

/// A name that the load uses.
const NAME: &str = "rlock:0";

/// Lets a master fail and come back under load. Another one takes its place.
async fn work_goes_on(fail: fn(&mut Server), come_back: fn(&mut Server)) {
    let mut group = Cluster::start(3, 1);
    let (clients, load) = loaded(&group).await;
    let slot = group.slot_of(NAME);
    let before = group.master_of(slot);
    works(&group.servers[before]).await;
    fail(&mut group.servers[before]);
    let after = group.switched(slot, before);
    // Both clients have left the old master: if it runs on before, it grants what they had sent to it. No client can help that.
    for locks in &clients {
        locks.rlock(format!("{{{NAME}}}")).lock().await.unwrap().unlock().await.unwrap();
    }
    works(&group.servers[after]).await;
    assert!(group.errors("CLUSTERDOWN") > 0, "the other masters refused meanwhile");
    come_back(&mut group.servers[before]);
    within(3 * LIMIT, "it becomes a replica", || group.is_master(before), |is_master| !is_master).await;
    works(&group.servers[after]).await;
    let work = load.end().await;
    // Without the fault there is no such gap. And it is shorter than `retry_timeout`.
    assert!((700 * MS..50 * SECOND).contains(&work.gap), "{work:?}");
    end(&group, &clients).await;
}

/// Contract: test 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_after_a_master_was_killed_and_when_it_is_back() {
    work_goes_on(Server::kill, Server::start_again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planned_failovers_cost_no_lock() {
    let group = Cluster::start(3, 1);
    let (clients, load) = loaded(&group).await;
    let slots = [0, 8_000, 16_383];
    for slot in slots {
        let before = group.master_of(slot);
        works(&group.servers[before]).await;
        let after = group.fail_over(slot);
        assert_ne!(after, before);
        works(&group.servers[after]).await;
    }
    let work = load.end().await;
    assert!(work.gap < 10 * SECOND && work.lost == 0, "{work:?}");
    end(&group, &clients).await;
}

/// Stops the replica of a master, of three with one replica each. From now on it gets no write. Returns its index.
fn cut_replica(group: &Cluster, master: usize) -> usize {
    let replica = master + 3;
    group.servers[replica].freeze();
    let cut: usize = group.servers[master].run(&["CLIENT", "KILL", "TYPE", "replica"]);
    assert_eq!(cut, 1);
    replica
}

/// Guarantee 6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_lock_the_new_master_lacks_is_told_at_once() {
    let mut group = Cluster::start(3, 1);
    let locks = client(&group).await;
    let slot = group.slot_of("a{tag}");
    let before = group.master_of(slot);
    let kept = locks.rlock("kept{tag}").with(&fixed(60 * SECOND)).lock().await.unwrap();
    let elsewhere = (0..3).find(|index| *index != before).unwrap();
    let beside = locks.rlock(group.name_on(elsewhere, "beside")).lock().await.unwrap();
    replicated(&group.servers[before], 1).await;
    let replica = cut_replica(&group, before);
    let watched = locks.rlock("a{tag}").lock().await.unwrap();
    let leased = locks.rlock("leased{tag}").with(&fixed(60 * SECOND)).lock().await.unwrap();
    group.kill(before);
    group.servers[replica].thaw();
    assert_eq!(group.switched(slot, before), replica);
    let (_, took) = timed(async { (watched.ended().await, leased.ended().await) }).await;
    // The lease is 30 seconds. A busy machine takes longer than the bar, which is 500 ms.
    assert!(took < 2 * SECOND, "{took:?}");
    assert!(!kept.is_lost() && !beside.is_lost(), "the cluster has these");
    eventually("the others are left", || group.keys().len(), |count| *count == 2).await;
    assert!(watched.unlock().await.is_err() && leased.unlock().await.is_err());
    kept.unlock().await.unwrap();
    beside.unlock().await.unwrap();
    end(&group, [&locks]).await;
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
    // More than are under way at a time, so some have not begun, and others are repeated.
    const LOCKS: usize = 3_000;
    // None takes the silent one for dead.
    let group = Cluster::with(3, 0, 120 * SECOND, &[]);
    let locks = client_with(&group, patient().command_timeout(2 * SECOND)).await;
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

//! A user with the rights that docs/deploy.md names.

use futures_util::future::{join_all, try_join_all};
use lockkeeper::{Error, LockClient, LockGuard, Source};
use lockkeeper_testkit::Cluster;

use crate::cluster::{client, end};
use crate::support::{SECOND, announces, each_is_handed_over, patient, renewed};

/// Makes the user on each node: nodes do not share users.
fn grant(group: &Cluster) {
    let page = include_str!("../../docs/deploy.md");
    let rules = page.match_indices("\nACL SETUSER locker ").map(|(start, _)| &page[start..]);
    for rule in rules.map(|rule| rule.split("```").next().unwrap()) {
        let words: Vec<&str> = rule.split_whitespace().collect();
        group.servers.iter().for_each(|server| server.run::<()>(&words));
    }
    for server in &group.servers {
        server.run::<()>(&["ACL", "SETUSER", "locker", "+info", "-publish", "-subscribe", "-unsubscribe"]);
        // Older servers do not know it.
        let _ = server.try_run::<()>(&["ACL", "SETUSER", "locker", "+client|setinfo"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_in_a_cluster() {
    let group = Cluster::start(3, 0);
    grant(&group);
    let connect = async || {
        let url = format!("redis://locker:secret@127.0.0.1:{}/", group.servers[0].port());
        let config = patient()
            .safety_poll(60 * SECOND)
            .watchdog_lease(6 * SECOND)
            .name_prefix("shop:")
            .build()
            .unwrap();
        LockClient::connect_with(Source::cluster([url]), config).await.unwrap()
    };
    let (ours, theirs) = (connect().await, connect().await);
    let both = [&ours, &theirs];
    each_is_handed_over(both, str::to_owned, || group.channels()).await;
    announces(&ours, &theirs, "leader").await;

    let slot = group.slot_of("shop:a");
    let to = (group.master_of(slot) + 1) % 3;
    group.open_slot(slot, to);
    let guard = ours.rlock("a").lock().await.unwrap();
    assert!(group.servers[to].calls("asking") > 0, "the call was sent on");
    group.close_slot(slot, to);
    guard.unlock().await.unwrap();
    // Also their renewal.
    let hold = async |name: &str| ours.rlock(name).lock().await.unwrap();
    let names = ["b", "c", "d", "e"];
    let guards = [hold(names[0]).await, hold(names[1]).await, hold(names[2]).await, hold(names[3]).await];
    join_all(guards.iter().map(renewed)).await;
    try_join_all(guards.into_iter().map(LockGuard::unlock)).await.unwrap();
    for server in &group.servers {
        let refused: Vec<redis::Value> = server.run(&["ACL", "LOG"]);
        assert!(refused.is_empty(), "{refused:?}");
    }
    end(&group, both).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_names_the_right_to_follow_keys_that_are_under_way() {
    let group = Cluster::start(1, 0);
    let locks = client(&group).await;
    let lock = locks.rlock("a");
    lock.check().await.unwrap();
    group.servers[0].run::<()>(&["ACL", "SETUSER", "default", "-asking"]);
    let error = lock.check().await.unwrap_err();
    assert!(matches!(&error, Error::Permission(_)) && error.to_string().contains("`asking`"), "{error:?}");
    end(&group, [&locks]).await;
}

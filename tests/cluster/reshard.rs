//! Slots that move to another master under load.

use std::time::Duration;

use lockkeeper_testkit::Cluster;
use tokio::time::Instant;

use crate::cluster::{clients, end, loaded};
use crate::support::load::names;
use crate::support::{SECOND, listens, timed, waiter, woken_by_message, works};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_to_a_new_master_cost_no_lock() {
    let mut group = Cluster::start(3, 0);
    let (clients, load) = loaded(&group).await;
    for master in 0..3 {
        works(&group.servers[master]).await;
    }
    let added = group.add_master();
    let moves: Vec<u16> = names().map(|name| group.slot_of(&name)).collect();
    for slot in &moves {
        if group.master_of(*slot) != added {
            group.move_slot(*slot, added);
        }
    }
    works(&group.servers[added]).await;
    // And back, to another master than before.
    for slot in &moves[1..] {
        if group.master_of(*slot) == added {
            group.move_slot(*slot, usize::from(slot % 3));
        }
    }
    works(&group.servers[0]).await;
    assert!(group.errors("MOVED") > 0 && group.errors("ASK") > 0, "clients met the moves");
    let work = load.end().await;
    assert!(work.gap < 10 * SECOND && work.lost == 0, "{work:?}");
    end(&group, &clients).await;
}

/// A slot can stay open for long, for example if the program that moves it was stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_rlock_works_throughout_in_a_slot_that_stays_open() {
    let group = Cluster::start(3, 0);
    let [ours, theirs] = clients(&group).await;
    let slot = group.slot_of("tag");
    let from = group.master_of(slot);
    let to = (from + 1) % 3;
    let held = ours.rlock("held{tag}").lock().await.unwrap();
    let waiting = waiter(theirs.rlock("held{tag}"));
    listens(&group.servers[from]).await;
    group.open_slot(slot, to);
    let (start, mut sections, mut worst) = (Instant::now(), 0, Duration::ZERO);
    while start.elapsed() < 3 * SECOND {
        let section = async { ours.rlock("a{tag}").lock().await.unwrap().unlock().await };
        let (result, took) = timed(section).await;
        result.unwrap();
        (sections, worst) = (sections + 1, worst.max(took));
    }
    assert!(group.servers[from].errors("ASK") >= sections, "the source has no such key");
    assert!(group.servers[to].calls("asking") >= sections);
    assert!(worst < 2 * SECOND, "{worst:?}");
    assert_eq!(group.keys_in(from, slot), ["held{tag}"]);
    // The key of this one is still there, and so is the waiter's channel.
    held.unlock().await.unwrap();
    let guard = woken_by_message(waiting).await;
    assert_eq!(group.keys_in(to, slot), ["held{tag}"], "the waiter acquired it at the target");
    group.close_slot(slot, to);
    guard.unlock().await.unwrap();
    end(&group, [&ours, &theirs]).await;
}

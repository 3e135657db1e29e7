//! Slots that move to another master under load.

use lockkeeper_testkit::Cluster;

use crate::cluster::{end, loaded};
use crate::support::load::names;
use crate::support::{SECOND, works};

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

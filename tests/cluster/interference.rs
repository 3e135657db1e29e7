//! Servers that forget their scripts and close connections under load.

use lockkeeper_testkit::Cluster;
use tokio::time::sleep;

use crate::cluster::{end, loaded};
use crate::support::{MS, SECOND, throughout, works};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_forget_their_scripts_cost_no_lock() {
    let group = Cluster::start(3, 0);
    let (clients, load) = loaded(&group).await;
    works(&group.servers[0]).await;
    throughout(2 * SECOND, async || {
        group.flush_scripts();
        sleep(50 * MS).await;
    })
    .await;
    for master in &group.servers {
        assert!(master.errors("NOSCRIPT") > 0 && master.calls("eval") > 0);
    }
    let work = load.end().await;
    assert!(work.gap < 10 * SECOND && work.lost == 0, "{work:?}");
    end(&group, &clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_closed_connections_costs_no_lock() {
    let group = Cluster::start(3, 0);
    let (clients, load) = loaded(&group).await;
    works(&group.servers[0]).await;
    let mut closed = 0;
    throughout(3 * SECOND, async || {
        closed += group.kill_clients();
        sleep(50 * MS).await;
    })
    .await;
    assert!(closed > 50, "{closed} connections were closed");
    for master in 0..3 {
        works(&group.servers[master]).await;
    }
    let work = load.end().await;
    assert!(work.gap < 20 * SECOND && work.lost == 0, "{work:?}");
    end(&group, &clients).await;
}

//! Memory that a client keeps. Each test measures its whole process.

use crate::support::child::is_alone;
use crate::support::{Scene, poll_until, soon};

/// Memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    4_096 * pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
}

/// A client lives long and waits for an unlimited number of names.
#[tokio::test]
async fn a_name_that_nobody_waits_for_is_forgotten() {
    if !is_alone("memory::a_name_that_nobody_waits_for_is_forgotten") {
        return;
    }
    const NAMES: usize = 450;
    const LONG: usize = 60_000;
    let (scene, locks) = Scene::with_client().await;
    let mut before = 0;
    for number in 0..NAMES {
        if number == NAMES / 3 {
            before = resident(); // from here on, buffers have their full size
        }
        let name = format!("{number:0>LONG$}");
        let guard = locks.rlock(&name).lock().await.unwrap();
        let (mut lock, first) = (locks.rlock(&name), scene.server.calls("subscribe"));
        let mut waiting = Box::pin(lock.lock());
        poll_until(&mut waiting, || scene.server.calls("subscribe") > first).await;
        guard.unlock().await.unwrap();
        soon(waiting).await.unwrap().unlock().await.unwrap();
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < NAMES * LONG / 3, "memory grew by {grown} bytes");
    scene.end(locks).await;
}

/// Guarantee 11. An inner section that drops its guard, again and again, while the outer section goes on without a pause.
#[tokio::test]
async fn nested_holds_that_were_dropped_cost_no_memory() {
    if !is_alone("memory::nested_holds_that_were_dropped_cost_no_memory") {
        return;
    }
    const DROPS: usize = 5_000;
    let (scene, locks) = Scene::with_client().await;
    let mut owner = locks.owner();
    let outer = owner.rlock("a").lock().await.unwrap();
    let mut before = 0;
    for round in 0..4 * DROPS {
        if round == DROPS {
            before = resident(); // buffers that grow until then stay allocated
        }
        drop(owner.rlock("a").lock().await.unwrap());
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < DROPS * 500, "{grown} bytes more");
    outer.unlock().await.unwrap();
    scene.end((owner, locks)).await;
}

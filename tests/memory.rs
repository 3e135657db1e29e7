//! Memory that a client keeps. The test measures the whole process, so no other test that uses much memory is in this
//! file.

#[path = "support/mod.rs"]
mod support;

use support::{Scene, poll_until, soon};

/// One test at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    4_096 * pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
}

/// A client lives long and waits for an unlimited number of names.
#[tokio::test]
async fn a_name_that_nobody_waits_for_is_forgotten() {
    const NAMES: usize = 450;
    const LONG: usize = 60_000;
    let _alone = ALONE.lock().await;
    let scene = Scene::start();
    let locks = scene.client().await;
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
    drop(locks);
    scene.end().await;
}

/// Guarantee 11. An inner section that drops its guard, again and again, while the outer section goes on without a pause.
#[tokio::test]
async fn nested_holds_that_were_dropped_cost_no_memory() {
    const DROPS: usize = 5_000;
    let _alone = ALONE.lock().await;
    let scene = Scene::start();
    let locks = scene.client().await;
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
    drop((owner, locks));
    scene.end().await;
}

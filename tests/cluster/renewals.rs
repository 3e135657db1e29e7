//! Many holds in many slots, whose renewals are sent together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use lockkeeper::{LockClient, LockGuard};
use lockkeeper_testkit::{Cluster, Proxy, Server, lua};
use tokio::time::Instant;

use crate::cluster::late_copies::announce_proxy;
use crate::cluster::{client_with, end};
use crate::support::{SECOND, connect, eventually, nothing_is_left, patient, renewed};

const HOLDS: usize = 300;

/// Guarantees 7 and 17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_that_are_sent_together_follow_redirects_and_load_their_scripts() {
    let group = Cluster::start(3, 0);
    let locks = client_with(&group, patient().watchdog_lease(15 * SECOND)).await;
    let names: Vec<_> = (0..HOLDS).map(|number| format!("held:{number}")).collect();
    let mut handles: Vec<_> = names.iter().map(|name| locks.rlock(name)).collect();
    let guards = try_join_all(handles.iter_mut().map(|lock| lock.lock())).await.unwrap();
    all_renewed(&guards).await;
    group.flush_scripts();
    all_renewed(&guards).await;
    let before = group.errors("MOVED");
    // The client also asks where the slots are. So not every move is noticed by a renewal.
    let mut moves = names.iter().map(|name| group.slot_of(name));
    while group.errors("MOVED") == before {
        let slot = moves.next().expect("a renewal meets one of the moves");
        group.move_slot(slot, (group.master_of(slot) + 1) % 3);
    }
    all_renewed(&guards).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    try_join_all(guards.into_iter().map(LockGuard::unlock)).await.unwrap();
    end(&group, [&locks]).await;
}

async fn all_renewed(guards: &[LockGuard]) {
    join_all(guards.iter().map(renewed)).await;
}

/// Guarantee 7. One command renews up to a hundred holds of one master, whatever their slots are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_of_one_master_are_renewed_together() {
    const LEASE: Duration = Duration::from_secs(15);
    let group = Cluster::start(3, 0);
    let locks = client_with(&group, patient().watchdog_lease(LEASE)).await;
    let guards = hold_some_of_each(&locks).await;
    all_renewed(&guards).await;
    let commands = || group.servers.iter().map(|server| server.calls("evalsha")).sum::<u64>();
    let (before, start) = (commands(), Instant::now());
    all_renewed(&guards).await;
    all_renewed(&guards).await;
    let (sent, periods) = (commands() - before, start.elapsed().div_duration_f64(LEASE / 3));
    println!("{sent} commands for {} holds in {periods:.2} periods", guards.len());
    // In each sixteenth of a period, each master gets at most one for each of three scripts.
    assert!((sent as f64) < 0.5 * guards.len() as f64 * periods, "{sent} in {periods} periods");
    try_join_all(guards.into_iter().map(LockGuard::unlock)).await.unwrap();
    end(&group, [&locks]).await;
}

/// Guarantee 7. A master that has lost a slot, or a part of it, says so, and nobody takes that for the loss of a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_hold_is_lost_while_slots_move() {
    const LEASE: Duration = Duration::from_secs(6);
    let group = Cluster::start(3, 0);
    let locks = client_with(&group, patient().watchdog_lease(LEASE)).await;
    let guards = hold_some_of_each(&locks).await;
    let slots: Vec<u16> = guards.iter().map(|guard| group.slot_of(guard.name())).collect();
    let (stop, stopped) = mpsc::channel::<()>();
    let mover = thread::spawn(move || {
        let mut moved = 0;
        for slot in slots.iter().cycle() {
            // The client also asks where the slots are. So not every move is noticed by a renewal.
            let is_enough = || moved > 20 && group.errors("MOVED") > 0;
            if stopped.try_recv() != Err(TryRecvError::Empty) && (is_enough() || moved > 2 * HOLDS) {
                break;
            }
            group.move_slot(*slot, (group.master_of(*slot) + 1) % 3);
            moved += 1;
        }
        (group, moved)
    });
    let start = Instant::now();
    while start.elapsed() < 2 * LEASE {
        all_renewed(&guards).await;
    }
    drop(stop);
    let (group, moved) = mover.join().unwrap();
    println!("{moved} slots moved");
    assert!(moved > 20 && group.errors("MOVED") > 0, "{moved} slots moved");
    all_renewed(&guards).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    try_join_all(guards.into_iter().map(LockGuard::unlock)).await.unwrap();
    end(&group, [&locks]).await;
}

/// Holds locks of all types whose renewals differ.
async fn hold_some_of_each(locks: &LockClient) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for number in 0..HOLDS / 10 {
        guards.push(locks.read_write_lock(format!("read:{number}")).into_read().lock().await.unwrap());
        guards.push(locks.read_write_lock(format!("write:{number}")).into_write().lock().await.unwrap());
        guards.push(locks.fair_lock(format!("fair:{number}")).lock().await.unwrap());
    }
    let names: Vec<_> = (guards.len()..HOLDS).map(|number| format!("held:{number}")).collect();
    let mut handles: Vec<_> = names.iter().map(|name| locks.rlock(name)).collect();
    guards.extend(try_join_all(handles.iter_mut().map(|lock| lock.lock())).await.unwrap());
    guards
}

/// Guarantee 7. A server can lack the flag, or want to know the keys of a script before the script runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_scripts_about_several_slots_is_asked_about_one_at_a_time_from_then_on() {
    const LEASE: Duration = Duration::from_secs(3);
    type Refusal = fn(usize) -> String;
    let refusals: [Refusal; 2] = [
        |_| "-ERR Unexpected flag in script shebang: allow-cross-slot-keys\r\n".to_owned(),
        |keys| format!("*{keys}\r\n") + &"$34\r\nERR script tried an undeclared key\r\n".repeat(keys),
    ];
    let hash = lua::of_slots_hash("rlock/renew.lua");
    for refusal in refusals {
        let group = Cluster::start(1, 0);
        let proxy = announce_proxy(&group, 0).await;
        let (hash, refused) = (hash.clone(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&refused);
        proxy.answer(move |words| {
            let is_it = words[0] == "EVALSHA" && words[1] == hash;
            is_it.then(|| {
                count.fetch_add(1, Ordering::Relaxed);
                refusal(words[3].parse().expect("the number of keys"))
            })
        });
        let locks = client_with(&group, patient().watchdog_lease(LEASE)).await;
        let mut guards = Vec::new();
        for number in 0..20 {
            guards.push(locks.rlock(format!("{number}")).lock().await.unwrap());
        }
        let refused = || refused.load(Ordering::Relaxed);
        eventually("a batch is refused", refused, |&times| times > 0).await;
        all_renewed(&guards).await;
        let (start, before) = (Instant::now(), refused());
        while start.elapsed() < 2 * LEASE {
            all_renewed(&guards).await;
        }
        assert_eq!(refused(), before, "batches are refused again and again");
        try_join_all(guards.into_iter().map(LockGuard::unlock)).await.unwrap();
        end(&group, [&locks]).await;
    }
}

/// Guarantee 7. Such a proxy looks like a single server, and is in front of several.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_refuses_several_slots_is_asked_about_one_at_a_time_from_then_on() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = Server::cluster_of_one();
    let proxy = Proxy::to(server.port()).await;
    proxy.doctor("$7\r\ncluster\r\n", "$10\r\nstandalone\r\n");
    let locks = connect(proxy.url(), patient().watchdog_lease(LEASE)).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(locks.rlock(format!("{number}")).lock().await.unwrap());
    }
    let refused = || server.errors("CROSSSLOT");
    let mut before = 0;
    for _ in 0..2 {
        eventually("a batch is refused", refused, |&now| now > before).await;
        all_renewed(&guards).await; // others can have been under way at the same time
        before = refused();
        let start = Instant::now();
        while start.elapsed() < 2 * LEASE {
            all_renewed(&guards).await;
        }
        assert_eq!(refused(), before, "batches are refused again and again");
        // With the next connections, perhaps there is another server.
        proxy.cut();
    }
    for guard in guards {
        assert!(!guard.is_lost());
        guard.unlock().await.unwrap();
    }
    drop(locks);
    nothing_is_left(|| server.keys(), || server.channels()).await;
}

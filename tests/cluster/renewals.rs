//! Many holds in many slots, whose renewals are sent together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use lockkeeper::LockGuard;
use lockkeeper_testkit::{Cluster, lua};
use tokio::time::Instant;

use crate::cluster::late_copies::announce_proxy;
use crate::cluster::{client_with, end};
use crate::support::{SECOND, eventually, patient, renewed};

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

//! What waiting costs the server.

use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use lockkeeper::{LockClient, LockConfig, Source};
use lockkeeper_memory::MemoryServer;
use tokio::time::Instant;

use crate::support::{MS, SECOND, calls_of};

/// Guarantee 8. The waiters of a client have one heartbeat in each period of 2 s, and none comes much later.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_asked_once_in_each_period() {
    let server = MemoryServer::new();
    let beats = Arc::new(Mutex::new(Vec::new()));
    let (is_heartbeat, sent) = (calls_of("fair/heartbeat.lua"), Arc::clone(&beats));
    server.observe(move |_, words, _, _| {
        let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        if is_heartbeat(&words) {
            sent.lock().unwrap().push(Instant::now());
        }
    });
    let locks =
        LockClient::connect_with(Source::stream(server.connector()), LockConfig::default()).await.unwrap();
    let guard = locks.fair_lock("a").lock().await.unwrap();
    for waiters in [1, 50] {
        let mut waiting: Vec<_> = (0..waiters).map(|_| locks.fair_lock("a")).collect();
        let waited = join_all(waiting.iter_mut().map(|lock| lock.try_lock_for(60 * SECOND))).await;
        assert!(waited.into_iter().all(|got| got.unwrap().is_none()));
        let beats = std::mem::take(&mut *beats.lock().unwrap());
        assert!((29..=31).contains(&beats.len()), "{} heartbeats of {waiters} in a minute", beats.len());
        // A tick is a sixteenth of a period.
        let longest = beats.windows(2).map(|two| two[1] - two[0]).max().unwrap();
        assert!(longest <= 2 * SECOND * 17 / 16 + 2 * MS, "{longest:?}");
    }
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
}

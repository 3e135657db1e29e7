//! What waiting costs the server.

use std::sync::{Arc, Mutex};

use lockkeeper::{LockClient, LockConfig, Source};
use lockkeeper_memory::MemoryServer;
use tokio::time::Instant;

use crate::support::{MS, SECOND, calls_of};

/// Guarantee 8. A waiter has one heartbeat in each period of 2 s, and none comes much later.
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
    assert!(locks.fair_lock("a").try_lock_for(60 * SECOND).await.unwrap().is_none());
    let beats = std::mem::take(&mut *beats.lock().unwrap());
    assert!((29..=31).contains(&beats.len()), "{} heartbeats in a minute", beats.len());
    // A tick is a sixteenth of a period.
    let longest = beats.windows(2).map(|two| two[1] - two[0]).max().unwrap();
    assert!(longest <= 2 * SECOND * 17 / 16 + 2 * MS, "{longest:?}");
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
}

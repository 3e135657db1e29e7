//! Writers of Redisson beside readers in Rust whose holds linger.

use tokio::time::timeout;

use crate::Stage;
use crate::roles::HAND_OFF;
use crate::support::{MS, Readers, soon};

/// Guarantee 8 with the option `linger`. The sections of the readers always overlap, and a Java writer stops nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_writer_gets_in_beside_readers_that_linger() {
    let stage = Stage::start().await;
    let other = stage.scene.client().await;
    for clients in [&[&stage.locks][..], &[&stage.locks, &other]] {
        let readers: Vec<_> =
            clients.iter().map(|locks| Readers::start(locks, 50 * MS, 8, 20 * MS)).collect();
        let writer = stage.java.actor("writer", "write");
        for _ in 0..5 {
            timeout(HAND_OFF, writer.lock("a")).await.expect("the readers are stopped").unwrap();
            writer.unlock("a").await.unwrap();
        }
        for readers in readers {
            assert!(soon(readers.end()).await > 0);
        }
    }
    drop(other);
    stage.end().await;
}

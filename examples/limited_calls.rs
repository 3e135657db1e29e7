//! An API that allows a few calls at a time, over all processes: 12 tasks of two clients call it, and at most three at a time.
//!
//! Run it with `REDIS_URL=redis://127.0.0.1/ cargo run --example limited_calls`.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockkeeper::{LockClient, Semaphore};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The API, which counts how many calls it serves.
#[derive(Default)]
struct Api {
    now: AtomicU32,
    most: AtomicU32,
}

impl Api {
    async fn call(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        sleep(Duration::from_millis(20)).await; // the call
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A call that waits until it is allowed. If the permit is lost, the call is dropped, because another one can begin.
async fn limited(limit: Semaphore, api: Arc<Api>) -> lockkeeper::Result<()> {
    limit.run(api.call()).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // Two clients stand for two processes.
    let clients = [LockClient::connect(&*url).await?, LockClient::connect(&*url).await?];
    let outcome = run(&clients).await;
    for client in clients {
        client.shutdown().await?;
    }
    outcome
}

async fn run(clients: &[LockClient; 2]) -> Result<(), Box<dyn Error>> {
    let api = Arc::new(Api::default());
    let mut calls = JoinSet::new();
    for number in 0..12 {
        let limit = clients[number % 2].semaphore("sem:example:api", 3);
        calls.spawn(limited(limit, Arc::clone(&api)));
    }
    while let Some(call) = calls.join_next().await {
        call??;
    }
    let most = api.most.load(Ordering::SeqCst);
    println!("12 calls, at most {most} at a time");
    assert!(most <= 3, "the limit was exceeded");

    // A call that needs several permits, such as a bulk request that counts as two: all or none.
    let limit = clients[0].semaphore("sem:example:api", 3);
    let bulk = limit.acquire_many(2).await?;
    println!("{} of 3 permits are left beside a bulk request", limit.available_permits().await?);
    bulk.unlock().await?;

    // The number of permits stays on the server. A service would leave it there.
    limit.delete().await?;
    Ok(())
}

//! How does a service test that it survives a lost lock and an outage, without a server?
//!
//! The service below takes a `LockClient`. In production, this client is connected to Redis or Valkey; in the tests, to
//! a server in the same process. Look at the tests at the end: the clock is paused, so a test that waits for a lease of
//! 30 s takes no time.
//!
//! ```text
//! cargo test --features paused-clock --example testing    # needs no server
//! cargo run --features paused-clock --example testing     # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::env;
use std::error::Error;
use std::time::Duration;

use lockkeeper::LockClient;
use tokio::time::sleep;

/// How long it takes to print and book a parcel.
const WORK: Duration = Duration::from_secs(45);

#[derive(Debug, PartialEq)]
enum Shipped {
    Yes,
    /// Another instance works on this order.
    Busy,
    /// The lock was lost during the work, which was stopped: try again later.
    Stopped,
}

/// Ships each order in one instance at a time.
struct Shipping {
    locks: LockClient,
    work: Duration,
}

impl Shipping {
    async fn ship(&self, order: u32) -> lockkeeper::Result<Shipped> {
        let mut lock = self.locks.rlock(format!("lock:example:orders:{order}"));
        let Some(guard) = lock.try_lock().await? else { return Ok(Shipped::Busy) };
        match guard.finish(sleep(self.work)).await {
            Ok(()) => Ok(Shipped::Yes),
            Err(lockkeeper::Error::Lost(_)) => Ok(Shipped::Stopped),
            Err(error) => Err(error),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let locks = LockClient::connect(url).await?;
    let shipping = Shipping { locks: locks.clone(), work: WORK / 1_000 };
    println!("order 42: {:?}", shipping.ship(42).await?);
    locks.shutdown().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use lockkeeper::Source;
    use lockkeeper_memory::{Data, MemoryServer};

    use super::*;

    const LOCK: &str = "lock:example:orders:42";

    async fn instance(server: &MemoryServer) -> Shipping {
        let locks = LockClient::connect(Source::stream(server.connector())).await.unwrap();
        Shipping { locks, work: WORK }
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_is_shipped_by_one_instance() {
        let server = MemoryServer::new();
        let (one, other) = (instance(&server).await, instance(&server).await);
        let (first, second) = tokio::join!(one.ship(42), other.ship(42));
        let outcomes = [first.unwrap(), second.unwrap()];
        assert!(outcomes.contains(&Shipped::Yes) && outcomes.contains(&Shipped::Busy), "{outcomes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn work_stops_when_the_lock_is_lost() {
        let server = MemoryServer::new();
        let shipping = instance(&server).await;
        let (shipped, ()) = tokio::join!(shipping.ship(42), async {
            sleep(Duration::from_secs(1)).await;
            assert!(server.expire(LOCK));
        });
        assert_eq!(shipped.unwrap(), Shipped::Stopped);
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_outage_stops_no_work() {
        let server = MemoryServer::new();
        let shipping = instance(&server).await;
        let (shipped, ()) = tokio::join!(shipping.ship(42), async {
            sleep(Duration::from_secs(5)).await;
            server.freeze(true);
            sleep(Duration::from_secs(10)).await;
            server.freeze(false);
        });
        assert_eq!(shipped.unwrap(), Shipped::Yes);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_an_error_and_the_next_call_succeeds() {
        let server = MemoryServer::new();
        let shipping = instance(&server).await;
        server.stop();
        assert!(shipping.ship(42).await.unwrap_err().is_transient());
        server.start(Data::Kept);
        assert_eq!(shipping.ship(42).await.unwrap(), Shipped::Yes);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_loses_its_data_stops_the_work() {
        let server = MemoryServer::new();
        let shipping = instance(&server).await;
        let (shipped, ()) = tokio::join!(shipping.ship(42), async {
            sleep(Duration::from_secs(1)).await;
            server.start(Data::Lost);
        });
        assert_eq!(shipped.unwrap(), Shipped::Stopped);
    }
}

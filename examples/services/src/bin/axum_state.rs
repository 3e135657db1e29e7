//! How do the handlers of a web server share locks?
//!
//! The handlers share the [`LockClient`]: it is cheap to clone, and all clones use the same few connections. Each
//! request makes its own handle. A handle is an owner, and an owner can acquire its lock again: two requests with one
//! handle would both enter. Observe that no visit is lost, although each request reads the counter, waits, and writes.
//!
//! ```text
//! cargo run -p lockkeeper-services --bin axum_state      # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use lockkeeper::LockClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

const LOCK: &str = "lock:example:visits";
const REQUESTS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(5);
const BUSY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

#[derive(Clone)]
struct App {
    locks: LockClient, // not an `Arc<Mutex<RLock>>`: that compiles, and all requests would be one owner
    visits: Arc<AtomicU64>, // stands for a row in a database
}

async fn visit(State(app): State<App>) -> Result<String, StatusCode> {
    let section = async {
        let number = app.visits.load(Ordering::Relaxed) + 1;
        sleep(Duration::from_millis(5)).await;
        app.visits.store(number, Ordering::Relaxed);
        number
    };
    match app.locks.rlock(LOCK).try_run_for(PATIENCE, section).await {
        Ok(Some(number)) => Ok(format!("visit {number}")),
        // If the lock was lost before, the visit is perhaps lost as well. So the visit must not be confirmed.
        Err(error) if error.work_was_unprotected() => Err(StatusCode::INTERNAL_SERVER_ERROR),
        Ok(None) | Err(_) => Err(BUSY),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let app = App { locks: LockClient::connect(url).await?, visits: Arc::default() };

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/visits", post(visit)).with_state(app.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async { drop(stopped.await) });
    let server = tokio::spawn(server.into_future());
    println!("serving POST http://{address}/visits");

    let asked = ask(address).await;
    let visits = app.visits.load(Ordering::Relaxed);
    println!("{REQUESTS} requests at the same time, {visits} visits counted");

    // First the server, whose handlers use locks. Then the lock client, which releases what was dropped.
    drop(stop);
    server.await??;
    app.locks.shutdown().await?;
    asked?;
    if visits == REQUESTS as u64 { Ok(()) } else { Err("visits were lost".into()) }
}

async fn ask(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut requests: JoinSet<_> = (0..REQUESTS).map(|_| request(address)).collect();
    while let Some(answer) = requests.join_next().await {
        println!("  {}", answer??);
    }
    Ok(())
}

/// Sends a request. Returns the status and the body of the answer.
async fn request(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("POST /visits HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Ok(format!("{} -> {body}", head.lines().next().unwrap_or_default()))
}

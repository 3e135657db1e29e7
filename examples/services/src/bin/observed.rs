//! How does Prometheus see the locks of a web server?
//!
//! The program installs a recorder, and then connects: a client keeps the recorder that it finds then. The locks of orders and those
//! of reports have groups of their own, so their series are apart. Observe that no series has the name of a lock: a new order makes no
//! new series. `docs/grafana.json` is a dashboard for these metrics.
//!
//! ```text
//! cargo run -p lockkeeper-services --bin observed                     # shows its own metrics, and ends
//! cargo run -p lockkeeper-services --bin observed -- 127.0.0.1:9090   # serves there until Ctrl-C
//! ```

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use lockkeeper::{LockClient, LockOptions};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::ctrl_c;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

/// In seconds. With buckets, the exporter makes histograms, which a dashboard can add up over all processes. Without them, it makes
/// summaries.
const BUCKETS: [f64; 18] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0,
];

/// How often the exporter sorts new samples into the buckets. Otherwise only a scrape does that.
const UPKEEP: Duration = Duration::from_secs(5);

const REQUESTS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct App {
    locks: LockClient,
    metrics: PrometheusHandle,
    orders: LockOptions,
    reports: LockOptions,
}

type Answer = Result<&'static str, StatusCode>;

async fn order(State(app): State<App>) -> Answer {
    let mut lock = app.locks.rlock("lock:example:order:42").with(&app.orders);
    answer(lock.try_run_for(PATIENCE, work()).await)
}

async fn report(State(app): State<App>) -> Answer {
    let mut lock = app.locks.fair_lock("lock:example:report:7").with(&app.reports);
    answer(lock.try_run_for(PATIENCE, work()).await)
}

/// The section.
async fn work() {
    sleep(Duration::from_millis(5)).await;
}

fn answer(done: lockkeeper::Result<Option<()>>) -> Answer {
    match done {
        Ok(Some(())) => Ok("done"),
        Ok(None) => Err(StatusCode::SERVICE_UNAVAILABLE), // the lock was busy for too long
        Err(error) => {
            eprintln!("{error}");
            Err(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

async fn metrics(State(app): State<App>) -> String {
    app.metrics.render()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let metrics_handle = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    let upkeep = tokio::spawn({
        let (metrics, mut pace) = (metrics_handle.clone(), interval(UPKEEP));
        async move {
            loop {
                pace.tick().await;
                metrics.run_upkeep();
            }
        }
    });
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let group = |name| LockOptions::builder().group(name).build();
    let app = App {
        locks: LockClient::connect(url).await?,
        metrics: metrics_handle,
        orders: group("orders")?,
        reports: group("reports")?,
    };

    let fixed = env::args().nth(1);
    let listener = TcpListener::bind(fixed.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/orders", post(order))
        .route("/reports", post(report))
        .route("/metrics", get(metrics))
        .with_state(app.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async { drop(stopped.await) });
    let server = tokio::spawn(server.into_future());
    println!("serving POST /orders, POST /reports and GET /metrics at http://{address}");

    let result = if fixed.is_some() { Ok(ctrl_c().await?) } else { look_at_itself(address).await };

    // First the server, whose handlers use locks. Then the lock client, which releases what was dropped.
    drop(stop);
    server.await??;
    upkeep.abort();
    app.locks.shutdown().await?;
    result
}

/// Sends some requests, and then scrapes the metrics like Prometheus.
async fn look_at_itself(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut requests: JoinSet<_> = (0..REQUESTS)
        .map(|number| request(address, if number % 2 == 0 { "POST /orders" } else { "POST /reports" }))
        .collect();
    while let Some(answer) = requests.join_next().await {
        if answer?? != "done" {
            return Err("a request failed".into());
        }
    }
    let text = request(address, "GET /metrics").await?;
    let interesting =
        |line: &&str| ["_total", "_sum", "_holds", "_waiters"].iter().any(|part| line.contains(part));
    for line in
        text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0")).filter(interesting)
    {
        println!("  {line}");
    }
    for expected in [
        r#"lockkeeper_acquires_total{type="rlock",group="orders",outcome="granted"} 4"#,
        r#"lockkeeper_acquires_total{type="fair",group="reports",outcome="granted"} 4"#,
        r#"lockkeeper_acquire_seconds_bucket{type="rlock",group="orders",le="+Inf"} 4"#,
        r#"lockkeeper_held_seconds_count{type="fair",group="reports"} 4"#,
        r#"lockkeeper_holds{type="rlock",group="orders"} 0"#,
        r#"lockkeeper_waiters{type="fair",group="reports"} 0"#,
        r#"lockkeeper_lost_holds_total{type="rlock",group="orders",cause="removed"} 0"#,
        r#"lockkeeper_commands_total{outcome="ok"}"#,
        "lockkeeper_round_trip_seconds_bucket{",
    ] {
        if !text.lines().any(|line| line.starts_with(expected)) {
            return Err(format!("the metrics lack {expected}: {text}").into());
        }
    }
    Ok(())
}

/// Sends a request. Returns the body of the answer.
async fn request(address: SocketAddr, what: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let head =
        format!("{what} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split_once("\r\n\r\n").unwrap_or_default().1.to_owned())
}

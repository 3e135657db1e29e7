//! Counts the commands that clients send to a server, with `MONITOR`.

use futures_util::StreamExt;
use redis::cmd;

use crate::connection::{address, connect, run};
use crate::runtime::many_threads;

/// The text of the command that ends the count.
const END: &str = "end of the count";

/// Counts during the work. MONITOR slows the server down, so nothing else can be measured.
pub fn count<T>(url: &str, work: impl FnOnce() -> T) -> (T, f64) {
    let runtime = many_threads();
    let (connection, counting) = runtime.block_on(async {
        let client = redis::Client::open(address(url)).expect("a valid address");
        let monitor = client.get_async_monitor().await.expect("a connection");
        let mut lines = monitor.into_on_message::<String>();
        let counting = async move {
            let mut sent = 0.0;
            while let Some(line) = lines.next().await.filter(|line| !line.contains(END)) {
                let is_in_script = line.split(' ').nth(2) == Some("lua]");
                sent += f64::from(u8::from(!is_in_script));
            }
            sent
        };
        (connect(url).await, tokio::spawn(counting))
    });
    let result = work();
    let sent = runtime.block_on(async move {
        let _: String = run(&mut connection.clone(), cmd("ECHO").arg(END)).await;
        counting.await.expect("no panic")
    });
    (result, sent)
}

//! Counts the commands that a server runs, with `MONITOR`.

use futures_util::StreamExt;
use redis::cmd;

use crate::connection::{address, connect, run};
use crate::flavor::Flavor;

#[derive(Clone, Copy, Default)]
pub struct Commands {
    /// Sent by clients.
    pub sent: f64,
    /// Run by scripts.
    pub in_scripts: f64,
}

/// The text of the command that ends the count.
const END: &str = "end of the count";

/// Counts all commands that run during the work. MONITOR slows the server down, so nothing else can be measured.
pub fn count<T>(url: &str, work: impl FnOnce() -> T) -> (T, Commands) {
    let runtime = Flavor::MultiThread.runtime();
    let (connection, counting) = runtime.block_on(async {
        let client = redis::Client::open(address(url)).expect("a valid address");
        let monitor = client.get_async_monitor().await.expect("a connection");
        let mut lines = monitor.into_on_message::<String>();
        let counting = async move {
            let mut commands = Commands::default();
            while let Some(line) = lines.next().await.filter(|line| !line.contains(END)) {
                let is_in_script = line.split(' ').nth(2) == Some("lua]");
                *(if is_in_script { &mut commands.in_scripts } else { &mut commands.sent }) += 1.0;
            }
            commands
        };
        (connect(url).await, tokio::spawn(counting))
    });
    let result = work();
    let commands = runtime.block_on(async move {
        let _: String = run(&mut connection.clone(), cmd("ECHO").arg(END)).await;
        counting.await.expect("no panic")
    });
    (result, commands)
}

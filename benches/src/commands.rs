//! What a server is told, command by command, as its `MONITOR` has it.

use futures_util::StreamExt;
use redis::cmd;

use crate::bare;

#[derive(Clone, Copy, Default)]
pub struct Commands {
    /// By clients.
    pub sent: f64,
    /// By the scripts among them.
    pub inner: f64,
}

/// What begins here ends the count.
const END: &str = "that was all";

/// Counts what is sent meanwhile, by anybody. Watching slows the server, so this is no time to measure anything else.
pub fn count<T>(url: &str, work: impl FnOnce() -> T) -> (T, Commands) {
    let runtime = crate::flavor::Flavor::MultiThread.runtime();
    let (heard, counting) = runtime.block_on(async {
        let monitor =
            redis::Client::open(bare::address(url)).expect("a good address").get_async_monitor().await;
        let mut lines = monitor.expect("a connection").into_on_message::<String>();
        let counting = async move {
            let mut commands = Commands::default();
            while let Some(line) = lines.next().await.filter(|line| !line.contains(END)) {
                let is_inner = line.split(' ').nth(2) == Some("lua]");
                *(if is_inner { &mut commands.inner } else { &mut commands.sent }) += 1.0;
            }
            commands
        };
        (bare::connection(url).await, tokio::spawn(counting))
    });
    let result = work();
    let commands = runtime.block_on(async move {
        let _: String = bare::run(&mut heard.clone(), cmd("ECHO").arg(END)).await;
        counting.await.expect("no panic")
    });
    (result, commands)
}

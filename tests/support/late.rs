//! Commands that a network delivers late, and how often a server ran them.

use std::time::Duration;

use super::{Commands, Faults, Proxy, eventually, hashes_of};

/// An orphan must be gone after this time: undos are repeated every few seconds at least. A lease is 30 s.
pub const ORPHAN_LIMIT: Duration = Duration::from_secs(12);

/// Keeps what is sent from now on in the network, until [`deliver`].
pub fn stuck(proxy: &Proxy) {
    proxy.set_existing(Faults { hold_requests: true, ..Faults::default() });
}

/// Lets the stuck connections deliver what they held, although the client has abandoned them. Returns when `copies`
/// more calls of the script ran.
pub async fn deliver(server: &Commands, proxy: &Proxy, script: &str, copies: u64) {
    let before = calls(server, script);
    proxy.set_existing(Faults::default());
    eventually("the late copy runs", || calls(server, script), |&now| now >= before + copies).await;
}

/// Lets a server log every command, for [`calls`].
pub fn log_all_commands(server: &Commands) {
    server.run::<()>(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
    server.run::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
}

/// Returns how often a script was called, by the server's slow log.
pub fn calls(server: &Commands, script: &str) -> u64 {
    let hashes = hashes_of(script);
    let log: Vec<redis::Value> = server.run(&["SLOWLOG", "GET", "-1"]);
    let is_call = |entry: &String| hashes.iter().any(|hash| entry.contains(hash));
    log.iter().map(|entry| format!("{entry:?}")).filter(is_call).count() as u64
}

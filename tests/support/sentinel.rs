//! With `LOCKKEEPER_SOURCE=sentinel`, the clients of a test find its server by a sentinel.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use lockkeeper::Source;
use lockkeeper_testkit::{MASTER, Server as RealServer};

use super::{Server, Way};

/// The URLs of the sentinels, by those of the servers that they watch.
static SENTINELS: LazyLock<Mutex<HashMap<String, String>>> = LazyLock::new(Mutex::default);

/// A sentinel that watches the server of a test.
pub struct Sentinel {
    _sentinel: RealServer,
    watched: String,
}

impl Sentinel {
    /// Starts a sentinel, if tests are to run with one.
    pub fn if_wanted(watched: &Server) -> Option<Self> {
        if Way::wanted() != Way::Sentinel {
            return None;
        }
        // It never takes the server for dead: a test that kills the server starts it again.
        let sentinel = RealServer::sentinel(&format!(
            "sentinel monitor {MASTER} 127.0.0.1 {} 1\nsentinel down-after-milliseconds {MASTER} 600000\n",
            watched.port()
        ));
        let watched = watched.url();
        SENTINELS.lock().unwrap().insert(watched.clone(), sentinel.url());
        Some(Self { _sentinel: sentinel, watched })
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        SENTINELS.lock().unwrap().remove(&self.watched);
    }
}

/// What a client connects to, if a sentinel watches the server with this URL.
pub fn source(url: &str) -> Option<Source> {
    let sentinels = SENTINELS.lock().unwrap();
    Some(Source::sentinel(MASTER, [sentinels.get(url)?], url))
}

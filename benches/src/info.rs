//! What a server reports about itself with `INFO`.

use redis::aio::MultiplexedConnection;
use redis::{InfoDict, cmd};

use crate::connection::run;

pub struct Info(InfoDict);

impl Info {
    /// Reads one section of the report, or all of it as "everything".
    pub async fn read(connection: &mut MultiplexedConnection, section: &str) -> Self {
        Self(run(connection, cmd("INFO").arg(section)).await)
    }

    pub fn number(&self, name: &str) -> f64 {
        self.0.get(name).unwrap_or_else(|| panic!("INFO has no number {name}"))
    }

    /// A number of a command, such as "calls" or "usec". 0 for a command that was never called.
    pub fn of_command(&self, command: &str, what: &str) -> f64 {
        let Some(facts) = self.0.get::<String>(&format!("cmdstat_{command}")) else { return 0.0 };
        let number = facts.split(',').find_map(|fact| fact.strip_prefix(what)?.strip_prefix('='));
        number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{command} has no {what}"))
    }

    /// Seconds that the server has computed since it started, in user space and in the kernel.
    pub fn cpu_seconds(&self) -> f64 {
        self.number("used_cpu_user") + self.number("used_cpu_sys")
    }
}

/// Microseconds that the server has spent on EVALSHA since it started.
pub async fn script_micros(connection: &mut MultiplexedConnection) -> f64 {
    Info::read(connection, "commandstats").await.of_command("evalsha", "usec")
}

//! A master, two replicas, and three sentinels that watch them.

use std::time::Duration;

use crate::turn::{self, Turn, Turns};
use crate::{Certificates, Server};

/// The name by which the sentinels know the master.
pub const MASTER: &str = "locks";

/// The time limit for the group to be complete, and for a failover. A sentinel that was stopped for two seconds does nothing for
/// half a minute.
const LIMIT: Duration = Duration::from_secs(120);

/// With more groups at the same time, sentinels on a busy machine take each other for dead.
static TURNS: Turns = Turns::new(3);

/// A group of servers, which ends when this value is dropped.
#[derive(Debug)]
#[non_exhaustive]
pub struct Sentinels {
    /// The data servers.
    pub servers: Vec<Server>,
    /// The sentinels.
    pub sentinels: Vec<Server>,
    _turn: Turn,
}

impl Sentinels {
    /// Starts the group. The sentinels take a server for dead after this time without an answer.
    pub fn start(down_after: Duration) -> Self {
        Self::with(down_after, None)
    }

    /// Starts a group that speaks TLS, and accepts only clients with a certificate.
    pub fn secured(down_after: Duration, certificates: &Certificates) -> Self {
        Self::with(down_after, Some(certificates))
    }

    fn with(down_after: Duration, certificates: Option<&Certificates>) -> Self {
        let turn = TURNS.wait_for();
        // The master is copied at once, and not after five seconds.
        let at_once = ["--repl-diskless-sync-delay", "0"];
        let server = |args: &[&str]| match certificates {
            Some(certificates) => Server::secured(certificates, true, args),
            None => Server::with(args),
        };
        let master = server(&at_once);
        let port = master.public_port().to_string();
        let replica = || server(&[&["--replicaof", "127.0.0.1", &port], &at_once[..]].concat());
        let servers = vec![replica(), replica(), master];
        let is_synchronous = || {
            servers[..2].iter().all(|server| info(server, "replication").contains("master_link_status:up"))
        };
        wait_until("the replicas copied the master", is_synchronous);
        // The sentinels start after the replicas: a sentinel looks for new replicas only once in ten seconds.
        let settings = format!(
            "sentinel monitor {MASTER} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {MASTER} {}\n\
             sentinel failover-timeout {MASTER} 3000\n\
             sentinel parallel-syncs {MASTER} 2\n",
            down_after.as_millis()
        );
        let sentinels = (0..3).map(|_| Server::sentinel_with(&settings, certificates)).collect();
        let group = Self { servers, sentinels, _turn: turn };
        wait_until("the sentinels found everything", || group.sentinels.iter().all(Self::is_complete));
        group
    }

    fn is_complete(sentinel: &Server) -> bool {
        let facts: Vec<String> = sentinel.run(&["SENTINEL", "MASTER", MASTER]);
        let fact = |name: &str| facts.iter().position(|fact| fact == name).map(|at| facts[at + 1].as_str());
        fact("num-slaves") == Some("2") && fact("num-other-sentinels") == Some("2")
    }

    /// The URLs of the sentinels.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// The index of the data server that most sentinels name.
    pub fn master(&self) -> usize {
        self.named().expect("most sentinels name the same server")
    }

    fn named(&self) -> Option<usize> {
        let names: Vec<u16> = self.sentinels.iter().filter_map(named_by).collect();
        let votes = |server: &Server| names.iter().filter(|port| **port == server.public_port()).count();
        self.servers.iter().position(|server| votes(server) * 2 > names.len())
    }

    /// Lets the last sentinel make another server the master. Returns when it begins.
    pub fn fail_over(&self) {
        let sentinel = self.sentinels.last().expect("a sentinel");
        // The sentinel refuses while it does not know yet that the replicas are well.
        let begins = || sentinel.try_run::<()>(&["SENTINEL", "FAILOVER", MASTER]).is_ok();
        wait_until("a failover begins", begins);
    }

    /// Stops the replicas and closes their connections: from now on, they get no write of the master.
    pub fn cut_replicas(&self) {
        let master = self.master();
        let replicas = || self.servers.iter().enumerate().filter(|(index, _)| *index != master);
        for (_, replica) in replicas() {
            replica.freeze();
        }
        let cut: usize = self.servers[master].run(&["CLIENT", "KILL", "TYPE", "replica"]);
        assert_eq!(cut, replicas().count());
    }

    /// Kills the master, and lets replicas that were stopped run on.
    pub fn lose_master(&mut self) -> usize {
        let master = self.master();
        self.servers[master].kill();
        for (_, replica) in self.servers.iter().enumerate().filter(|(index, _)| *index != master) {
            replica.thaw();
        }
        master
    }

    /// Whether this server calls itself a master.
    pub fn is_master(&self, index: usize) -> bool {
        let role = self.servers[index].try_run::<Vec<redis::Value>>(&["ROLE"]);
        role.is_ok_and(|role| role.first() == Some(&redis::Value::BulkString(b"master".to_vec())))
    }

    /// Waits until most sentinels name another master than this. Returns its index.
    pub fn switched(&self, from: usize) -> usize {
        wait_until("another server is the master", || self.named().is_some_and(|master| master != from));
        self.master()
    }
}

/// The port that a sentinel names.
fn named_by(sentinel: &Server) -> Option<u16> {
    let named: (String, u16) = sentinel.try_run(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).ok()?;
    Some(named.1)
}

fn info(server: &Server, section: &str) -> String {
    server.run(&["INFO", section])
}

fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    turn::wait_until(LIMIT, what, is_so);
}

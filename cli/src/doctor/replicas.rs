//! How the servers are deployed, and what a failover would lose.

use super::facts::Facts;
use super::finding::Finding;

/// A replica that is further behind than this lost its connection, or cannot keep up.
const MOST_BYTES: u64 = 1 << 20;
const MOST_SECONDS: u64 = 5;

/// A replica, as its master sees it.
#[derive(Debug, PartialEq, Eq)]
struct Replica<'a> {
    address: String,
    state: &'a str,
    bytes_behind: u64,
    /// Since it last told what it has.
    seconds_behind: u64,
}

/// `kind`: that of the source. `masters`: their number.
pub(super) fn deployment(kind: &str, masters: usize) -> Finding {
    let text = match kind {
        "cluster" => format!("a cluster with {masters} masters"),
        "sentinel" => "a master that sentinels watch: the client follows a failover".to_owned(),
        _ => "one server: the client follows no failover".to_owned(),
    };
    Finding::ok("deployment", text)
}

/// `kind`: that of the source.
pub(super) fn replicas(kind: &str, facts: Facts<'_>) -> Finding {
    const CHECK: &str = "replicas";
    let Some(connected) = facts.number("connected_slaves") else {
        let text = "the server does not tell its replicas";
        return Finding::unknown(CHECK, text, "look at `INFO replication`");
    };
    if connected == 0 && kind == "single" {
        return Finding::ok(CHECK, "none");
    }
    if connected == 0 {
        let text = "no replica is connected: if this master fails, no other server can take its place";
        return Finding::warning(CHECK, text, "start a replica, or repair its connection");
    }
    let all: Vec<Replica<'_>> = (0..connected).filter_map(|index| replica(facts, index)).collect();
    let is_late = |replica: &&Replica<'_>| {
        replica.state != "online"
            || replica.bytes_behind > MOST_BYTES
            || replica.seconds_behind > MOST_SECONDS
    };
    let late: Vec<String> = all.iter().filter(is_late).map(describe).collect();
    if late.is_empty() {
        let most = all.iter().map(|replica| replica.bytes_behind).max().unwrap_or_default();
        Finding::ok(CHECK, format!("{connected} connected, at most {most} bytes behind"))
    } else {
        let text = format!("behind: {}. A failover would forget locks", late.join(", "));
        let advice = "look at the network and the load, or set `sync_replicas` and `min-replicas-max-lag`";
        Finding::warning(CHECK, text, advice)
    }
}

fn describe(replica: &Replica<'_>) -> String {
    let Replica { address, state, bytes_behind, seconds_behind } = replica;
    format!("{address} ({state}, {bytes_behind} bytes, {seconds_behind} s)")
}

/// Reads `slave0:ip=127.0.0.1,port=6380,state=online,offset=14,lag=1`.
fn replica<'a>(facts: Facts<'a>, index: u64) -> Option<Replica<'a>> {
    let line = facts.text(&format!("slave{index}"))?;
    let value = |name: &str| {
        line.split(',')
            .filter_map(|part| part.split_once('='))
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    };
    let offset: u64 = value("offset")?.parse().ok()?;
    Some(Replica {
        address: format!("{}:{}", value("ip")?, value("port")?),
        state: value("state")?,
        bytes_behind: facts.number("master_repl_offset")?.saturating_sub(offset),
        seconds_behind: value("lag")?.parse().unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::super::facts::facts;
    use super::super::finding::Level::{self, Ok, Unknown, Warning};
    use super::*;

    fn found(kind: &str, info: &[&str]) -> (Level, String) {
        let Finding { level, text, .. } = replicas(kind, Facts(&facts(info)));
        (level, text)
    }

    fn one(replica: &str) -> (Level, String) {
        found("single", &["connected_slaves:1", "master_repl_offset:2000000", replica])
    }

    #[test]
    fn a_group_needs_a_replica_and_a_single_server_does_not() {
        for kind in ["sentinel", "cluster"] {
            assert_eq!(found(kind, &["connected_slaves:0"]).0, Warning, "{kind}");
        }
        assert_eq!(found("single", &["connected_slaves:0"]), (Ok, "none".to_owned()));
        assert_eq!(found("single", &[]).0, Unknown);
    }

    #[test]
    fn replicas_that_keep_up_are_well() {
        let text = "2 connected, at most 7 bytes behind".to_owned();
        let info = [
            "connected_slaves:2",
            "master_repl_offset:107",
            "slave0:ip=10.0.0.1,port=6379,state=online,offset=100,lag=0",
            "slave1:ip=10.0.0.2,port=6379,state=online,offset=107,lag=1",
        ];
        assert_eq!(found("sentinel", &info), (Ok, text));
    }

    #[test]
    fn replicas_that_are_behind_are_a_warning() {
        let (level, text) = one("slave0:ip=10.0.0.1,port=6379,state=online,offset=100,lag=0");
        assert_eq!(level, Warning);
        assert!(text.contains("10.0.0.1:6379 (online, 1999900 bytes, 0 s)"), "{text}");
        assert_eq!(one("slave0:ip=10.0.0.1,port=6379,state=online,offset=2000000,lag=6").0, Warning);
        assert_eq!(one("slave0:ip=10.0.0.1,port=6379,state=wait_bgsave,offset=0,lag=0").0, Warning);
        assert_eq!(one("slave0:ip=10.0.0.1,port=6379,state=online,offset=2000000,lag=1").0, Ok);
    }
}

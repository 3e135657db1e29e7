//! What the facts of a server mean for locks.

use super::facts::Facts;
use super::finding::Finding;

/// The only policy that never deletes a lock.
const SAFE_POLICY: &str = "noeviction";

/// With more of its memory in use, a server is nearly full.
const NEARLY_FULL: u64 = 90;

const DISK: &str = "look at the disk and the log of the server";

/// All checks of one server that need only its facts.
pub(super) fn server(facts: Facts<'_>) -> Vec<Finding> {
    let all = [version(facts), memory_policy(facts), persistence(facts)];
    all.into_iter().chain(memory(facts)).collect()
}

fn version(facts: Facts<'_>) -> Finding {
    const CHECK: &str = "version";
    match (facts.text("valkey_version"), facts.text("redis_version")) {
        (Some(version), _) => Finding::ok(CHECK, format!("Valkey {version}")),
        (None, Some(version)) => Finding::ok(CHECK, format!("Redis {version}")),
        (None, None) => {
            Finding::unknown(CHECK, "the server does not tell its version", "compare it with docs/deploy.md")
        }
    }
}

fn memory_policy(facts: Facts<'_>) -> Finding {
    const CHECK: &str = "memory-policy";
    const ADVICE: &str = "set `maxmemory-policy noeviction`";
    match (facts.text("maxmemory_policy"), facts.number("maxmemory")) {
        (None, _) => {
            let text = "the server does not tell its `maxmemory-policy`: perhaps it deletes held locks";
            Finding::unknown(CHECK, text, "make sure that the policy is `noeviction`")
        }
        (Some(SAFE_POLICY), _) => Finding::ok(CHECK, "noeviction: the server deletes no held locks"),
        (Some(policy), Some(0)) => {
            let text =
                format!("{policy}: with a `maxmemory`, the server would delete held locks when it is full");
            Finding::warning(CHECK, text, ADVICE)
        }
        (Some(policy), _) => {
            let text = format!("{policy}: the server deletes held locks when its memory is full");
            Finding::error(CHECK, text, ADVICE)
        }
    }
}

/// `None`: the memory has no limit, or it is not known.
fn memory(facts: Facts<'_>) -> Option<Finding> {
    const CHECK: &str = "memory";
    let most = facts.number("maxmemory").filter(|most| *most > 0)?;
    let percent = facts.number("used_memory")?.saturating_mul(100) / most;
    let text = format!("{percent} % of `maxmemory` is in use");
    const ADVICE: &str = "give the server more memory, or remove data";
    Some(match percent {
        ..NEARLY_FULL => Finding::ok(CHECK, text),
        NEARLY_FULL..100 => {
            Finding::warning(CHECK, format!("{text}: a full server refuses new locks"), ADVICE)
        }
        _ => Finding::error(CHECK, format!("{text}: no lock can be acquired"), ADVICE),
    })
}

fn persistence(facts: Facts<'_>) -> Finding {
    const CHECK: &str = "persistence";
    const ADVICE: &str = "set `appendonly yes`, or start a stopped server only after the longest lease";
    let has_failed = |fact| facts.text(fact).is_some_and(|status| status != "ok");
    if has_failed("aof_last_write_status") {
        let text =
            "the server could not write its append-only file, and refuses writes: no lock can be acquired";
        return Finding::error(CHECK, text, DISK);
    }
    if has_failed("rdb_last_bgsave_status") {
        let text = "the last snapshot failed: with `stop-writes-on-bgsave-error`, the server refuses writes";
        return Finding::error(CHECK, text, DISK);
    }
    match (facts.text("aof_enabled"), facts.number("rdb_saves")) {
        (Some("1"), _) => {
            Finding::ok(CHECK, "append-only file: a restart keeps the locks, except for the last writes")
        }
        (None, _) => {
            let text =
                "the server does not tell whether it keeps its data: perhaps a restart forgets all locks";
            Finding::unknown(CHECK, text, ADVICE)
        }
        (_, Some(1..)) => {
            let text = "only snapshots: a restart forgets the locks that were acquired after the last one, so two owners can \
                        hold a lock";
            Finding::warning(CHECK, text, ADVICE)
        }
        _ => {
            let text = "nothing was written to disk since the server started: a restart forgets all locks, so two owners can \
                        hold a lock";
            Finding::warning(CHECK, text, ADVICE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::facts;
    use super::super::finding::Level::{self, Error, Ok, Unknown, Warning};
    use super::*;

    fn level(check: impl FnOnce(Facts<'_>) -> Finding, info: &[&str]) -> Level {
        let found = check(Facts(&facts(info)));
        assert_eq!(found.advice.is_none(), found.level == Ok, "{found:?}");
        found.level
    }

    #[test]
    fn the_version_names_the_program() {
        let text = |info: &[&str]| version(Facts(&facts(info))).text;
        assert_eq!(text(&["redis_version:7.0.15"]), "Redis 7.0.15");
        assert_eq!(text(&["redis_version:7.2.4", "valkey_version:8.1.0"]), "Valkey 8.1.0");
        assert_eq!(level(version, &[]), Unknown);
    }

    #[test]
    fn an_evicting_policy_is_an_error_where_memory_is_limited() {
        assert_eq!(level(memory_policy, &["maxmemory_policy:noeviction", "maxmemory:1000"]), Ok);
        assert_eq!(level(memory_policy, &["maxmemory_policy:allkeys-lru", "maxmemory:0"]), Warning);
        assert_eq!(level(memory_policy, &["maxmemory_policy:volatile-ttl", "maxmemory:1000"]), Error);
        // A policy that only newer servers have.
        assert_eq!(level(memory_policy, &["maxmemory_policy:allkeys-lrm", "maxmemory:1000"]), Error);
        assert_eq!(level(memory_policy, &["maxmemory:1000"]), Unknown);
    }

    #[test]
    fn memory_that_is_nearly_full_is_a_warning_and_full_memory_an_error() {
        assert!(memory(Facts(&facts(&["maxmemory:0", "used_memory:7"]))).is_none());
        let of = |used: &str| level(|facts| memory(facts).expect("a limit"), &["maxmemory:1000", used]);
        assert_eq!(
            [of("used_memory:899"), of("used_memory:900"), of("used_memory:999"), of("used_memory:1000")],
            [Ok, Warning, Warning, Error]
        );
    }

    #[test]
    fn persistence_is_judged_by_what_a_restart_keeps() {
        assert_eq!(level(persistence, &["aof_enabled:1", "rdb_saves:0"]), Ok);
        assert_eq!(level(persistence, &["aof_enabled:0", "rdb_saves:3"]), Warning);
        assert_eq!(level(persistence, &["aof_enabled:0", "rdb_saves:0"]), Warning);
        assert_eq!(level(persistence, &["aof_enabled:1", "aof_last_write_status:err"]), Error);
        assert_eq!(level(persistence, &["aof_enabled:1", "rdb_last_bgsave_status:err"]), Error);
        assert_eq!(level(persistence, &[]), Unknown);
    }
}

//! `lockkeeper doctor`.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use lockkeeper_testkit::{Cluster, Faults, MASTER, Proxy, Refusal, Sentinels, Server};
use serde_json::Value;

use super::support::{Config, at, json, lockkeeper, run, shown};

const SECRET: &str = "hunter2";

/// What it found, and its exit code.
struct Found {
    findings: Vec<Value>,
    code: Option<i32>,
}

/// Runs the command. It never prints the password.
#[track_caller]
fn examine(mut command: std::process::Command) -> Found {
    let output = run(&mut command);
    assert!(!format!("{output:?}").contains(SECRET), "{output:?}");
    let found = json(&String::from_utf8(output.stdout).expect("text"));
    let findings = found.as_array().expect("an array").clone();
    // Every finding that is not well says what to do.
    assert!(
        findings.iter().all(|found| (found["level"] == "ok") == found["advice"].is_null()),
        "{findings:?}"
    );
    Found { findings, code: output.status.code() }
}

#[track_caller]
fn doctor(url: &str, args: &[&str]) -> Found {
    examine(at(url, &[&["doctor", "--json"], args].concat()))
}

#[track_caller]
fn doctor_with(config: &Config) -> Found {
    examine(lockkeeper(&["doctor", "--json", "--config", config.path()]))
}

impl Found {
    /// The level of all findings of this check.
    #[track_caller]
    fn level(&self, check: &str) -> &str {
        let mut levels: Vec<_> =
            self.of(check).iter().map(|found| found["level"].as_str().expect("text")).collect();
        levels.dedup();
        assert_eq!(levels.len(), 1, "{check}: {:?}", self.findings);
        levels[0]
    }

    fn of(&self, check: &str) -> Vec<&Value> {
        self.findings.iter().filter(|found| found["check"] == check).collect()
    }

    /// The checks that did not end well.
    fn bad(&self) -> Vec<&str> {
        let bad = self.findings.iter().filter(|found| found["level"] != "ok");
        bad.map(|found| found["check"].as_str().expect("text")).collect()
    }
}

/// Nothing is left on the server.
#[track_caller]
fn assert_empty(server: &Server) {
    assert_eq!(server.run::<u64>(&["DBSIZE"]), 0);
}

#[test]
fn a_good_server_is_well() {
    let server = Server::with(&["--appendonly", "yes"]);
    let found = doctor(&server.url(), &[]);
    assert_eq!((found.bad(), found.code), (vec![], Some(0)), "{:?}", found.findings);
    for check in
        ["connection", "scripts", "deployment", "version", "memory-policy", "persistence", "replicas"]
    {
        assert_eq!(found.of(check).len(), 1, "{check}");
    }
    for check in [
        "rights-rlock",
        "rights-fair",
        "rights-fenced",
        "rights-read-write",
        "rights-semaphore",
        "rights-claim",
        "rights-leader",
        "rights-linger",
        "rights-others",
        "tracking",
        "round-trip",
        "messages",
        "clock",
    ] {
        assert_eq!(found.of(check).len(), 1, "{check}");
    }
    assert_empty(&server);
    // Each check can be ignored, except the connection.
    for found in &found.findings {
        let check = found["check"].as_str().expect("text");
        let output = run(&mut at("redis://127.0.0.1:none/", &["doctor", "--ignore", check]));
        let is_known = !String::from_utf8_lossy(&output.stderr).contains("invalid value");
        assert_eq!(is_known, !["connection", "scripts"].contains(&check), "{check}");
    }
}

#[test]
fn a_server_that_evicts_or_forgets_is_reported() {
    let server = Server::with(&["--maxmemory-policy", "allkeys-lru"]);
    let found = doctor(&server.url(), &[]);
    assert_eq!(
        (found.bad(), found.code),
        (vec!["memory-policy", "persistence"], Some(1)),
        "{:?}",
        found.findings
    );
    let ignoring = |checks: &[&str]| {
        let options: Vec<&str> = checks.iter().flat_map(|check| ["--ignore", check]).collect();
        doctor(&server.url(), &options).code
    };
    assert_eq!([ignoring(&["persistence"]), ignoring(&["persistence", "memory-policy"])], [Some(1), Some(0)]);
    let found = doctor(&server.url(), &["--ignore", "persistence"]);
    assert_eq!(
        (found.level("persistence"), &found.of("persistence")[0]["ignored"]),
        ("warning", &true.into())
    );
    assert_eq!(found.of("memory-policy")[0]["ignored"], false);
    let _: String = server.run(&["CONFIG", "SET", "maxmemory", "1gb"]);
    let found = doctor(&server.url(), &[]);
    assert_eq!((found.level("memory-policy"), found.level("memory")), ("error", "ok"));
    assert_eq!(found.code, Some(2));
    let text = run(&mut at(&server.url(), &["doctor"]));
    let text = String::from_utf8(text.stdout).expect("text");
    let line = text.lines().find(|line| line.contains("memory-policy")).expect("a line");
    assert!(
        line.starts_with("error    memory-policy ") && line.contains(" → set `maxmemory-policy"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "colours are for terminals: {text}");
}

fn with_user(server: &Server, rules: &[&str]) -> String {
    let password = format!(">{SECRET}");
    let _: String = server.run(&[&["ACL", "SETUSER", "app", "reset", "on", &password], rules].concat());
    server.url().replace("redis://", &format!("redis://app:{SECRET}@"))
}

#[test]
fn missing_rights_are_named_for_each_type() {
    let server = Server::start();
    let url = with_user(&server, &["+hello", "+ping", "+select"]);
    let found = doctor(&url, &[]);
    assert_eq!((found.bad(), found.code), (vec!["connection"], Some(2)));
    let url = with_user(&server, &["~*", "&*", "+@all", "-time"]);
    let found = doctor(&url, &[]);
    assert_eq!((found.bad(), found.code), (vec!["connection"], Some(2)));
    let text = found.of("connection")[0]["text"].to_string();
    assert!(text.contains("`+time`"), "{text}");

    // What docs/deploy.md names for every type.
    let page = include_str!("../../../docs/deploy.md");
    let (_, rule) = page.split_once("ACL SETUSER locker on >secret").expect("the recipe");
    let rule_of_locks: Vec<&str> = rule.split("```").next().expect("its end").split_whitespace().collect();
    let url = with_user(&server, &rule_of_locks);
    let found = doctor(&url, &["--name", "shop:doctor:"]);
    assert_eq!([found.level("rights-rlock"), found.level("messages")], ["ok", "ok"], "{:?}", found.findings);
    for check in [
        "rights-fair",
        "rights-read-write",
        "rights-semaphore",
        "rights-claim",
        "rights-leader",
        "rights-linger",
    ] {
        assert_eq!(found.level(check), "error", "{check}");
    }
    assert_eq!(found.of("rights-fair").len(), 1, "one line for each type");
    assert_eq!(
        found.of("rights-fenced")[0]["text"],
        "this user may not run `get`, `incr`, `set` on `redisson_lock_token:{shop:doctor:*}`"
    );
    assert_eq!((found.level("facts"), found.code), ("unknown", Some(2)));
    let found = doctor(&url, &["--name", "shop:doctor:", "--kind", "rlock"]);
    assert_eq!((found.bad(), found.code), (vec!["facts"], Some(1)));
    let (_, rule) = page.split_once("ACL SETUSER locker ~{shop:* &redisson_sc:{shop:*").expect("the recipe");
    let more: Vec<&str> = rule.split("```").next().expect("its end").split_whitespace().collect();
    let url =
        with_user(&server, &[&rule_of_locks[..], &["~{shop:*", "&redisson_sc:{shop:*"], &more].concat());
    let found = doctor(&url, &["--name", "shop:doctor:", "--kind", "rlock", "--kind", "semaphore"]);
    assert_eq!((found.bad(), found.code), (vec!["facts"], Some(1)), "{:?}", found.findings);
    assert_empty(&server);
}

/// Each line of docs/deploy.md is needed by something that `doctor` examines.
#[test]
fn claims_leaders_and_linger_have_rights_of_their_own() {
    let server = Server::start();
    let without = |line: &str, kind: &[&str]| {
        let page = include_str!("../../../docs/deploy.md");
        let lines = page.lines().filter_map(|line| line.strip_prefix("ACL SETUSER locker "));
        let lines: Vec<&str> = lines.filter(|line| line.contains(" +") || line.starts_with('+')).collect();
        assert_eq!(lines.iter().filter(|rules| rules.contains(line)).count(), 1, "{line}");
        let rules =
            lines.iter().filter(|rules| !rules.contains(line)).flat_map(|line| line.split_whitespace());
        let rules = rules.filter(|word| !["on", ">secret"].contains(word)).chain(["+info"]);
        let url = with_user(&server, &rules.collect::<Vec<_>>());
        doctor(&url, &[&["--name", "shop:doctor:", "--ignore", "persistence"], kind].concat())
    };
    let text = |found: &Found, check: &str| found.of(check)[0]["text"].as_str().expect("text").to_owned();
    let found = without("~lockkeeper_claims:", &[]);
    assert_eq!((found.level("rights-claim"), found.code), ("error", Some(2)), "{:?}", found.findings);
    let counter = "this user may not run `get`, `incr`, `set` on `lockkeeper_claims:{shop:doctor:*}`";
    assert_eq!(text(&found, "rights-claim"), counter);
    let found = without("~lockkeeper_claims:", &["--kind", "claim"]);
    assert_eq!((found.level("rights-claim"), found.code), ("error", Some(2)));
    let found = without("~lockkeeper_claims:", &["--kind", "rlock", "--kind", "leader", "--kind", "linger"]);
    assert_eq!(found.code, Some(0), "{:?}", found.findings);

    let found = without("~lockkeeper_announcement:", &[]);
    assert_eq!((found.level("rights-leader"), found.code), ("warning", Some(1)), "{:?}", found.findings);
    let said = text(&found, "rights-leader");
    assert!(
        said.contains("on `lockkeeper_announcement:{shop:doctor:*}`: a candidate can lead, but"),
        "{said}"
    );
    assert_eq!(found.level("rights-fenced"), "ok");

    let found = without("+pubsub|numsub", &[]);
    assert_eq!((found.level("rights-linger"), found.code), ("warning", Some(1)), "{:?}", found.findings);
    let said = text(&found, "rights-linger");
    assert!(
        said.starts_with("this user may not run `pubsub|numsub` on `redisson_rwlock:{shop:doctor:*}`: "),
        "{said}"
    );
    assert_empty(&server);
}

/// The lines of docs/deploy.md for a user. `widen`: a part of its patterns that is left out.
fn recipe(widen: &str) -> Vec<String> {
    let page = include_str!("../../../docs/deploy.md");
    let lines = page
        .lines()
        .filter_map(|line| line.strip_prefix("ACL SETUSER locker "))
        .filter(|line| line.contains(" +"));
    let words = lines.flat_map(str::split_whitespace).filter(|word| !["on", ">secret"].contains(word));
    let word = |word: &str| match word.strip_suffix("{shop:*") {
        Some(before) if before == widen => format!("{before}*"),
        _ => word.to_owned(),
    };
    words.map(word).collect()
}

/// It prints the words of docs/deploy.md, and a user with these rights may use each type, and no lock of others.
#[test]
fn the_printed_command_makes_a_user_for_the_types_that_are_named() {
    let server = Server::with(&["--appendonly", "yes"]);
    let printed = |kinds: &[&str]| {
        let text = shown(&mut lockkeeper(&[&["doctor", "--acl", "shop:"], kinds].concat()));
        let rules = text.trim_end().strip_prefix("ACL SETUSER locker on >PASSWORD ").expect(&text);
        rules.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let words = |all: Vec<String>| all.into_iter().collect::<BTreeSet<_>>();
    let further = ["+info", "+pubsub|numsub", "+pubsub|shardnumsub"].map(str::to_owned);
    assert_eq!(words(printed(&[])), words([&recipe("")[..], &further].concat()));
    for kind in ["rlock", "fair", "read", "write", "fenced", "semaphore", "claim", "leader", "linger"] {
        let rules = printed(&["--kind", kind]);
        let url = with_user(&server, &rules.iter().map(String::as_str).collect::<Vec<_>>());
        let found = doctor(&url, &["--name", "shop:doctor:", "--kind", kind]);
        assert_eq!(found.bad(), [""; 0], "{kind}: {:?}", found.findings);
    }
}

#[test]
fn a_user_with_rights_to_locks_of_others_is_reported() {
    let server = Server::start();
    let others = |rules: Vec<String>| {
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let url = with_user(&server, &rules);
        let found = doctor(&url, &["--name", "shop:doctor:"]);
        let [others] = found.of("rights-others")[..] else { panic!("{:?}", found.findings) };
        (
            others["level"].as_str().expect("text").to_owned(),
            others["text"].as_str().expect("text").to_owned(),
        )
    };
    let none = ("ok".to_owned(), "this user has no rights to locks with other names".to_owned());
    assert_eq!(others(recipe("")), none);
    let patterns = recipe("");
    let patterns: Vec<&str> = patterns.iter().filter_map(|word| word.strip_suffix("{shop:*")).collect();
    assert_eq!(patterns.len(), 16, "{patterns:?}");
    for pattern in patterns.iter().filter(|pattern| **pattern != "~") {
        let (level, text) = others(recipe(pattern));
        assert!(
            level == "warning" && text.contains(&format!("`{}{{*}}`", &pattern[1..])),
            "{pattern}: {text}"
        );
    }
    let any = ("ok".to_owned(), "this user may use locks with any names".to_owned());
    assert_eq!(others(["~*", "&*", "+@all"].map(str::to_owned).to_vec()), any);
    assert_empty(&server);
}

#[test]
fn a_user_that_may_use_other_names_only_gets_one_line_for_each_type() {
    let server = Server::start();
    let rules = recipe("");
    let found = doctor(&with_user(&server, &rules.iter().map(String::as_str).collect::<Vec<_>>()), &[]);
    for check in [
        "rights-rlock",
        "rights-fair",
        "rights-fenced",
        "rights-read-write",
        "rights-semaphore",
        "rights-claim",
        "rights-leader",
        "rights-linger",
    ] {
        let [only] = found.of(check)[..] else { panic!("{:?}", found.findings) };
        assert_eq!(only["text"], "this user may not use names that begin with `lockkeeper:doctor:`");
        assert!(only["advice"].as_str().expect("text").contains("`--name shop:doctor:`; `--kind`"), "{only}");
    }
    assert_empty(&server);
}

/// It is no error: everything works, and a guard learns of a deleted lock later.
#[test]
fn a_server_that_does_not_tell_of_deleted_locks_is_reported() {
    let server = Server::start();
    let more = ["+info", "+pubsub|numsub"].map(str::to_owned);
    let rules: Vec<String> = recipe("").into_iter().chain(more).collect();
    let all: Vec<&str> = rules.iter().map(String::as_str).collect();
    let args = ["--name", "shop:doctor:", "--ignore", "persistence"];
    let found = doctor(&with_user(&server, &all), &args);
    assert_eq!((found.level("tracking"), found.code), ("ok", Some(0)), "{:?}", found.findings);
    let found = doctor(&with_user(&server, &[&all[..], &["-client|tracking"]].concat()), &args);
    assert_eq!((found.bad(), found.code), (vec!["persistence", "tracking"], Some(1)), "{:?}", found.findings);
    let tracking = found.of("tracking")[0];
    assert_eq!((&tracking["level"], &tracking["server"]), (&"warning".into(), &Value::Null), "{tracking}");
    assert_eq!(tracking["advice"], "grant this user `+client|tracking`");
    assert!(tracking["text"].as_str().expect("text").contains("at its next renewal: "), "{tracking}");
    assert_empty(&server);
}

#[test]
fn waiters_that_poll_are_reported() {
    let server = Server::start();
    let found = doctor(&with_user(&server, &["~*", "+@all"]), &["--kind", "rlock"]);
    assert_eq!(
        [found.level("messages"), found.level("rights-rlock")],
        ["warning", "error"],
        "{:?}",
        found.findings
    );
    assert_empty(&server);
}

/// As with a proxy that does not know messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_do_not_arrive_are_reported() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    proxy.set(Faults { lose_messages: true, ..Faults::default() });
    let found = doctor(&proxy.url(), &[]);
    assert_eq!(found.level("messages"), "warning", "{:?}", found.findings);
    assert!(proxy.lost_messages() > 0);
    assert_empty(&server);
}

#[test]
fn a_refused_connection_is_a_finding_without_the_password() {
    let server = Server::start();
    let port = server.port();
    let found = doctor(&format!("redis://app:{SECRET}@127.0.0.1:{port}/"), &[]);
    assert_eq!((found.bad(), found.code), (vec!["connection"], Some(2)));
    let found = doctor(&format!("redis://app:{SECRET}@127.0.0.1:1/"), &[]);
    assert_eq!((found.bad(), found.code), (vec!["connection"], Some(2)));
    let output = run(&mut at(&format!("redis://app:{SECRET}@127.0.0.1:none/"), &["doctor"]));
    assert_eq!(output.status.code(), Some(64));
    assert!(!format!("{output:?}").contains(SECRET), "{output:?}");
}

/// A wrong port is a mistake in the address, and a finding all the same.
#[test]
fn a_program_that_is_no_redis_server_is_a_finding() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        }
    });
    let found = doctor(&format!("redis://127.0.0.1:{port}/"), &[]);
    assert_eq!((found.bad(), found.code), (vec!["connection"], Some(2)), "{:?}", found.findings);
    let connection = found.of("connection")[0];
    assert!(connection["text"].as_str().expect("text").contains("no Redis server answers"), "{connection}");
    assert!(connection["advice"].as_str().expect("text").contains("the port of a Redis"), "{connection}");
}

#[test]
fn each_refusal_has_its_advice() {
    for (refused, advice) in [
        (Refusal::protected(), "set a password on the server, or `protected-mode no`"),
        (Refusal::full(), "raise `maxclients`"),
        (Refusal::without_tls(), "begin the URL with `redis://`"),
        (Refusal::with_tls(), "begin the URL with `rediss://`"),
        (Refusal::with_password(), "name the password in the URL"),
        (Refusal::with_private_authority(), "`root_cert` in a file"),
        (Refusal::with_certificate_of_authority(), "give the server a certificate that the authority signed"),
        (Refusal::replica(), "use the kind `sentinel` or `cluster`"),
    ] {
        let found = doctor(&refused.url, &[]);
        assert_eq!((found.bad(), found.code), (vec!["connection"], Some(2)), "{:?}", found.findings);
        let given = found.of("connection")[0]["advice"].as_str().expect("text");
        assert!(given.contains(advice), "{:?}", found.findings);
    }
}

#[test]
fn all_masters_of_a_cluster_are_examined() {
    let cluster = Cluster::with(3, 0, Duration::from_secs(10), &["--appendonly", "yes"]);
    // Rights are granted on each node.
    let refused = ["ACL", "SETUSER", "default", "resetchannels"];
    let config = Config::new(&format!("[server]\nkind = \"cluster\"\nurls = {:?}\n", cluster.urls()));
    let found = doctor_with(&config);
    assert_eq!(found.bad(), ["replicas"; 3], "{:?}", found.findings);
    assert_eq!(["version", "clock", "tracking"].map(|check| found.of(check).len()), [3; 3]);
    let _: String = cluster.servers[1].run(&refused);
    let found = doctor_with(&config);
    assert_eq!((found.level("rights-rlock"), found.code), ("error", Some(2)), "{:?}", found.findings);
    cluster.servers.iter().for_each(assert_empty);
}

#[test]
fn a_group_with_sentinels_is_examined() {
    let group = Sentinels::start(Duration::from_secs(60));
    let source = format!(
        "[server]\nkind = \"sentinel\"\nmaster = {MASTER:?}\nsentinels = {:?}\nurls = [\"redis://{MASTER}/\"]\n",
        group.urls()
    );
    let config = Config::new(&source);
    let found = doctor_with(&config);
    assert_eq!((found.bad(), found.code), (vec!["persistence"], Some(1)), "{:?}", found.findings);
    let text = |check: &str| found.of(check)[0]["text"].as_str().expect("text").to_owned();
    assert!(text("replicas").starts_with("2 connected, "), "{}", text("replicas"));
    assert!(text("deployment").contains("sentinels"), "{}", text("deployment"));
    assert_empty(&group.servers[group.master()]);
}

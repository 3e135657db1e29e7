//! `lockkeeper doctor`.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use lockkeeper_testkit::{Cluster, Faults, Proxy, Refusal, Sentinels, Server};
use serde_json::Value;

use super::support::{Config, at, json, lockkeeper, run, shown};

const SECRET: &str = "hunter2";

/// The checks of the rights to own names.
const RIGHTS: [&str; 8] = [
    "rights-rlock",
    "rights-fair",
    "rights-fenced",
    "rights-read-write",
    "rights-semaphore",
    "rights-claim",
    "rights-leader",
    "rights-linger",
];

/// What it found, and its exit code.
struct Found {
    findings: Vec<Value>,
    code: Option<i32>,
}

/// Runs the command. It never prints the password.
#[track_caller]
fn examine(mut command: std::process::Command) -> Found {
    let ended = run(&mut command);
    assert!(!format!("{ended:?}").contains(SECRET), "{ended:?}");
    let findings = json(&ended.printed).as_array().expect("an array").clone();
    // Every finding that is not well says what to do.
    assert!(
        findings.iter().all(|found| (found["level"] == "ok") == found["advice"].is_null()),
        "{findings:?}"
    );
    Found { findings, code: ended.code }
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

    /// A field of the only finding of this check.
    #[track_caller]
    fn said(&self, check: &str, field: &str) -> &str {
        let [only] = self.of(check)[..] else { panic!("{check}: {:?}", self.findings) };
        only[field].as_str().expect("text")
    }

    /// Just these checks did not end well.
    #[track_caller]
    fn ends(&self, bad: &[&str], code: i32) {
        assert_eq!((&*self.bad(), self.code), (bad, Some(code)), "{:?}", self.findings);
    }

    /// The finding of this check decides the exit code.
    #[track_caller]
    fn has(&self, check: &str, level: &str, code: i32) {
        assert_eq!((self.level(check), self.code), (level, Some(code)), "{:?}", self.findings);
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
    found.ends(&[], 0);
    let of_server =
        ["connection", "scripts", "deployment", "version", "memory-policy", "persistence", "replicas"];
    let further = ["rights-others", "tracking", "round-trip", "messages", "clock"];
    for check in of_server.iter().chain(&RIGHTS).chain(&further) {
        assert_eq!(found.of(check).len(), 1, "{check}");
    }
    assert_empty(&server);
    // Each check can be ignored, except the connection.
    for found in &found.findings {
        let check = found["check"].as_str().expect("text");
        let ended = run(&mut at("redis://127.0.0.1:none/", &["doctor", "--ignore", check]));
        let is_known = !ended.said.contains("invalid value");
        assert_eq!(is_known, !["connection", "scripts"].contains(&check), "{check}");
    }
}

#[test]
fn a_server_that_evicts_or_forgets_is_reported() {
    let server = Server::with(&["--maxmemory-policy", "allkeys-lru"]);
    doctor(&server.url(), &[]).ends(&["memory-policy", "persistence"], 1);
    let ignoring = |checks: &[&str]| {
        let options: Vec<&str> = checks.iter().flat_map(|check| ["--ignore", check]).collect();
        doctor(&server.url(), &options).code
    };
    assert_eq!([ignoring(&["persistence"]), ignoring(&["persistence", "memory-policy"])], [Some(1), Some(0)]);
    let found = doctor(&server.url(), &["--ignore", "persistence"]);
    assert_eq!(found.level("persistence"), "warning");
    assert_eq!(["persistence", "memory-policy"].map(|check| &found.of(check)[0]["ignored"]), [true, false]);
    let _: String = server.run(&["CONFIG", "SET", "maxmemory", "1gb"]);
    let found = doctor(&server.url(), &[]);
    found.has("memory-policy", "error", 2);
    assert_eq!(found.level("memory"), "ok");
    let text = run(&mut at(&server.url(), &["doctor"])).printed;
    let line = text.lines().find(|line| line.contains("memory-policy")).expect("a line");
    assert!(
        line.starts_with("error    memory-policy ") && line.contains(" → set `maxmemory-policy"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "colours are for terminals: {text}");
}

fn with_user(server: &Server, rules: &[impl AsRef<str>]) -> String {
    let password = format!(">{SECRET}");
    let rules: Vec<&str> = rules.iter().map(AsRef::as_ref).collect();
    let _: String = server.run(&[&["ACL", "SETUSER", "app", "reset", "on", &password], &rules[..]].concat());
    server.url().replace("redis://", &format!("redis://app:{SECRET}@"))
}

#[test]
fn missing_rights_are_named_for_each_type() {
    let server = Server::start();
    doctor(&with_user(&server, &["+hello", "+ping", "+select"]), &[]).ends(&["connection"], 2);
    let found = doctor(&with_user(&server, &["~*", "&*", "+@all", "-time"]), &[]);
    found.ends(&["connection"], 2);
    assert!(found.said("connection", "text").contains("`+time`"), "{:?}", found.findings);

    let url = with_user(&server, &rules_of(|line| line.starts_with("on >secret")));
    let found = doctor(&url, &["--name", "shop:doctor:"]);
    assert_eq!([found.level("rights-rlock"), found.level("messages")], ["ok", "ok"], "{:?}", found.findings);
    for check in &RIGHTS[1..] {
        assert_eq!(found.level(check), "error", "{check}");
    }
    assert_eq!(found.of("rights-fair").len(), 1, "one line for each type");
    assert_eq!(
        found.said("rights-fenced", "text"),
        "this user may not run `get`, `incr`, `set` on `redisson_lock_token:{shop:doctor:*}`"
    );
    found.has("facts", "unknown", 2);
    doctor(&url, &["--name", "shop:doctor:", "--kind", "rlock"]).ends(&["facts"], 1);
    let url = with_user(
        &server,
        &rules_of(|line| line.starts_with("on >secret") || line.contains("&redisson_sc:")),
    );
    doctor(&url, &["--name", "shop:doctor:", "--kind", "rlock", "--kind", "semaphore"]).ends(&["facts"], 1);
    assert_empty(&server);
}

/// Each line of docs/deploy.md is needed by something that `doctor` examines.
#[test]
fn claims_leaders_and_linger_have_rights_of_their_own() {
    let server = Server::start();
    let without = |line: &str, kind: &[&str]| {
        assert_ne!(rules_of(|rules| rules.contains(line)), [""; 0], "{line}");
        let rules = [rules_of(|rules| !rules.contains(line)), vec!["+info"]].concat();
        let args = ["--name", "shop:doctor:", "--ignore", "persistence"];
        doctor(&with_user(&server, &rules), &[&args, kind].concat())
    };
    let found = without("~lockkeeper_claims:", &[]);
    found.has("rights-claim", "error", 2);
    let counter = "this user may not run `get`, `incr`, `set` on `lockkeeper_claims:{shop:doctor:*}`";
    assert_eq!(found.said("rights-claim", "text"), counter);
    without("~lockkeeper_claims:", &["--kind", "claim"]).has("rights-claim", "error", 2);
    let found = without("~lockkeeper_claims:", &["--kind", "rlock", "--kind", "leader", "--kind", "linger"]);
    assert_eq!(found.code, Some(0), "{:?}", found.findings);

    let found = without("~lockkeeper_announcement:", &[]);
    found.has("rights-leader", "warning", 1);
    let said = found.said("rights-leader", "text");
    assert!(
        said.contains("on `lockkeeper_announcement:{shop:doctor:*}`: a candidate can lead, but"),
        "{said}"
    );
    assert_eq!(found.level("rights-fenced"), "ok");

    let found = without("+pubsub|numsub", &[]);
    found.has("rights-linger", "warning", 1);
    let said = found.said("rights-linger", "text");
    assert!(
        said.starts_with("this user may not run `pubsub|numsub` on `redisson_rwlock:{shop:doctor:*}`: "),
        "{said}"
    );
    assert_empty(&server);
}

/// The rules in these lines of docs/deploy.md for a user.
fn rules_of(wanted: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let page = include_str!("../../../docs/deploy.md");
    let lines = page.lines().filter_map(|line| line.strip_prefix("ACL SETUSER locker "));
    let lines = lines.filter(|line| (line.contains(" +") || line.starts_with('+')) && wanted(line));
    lines.flat_map(str::split_whitespace).filter(|word| !["on", ">secret"].contains(word)).collect()
}

/// The lines with more than one right.
fn recipe() -> Vec<&'static str> {
    rules_of(|line| line.contains(" +"))
}

/// It prints the words of docs/deploy.md, and a user with these rights may use each type, and no lock of others.
#[test]
fn the_printed_command_makes_a_user_for_the_types_that_are_named() {
    let server = Server::with(&["--appendonly", "yes"]);
    let printed = |kinds: &[&str]| {
        let text = shown(&mut lockkeeper(&[&["doctor", "--acl", "shop:"], kinds].concat()));
        let rules = text.trim_end().strip_prefix("ACL SETUSER locker on >PASSWORD ").expect(&text);
        rules.split(' ').map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let further = ["+info", "+pubsub|numsub", "+pubsub|shardnumsub"];
    let all = [&recipe()[..], &further].concat();
    assert_eq!(printed(&[]), all.into_iter().map(str::to_owned).collect());
    for kind in ["rlock", "fair", "read", "write", "fenced", "semaphore", "claim", "leader", "linger"] {
        let rules: Vec<String> = printed(&["--kind", kind]).into_iter().collect();
        let found = doctor(&with_user(&server, &rules), &["--name", "shop:doctor:", "--kind", kind]);
        assert_eq!(found.bad(), [""; 0], "{kind}: {:?}", found.findings);
    }
}

#[test]
fn a_user_with_rights_to_locks_of_others_is_reported() {
    let server = Server::start();
    let others = |rules: &[&str]| {
        let found = doctor(&with_user(&server, rules), &["--name", "shop:doctor:"]);
        ["level", "text"].map(|field| found.said("rights-others", field).to_owned())
    };
    let recipe = recipe();
    assert_eq!(others(&recipe), ["ok", "this user has no rights to locks with other names"]);
    let patterns: Vec<&str> = recipe.iter().filter_map(|word| word.strip_suffix("{shop:*")).collect();
    assert_eq!(patterns.len(), 16, "{patterns:?}");
    for pattern in patterns.iter().filter(|pattern| **pattern != "~") {
        // It is as wide as the page warns of.
        let [level, text] = others(&[&recipe[..], &[&format!("{pattern}*")]].concat());
        assert!(
            level == "warning" && text.contains(&format!("`{}{{*}}`", &pattern[1..])),
            "{pattern}: {text}"
        );
    }
    assert_eq!(others(&["~*", "&*", "+@all"]), ["ok", "this user may use locks with any names"]);
    assert_empty(&server);
}

#[test]
fn a_user_that_may_use_other_names_only_gets_one_line_for_each_type() {
    let server = Server::start();
    let found = doctor(&with_user(&server, &recipe()), &[]);
    for check in RIGHTS {
        let [text, advice] = ["text", "advice"].map(|field| found.said(check, field));
        assert_eq!(text, "this user may not use names that begin with `lockkeeper:doctor:`");
        assert!(advice.contains("`--name shop:doctor:`; `--kind`"), "{advice}");
    }
    assert_empty(&server);
}

/// It is no error: everything works, and a guard learns of a deleted lock later.
#[test]
fn a_server_that_does_not_tell_of_deleted_locks_is_reported() {
    let server = Server::start();
    let all = [&recipe()[..], &["+info", "+pubsub|numsub"]].concat();
    let args = ["--name", "shop:doctor:", "--ignore", "persistence"];
    doctor(&with_user(&server, &all), &args).has("tracking", "ok", 0);
    let found = doctor(&with_user(&server, &[&all[..], &["-client|tracking"]].concat()), &args);
    found.ends(&["persistence", "tracking"], 1);
    assert_eq!((found.level("tracking"), &found.of("tracking")[0]["server"]), ("warning", &Value::Null));
    assert_eq!(found.said("tracking", "advice"), "grant this user `+client|tracking`");
    assert!(found.said("tracking", "text").contains("at its next renewal: "), "{:?}", found.findings);
    assert_empty(&server);
}

#[test]
fn waiters_that_poll_are_reported() {
    let server = Server::start();
    let found = doctor(&with_user(&server, &["~*", "+@all"]), &["--kind", "rlock"]);
    assert_eq!(["messages", "rights-rlock"].map(|check| found.level(check)), ["warning", "error"]);
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
    for port in [server.port(), 1] {
        doctor(&format!("redis://app:{SECRET}@127.0.0.1:{port}/"), &[]).ends(&["connection"], 2);
    }
    let ended = run(&mut at(&format!("redis://app:{SECRET}@127.0.0.1:none/"), &["doctor"]));
    assert_eq!(ended.code, Some(64));
    assert!(!format!("{ended:?}").contains(SECRET), "{ended:?}");
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
    found.ends(&["connection"], 2);
    let [text, advice] = ["text", "advice"].map(|field| found.said("connection", field));
    assert!(text.contains("no Redis server answers") && advice.contains("the port of a Redis"), "{text}");
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
        found.ends(&["connection"], 2);
        assert!(found.said("connection", "advice").contains(advice), "{:?}", found.findings);
    }
}

#[test]
fn all_masters_of_a_cluster_are_examined() {
    let cluster = Cluster::with(3, 0, Duration::from_secs(10), &["--appendonly", "yes"]);
    // Rights are granted on each node.
    let refused = ["ACL", "SETUSER", "default", "resetchannels"];
    let config = Config::of_cluster(&cluster, "");
    let found = doctor_with(&config);
    assert_eq!(found.bad(), ["replicas"; 3], "{:?}", found.findings);
    assert_eq!(["version", "clock", "tracking"].map(|check| found.of(check).len()), [3; 3]);
    let _: String = cluster.servers[1].run(&refused);
    doctor_with(&config).has("rights-rlock", "error", 2);
    cluster.servers.iter().for_each(assert_empty);
}

#[test]
fn a_group_with_sentinels_is_examined() {
    let group = Sentinels::start(Duration::from_secs(60));
    let found = doctor_with(&Config::of_sentinels(&group, ""));
    found.ends(&["persistence"], 1);
    let [replicas, deployment] = ["replicas", "deployment"].map(|check| found.said(check, "text"));
    assert!(replicas.starts_with("2 connected, ") && deployment.contains("sentinels"), "{replicas}");
    assert_empty(&group.servers[group.master()]);
}

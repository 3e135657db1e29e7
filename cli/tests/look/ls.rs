//! `lockkeeper ls`.

use std::process::Command;
use std::time::Duration;

use lockkeeper::{LockClient, LockConfig, Source};
use lockkeeper_testkit::{Cluster, Server};
use serde_json::{Value, json};

use super::support::{Config, Ended, at, client, json, lockkeeper, run, shown, wait_until, waiter};

/// Its first renewal comes after a second.
const LEASE: Duration = Duration::from_secs(3);

/// A thread of Java.
const JAVA: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:77";

fn list(server: &Server, args: &[&str]) -> Value {
    json(&shown(&mut at(&server.url(), &[&["ls", "--json", "--sort"], args].concat())))
}

/// As Redisson leaves it.
fn java_lock(server: &Server, name: &str) {
    let _: u64 = server.run(&["HSET", name, JAVA, "3"]);
    let _: u64 = server.run(&["PEXPIRE", name, "30000"]);
}

#[test]
fn without_locks_the_list_is_empty() {
    let server = Server::start();
    assert_eq!(list(&server, &[]), json!([]));
    assert_eq!(
        shown(&mut at(&server.url(), &["ls"])),
        "NAME  TYPE  OWNER  CLIENT  HOLDS  HELD  LEASE  WAITERS  AT\n"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_all_types_are_listed_sorted_by_name() {
    let server = Server::start();
    let (locks, beside) = (client(&server).await, client(&server).await);
    let mut reentrant = locks.rlock("a:reentrant");
    let outer = reentrant.lock().await.expect("the lock");
    let inner = reentrant.lock().await.expect("the lock");
    let fair = locks.fair_lock("b:fair").lock().await.expect("the lock");
    let fenced = locks.fenced_lock("c:fenced").lock().await.expect("the lock");
    let one = locks.read_write_lock("d:read").read().lock().await.expect("the lock");
    let other = beside.read_write_lock("d:read").read().lock().await.expect("the lock");
    let writing = locks.read_write_lock("e:write").write().lock().await.expect("the lock");
    java_lock(&server, "f:java");
    let _: u64 = server.run(&["HSET", "g:endless\t\u{1b}[2J", JAVA, "1"]);
    let permit = locks.semaphore("h:semaphore", 3).acquire().await.expect("a permit");
    let queued = [waiter(beside.fair_lock("b:fair")), waiter(locks.fair_lock("b:fair"))];
    let waiting = [waiter(beside.rlock("a:reentrant")), waiter(beside.rlock("a:reentrant"))];

    let waiters = |all: &Value| (all[0]["listeners"] == 1) && (all[1]["queued"] == 2);
    wait_until("all wait", || waiters(&list(&server, &[])));
    let all = list(&server, &[]);
    let rows: Vec<_> = all.as_array().expect("an array").iter().collect();
    let kinds: Vec<_> = rows.iter().map(|row| [&row["name"], &row["kind"]]).collect();
    let expected = json!([
        ["a:reentrant", "rlock"],
        ["b:fair", "fair"],
        ["c:fenced", "fenced"],
        ["d:read", "read"],
        ["e:write", "write"],
        ["f:java", "rlock"],
        ["g:endless\t\u{1b}[2J", "rlock"],
        ["h:semaphore", "semaphore"]
    ]);
    assert_eq!(json!(kinds), expected);
    let holder = &rows[0]["holders"][0];
    assert_eq!(
        (&holder["owner"], &holder["client"], &holder["holds"]),
        (&json!(outer.owner_id()), &json!(locks.id()), &json!(2))
    );
    let identity = holder["identity"].as_str().expect("text");
    assert!(
        identity.ends_with(&format!(":{}", std::process::id())) && holder["is_connected"] == true,
        "{all}"
    );
    assert_eq!(rows[3]["holders"].as_array().map(Vec::len), Some(2));
    assert_eq!((&rows[5]["holders"][0]["owner"], &rows[5]["holders"][0]["holds"]), (&json!(JAVA), &json!(3)));
    let java = &rows[5]["holders"][0];
    assert_eq!([&java["identity"], &java["is_connected"], &java["held_for_ms"]], [&Value::Null; 3]);
    assert!(rows[5]["expires_in_ms"].as_u64().is_some_and(|left| left > 0 && left <= 30_000), "{all}");
    assert_eq!(rows[6]["expires_in_ms"], Value::Null);
    assert_eq!([&rows[5]["queued"], &rows[5]["listeners"]], [0, 0]);
    assert_eq!(rows[5]["permits"], Value::Null);
    assert_eq!(rows[7]["permits"], json!(3));
    let holder = &rows[7]["holders"][0];
    assert_eq!(
        (&holder["owner"], &holder["client"]),
        (&json!(permit.id().to_string()), &json!(locks.id()[..18]))
    );
    assert!(holder["expires_in_ms"].as_u64().is_some_and(|left| left > 0 && left <= 31_000), "{all}");

    let text = shown(&mut at(&server.url(), &["ls", "--sort"]));
    // Two spaces or more are between columns, and one is in a cell.
    let cells = |line| str::split(line, "  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    let lines: Vec<Vec<&str>> = text.lines().map(cells).collect();
    assert_eq!(lines[0], ["NAME", "TYPE", "OWNER", "CLIENT", "HOLDS", "HELD", "LEASE", "WAITERS", "AT"]);
    assert_eq!(lines.len(), 9, "{text}");
    assert_eq!(lines[1][..5], ["a:reentrant", "rlock", &outer.owner_id(), identity, "2"]);
    assert_eq!([lines[1][7], lines[2][7], lines[3][7]], ["1 client", "2", "0"]);
    assert_eq!(lines[4][2].split(',').count(), 2, "both readers: {text}");
    assert_eq!(
        lines[7],
        ["g:endless\\t\\u{1b}[2J", "rlock", JAVA, "unknown", "1", "unknown", "never", "0", "unknown"]
    );
    assert_eq!(lines[8][..5], ["h:semaphore", "semaphore", &permit.id().to_string(), identity, "1 of 3"]);
    let names = |pattern: &str| list(&server, &[pattern]).as_array().map(Vec::len);
    assert_eq!([names("[a-c]:*"), names("f:java"), names("none")], [Some(3), Some(1), Some(0)]);

    for task in queued.into_iter().chain(waiting) {
        task.abort();
    }
    drop((outer, inner, fair, fenced, one, other, writing, permit));
}

#[test]
fn types_are_selected_and_the_count_is_told_to_people() {
    let server = Server::start();
    java_lock(&server, "a");
    java_lock(&server, "b");
    let _: u64 = server.run(&["HSET", "c", "mode", "write", &format!("{JAVA}:write"), "1"]);
    let told = |args: &[&str]| {
        let ended = run(&mut at(&server.url(), &[&["ls"], args].concat()));
        (ended.printed.lines().count(), ended.said)
    };
    assert_eq!(told(&[]), (4, "3 locks\n".to_owned()));
    assert_eq!(told(&["--kind", "rlock", "--kind", "fair"]), (3, "2 locks\n".to_owned()));
    assert_eq!(told(&["--kind", "write"]), (2, "1 lock\n".to_owned()));
    assert_eq!(told(&["--older", "0"]), (1, "0 locks\n".to_owned()), "Java records no time");
    assert_eq!(told(&["--kind", "write", "--json"]), (1, String::new()));
    assert_eq!(list(&server, &["--kind", "write"])[0]["name"], "c");
    assert_eq!(run(&mut at(&server.url(), &["ls", "--kind", "other"])).code, Some(64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_are_held_for_long_are_selected() {
    let server = Server::start();
    let config = LockConfig::builder().watchdog_lease(LEASE).build().expect("settings");
    let locks = LockClient::connect_with(server.url(), config).await.expect("a client");
    let (line, guard) = (line!(), locks.rlock("a").lock().await.expect("the lock"));
    let names = |older: &str| {
        let rows = list(&server, &["--older", older]);
        rows.as_array().expect("an array").iter().map(|row| row["name"].clone()).collect::<Vec<_>>()
    };
    wait_until("its first renewal records it", || names("500ms") == ["a"]);
    assert!(names("1h").is_empty());
    let acquired_at = list(&server, &[])[0]["holders"][0]["acquired_at"].clone();
    assert_eq!(acquired_at, format!("{}:{line}", file!()));
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fast_list_is_what_clients_tell_and_says_what_they_do_not() {
    let server = Server::start();
    java_lock(&server, "java");
    let locks = client(&server).await;
    let fair = locks.fair_lock("b").lock().await.expect("the lock");
    let (line, guard) = (line!(), locks.rlock("a\n").lock().await.expect("the lock"));
    let fast = |args: &[&str]| list(&server, &[&["--fast"], args].concat());
    wait_until("both are told", || fast(&[]).as_array().map(Vec::len) == Some(2));
    let all = fast(&[]);
    assert_eq!([&all[0]["lock"], &all[1]["lock"], &all[1]["kind"]], ["a\n", "b", "fair"]);
    assert_eq!(
        (&all[0]["owner"], &all[0]["acquired_at"]),
        (&json!(guard.owner_id()), &json!(format!("{}:{line}", file!())))
    );
    assert!(all[0]["held_for_ms"].as_u64().is_some_and(|held_for| held_for >= 1_000), "{all}");
    assert_eq!(
        (fast(&["--kind", "fair"])[0]["lock"].clone(), fast(&["--older", "1h"])),
        (json!("b"), json!([]))
    );
    let before = server.calls("scan");
    let Ended { printed, said, .. } = run(&mut at(&server.url(), &["ls", "--fast"]));
    assert_eq!(server.calls("scan"), before, "the keys are not looked at");
    assert!(printed.starts_with("NAME  TYPE   OWNER") && printed.contains("\na\\n   rlock  "), "{printed}");
    assert!(said.starts_with("2 holds; not those of Redisson, of dead processes, "), "{said}");
    drop((fair, guard));
    assert_eq!(run(&mut at(&server.url(), &["ls", "--fast", "a*"])).code, Some(64));
}

#[test]
fn locks_among_many_other_keys_are_found() {
    let server = Server::start();
    let fill = "for i = 1, 20000 do redis.call('set', 'other:' .. i, i) end \
                for i = 1, 500 do redis.call('hset', 'lock:' .. i, '0-0-0-0-0:1', 1) redis.call('pexpire', 'lock:' .. i, 60000) end";
    let _: Option<String> = server.run(&["EVAL", fill, "0"]);
    let _: u64 = server.run(&["HSET", "data", "item:1", "1"]);
    assert_eq!(list(&server, &[]).as_array().map(Vec::len), Some(500));
    // Without an order, they are printed as they come: each once, and as whole JSON.
    let unsorted = json(&shown(&mut at(&server.url(), &["ls", "--json"])));
    let mut names: Vec<_> = unsorted.as_array().expect("an array").iter().map(|row| &row["name"]).collect();
    names.sort_by_key(|name| name.to_string());
    names.dedup();
    assert_eq!(names.len(), 500);
    let text = shown(&mut at(&server.url(), &["ls"]));
    assert_eq!((text.lines().count(), text.matches("NAME").count()), (501, 1));
    assert_eq!(server.calls("keys"), 0);
}

#[test]
fn the_locks_of_all_masters_of_a_cluster_are_listed() {
    let cluster = Cluster::start(3, 0);
    for (index, server) in cluster.servers.iter().enumerate() {
        java_lock(server, &cluster.name_on(index, "lock"));
    }
    let semaphore = cluster.name_on(1, "semaphore");
    let _: String = cluster.servers[1].run(&["SET", &semaphore, "1"]);
    let permits = format!("{{{semaphore}}}:timeout");
    let _: u64 = cluster.servers[1].run(&["ZADD", &permits, "922337203685477", "of Java: 16 byte"]);
    let config = Config::of_cluster(&cluster, "");
    let all = json(&shown(&mut lockkeeper(&["ls", "--json", "--config", config.path()])));
    assert_eq!(all.as_array().map(Vec::len), Some(4), "{all}");
    let listed = |row: &&Value| row["name"] == json!(semaphore);
    let row = all.as_array().and_then(|all| all.iter().find(listed)).expect("the semaphore");
    assert_eq!((&row["permits"], &row["expires_in_ms"]), (&json!(2), &Value::Null));
    assert_eq!(row["holders"][0]["client"], Value::Null);
}

/// One server has the hash of the lock, and the other the hold of its reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_half_moved_is_named_on_standard_error() {
    let cluster = Cluster::start(2, 0);
    let source = Source::cluster(cluster.urls());
    let locks = LockClient::connect_with(source, LockConfig::default()).await.expect("a client");
    let name = cluster.name_on(0, "lock");
    let guard = locks.read_write_lock(&name).into_read().lock().await.expect("the lock");
    java_lock(&cluster.servers[1], &cluster.name_on(1, "java"));
    let slot = cluster.slot_of(&name);
    cluster.open_slot(slot, 1);
    cluster.move_key(&name, 1);
    let config = Config::of_cluster(&cluster, "[locks]\nretry_timeout = '1s'\n");
    let Ended { code, printed, said } = run(&mut lockkeeper(&["ls", "--json", "--config", config.path()]));
    assert_eq!((code, said.lines().count()), (Some(69), 1), "{said}");
    assert!(said.contains("left out") && said.contains(&name), "{said}");
    let rows = json(&printed);
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
    cluster.close_slot(slot, 1);
    guard.unlock().await.expect("the lock was held");
}

#[test]
fn at_a_terminal_the_table_fits() {
    let server = Server::start();
    java_lock(&server, "lock:with-a-name-that-is-longer-than-most-terminals-are-wide-after-all");
    let other = "8743c9c0-0795-4907-87fd-6c719a6b4586:78";
    let _: u64 = server.run(&["HSET", "read", "mode", "read", JAVA, "1", other, "1"]);
    for holder in [JAVA, other] {
        let _: String = server.run(&["SET", &format!("{{read}}:{holder}:rwlock_timeout:1"), "1"]);
    }
    let mut command = Command::new("script");
    let line = format!("stty cols 80 rows 24; {:?} ls", env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(["-qefc", &line, "/dev/null"]).env("LOCKKEEPER_URL", server.url()).env("SHELL", "/bin/sh");
    let text = shown(&mut command);
    assert!(text.lines().all(|line| line.chars().count() <= 80 && !line.contains('\t')), "{text}");
    assert!(text.contains('…') && text.contains("29.") && text.contains(" +1 "), "{text}");
}

/// The names of the errors of redis-rs say nothing to users.
#[test]
fn a_refusal_has_the_words_of_the_server() {
    let server = Server::start();
    let _: String = server.run(&["ACL", "SETUSER", "app", "on", ">hunter2", "~*", "+@all", "-scan"]);
    let port = server.port();
    for (url, words) in [
        (format!("redis://app:hunter2@127.0.0.1:{port}/"), ": ERR "),
        (format!("redis://app:wrong@127.0.0.1:{port}/"), ": Password authentication failed\n"),
        (format!("redis://127.0.0.1:{port}/77"), ": ERR DB index is out of range\n"),
        (format!("redis://127.0.0.1:{port}/none"), ": Invalid database number\n"),
    ] {
        let problem = run(&mut at(&url, &["ls"])).said;
        assert!(problem.contains(words), "{problem}");
        for name in ["ResponseError", "AuthenticationFailed", "InvalidClientConfig", "hunter2"] {
            assert!(!problem.contains(name), "{problem}");
        }
    }
}

#[test]
fn a_bad_pattern_and_an_absent_server_have_their_exit_codes() {
    // No server is asked.
    for command in ["ls", "watch"] {
        let ended = run(&mut at("redis://127.0.0.1:1/", &[command, ""]));
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.said.contains("pattern must not be empty"), "{ended:?}");
    }
    assert_eq!(run(&mut at("redis://:hunter2@127.0.0.1:1/", &["ls"])).code, Some(69));
}

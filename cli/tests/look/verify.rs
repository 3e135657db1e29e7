//! `lockkeeper verify`: it sees nothing wrong on healthy servers, and each planted violation.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use lockkeeper_testkit::{Certificates, Cluster, Faults, Proxy, Sentinels, Server};
use serde_json::Value;

use super::support::{Config, Running, at, json, lockkeeper, run, shown, wait_until};

/// Reports the verdict of a run, and its exit code.
struct Run(Running);

impl Run {
    fn start(mut command: process::Command) -> Self {
        let run = Self(Running::start(&mut command));
        run.0.complains("worker processes");
        run
    }

    #[track_caller]
    fn verdict(self) -> (Option<i32>, Value) {
        let ended = self.0.end_within(Duration::from_secs(60));
        assert!(!ended.printed.is_empty(), "{ended:?}");
        (ended.code, json(&ended.printed))
    }

    /// It must see no violation, and enough to say so.
    #[track_caller]
    fn sees_nothing(self) -> Value {
        let (code, verdict) = self.verdict();
        assert_eq!(code, Some(0), "{verdict:#}");
        let number = |field: &str| verdict[field].as_u64().expect("a number");
        assert!(number("grants") > 50 && number("handed_over") > 0, "{verdict:#}");
        assert!(number("deaths") + number("pauses") + number("cuts") > 0, "{verdict:#}");
        assert_eq!(verdict["keys_left_behind"], 0);
        verdict
    }
}

/// Plants a violation until a run sees it: chance decides what the workers hold at the moment. One test at a time does so, because a
/// judge that lacks processor time excuses more.
#[track_caller]
fn is_seen(rule: &str, mut plant: impl FnMut() -> Run) -> Value {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..5 {
        let (code, verdict) = plant().verdict();
        if verdict["counts"][rule].as_u64() > Some(0) {
            assert_eq!(code, Some(1), "{verdict:#}");
            return verdict;
        }
    }
    panic!("{rule} was not seen");
}

/// A run of some seconds.
fn verify(url: &str, args: &[&str]) -> Run {
    Run::start(at(url, &[&["verify", "--json", "--workers", "3"], args].concat()))
}

/// The keys of the run.
fn keys(server: &Server, pattern: &str) -> Vec<String> {
    server.run(&["KEYS", &format!("*lockkeeper-verify:*:{pattern}*")])
}

#[test]
fn a_healthy_server_is_not_accused_and_a_history_can_be_judged_again() {
    let server = Server::start();
    let history = env::temp_dir().join(format!("lockkeeper-look-{}-history", process::id()));
    let path = history.to_str().expect("text");
    let verdict =
        verify(&server.url(), &["--seconds", "5", "--lease", "1s", "--history", path]).sees_nothing();
    let again = json(&shown(&mut lockkeeper(&["verify", "--json", "--judge", path])));
    assert_eq!(again, verdict);
    let text = shown(&mut lockkeeper(&["verify", "--judge", path]));
    assert!(
        text.contains("two holders at once            0") && text.contains("evidence, not a proof"),
        "{text}"
    );
    fs::remove_file(history).expect("the history");
    let left: Vec<String> = server.run(&["KEYS", "*"]);
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_failover_with_sentinels_is_counted_and_breaks_nothing() {
    let group = Sentinels::start(Duration::from_secs(1));
    let config = Config::of_sentinels(&group, "[locks]\nsync_replicas = 2\n");
    let args = ["verify", "--json", "--lease", "2s", "--seconds", "16", "--config", config.path()];
    let run = Run::start(lockkeeper(&args));
    let before = group.master();
    // The new master has no second replica until the old master follows it, which takes the sentinels about ten seconds.
    wait_until("locks are held", || !group.servers[before].keys().is_empty());
    group.fail_over();
    group.switched(before);
    assert_eq!(run.sees_nothing()["failovers"], 1);
}

#[test]
fn a_moved_slot_of_a_cluster_breaks_nothing() {
    let cluster = Cluster::start(2, 0);
    let config = Config::of_cluster(&cluster, "");
    let args =
        ["verify", "--json", "--lease", "1s", "--seconds", "5", "--kind", "rlock", "--config", config.path()];
    let run = Run::start(lockkeeper(&args));
    let mut held = Vec::new();
    wait_until("locks are held", || {
        held = cluster.keys();
        !held.is_empty()
    });
    let slot = cluster.slot_of(&held[0]);
    cluster.move_slot(slot, 1 - cluster.master_of(slot));
    run.sees_nothing();
}

#[test]
fn certificates_of_the_file_are_used_by_all() {
    let certificates = Certificates::new();
    let cluster = Cluster::secured(2, 0, &certificates);
    let [root, cert, key] = ["ca.crt", "client.crt", "client.key"].map(|file| certificates.path(file));
    let files = format!("root_cert = {root:?}\nclient_cert = {cert:?}\nclient_key = {key:?}\n");
    let config = Config::of_cluster(&cluster, &files);
    let args = ["verify", "--json", "--lease", "1s", "--seconds", "4", "--config", config.path()];
    Run::start(lockkeeper(&args)).sees_nothing();
    for server in &cluster.servers {
        let left: Vec<String> = server.run(&["KEYS", "*"]);
        assert_eq!(left, [""; 0]);
    }
}

/// For how long `scripts/nightly` wants it.
fn long() -> Duration {
    let seconds = env::var("VERIFY_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(600))
}

#[test]
#[ignore = "scripts/nightly runs it"]
fn a_healthy_server_is_not_accused_for_long() {
    let (server, start) = (Server::start(), Instant::now());
    while start.elapsed() < long() {
        let verdict = Run::start(at(&server.url(), &["verify", "--json", "--seconds", "60"])).sees_nothing();
        println!("{} grants", verdict["grants"]);
    }
}

#[test]
#[ignore = "scripts/nightly runs it"]
fn slots_that_move_for_long_break_nothing() {
    let (cluster, start) = (Cluster::start(2, 0), Instant::now());
    let config = Config::of_cluster(&cluster, "");
    while start.elapsed() < long() {
        let mut run =
            Run::start(lockkeeper(&["verify", "--json", "--seconds", "60", "--config", config.path()]));
        let start = Instant::now();
        while run.0.runs() {
            // Before the workers end: a slot that moves while keys are counted hides them.
            if start.elapsed() < Duration::from_secs(50)
                && let Some(key) = cluster.keys().pop()
            {
                let slot = cluster.slot_of(&key);
                cluster.move_slot(slot, 1 - cluster.master_of(slot));
            }
            thread::sleep(Duration::from_secs(1));
        }
        println!("{} grants", run.sees_nothing()["grants"]);
    }
}

#[test]
fn a_deleted_key_is_seen() {
    let server = Server::start();
    let verdict = is_seen("two_holders", || {
        let mut run = verify(&server.url(), &["--seconds", "3", "--lease", "1s", "--kind", "rlock"]);
        while run.0.runs() {
            for key in keys(&server, "rlock") {
                let _: u64 = server.run(&["DEL", &key]);
            }
            thread::sleep(Duration::from_millis(5));
        }
        run
    });
    assert!(verdict["violations"][0]["picture"].as_array().expect("lines").len() >= 2, "{verdict:#}");
}

#[test]
fn an_empty_server_in_the_place_of_the_old_one_is_seen() {
    let mut server = Server::start();
    let owners = |server: &Server| -> Vec<Vec<String>> {
        keys(server, "rlock").iter().map(|key| server.run(&["HKEYS", key])).collect()
    };
    is_seen("two_holders", || {
        let mut run = verify(&server.url(), &["--seconds", "8", "--lease", "3s", "--kind", "rlock"]);
        while run.0.runs() {
            // A hold that lasts: its worker goes on after the restart.
            let before = owners(&server);
            thread::sleep(Duration::from_millis(100));
            if owners(&server).iter().any(|owner| !owner.is_empty() && before.contains(owner)) {
                server.restart();
                thread::sleep(Duration::from_millis(500));
            }
        }
        run
    });
}

#[test]
fn a_worker_that_ignores_its_loss_is_seen() {
    let server = Server::start();
    let args = ["--seconds", "4", "--lease", "1s", "--kind", "rlock", "--ignore-losses"];
    let verdict = is_seen("two_holders", || verify(&server.url(), &args));
    assert!(verdict.to_string().contains("had been told of its loss"), "{verdict:#}");
}

#[test]
fn a_token_counter_that_is_set_back_is_seen() {
    let server = Server::start();
    let counters = || -> Vec<String> {
        keys(&server, "fenced").into_iter().filter(|key| key.contains("token")).collect()
    };
    is_seen("token_not_greater", || {
        let run = verify(&server.url(), &["--seconds", "3", "--lease", "1s", "--kind", "fenced"]);
        wait_until("there are counters", || !counters().is_empty());
        for counter in counters() {
            let ahead: u64 = server.run(&["INCRBY", &counter, "1000000000000000"]);
            wait_until("a token is given", || server.run::<Option<u64>>(&["GET", &counter]) != Some(ahead));
            let _: u64 = server.run(&["DEL", &counter]);
        }
        run
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_do_not_arrive_are_seen() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    proxy.set(Faults { lose_messages: true, ..Faults::default() });
    let args = ["--lease", "3s", "--seconds", "19"];
    is_seen("sleeping_waiter", || verify(&proxy.url(), &args));
}

#[test]
fn a_key_that_stays_is_seen() {
    let server = Server::start();
    let mut key = String::new();
    let verdict = is_seen("left_behind", || {
        let run = verify(&server.url(), &["--seconds", "2", "--lease", "1s", "--kind", "rlock"]);
        let mut held = Vec::new();
        wait_until("locks are held", || {
            held = keys(&server, "rlock");
            // Without the key of an earlier attempt.
            held.retain(|key| !key.ends_with(":other"));
            !held.is_empty()
        });
        key = format!("{}:other", held[0]);
        let _: String = server.run(&["SET", &key, "x"]);
        run
    });
    assert!(verdict["violations"][0]["text"].as_str().expect("text").contains(&key), "{verdict:#}");
}

#[test]
fn without_rights_no_worker_starts() {
    let server = Server::start();
    let _: String = server.run(&["ACL", "SETUSER", "shop", "on", ">x", "~shop:*", "&*", "+@all"]);
    let url = server.url().replace("redis://", "redis://shop:x@");
    let ended = run(&mut at(&url, &["verify", "--seconds", "2"]));
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(ended.said.contains("may not run") && !ended.said.contains("worker processes"), "{ended:?}");
}

#[test]
fn a_history_without_grants_proves_nothing() {
    let history = Config::new("{\"at\":1,\"process\":0,\"event\":\"began\",\"lease_ms\":3000}\n");
    let broken = Config::new("{}\n");
    for (history, code) in [(history, 69), (broken, 64)] {
        let ended = run(&mut lockkeeper(&["verify", "--judge", history.path()]));
        assert_eq!(ended.code, Some(code), "{ended:?}");
    }
}

/// What cli/README.md says of a program that is killed.
#[test]
fn a_killed_run_leaves_only_what_the_page_names() {
    let (server, folder) = (Server::start(), env::temp_dir().join(format!("verify-{}", process::id())));
    fs::create_dir(&folder).expect("a folder");
    let mut command = at(&server.url(), &["verify", "--workers", "3", "--lease", "1s"]);
    command.env("TMPDIR", &folder);
    let run = Run::start(command);
    let endless = || {
        let mut all = keys(&server, "");
        all.retain(|key| server.run::<i64>(&["PTTL", key]) == -1);
        all
    };
    let counts = |left: &[String]| {
        let count = |part: &str| left.iter().filter(|key| key.contains(part)).count();
        (count(":semaphore-") - count("}:timeout"), count("redisson_lock_token:{"), count("}:timeout"))
    };
    wait_until("each kind was used", || matches!(counts(&endless()), (3, 3, _)));
    let killed = process::Command::new("kill").args(["-KILL", &run.0.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    // The queue in which a killed worker stood expires after a day.
    let held = || keys(&server, "").into_iter().filter(|key| !key.contains(":fair-")).count();
    wait_until("all leases have ended", || held() == endless().len());
    // Each semaphore can have the set of the permits that were in use.
    let left = endless();
    assert!(matches!(counts(&left), (3, 3, sets) if left.len() == 6 + sets), "{left:?}");
    let folders: Vec<_> =
        fs::read_dir(&folder).expect("the folder").flatten().map(|entry| entry.file_name()).collect();
    assert!(
        folders.len() == 1 && folders[0].to_string_lossy().starts_with("lockkeeper-verify-"),
        "{folders:?}"
    );
    fs::remove_dir_all(&folder).expect("removed");
}

//! `lockkeeper watch`.

use lockkeeper_testkit::{Server, signal};
use serde_json::Value;

use super::support::{Config, Running, at, client, json, run, waiter};

fn watch(url: &str, args: &[&str]) -> Running {
    Running::start(&mut at(url, &[&["watch", "--every", "50ms"], args].concat()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_printed_as_they_happen() {
    let server = Server::start();
    let (locks, beside) = (client(&server).await, client(&server).await);
    let mut lock = locks.rlock("lock:a");
    let outer = lock.lock().await.expect("the lock");
    // All clients are of this process.
    let process = locks.inspect("lock:a").await.expect("an answer").expect("it is held");
    let process = process.holders[0].identity.clone().expect("it is connected");
    let named = |id: &str| format!("{process} ({id})");
    let hidden = locks.rlock("other").lock().await.expect("the lock");
    let watch = watch(&server.url(), &["lock:*", "job:?"]);
    let first = named(&outer.owner_id());
    watch.prints(&format!("Z lock:a is held by {first} (rlock)\n"));
    let inner = lock.lock().await.expect("the lock");
    watch.prints("Z lock:a holds 1 → 2\n");
    let job = locks.fenced_lock("job:1").lock().await.expect("the lock");
    watch.prints(&format!("Z job:1 is held by {} (fenced)\n", named(&job.owner_id())));
    let waiting = waiter(beside.rlock("lock:a"));
    watch.prints("Z lock:a waiters 0 → 1 client\n");
    inner.unlock().await.expect("a hold");
    outer.unlock().await.expect("a hold");
    let next = waiting.await.expect("a waiter");
    watch.prints(&format!("Z lock:a is held by {} (rlock)", named(&next.owner_id())));
    let id = named(&next.owner_id());
    next.unlock().await.expect("a hold");
    watch.prints(&format!("Z lock:a is free, was held by {id}\n"));
    let semaphore = locks.semaphore("job:2", 2);
    let one = semaphore.acquire().await.expect("a permit");
    watch.prints(&format!("Z job:2 is held by {} (semaphore)\n", named(&one.id().to_string())));
    let two = semaphore.acquire().await.expect("a permit");
    watch.prints(&format!(
        "Z job:2 is held by {}, {} (semaphore), was held by {}\n",
        named(&one.id().to_string()),
        named(&two.id().to_string()),
        named(&one.id().to_string())
    ));
    semaphore.resize(5).await.expect("another total");
    watch.prints("Z job:2 permits 2 → 5\n");
    one.unlock().await.expect("a permit");
    two.unlock().await.expect("a permit");
    watch.prints("Z job:2 is free, was held by ");
    assert!(!watch.printed().contains("other"), "{}", watch.printed());
    signal(watch.id(), "INT");
    let ended = watch.end();
    assert_eq!((ended.code, &*ended.said), (Some(0), ""));
    drop((hidden, job));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_json_line_is_one_change_with_the_lock() {
    let server = Server::start();
    let locks = client(&server).await;
    let first = locks.rlock("lock").lock().await.expect("the lock");
    let watch = watch(&server.url(), &["--json"]);
    watch.prints("\"present\"");
    let second = locks.rlock("other").lock().await.expect("the lock");
    watch.prints("\"held\"");
    first.unlock().await.expect("a hold");
    watch.prints("\"free\"");
    watch.prints("null}\n");
    let lines: Vec<Value> = watch.printed().lines().map(json).collect();
    let told: Vec<_> = lines.iter().map(|line| [&line["change"], &line["name"]]).collect();
    assert_eq!(told, [["present", "lock"], ["held", "other"], ["free", "lock"]]);
    assert_eq!(lines[0]["lock"]["name"], "lock");
    assert_eq!(lines[0]["lock"]["holders"][0]["holds"], 1);
    assert_eq!(lines[2]["lock"], Value::Null);
    drop(second);
    assert!(lines[0]["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{}", lines[0]);
}

#[test]
fn an_outage_is_told_once_and_the_watch_goes_on() {
    let mut server = Server::start();
    let config = Config::new("[locks]\ncommand_timeout = \"300ms\"\nretry_timeout = \"300ms\"\n");
    let _: u64 = server.run(&["HSET", "before", "0-0-0-0-a:1", "1"]);
    let watch = watch(&server.url(), &["--config", config.path()]);
    watch.prints("before is held by 0-0-0-0-a:1");
    server.kill();
    watch.complains("cannot read the locks");
    server.start_again();
    let _: u64 = server.run(&["HSET", "after", "0-0-0-0-a:1", "1"]);
    watch.prints("after is held by 0-0-0-0-a:1");
    watch.prints("before is free, was held by 0-0-0-0-a:1");
    signal(watch.id(), "INT");
    let ended = watch.end();
    assert_eq!(ended.code, Some(0));
    for told in ["cannot read the locks", "the server answers again"] {
        assert_eq!(ended.said.matches(told).count(), 1, "{ended:?}");
    }
}

#[test]
fn what_is_wrong_at_the_start_ends_the_command() {
    assert_eq!(run(&mut at("redis://127.0.0.1:1/", &["watch"])).code, Some(69));
    let server = Server::start();
    assert_eq!(run(&mut at(&server.url(), &["watch", "--every", "0s"])).code, Some(64));
    assert_eq!(run(&mut at(&server.url(), &["watch", "ok", ""])).code, Some(64));
    let _: String = server.run(&["ACL", "SETUSER", "app", "on", ">hunter2", "~*", "&*", "+@all", "-scan"]);
    let ended = run(&mut at(&server.url().replace("redis://", "redis://app:hunter2@"), &["watch"]));
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
}

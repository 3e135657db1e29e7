//! The user that docs/deploy.md makes: it may do what the locks with its names need, and nothing to other locks.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use lockkeeper::leader::Candidate;
use lockkeeper::{Error, LockClient};
use redis::{Value, from_redis_value};

use crate::support::{
    MS, SECOND, Scene, Server, announces, are_wanted, connect, eventually, fixed, lingering, lua, patient,
    renewed, script_hash, soon, waiter,
};

/// Names of locks that the recipe is for, and what clients with these names have as their `name_prefix`.
const OWN: (&[&str], &[&str]) = (&["shop:a", "shop:{a}:b"], &["shop:", "shop:stock:"]);

/// Those of other services.
const FOREIGN: (&[&str], &[&str]) = (
    &["bank:a", "bank:{a}:b", "bank:{shop:a}", "{bank:a}", "shopping:a", "xshop:a", "a"],
    &["", "bank:", "shopping:"],
);

const CLIENT: &str = "8743c9c0-0795-8907-87fd-6c719a6b4586";

/// Reads a page when the test runs: a wrong recipe is noticed without a build.
fn page(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Makes the user of the recipe, with these of its lines.
fn make_user(server: &Server, begin: &str) {
    let page = page("docs/deploy.md");
    let lines: Vec<_> = page.lines().filter(|line| line.starts_with(begin) && line.contains(" +")).collect();
    assert!(!lines.is_empty(), "{begin}");
    for line in lines {
        server.run::<()>(&line.split_whitespace().collect::<Vec<_>>());
    }
}

/// The first column of a table of `lua/README.md`, for locks with these names.
fn listed(heading: &str, (names, prefixes): (&[&str], &[&str])) -> BTreeSet<String> {
    let page = page("lua/README.md");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let (mut all, mut before) = (BTreeSet::new(), String::new());
    for cell in rows.map_while(|line| line.strip_prefix("| ")?.split(" |").next()) {
        let form = match cell {
            "the lock's name" | "the same, of a read-write lock" | "the name of a semaphore" => {
                "<name>".to_owned()
            }
            "the same" => before,
            "the same, a colon, and an owner" => format!("{before}:<owner>"),
            cell => cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')).expect(cell).to_owned(),
        };
        // A name of a group of claims can begin like those of locks, or have the prefix in front of it.
        let prefixes = if form.contains("{<group>}") { &[prefixes, &[""]].concat() } else { prefixes };
        for (name, prefix) in names.iter().flat_map(|name| prefixes.iter().map(move |prefix| (name, prefix)))
        {
            let group = name.replace(['{', '}'], "");
            let tag = if name.contains('{') { (*name).to_owned() } else { format!("{{{name}}}") };
            let key = form.replace("<tag>", &tag).replace("<name>", name).replace("<name_prefix>", prefix);
            let key = key.replace("<group>", &group).replace("<job>", "7");
            let key = key.replace("<client uuid>", CLIENT).replace("<owner>", &format!("{CLIENT}:7"));
            let key = key.replace("<i>", "1");
            assert!(!key.contains(['<', '>', '`']), "{cell} is not understood");
            all.insert(key);
        }
        before = form;
    }
    all
}

/// The commands that the scripts of locks run, and those that subscribe. `list.lua` is for another user. Without the right to `type`, only
/// an error is less exact.
fn commands() -> BTreeSet<String> {
    let texts = lua::files().into_iter().filter(|file| file != "list.lua").map(|file| lua::source(&file));
    let texts: String = texts.flat_map(|text| [lua::sharded(&text), text]).collect();
    let found = texts.split("call('").skip(1).map(|call| call.split('\'').next().unwrap().to_owned());
    let subscribing = ["subscribe", "ssubscribe"].map(str::to_owned);
    found.chain(subscribing).filter(|command| command != "type").collect()
}

/// A command about a key or a channel.
struct Command {
    name: String,
    /// How many words follow the key or channel, at least.
    more: usize,
    is_about_channel: bool,
    writes: bool,
}

impl Command {
    /// Reads the reply of `COMMAND`. Leaves out commands without a key, such as `time`.
    fn read(info: Vec<Vec<Value>>) -> Vec<Self> {
        let read = |info: Vec<Value>| {
            let mut info = info.into_iter();
            let name: String = from_redis_value(info.next()?).unwrap();
            let arity: i64 = from_redis_value(info.next()?).unwrap();
            let flags: Vec<String> = from_redis_value(info.next()?).unwrap();
            let first_key: usize = from_redis_value(info.next()?).unwrap();
            let has = |flag: &str| flags.iter().any(|other| other == flag);
            let is_about_channel = has("pubsub") && !name.contains("unsubscribe") && name != "pubsub";
            let more = usize::try_from(arity.abs()).unwrap().saturating_sub(2);
            (is_about_channel || first_key == 1).then(|| Self {
                name,
                more,
                is_about_channel,
                writes: has("write"),
            })
        };
        info.into_iter().filter_map(read).collect()
    }

    /// What the server says to this command by this user, with each of these keys or channels.
    fn dry_run(&self, server: &Server, user: &str, names: &BTreeSet<String>) -> Vec<(String, String)> {
        let mut pipe = redis::pipe();
        for name in names {
            pipe.cmd("ACL").arg("DRYRUN").arg(user).arg(&self.name).arg(name).arg(vec!["1"; self.more]);
        }
        let answers: Vec<String> = pipe.query(&mut server.connect().unwrap()).unwrap();
        names.iter().map(|name| format!("{} {name}", self.name)).zip(answers).collect()
    }
}

/// The keys and channels are those of `lua/README.md`, the commands those of the scripts, and the lines those of `docs/deploy.md`.
#[tokio::test]
async fn the_documented_user_has_rights_to_its_own_names_only() {
    let scene = Scene::start();
    make_user(&scene.server, "ACL SETUSER locker ");
    let names = commands();
    let words: Vec<&str> = ["COMMAND", "INFO"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let commands = Command::read(scene.server.run(&words));
    assert_eq!(commands.len() + 2, names.len(), "only `time` and `pubsub` have no key");
    let (own_keys, own_channels) = (listed("Keys", OWN), listed("Channels", OWN));
    let foreign_channels = listed("Channels", FOREIGN);
    // Some scripts get a channel as a key.
    let foreign_keys = &listed("Keys", FOREIGN) | &foreign_channels;
    for command in commands {
        let (own, foreign) = match command.is_about_channel {
            true => (&own_channels, &foreign_channels),
            false => (&own_keys, &foreign_keys),
        };
        for (asked, answer) in command.dry_run(&scene.server, "locker", own) {
            assert_eq!(answer, "OK", "{asked}");
        }
        for (asked, answer) in command.dry_run(&scene.server, "locker", foreign) {
            assert!(answer.contains("no permissions to access"), "{asked}: {answer}");
        }
    }
    scene.end(()).await;
}

#[tokio::test]
async fn the_documented_observer_changes_nothing() {
    let scene = Scene::start();
    make_user(&scene.server, "ACL SETUSER observer ");
    let (commands, lock) = (Command::read(scene.server.run(&["COMMAND"])), BTreeSet::from(["a".to_owned()]));
    let allowed = |command: &Command| command.dry_run(&scene.server, "observer", &lock)[0].1 == "OK";
    assert!(commands.iter().any(|command| command.name == "hget" && allowed(command)));
    for command in commands.iter().filter(|command| command.writes || command.is_about_channel) {
        assert!(!allowed(command), "{}", command.name);
    }
    scene.end(()).await;
}

/// Uses every operation of a read-write lock.
async fn read_and_write(scene: &Scene, locks: &LockClient) {
    let mut lock = locks.read_write_lock("c");
    let writing = lock.write().lock().await.unwrap();
    assert!(lock.write().is_locked().await.unwrap() && !lock.read().is_locked().await.unwrap());
    let reading = [lock.read().lock().await.unwrap(), lock.read().lock().await.unwrap()];
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.read_write_lock("c").read().lock().await.unwrap().unlock().await }
    });
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    writing.unlock().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    let beside = locks.read_write_lock("c").with(&fixed(3_600 * SECOND)).into_read().lock().await.unwrap();
    renewed(&reading[0]).await;
    beside.unlock().await.unwrap(); // the longest lease of all readers
    for guard in reading {
        guard.unlock().await.unwrap();
    }
    for _ in 0..2 {
        let lock = locks.read_write_lock("c").with(&lingering(100 * MS)).into_read();
        drop({ lock }.lock().await.unwrap());
    }
    eventually("it was confirmed and released", || scene.server.keys(), Vec::is_empty).await;
    let _reading = lock.read().lock().await.unwrap();
    assert!(lock.read().force_unlock().await.unwrap());
}

/// Claims names, and renews and releases them.
async fn use_claims(locks: &LockClient) {
    let jobs = locks.claims("jobs");
    jobs.check().await.unwrap();
    let claims = [jobs.claim([1, 2]).await.unwrap().unwrap(), jobs.claim([1, 2]).await.unwrap().unwrap()];
    claims[1].extend(60 * SECOND).await.unwrap();
    for claim in claims {
        claim.unlock().await.unwrap();
    }
}

/// Every operation of a semaphore.
async fn use_semaphore(scene: &Scene, locks: &LockClient) {
    let semaphore = locks.semaphore("e", 2);
    semaphore.check().await.unwrap();
    let batch = semaphore.acquire_many(2).await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap().unlock().await }
    });
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    batch.extend(60 * SECOND).await.unwrap();
    semaphore.resize(3).await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    assert!(semaphore.force_unlock(batch.id()).await.unwrap());
    assert!(batch.unlock().await.is_err());
    // Somebody gave the semaphore an expiry.
    scene.server.run::<()>(&["PEXPIRE", "shop:e", "60000"]);
    drop(semaphore.acquire().await.unwrap());
    assert!(semaphore.delete().await.unwrap());
    eventually("nothing is left", || scene.server.keys(), Vec::is_empty).await;
}

/// Each script runs once as that user, and nothing is refused.
#[tokio::test]
async fn the_documented_rights_are_enough() {
    let scene = Scene::start();
    make_user(&scene.server, "ACL SETUSER locker ");
    // Older servers do not know it.
    let _ = scene.server.try_run::<()>(&["ACL", "SETUSER", "locker", "+client|setinfo"]);
    scene.server.run::<()>(&["ACL", "SETUSER", "locker", "+info"]);
    let url = format!("redis://locker:secret@127.0.0.1:{}/", scene.server.port());
    let config = patient().watchdog_lease(3 * SECOND).safety_poll(60 * SECOND).fair_allowance(1_500 * MS);
    // The server knows only the scripts that this user runs.
    scene.server.run::<()>(&["SCRIPT", "FLUSH"]);
    let locks = connect(url.clone(), config.name_prefix("shop:")).await;
    let has_run = |file: &&str| scene.server.run::<Vec<bool>>(&["SCRIPT", "EXISTS", &script_hash(file)])[0];
    let guard = locks.fair_lock("b").lock().await.unwrap();
    let waiting = waiter(locks.fair_lock("b"));
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    // The state after a Java client removed the waiter and queued itself.
    scene.server.run::<()>(&["DEL", "redisson_lock_queue:{shop:b}", "redisson_lock_timeout:{shop:b}"]);
    scene.server.run::<()>(&["RPUSH", "redisson_lock_queue:{shop:b}", "java:1"]);
    let queued = || scene.server.run::<usize>(&["LLEN", "redisson_lock_queue:{shop:b}"]);
    eventually("a heartbeat puts the waiter back", queued, |&len| len == 2).await;
    scene.server.run::<()>(&["LREM", "redisson_lock_queue:{shop:b}", "1", "java:1"]);
    scene.server.run::<()>(&["ZREM", "redisson_lock_timeout:{shop:b}", "java:1"]);
    eventually("it has waited for a lease", || has_run(&"place.lua"), |&has_run| has_run).await;
    let found = locks.why("b").await.unwrap();
    assert!(found[0].links[0].holder.held_for.is_some());
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    eventually("no subscription is left", || scene.server.channels(), Vec::is_empty).await;
    let mut lock = locks.rlock("a");
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let waiting = waiter(locks.rlock("a"));
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    renewed(&outer).await;
    assert!(lock.is_locked().await.unwrap() && locks.inspect("a").await.unwrap().is_some());
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    drop(guard);
    are_wanted(&locks, "a", "b").await;
    read_and_write(&scene, &locks).await;
    let fenced = locks.fenced_lock("d").lock().await.unwrap();
    assert!(fenced.token().get() > 0);
    fenced.unlock().await.unwrap();
    announces(&locks, &locks, "d").await;
    use_claims(&locks).await;
    use_semaphore(&scene, &locks).await;
    for name in ["a", "{a}:b"] {
        locks.fair_lock(name).check().await.unwrap();
        locks.fenced_lock(name).check().await.unwrap();
        locks.read_write_lock(name).read().check().await.unwrap();
        locks.semaphore(name, 1).check().await.unwrap();
    }
    drop(lock);
    locks.shutdown().await.unwrap();
    drop(locks);
    let files = lua::files();
    let left: Vec<&str> = files.iter().map(String::as_str).filter(|file| !has_run(file)).collect();
    assert_eq!(
        left,
        ["list.lua", "semaphore/holders.lua"],
        "scripts that were not run. Those who look run these"
    );
    let refused: Vec<Value> = scene.server.run(&["ACL", "LOG"]);
    assert!(refused.is_empty(), "{refused:?}");
    // Without a prefix, the name of a group begins like those of locks.
    let plain = connect(url, patient()).await;
    plain.claims("shop:jobs").check().await.unwrap();
    drop(plain.claims("shop:jobs").claim([1]).await.unwrap().unwrap());
    plain.shutdown().await.unwrap();
    scene.end(plain).await;
}

#[tokio::test]
async fn a_client_without_the_right_to_the_time_does_not_connect_and_says_why() {
    let scene = Scene::start();
    let url = scene.user("~* &* +@all -time");
    let error = soon(LockClient::connect(url)).await.unwrap_err();
    assert!(matches!(error, Error::Permission(_)) && error.to_string().contains("`+time`"), "{error}");
    scene.end(()).await;
}

/// The server's own words name no key, or another one than is missing.
#[tokio::test]
async fn an_error_about_a_missing_right_leads_to_the_key() {
    let scene = Scene::start();
    let client = async |user: &str, rules: &str| {
        let rules = format!("ACL SETUSER {user} reset on >secret {rules}");
        scene.server.run::<()>(&rules.split(' ').collect::<Vec<_>>());
        connect(format!("redis://{user}:secret@127.0.0.1:{}/", scene.server.port()), patient()).await
    };
    let locks = client("jobs", "~{jobs}* ~lockkeeper_client:* &* +@all").await;
    let jobs = locks.claims("jobs");
    let said = |error: Error| {
        assert!(matches!(error, Error::Permission(_)), "{error:?}");
        error.to_string()
    };
    let text = said(soon(jobs.claim([1])).await.unwrap_err());
    assert!(
        text.ends_with("; `check()` of the lock and `lockkeeper doctor` name the missing rights"),
        "{text}"
    );
    let text = said(jobs.check().await.unwrap_err());
    assert!(
        text.ends_with(": this user may not run `get`, `incr`, `set` on `lockkeeper_claims:{jobs}`"),
        "{text}"
    );

    let polls = client("polls", "~* &* +@all -pubsub").await;
    let lock = || polls.read_write_lock("a").into_read();
    lock().check().await.unwrap();
    let text = said(lock().with(&lingering(20 * MS)).check().await.unwrap_err());
    assert!(text.ends_with(": this user may not run `pubsub|numsub` on `redisson_rwlock:{a}`"), "{text}");

    let silent = "~a ~lockkeeper_client:* ~redisson_lock_token:* &redisson_lock__channel:* +@all";
    let silent = client("silent", silent).await;
    silent.fenced_lock("a").check().await.unwrap();
    let text = said(Candidate::new(&silent, "a").check().await.unwrap_err());
    assert!(text.contains(": this user may not run `del`, `get`, `set`, `publish`, `subscribe`"), "{text}");
    assert!(text.ends_with(" on `lockkeeper_announcement:{a}`"), "{text}");
    Candidate::new(&locks, "{jobs}").check().await.expect_err("it has no counter");
    scene.end((jobs, locks, polls, silent)).await;
}

/// Guarantee 3. The script of a fair lock did not run, so nothing is left of it, and no other call waits for that.
#[tokio::test]
async fn what_the_server_refused_is_not_waited_for() {
    let scene = Scene::start();
    let locks = connect(scene.user("~a ~*self_test* &* +@all"), patient()).await;
    let mut lock = locks.fair_lock("a");
    let start = Instant::now();
    for _ in 0..3 {
        assert!(matches!(lock.lock().await, Err(Error::Permission(_))));
    }
    locks.shutdown().await.unwrap();
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    scene.end((lock, locks)).await;
}

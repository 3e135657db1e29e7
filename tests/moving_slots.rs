//! The scripts in a cluster while a slot moves: some keys of a lock are on the old server, and some on the new one.

use std::thread::sleep;
use std::time::{Duration, Instant};

use lockkeeper_testkit::{Cluster, lua};
use redis::{Connection, RedisError, Value, cmd};

/// How long a cluster has to be well again.
const LIMIT: Duration = Duration::from_secs(20);

const OWNER: &str = "11111111-2222-3333-4444-555555555555:1";
const OTHER: &str = "11111111-2222-3333-4444-555555555555:2";
const LEASE: &str = "60000";

/// Two masters. The slot of the lock `a` is on the old one, and can be moved to the new one.
struct Scene {
    group: Cluster,
    slot: u16,
    old: usize,
    new: usize,
}

/// A script with its keys and arguments.
type Call<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

impl Scene {
    fn start() -> Self {
        let group = Cluster::start(2, 0);
        let slot = group.slot_of("a");
        let old = group.master_of(slot);
        Self { group, slot, old, new: 1 - old }
    }

    fn open(&self) {
        self.group.open_slot(self.slot, self.new);
    }

    fn close(&self) {
        self.group.close_slot(self.slot, self.new);
    }

    fn on_old(&self, call: Call<'_>) -> Result<Value, RedisError> {
        while_up(|| evaluate(&mut self.group.servers[self.old].connect().unwrap(), call))
    }

    /// On the new server, as a client that follows an `ASK`.
    fn on_new(&self, call: Call<'_>) -> Result<Value, RedisError> {
        while_up(|| {
            let mut connection = self.group.servers[self.new].connect().unwrap();
            cmd("ASKING").exec(&mut connection).unwrap();
            evaluate(&mut connection, call)
        })
    }
}

fn evaluate(connection: &mut Connection, (file, keys, args): Call<'_>) -> Result<Value, RedisError> {
    cmd("EVAL")
        .arg(lua::sharded(&lua::source(file)))
        .arg(keys.len())
        .arg(keys)
        .arg(args)
        .arg(lua::in_time(file))
        .query(connection)
}

/// On a busy machine, the servers can take each other for dead. Then nothing runs until the cluster is well again.
fn while_up(run: impl Fn() -> Result<Value, RedisError>) -> Result<Value, RedisError> {
    let start = Instant::now();
    loop {
        let reply = run();
        let is_down = matches!(&reply, Err(error) if error.code() == Some("CLUSTERDOWN"));
        if !is_down || start.elapsed() > LIMIT {
            return reply;
        }
        sleep(Duration::from_millis(50));
    }
}

fn is_refused(reply: Result<Value, RedisError>, codes: &[&str]) -> bool {
    let error = reply.expect_err("a refusal");
    let is_expected = error.code().is_some_and(|code| codes.contains(&code));
    assert!(is_expected, "{error}");
    is_expected
}

fn is_split(reply: Result<Value, RedisError>) -> bool {
    let error = reply.expect_err("a refusal").to_string();
    let is_known =
        ["non local key", "undeclared keys were accessed"].iter().any(|words| error.contains(words));
    assert!(is_known, "{error}");
    true
}

fn named(reply: &str) -> Value {
    Value::Int(lua::reply(reply))
}

/// The hash is on one server, and the key of the reader on the other.
#[test]
fn a_living_reader_is_never_treated_as_dead_while_its_slot_moves() {
    let hold = format!("{{a}}:{OWNER}:rwlock_timeout:1");
    for moved in ["a", hold.as_str()] {
        let scene = Scene::start();
        let keys: &[&str] = &["a", "redisson_rwlock:{a}"];
        let (reader, writer) = (format!("{OTHER}:write"), format!("{OWNER}:write"));
        assert_eq!(scene.on_old(("read/acquire.lua", keys, &[OWNER, "1", LEASE])).unwrap(), Value::Nil);
        scene.open();
        scene.group.move_key(moved, scene.new);

        let calls: [Call<'_>; 8] = [
            ("read/acquire.lua", keys, &[OTHER, "2", LEASE]),
            ("read/show.lua", keys, &[OWNER, "1", "2", LEASE]),
            ("read/release.lua", keys, &[OWNER, "1", LEASE]),
            ("read/renew.lua", keys, &[LEASE, OWNER, "1", LEASE]),
            ("read/state.lua", keys, &[]),
            ("write/acquire.lua", keys, &[&reader, LEASE, "0"]),
            ("write/acquire.lua", keys, &[&writer, LEASE, "0"]),
            ("write/release.lua", keys, &[&writer]),
        ];
        for call in calls {
            assert!(is_refused(scene.on_old(call), &["TRYAGAIN", "ASK"]), "{}", call.0);
            assert!(is_refused(scene.on_new(call), &["TRYAGAIN"]), "{}", call.0);
        }
        let inspect: Call<'_> = ("inspect.lua", &["a"], &["0"]);
        if moved == "a" {
            assert!(is_refused(scene.on_old(inspect), &["ASK"]) && is_split(scene.on_new(inspect)));
        } else {
            assert!(is_split(scene.on_old(inspect)));
        }

        scene.close();
        assert!(matches!(scene.on_new(("read/state.lua", keys, &[])).unwrap(), Value::Int(1..)));
        let write: Call<'_> = ("write/acquire.lua", keys, &[&writer, LEASE, "0"]);
        assert!(matches!(scene.on_new(write).unwrap(), Value::Int(1..)), "the reader still holds the lock");
        let release: Call<'_> = ("read/release.lua", keys, &[OWNER, "1", LEASE]);
        assert_eq!(scene.on_new(release).unwrap(), Value::Int(0));
        assert_eq!(scene.on_new(write).unwrap(), Value::Nil);
    }
}

/// A renewal of holds of several slots says `LOST` only of a lock whose slot the server has.
#[test]
fn a_renewal_of_several_slots_tells_which_locks_the_server_cannot_know() {
    let scene = Scene::start();
    let other = scene.group.name_on(scene.old, "other");
    let on_old = |file, keys: &[&str], args: &[&str]| renew_of_slots(&scene, scene.old, file, keys, args);
    for key in ["a", "moved{a}", &other] {
        assert_eq!(scene.on_old(("rlock/acquire.lua", &[key], &[OWNER, LEASE])).unwrap(), Value::Nil);
    }
    scene.group.servers[scene.old].run::<()>(&["SET", "text{a}", "1"]);
    scene.open();
    scene.group.move_key("moved{a}", scene.new);
    let keys = ["a", "gone{a}", "text{a}", "moved{a}", &other];
    let replies = on_old("rlock/renew.lua", &keys, &[LEASE, OWNER, OWNER, OWNER, OWNER, OWNER]);
    let (mine, lost) = (named("RENEWED"), named("LOST"));
    assert_eq!([&replies[0], &replies[2], &replies[4]], [&mine, &lost, &mine]);
    // Nobody knows whether the free one has moved.
    assert!(is_elsewhere(&replies[1]) && is_elsewhere(&replies[3]), "{replies:?}");
    let other_owner = on_old("rlock/renew.lua", &["a", &other], &[LEASE, OTHER, OTHER]);
    assert_eq!(other_owner, [lost.clone(), lost.clone()]);
    let on_new = renew_of_slots(&scene, scene.new, "rlock/renew.lua", &["moved{a}"], &[LEASE, OWNER]);
    assert!(is_elsewhere(&on_new[0]), "it does not have the slot yet: {on_new:?}");
    scene.close();
    assert!(is_elsewhere(&on_old("rlock/renew.lua", &["a"], &[LEASE, OWNER])[0]));
    let on_new =
        renew_of_slots(&scene, scene.new, "rlock/renew.lua", &["a", "moved{a}"], &[LEASE, OWNER, OWNER]);
    assert_eq!(on_new, [mine.clone(), mine]);
}

/// Whatever is on which server: it can be the hash of the lock or a key of the hold.
#[test]
fn a_renewal_of_several_slots_takes_no_reader_for_dead_while_its_slot_moves() {
    let hold = format!("{{a}}:{OWNER}:rwlock_timeout:1");
    let (args, keys): (&[&str], &[&str]) = (&[LEASE, OWNER, "1", LEASE], &["a", "redisson_rwlock:{a}"]);
    for moved in ["a", hold.as_str()] {
        let scene = Scene::start();
        assert_eq!(scene.on_old(("read/acquire.lua", keys, &[OWNER, "1", LEASE])).unwrap(), Value::Nil);
        let renew = |server| renew_of_slots(&scene, server, "read/renew.lua", keys, args).remove(0);
        assert_eq!(renew(scene.old), named("RENEWED"));
        scene.open();
        assert!(is_elsewhere(&renew(scene.old)));
        scene.group.move_key(moved, scene.new);
        for server in [scene.old, scene.new] {
            let reply = renew(server);
            assert!(is_elsewhere(&reply), "{reply:?}");
        }
        scene.close();
        assert_eq!(renew(scene.new), named("RENEWED"));
    }
}

#[test]
fn a_renewal_of_several_slots_tells_of_permits_that_have_moved() {
    const ID: &str = "0123456789abcdef";
    let scene = Scene::start();
    let acquire: Call<'_> =
        ("semaphore/acquire.lua", &["a", "{a}:timeout"], &[ID, "3", LEASE, "redisson_sc:{a}"]);
    assert!(matches!(scene.on_old(acquire).unwrap(), Value::Array(_)));
    let args: &[&str] = &[LEASE, ID];
    let renew =
        |server| renew_of_slots(&scene, server, "semaphore/renew.lua", &["{a}:timeout"], args).remove(0);
    assert_eq!(renew(scene.old), named("RENEWED"));
    scene.open();
    assert_eq!(renew(scene.old), named("RENEWED"));
    scene.group.move_key("{a}:timeout", scene.new);
    assert!(is_elsewhere(&renew(scene.old)) && is_elsewhere(&renew(scene.new)));
    scene.close();
    assert_eq!(renew(scene.new), named("RENEWED"));
}

fn renew_of_slots(scene: &Scene, server: usize, file: &str, keys: &[&str], args: &[&str]) -> Vec<Value> {
    let script = lua::of_slots(&lua::source(file));
    let reply = while_up(|| {
        let mut connection = scene.group.servers[server].connect().unwrap();
        cmd("EVAL").arg(&script).arg(0).arg(keys.len()).arg(keys).arg(args).query(&mut connection)
    });
    let Value::Array(replies) = reply.unwrap() else { panic!("a list") };
    replies
}

/// Whether a hold got the error of a server that does not have all of its keys.
fn is_elsewhere(reply: &Value) -> bool {
    let words = ["non local key", "undeclared keys were accessed"];
    matches!(reply, Value::BulkString(error) if words.iter().any(|words| String::from_utf8_lossy(error).contains(words)))
}

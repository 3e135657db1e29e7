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

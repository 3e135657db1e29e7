//! Operations on a read-write lock with N readers.

use redis::Cmd;

use super::operation::{CALLER, Operation, Prepared, command, other};

/// The fixed leases of the readers, and a longer one.
const LEASE_MS: &str = "699999";
const LONG_LEASE_MS: &str = "3600000";

/// The lease of a client's configuration. A lock that lasts longer for one reader ends earlier after its release.
const USUAL_MS: &str = "30000";

const GRANT: &str = "1";

pub fn operations() -> Vec<Operation> {
    let operation = |name, script, prepare: fn(&str, usize) -> Prepared| Operation {
        name,
        script,
        prepare: Box::new(prepare),
    };
    vec![
        operation("read, acquire", "read/acquire.lua", |lock, readers| {
            let restore = vec![command(["HDEL", lock, CALLER]), command(["DEL", &hold(lock, CALLER)])];
            prepared(lock, readers, restore, &[lock, &channel(lock)], &[CALLER, GRANT, LEASE_MS], "nil")
        }),
        operation("read, release", "read/release.lua", |lock, readers| release(lock, readers, LEASE_MS)),
        operation("read, release, longest lease", "read/release.lua", |lock, readers| {
            release(lock, readers, LONG_LEASE_MS)
        }),
        operation("read, state", "read/state.lua", |lock, readers| {
            prepared(lock, readers, Vec::new(), &[lock, &channel(lock)], &[], "int(6")
        }),
        operation("write, state", "write/state.lua", |lock, readers| {
            prepared(lock, readers, Vec::new(), &[lock], &[], "int(-2)")
        }),
        operation("write, acquire, refused", "write/acquire.lua", |lock, readers| {
            let writer = format!("{CALLER}:write");
            prepared(lock, readers, Vec::new(), &[lock, &channel(lock)], &[&writer, LEASE_MS, "0"], "int(6")
        }),
        operation("inspect, first page", "inspect.lua", |lock, readers| {
            prepared(lock, readers, Vec::new(), &[lock], &["0"], "array(")
        }),
    ]
}

/// The caller is one of the readers.
fn release(lock: &str, readers: usize, lease_ms: &str) -> Prepared {
    let args = [CALLER, GRANT, "0", USUAL_MS];
    prepared(lock, readers - 1, read_by(lock, CALLER, lease_ms), &[lock, &channel(lock)], &args, "int(1)")
}

fn channel(lock: &str) -> String {
    format!("redisson_rwlock:{{{lock}}}")
}

fn prepared(
    lock: &str,
    others: usize,
    restore: Vec<Cmd>,
    keys: &[&str],
    args: &[&str],
    answer: &'static str,
) -> Prepared {
    let state = (0..others).flat_map(|number| read_by(lock, &other(number), LEASE_MS)).collect();
    let [keys, args] = [keys, args].map(|words| words.iter().map(|word| (*word).to_owned()).collect());
    Prepared { state, restore, keys, args, answer }
}

fn read_by(lock: &str, owner: &str, lease_ms: &str) -> Vec<Cmd> {
    vec![
        command(["HSET", lock, "mode", "read", owner, "1"]),
        command(["PEXPIRE", lock, lease_ms]),
        command(["SET", &hold(lock, owner), GRANT, "PX", lease_ms]),
    ]
}

/// The key of a read hold.
fn hold(lock: &str, owner: &str) -> String {
    format!("{{{lock}}}:{owner}:rwlock_timeout:1")
}

//! Situations, and the script that lockkeeper and Redisson call in each.

/// One call. Words are separated by spaces. `OWNER` is the id of the caller, `ANOTHER` that of another owner, and `PLACE`
/// the record of the caller in the queue.
pub struct Call {
    pub script: &'static str,
    /// Commands that make the situation, with `;` between them.
    pub before: &'static str,
    /// The number of keys, the keys, the arguments.
    pub words: &'static str,
    /// How the answer begins as text.
    pub answer: &'static str,
}

pub struct Case {
    pub what: &'static str,
    pub lockkeeper: Call,
    pub redisson: Option<Call>,
}

const FREE: &str = "DEL l q s p t x";
const HELD: &str = "DEL l q s p t x;HSET l OWNER 1;PEXPIRE l 29999";
const HELD_BY_ANOTHER: &str = "DEL l q s p t x;HSET l ANOTHER 1;PEXPIRE l 29999";
const QUEUED: &str = "DEL l q s p t;HSET l ANOTHER 1;PEXPIRE l 29999;RPUSH q OWNER;ZADD s 9999999999999 OWNER;\
                      HSET p OWNER PLACE;PEXPIRE p 60000;ZADD t 1700000000000000 OWNER;PEXPIRE t 60000";
const UNREAD: &str = "DEL l x {l}:OWNER:rwlock_timeout:1 {l}:OWNER:rwlock_timeout:2";
const READ: &str = "DEL l x {l}:OWNER:rwlock_timeout:2;HSET l mode read OWNER 1;PEXPIRE l 29999;\
                    SET {l}:OWNER:rwlock_timeout:1 1 PX 29999";
const WRITTEN: &str = "DEL l x;HSET l mode write OWNER:write 1;PEXPIRE l 29999";

const fn call(script: &'static str, before: &'static str, words: &'static str, answer: &'static str) -> Call {
    Call { script, before, words, answer }
}

pub const CASES: [Case; 19] = [
    Case {
        what: "RLock, acquire",
        lockkeeper: call("rlock/acquire.lua", FREE, "1 l OWNER 30000", "nil"),
        redisson: Some(call("rlock/acquire.lua", FREE, "1 l 30000 OWNER", "nil")),
    },
    Case {
        what: "RLock, acquire, held by another owner",
        lockkeeper: call("rlock/acquire.lua", HELD_BY_ANOTHER, "1 l OWNER 30000", "int(2"),
        redisson: Some(call("rlock/acquire.lua", HELD_BY_ANOTHER, "1 l 30000 OWNER", "int(2")),
    },
    Case {
        what: "RLock, re-enter",
        lockkeeper: call("rlock/reenter.lua", HELD, "1 l OWNER 2 30000", "nil"),
        redisson: Some(call("rlock/acquire.lua", HELD, "1 l 30000 OWNER", "nil")),
    },
    Case {
        what: "RLock, release",
        lockkeeper: call("rlock/release.lua", HELD, "1 l OWNER 0 c", "int(1)"),
        redisson: Some(call("rlock/unlock.lua", HELD, "3 l c x 0 30000 OWNER publish 20000", "int(1)")),
    },
    Case {
        what: "RLock, renew",
        lockkeeper: call("rlock/renew.lua", HELD, "1 l 30000 OWNER", "array([int(1)"),
        redisson: Some(call("rlock/renew.lua", HELD, "1 l 30000 OWNER", "array([int(1)")),
    },
    Case {
        what: "fair, acquire",
        lockkeeper: call("fair/acquire.lua", FREE, "6 l q s p t c OWNER 30000 6000 300000", "nil"),
        redisson: Some(call("fair/acquire.lua", FREE, "3 l q s 30000 OWNER 300000 1700000000000", "nil")),
    },
    Case {
        what: "fair, queue",
        lockkeeper: call(
            "fair/acquire.lua",
            HELD_BY_ANOTHER,
            "6 l q s p t c OWNER 30000 6000 300000",
            "int(-4)",
        ),
        redisson: Some(call(
            "fair/acquire.lua",
            HELD_BY_ANOTHER,
            "3 l q s 30000 OWNER 300000 1700000000000",
            "int(2",
        )),
    },
    Case {
        what: "fair, release",
        lockkeeper: call("fair/release.lua", HELD, "6 l q s p t c OWNER 0 300000", "int(1)"),
        redisson: Some(call(
            "fair/unlock.lua",
            HELD,
            "5 l q s c x 0 30000 OWNER 1700000000000 publish 20000",
            "int(1)",
        )),
    },
    Case {
        what: "fair, heartbeat",
        lockkeeper: call("fair/heartbeat.lua", QUEUED, "6 l q s p t c 6000 300000 OWNER", "array([int(1)"),
        redisson: None,
    },
    Case {
        what: "fenced, acquire",
        lockkeeper: call("fenced/acquire.lua", FREE, "2 l t OWNER 30000", "bulk-string"),
        redisson: Some(call("fenced/acquire.lua", FREE, "2 l u 30000 OWNER", "array(")),
    },
    Case {
        what: "read, acquire",
        lockkeeper: call("read/acquire.lua", UNREAD, "2 l c OWNER 1 30000", "nil"),
        redisson: Some(call(
            "read/acquire.lua",
            UNREAD,
            "2 l {l}:OWNER:rwlock_timeout 30000 OWNER OWNER:write",
            "nil",
        )),
    },
    Case {
        what: "read, re-enter",
        lockkeeper: call("read/reenter.lua", READ, "2 l c OWNER 1 2 30000", "nil"),
        redisson: Some(call(
            "read/acquire.lua",
            READ,
            "2 l {l}:OWNER:rwlock_timeout 30000 OWNER OWNER:write",
            "nil",
        )),
    },
    Case {
        what: "read, release",
        lockkeeper: call("read/release.lua", READ, "2 l c OWNER 1 0 30000", "int(1)"),
        redisson: Some(call(
            "read/unlock.lua",
            READ,
            "5 l c {l}:OWNER:rwlock_timeout {l} x 0 OWNER publish 20000",
            "int(1)",
        )),
    },
    Case {
        what: "read, renew",
        lockkeeper: call("read/renew.lua", READ, "2 l c 30000 OWNER 1 30000", "array([int(1)"),
        redisson: Some(call("read/renew.lua", READ, "2 l {l} 30000 1 OWNER", "array([int(1)")),
    },
    Case {
        what: "write, acquire",
        lockkeeper: call("write/acquire.lua", UNREAD, "2 l c OWNER:write 30000 0", "nil"),
        redisson: Some(call("write/acquire.lua", UNREAD, "1 l 30000 OWNER:write", "nil")),
    },
    Case {
        what: "write, acquire, another owner reads",
        lockkeeper: call("write/acquire.lua", READ, "2 l c ANOTHER:write 30000 0", "int(2"),
        redisson: Some(call("write/acquire.lua", READ, "1 l 30000 ANOTHER:write", "int(2")),
    },
    Case {
        what: "read, acquire, another owner writes",
        lockkeeper: call("read/acquire.lua", WRITTEN, "2 l c ANOTHER 1 30000", "int(2"),
        redisson: Some(call(
            "read/acquire.lua",
            WRITTEN,
            "2 l {l}:ANOTHER:rwlock_timeout 30000 ANOTHER ANOTHER:write",
            "int(2",
        )),
    },
    Case {
        what: "write, release",
        lockkeeper: call("write/release.lua", WRITTEN, "2 l c OWNER:write 0", "int(1)"),
        redisson: Some(call(
            "write/unlock.lua",
            WRITTEN,
            "3 l c x 1 30000 OWNER:write publish 20000",
            "int(1)",
        )),
    },
    Case {
        what: "write, renew",
        lockkeeper: call("rlock/renew.lua", WRITTEN, "1 l 30000 OWNER:write", "array([int(1)"),
        redisson: Some(call("rlock/renew.lua", WRITTEN, "1 l 30000 OWNER:write", "array([int(1)")),
    },
];

//! The in-memory server beside a real one: each command on a key of each type has the same reply, and leaves the same. `tests/model/`
//! compares what scripts do there.

use std::env;

use lockkeeper::{LockClient, Source};
use lockkeeper_memory::MemoryServer;
use lockkeeper_testkit::Server;

use crate::memory_server::resp::{Real, Reply};

/// A key of each type, one with an expiry, and one that does not exist.
pub const KEYS: [&str; 7] = ["hash", "list", "scores", "text", "number", "ends", "none"];

/// What makes these keys.
pub const MAKE: [&str; 7] = [
    "FLUSHALL",
    "HSET hash mode write a 1 b 2",
    "RPUSH list a b a",
    "ZADD scores 1 a 1.5 b",
    "SET text x",
    "SET number 9",
    "SET ends 1 PX 1000000",
];

/// Each command that changes or asks for a key, which is `k` here. Some are wrong.
pub const COMMANDS: [&str; 88] = [
    "DEL k none",
    "DEL",
    "EXISTS k k none",
    "GET k",
    "get k",
    "GET k x",
    "TYPE k",
    "RENAME k other",
    "HDEL k a none",
    "HDEL k a b mode",
    "HEXISTS k a",
    "HEXISTS k none",
    "HGET k a",
    "HGET k none",
    "HGETALL k",
    "HKEYS k",
    "HLEN k",
    "HMGET k a none",
    "HRANDFIELD k 0",
    "HRANDFIELD k 8",
    "HRANDFIELD k 8 WITHVALUES",
    "HRANDFIELD k abc",
    "HSCAN k 0",
    "HSCAN k 0 count 10",
    "HSCAN k x",
    "HSET k a 5 c 1",
    "HSET k a",
    "INCR k",
    "INCRBY k 5",
    "INCRBY k -5",
    "INCRBY k 1.5",
    "INCRBY k 01",
    "INCRBY k 9223372036854775807",
    "LINDEX k 0",
    "LINDEX k -1",
    "LINDEX k 5",
    "LINDEX k x",
    "LLEN k",
    "LPOP k",
    "LPOP k 0",
    "LPOP k 2",
    "LPOP k 5",
    "LPOP k -1",
    "LPUSH k c d",
    "LRANGE k 0 -1",
    "LRANGE k -2 5",
    "LRANGE k 2 1",
    "LRANGE k x 1",
    "LREM k 0 a",
    "LREM k 1 a",
    "LREM k -1 a",
    "LREM k x a",
    "RPUSH k c d",
    "PERSIST k",
    "PEXPIRE k 2000000",
    "PEXPIRE k 2000000 NX",
    "PEXPIRE k 2000000 xx",
    "PEXPIRE k 2000000 GT",
    "PEXPIRE k 500000 GT",
    "PEXPIRE k 500000 lt",
    "PEXPIRE k 2000000 never",
    "PEXPIRE k 0",
    "PEXPIRE k -1",
    "PEXPIRE k abc",
    "PTTL k",
    "SET k y",
    "SET k y px 2000000",
    "SET k y px 2000000 nx",
    "SET k y px 0",
    "SET k y px abc",
    "ZADD k 3 a 7 c",
    "ZADD k NX 3 a 7 c",
    "ZADD k xx 3 a 7 c",
    "ZADD k x a",
    "ZADD k 1",
    "ZADD k inf a -3 b",
    "ZADD k nan a",
    "ZCARD k",
    "ZRANGE k 0 -1",
    "ZRANGE k 0 -1 WITHSCORES",
    "ZRANGE k x 1",
    "ZRANK k b",
    "ZRANK k none",
    "ZREM k a none",
    "ZREM k a b",
    "ZSCORE k b",
    "ZSCORE k none",
    "PUBLISH k x",
];

pub fn setting(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

pub fn micros(time: Reply) -> u64 {
    let parts: Vec<u64> = time.list().iter().map(|part| part.text().parse().unwrap()).collect();
    parts[0] * 1_000_000 + parts[1]
}

/// The words of a command of the table about a key.
pub fn about(command: &str, key: &str) -> Vec<String> {
    command.split(' ').map(|word| if word == "k" { key.to_owned() } else { word.to_owned() }).collect()
}

fn run(server: &MemoryServer, command: &[String]) -> Reply {
    Reply::read(&mut &*server.execute(command))
}

/// Whether two replies are the same, except for the time that passed between them. `by_code`: the code of an error is enough, as the
/// in-memory server has the texts of Redis 7.
pub fn fits(one: &Reply, other: &Reply, by_code: bool) -> bool {
    match (one, other) {
        (Reply::Error(one), Reply::Error(other)) if by_code => {
            one.split_whitespace().next() == other.split_whitespace().next()
        }
        // A time that is left.
        (Reply::Int(one @ 100_000..), Reply::Int(other)) => one.abs_diff(*other) < 60_000,
        _ => one == other,
    }
}

#[test]
fn the_same_commands_have_the_same_outcomes() {
    let server = Server::start();
    let mut real = Real::connect(server.port());
    let by_code = !real.is_redis_7();
    let memory = MemoryServer::new();
    let looks = ["GET k", "HGETALL k", "LRANGE k 0 -1", "ZRANGE k 0 -1 WITHSCORES", "PTTL k"];
    let mut different = Vec::new();
    for (command, key) in COMMANDS.iter().flat_map(|command| KEYS.map(|key| (command, key))) {
        let keys = [key, "other"].into_iter();
        let looks = keys.flat_map(|key| looks.map(|look| about(look, key)));
        let making = MAKE.map(|command| about(command, ""));
        let commands: Vec<_> = making.into_iter().chain([about(command, key)]).chain(looks).collect();
        let real = real.run(&commands);
        let memory: Vec<_> = commands.iter().map(|command| run(&memory, command)).collect();
        if !real.iter().zip(&memory).all(|(one, other)| fits(one, other, by_code)) {
            different.push(format!("{command} of {key}\nreal:   {real:?}\nmemory: {memory:?}\n"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// What is not about keys.
#[test]
fn the_rest_has_the_same_replies() {
    let server = Server::start();
    let mut real = Real::connect(server.port());
    let by_code = !real.is_redis_7();
    let memory = MemoryServer::new();
    let commands: [&[&str]; 34] = [
        &["PING"],
        &["ping", "x"],
        &["PING", "x", "y"],
        &["PUBLISH", "x", "y"],
        &["PUBLISH", "x"],
        &["SELECT", "0"],
        &["NOSUCH", "a", "b"],
        &["NOSUCH"],
        &["HELLO", "9"],
        &["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "0"],
        &["EVALSHA", "x", "y"],
        &["EVAL", "return 1", "x"],
        &["EVAL", "return 1", "-1"],
        &["EVAL", "return 1", "1"],
        &["EVAL", "return KEYS[1] .. ARGV[1]", "1", "a", "b"],
        &["EVAL", "return {1, 2.9, 'a', {true, false}, nil, 3}", "0"],
        &["EVAL", "return redis.call('nosuch')", "0"],
        &["EVAL", "\nreturn redis.call('get')", "0"],
        &["EVAL", "return redis.call('subscribe', 'x')", "0"],
        &["EVAL", "return redis.call()", "0"],
        &["EVAL", "return redis.call('get', {})", "0"],
        &["EVAL", "return redis.pcall('nosuch')", "0"],
        &["EVAL", "return redis.call('set', 'a', 1.5)", "0"],
        &["EVAL", "return redis.call('set', 'a', 2^53)", "0"],
        &["EVAL", "return redis.call('get', 'a')", "0"],
        &["EVAL", "return redis.call('hget', 'a', 'b')", "0"],
        &["EVAL", "#!lua\n\nreturn redis.call('hget', 'a', 'b')", "0"],
        &["EVAL", "#!lua\nreturn nosuch", "0"],
        &["EVAL", "#!lua\nlocal a = {} return a.b.c", "0"],
        &["EVAL", "#!lua", "0"],
        &["EVAL", "#!java\nreturn 1", "0"],
        &["EVAL", "return {err = 'MY own'}", "0"],
        &["EVAL", "return {ok = 'fine'}", "0"],
        &["SCRIPT", "LOAD", "return 5"],
    ];
    // Newer servers write out such a number. No script uses one.
    let long_numbers: [&[&str]; 2] = [
        &["EVAL", "return redis.call('set', 'a', 1e17 + 2^60)", "0"],
        &["EVAL", "return redis.call('get', 'a')", "0"],
    ];
    let mut different = Vec::new();
    for command in commands.into_iter().chain(long_numbers.into_iter().filter(|_| !by_code)) {
        let words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let real = real.run(std::slice::from_ref(&words)).remove(0);
        let memory = run(&memory, &words);
        if !fits(&real, &memory, by_code) {
            different.push(format!("{command:?}\nreal:   {real:?}\nmemory: {memory:?}\n"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn a_server_outlives_the_runtimes_that_use_it() {
    let server = MemoryServer::new();
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let locks = LockClient::connect(Source::stream(server.connector())).await.unwrap();
            let guard = locks.rlock("a").lock().await.unwrap();
            guard.unlock().await.unwrap();
        });
    }
    assert_eq!(server.execute(&["CLIENT", "LIST"]), b"$0\r\n\r\n");
}

#[test]
fn what_the_server_does_not_know_is_an_error() {
    let server = MemoryServer::new();
    let wrong: [&[&str]; 18] = [
        &["FLUSHALL", "ASYNC"],
        &["SET", "b", "1", "XX"],
        &["ZADD", "z", "CH", "1", "b"],
        &["ZADD", "z", "1e400", "b"],
        &["ZADD", "z", "-1e400", "b"],
        &["ZADD", "z", "1e-400", "b"],
        &["HSCAN", "a", "0", "MATCH", "x"],
        &["HELLO", "3"],
        &["INFO"],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["SELECT", "1"],
        &["HRANDFIELD", "a", "-1"],
        &["CLIENT", "TRACKING", "ON", "NOLOOP", "OPTIN"],
        &["CLIENT", "TRACKING", "ON", "NOLOOP", "PREFIX", "a"],
        &["CLIENT", "TRACKING", "ON", "NOLOOP", "REDIRECT", "1"],
        &["CLIENT", "TRACKING", "ON", "BCAST"],
        &["CLIENT", "TRACKING", "ON"],
        &["EVAL", "#!lua flags=no-writes\nreturn 1", "0"],
    ];
    server.execute(&["HSET", "a", "b", "c"]);
    for words in wrong {
        let reply = server.execute(words);
        assert!(reply.starts_with(b"-"), "{words:?}: {}", String::from_utf8_lossy(&reply));
    }
}

//! Version 3 of the protocol and `CLIENT TRACKING` of the in-memory server beside a real one: one connection reads, others change what it
//! read, and it is told the same of both servers in the same order.
//!
//! Redis 7.0 tracks all keys that a script declares if the script reads one of them. Later versions and the in-memory server track the
//! keys that it reads. So these scripts declare what they read.

use std::time::Duration;

use lockkeeper_memory::MemoryServer;
use lockkeeper_testkit::Server;
use tokio::net::TcpStream;

use crate::memory_server::differential::{COMMANDS, KEYS, MAKE, about, fits};
use crate::memory_server::resp::{Connection, Real, Reply};
use crate::support::soon;

const TRACK: [&str; 4] = ["CLIENT", "TRACKING", "ON", "NOLOOP"];

/// What the reader does with one key.
const SCRIPTS: [&str; 4] = [
    "return redis.call('exists', KEYS[1])",
    "redis.pcall('pexpire', KEYS[1], 900000) return redis.call('type', KEYS[1])",
    "redis.call('get', KEYS[1]) return redis.call('del', KEYS[1])",
    "return {redis.pcall('hgetall', KEYS[1]), redis.pcall('zscore', KEYS[1], 'x'), false, true}",
];

/// The real server and the one in memory.
struct Both {
    server: Server,
    memory: MemoryServer,
}

impl Both {
    fn start() -> Self {
        Self { server: Server::start(), memory: MemoryServer::new() }
    }

    async fn connect(&self) -> [Connection; 2] {
        let real = TcpStream::connect(("127.0.0.1", self.server.port())).await.unwrap();
        [Connection::new(real), Connection::new(self.memory.connect().await.unwrap())]
    }

    async fn reader(&self) -> [Connection; 2] {
        let mut reader = self.connect().await;
        for connection in &mut reader {
            connection.run(&[vec!["HELLO", "3"], TRACK.to_vec()]).await;
        }
        reader
    }
}

/// Runs commands on both servers. Returns what both connections got.
async fn run([real, memory]: &mut [Connection; 2], commands: &[Vec<&str>]) -> [Vec<Reply>; 2] {
    soon(async { [real.run(commands).await, memory.run(commands).await] }).await
}

fn told(key: Option<&str>) -> Reply {
    let text = |text: &str| Reply::Text(Some(text.into()));
    let what = key.map_or(Reply::Text(None), |key| Reply::List(Some(vec![text(key)])));
    Reply::Push(vec![text("invalidate"), what])
}

/// Each command on each key: as a read of the reader, which then reads the key by scripts, too, and as a change of the writer.
#[tokio::test]
async fn the_same_changes_are_told_in_the_same_order() {
    let both = Both::start();
    let by_code = !Real::connect(both.server.port()).is_redis_7();
    let (mut reader, mut writer) = (both.reader().await, both.connect().await);
    let making: Vec<Vec<&str>> = MAKE.iter().map(|command| command.split(' ').collect()).collect();
    let mut pushes = 0;
    for (number, command) in COMMANDS.iter().enumerate() {
        for key in KEYS {
            let command = about(command, key);
            let command: Vec<&str> = command.iter().map(|word| &**word).collect();
            let script = vec!["EVAL", SCRIPTS[number % SCRIPTS.len()], "1", key];
            let steps = [
                (command.clone(), vec!["DEL", key]),
                (script.clone(), command),
                (script, vec![if number % 2 == 0 { "FLUSHALL" } else { "FLUSHDB" }]),
            ];
            for (read, change) in steps {
                run(&mut writer, &making).await;
                run(&mut reader, &[]).await;
                let read = run(&mut reader, &[vec!["EXISTS", key, "other"], read]).await;
                run(&mut writer, std::slice::from_ref(&change)).await;
                let told = run(&mut reader, &[]).await;
                pushes += told[0].len() - 1;
                for [real, memory] in [read, told] {
                    let is_equal = real.len() == memory.len()
                        && real.iter().zip(&memory).all(|(one, other)| fits(one, other, by_code));
                    assert!(is_equal, "{change:?} of {key}\n  real: {real:?}\n  memory: {memory:?}");
                }
            }
        }
    }
    assert!(pushes > 500, "it compares little: {pushes}");
}

#[tokio::test]
async fn a_read_key_is_told_of_once_and_its_own_changes_never() {
    let both = Both::start();
    let (mut reader, mut writer) = (both.reader().await, both.connect().await);
    let (get, set) = (["EVAL", SCRIPTS[0], "1", "a"].to_vec(), vec!["SET", "a", "1"]);
    let write_and_read = "redis.call('set', KEYS[1], '1') return redis.call('get', KEYS[1])";
    let read_and_write = "redis.call('get', KEYS[1]) return redis.call('set', KEYS[1], '1')";
    let eval = |script| vec!["EVAL", script, "1", "a"];
    let (off, on) = (vec!["CLIENT", "TRACKING", "OFF"], TRACK.to_vec());
    let flushed: &[Option<&str>] = &[None];
    let cases: Vec<(Vec<_>, Vec<_>, &[Option<&str>])> = vec![
        (vec![get.clone()], vec![set.clone(), set.clone()], &[Some("a")]),
        (vec![get.clone(), set.clone()], vec![set.clone()], &[]),
        (vec![eval(write_and_read)], vec![set.clone()], &[Some("a")]),
        (vec![eval(read_and_write)], vec![set.clone()], &[]),
        (vec![get.clone()], vec![vec!["FLUSHALL"], set.clone()], flushed),
        (vec![get.clone()], vec![vec!["DEL", "b"], vec!["RENAME", "a", "b"]], &[Some("a")]),
        (vec![get.clone(), off.clone()], vec![vec!["FLUSHALL"]], &[]),
        (vec![on.clone(), get.clone(), off, on], vec![set.clone()], &[Some("a")]),
        (
            vec![get.clone()],
            vec![vec!["PERSIST", "a"], vec!["ZADD", "a", "1", "x"], vec!["DEL", "none"]],
            &[],
        ),
    ];
    for (reads, changes, expected) in cases {
        for found in run(&mut reader, &reads).await {
            assert!(!found.iter().any(|reply| matches!(reply, Reply::Push(_))), "{reads:?}: {found:?}");
        }
        run(&mut writer, &changes).await;
        let expected: Vec<Reply> = expected.iter().map(|key| told(*key)).collect();
        for mut found in run(&mut reader, &[]).await {
            found.pop();
            assert_eq!(found, expected, "{reads:?} {changes:?}");
        }
    }
}

/// Nobody touches the key.
#[tokio::test]
async fn the_end_of_a_key_is_told() {
    let both = Both::start();
    let (mut reader, mut writer) = (both.reader().await, both.connect().await);
    for key in ["a", "b"] {
        run(&mut writer, &[vec!["SET", key, "1", "PX", "60000"]]).await;
        // The second one gets a shorter time by the reader itself.
        let script =
            "if KEYS[1] == 'b' then redis.call('pexpire', KEYS[1], 40) end return redis.call('get', KEYS[1])";
        run(&mut reader, &[vec!["EVAL", script, "1", key]]).await;
        if key == "a" {
            run(&mut writer, &[vec!["PEXPIRE", key, "40"]]).await;
            run(&mut reader, &[vec!["EVAL", script, "1", key]]).await;
        }
        for connection in &mut reader {
            let mut found = Vec::new();
            soon(async {
                while !found.contains(&told(Some(key))) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    found = connection.run(&[]).await;
                }
            })
            .await;
        }
    }
}

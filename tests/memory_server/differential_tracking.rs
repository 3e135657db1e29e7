//! Version 3 of the protocol and `CLIENT TRACKING` of the in-memory server beside a real one: one connection reads, others change what it
//! read, and it is told the same of both servers in the same order.
//!
//! Redis 7.0 tracks all keys that a script declares if the script reads one of them. Later versions and the in-memory server track the
//! keys that it reads. So these scripts declare what they read.

use std::time::Duration;

use lockkeeper_memory::MemoryServer;
use lockkeeper_testkit::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, Script, cmd};
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use crate::memory_server::dice::{Dice, all_keys};
use crate::memory_server::differential::code;
use crate::memory_server::resp::{Connection, Real, Reply};
use crate::support::{eventually, soon};

const STEPS: usize = 3_000;

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

/// Changes times that might make a difference between two servers: those that end soon, and equal ones.
fn without_luck(dice: &mut Dice, mut command: Vec<String>) -> Vec<String> {
    let time = match &*command[0].to_lowercase() {
        "pexpire" => command.get_mut(2),
        "set" => command.get_mut(4),
        _ => None,
    };
    if let Some(time) = time.filter(|time| time.parse().is_ok_and(|time: u64| time > 0)) {
        *time = dice.rng.u64(100_000..1_000_000_000_000).to_string();
    }
    command
}

#[tokio::test]
async fn the_same_changes_are_told_in_the_same_order() {
    let both = Both::start();
    let by_code = !Real::connect(both.server.port()).is_redis_7();
    let (mut reader, mut writer) = (both.reader().await, both.connect().await);
    let (mut dice, keys, mut pushes) = (Dice::new(1), all_keys(), 0);
    let mut log = Vec::new();
    for step in 0..STEPS {
        let (key, other) = (&*keys[dice.rng.usize(..4)], &*keys[dice.rng.usize(..4)]);
        let command = dice.command(1_700_000_000_000);
        let command = without_luck(&mut dice, command);
        // Their replies depend on the clock and on luck.
        let is_comparable = !["pttl", "hrandfield"].contains(&&*command[0].to_lowercase());
        let words: Vec<&str> = command.iter().map(|word| &**word).collect();
        let script = SCRIPTS[dice.rng.usize(..SCRIPTS.len())];
        let read = match dice.rng.u8(..4) {
            0 if is_comparable => words.clone(),
            1 => vec!["EXISTS", key, other],
            _ => vec!["EVAL", script, "1", key],
        };
        let change = match dice.rng.u8(..100) {
            0 => vec!["FLUSHALL"],
            1 => vec!["FLUSHDB"],
            2..8 => vec!["RENAME", key, other],
            8..12 => vec!["DEL", key],
            12..16 => vec!["EVAL", "return redis.pcall('hset', KEYS[1], 'a', '1')", "1", key],
            _ => words,
        };
        let replies = run(&mut reader, std::slice::from_ref(&read)).await;
        run(&mut writer, std::slice::from_ref(&change)).await;
        let [real, memory] = run(&mut reader, &[]).await;
        pushes += real.len() - 1;
        let is_equal = real == memory
            && replies[0].iter().zip(&replies[1]).all(|both| match both {
                (Reply::Error(one), Reply::Error(other)) if by_code => code(one) == code(other),
                (one, other) => one == other,
            });
        log.push(format!("{read:?}: {replies:?}\n  {change:?}\n  real: {real:?}\n  memory: {memory:?}"));
        assert!(is_equal, "step {step}\n{}", log[log.len().saturating_sub(8)..].join("\n"));
    }
    println!("{pushes} pushes in {STEPS} steps");
    assert!(pushes > STEPS / 10, "it compares little: {pushes}");
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

#[tokio::test(start_paused = true)]
async fn a_client_with_version_3_hears_of_the_end_at_once() {
    let server = MemoryServer::new();
    let (pushes, mut told) = unbounded_channel();
    let settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    let config = AsyncConnectionConfig::new().set_push_sender(pushes);
    let stream = server.connect().await.unwrap();
    let (mut redis, driver) =
        MultiplexedConnection::new_with_config(&settings, stream, config).await.unwrap();
    tokio::spawn(driver);
    cmd("CLIENT").arg(&TRACK[1..]).exec_async(&mut redis).await.unwrap();
    let script =
        Script::new("redis.call('set', KEYS[1], '1', 'px', 30000) return redis.call('get', KEYS[1])");
    let start = Instant::now();
    for renewal in 1..=3 {
        assert_eq!(script.key("a").invoke_async::<String>(&mut redis).await.unwrap(), "1");
        if renewal < 3 {
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert!(told.is_empty());
        }
    }
    told.recv().await.unwrap();
    let ended = start.elapsed();
    assert!((70_000..70_010).contains(&ended.as_millis()), "{ended:?}");

    script.key("a").invoke_async::<String>(&mut redis).await.unwrap();
    assert!(server.expire("a"));
    told.recv().await.unwrap();
    assert_eq!(start.elapsed(), ended);

    script.key("a").invoke_async::<String>(&mut redis).await.unwrap();
    server.freeze(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(told.is_empty(), "a stopped process says nothing");
    server.freeze(false);
    told.recv().await.unwrap();
    assert!(start.elapsed() < ended + Duration::from_secs(61));
}

#[tokio::test]
async fn a_server_can_refuse_version_3_and_tracking() {
    let server = MemoryServer::new();
    let mut connection = Connection::new(server.connect().await.unwrap());
    let is_refused = |replies: Vec<Reply>| matches!(replies[0], Reply::Error(_));
    assert!(is_refused(connection.run(&[TRACK.to_vec()]).await), "version 2");
    server.lack_version_3(true);
    assert!(is_refused(connection.run(&[vec!["HELLO", "3"]]).await));
    assert!(!is_refused(connection.run(&[vec!["HELLO", "2"]]).await));
    server.lack_version_3(false);
    assert!(!is_refused(connection.run(&[vec!["HELLO", "3"]]).await));
    server.deny_tracking(true);
    assert!(is_refused(connection.run(&[TRACK.to_vec()]).await));
    server.deny_tracking(false);
    assert!(!is_refused(connection.run(&[TRACK.to_vec()]).await));
    let options: [&[&str]; 5] =
        [&[], &["BCAST"], &["NOLOOP", "OPTIN"], &["NOLOOP", "PREFIX", "a"], &["REDIRECT", "1"]];
    for options in options {
        let words = [&TRACK[..3], options].concat();
        assert!(is_refused(connection.run(&[words]).await), "{options:?}");
    }
    drop(connection);
    eventually("it has left", || server.clients(), |clients| *clients == 0).await;
}

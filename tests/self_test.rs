//! What `connect` asks a server, and what it says about a server that lacks something.

use crate::support::events::Events;
use crate::support::{Scene, patient};
use lockkeeper::{Error, LockClient};
use lockkeeper_testkit::resp::{frame_len, words};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Starts a server that tells its time, and gives these replies to commands with these names, and `+OK` to all others. Returns its URL.
async fn server_with(replies: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream, replies));
        }
    });
    url
}

async fn answer(mut stream: TcpStream, replies: &'static [(&'static str, &'static str)]) {
    let mut received = Vec::new();
    while stream.read_buf(&mut received).await.is_ok_and(|count| count > 0) {
        while let Some(len) = frame_len(&received) {
            let command: Vec<u8> = received.drain(..len).collect();
            let name = words(&command).remove(0).to_uppercase();
            let found = replies.iter().chain([&TIME]).find(|(of, _)| *of == name);
            let reply = found.map_or("+OK", |(_, reply)| reply);
            if stream.write_all(format!("{reply}\r\n").as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

const TIME: (&str, &str) = ("TIME", "*2\r\n+1700000000\r\n+0");

const HELLO: (&str, &str) = ("HELLO", "*2\r\n+version\r\n+7.4.0");

#[tokio::test]
async fn a_server_without_script_flags_is_refused_by_name() {
    const REFUSAL: &str =
        "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'";
    let url = server_with(&[HELLO, ("EVALSHA", REFUSAL)]).await;
    let error = LockClient::connect_with(url, patient().build().unwrap()).await.unwrap_err();
    assert!(matches!(&error, Error::UnsupportedServer { version, .. } if version == "7.4.0"), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("a script that begins with `#!lua flags=allow-oom`"), "{text}");
    assert!(text.contains("unexpected symbol near '#'") && !error.is_transient(), "{text}");
}

#[tokio::test]
async fn a_server_without_pexpire_gt_is_refused_by_name() {
    let url = server_with(&[HELLO, ("EVALSHA", "$25\r\nERR Unsupported option gt")]).await;
    let error = LockClient::connect_with(url, patient().build().unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::UnsupportedServer { .. }), "{error:?}");
    assert!(error.to_string().contains("the option GT of PEXPIRE: ERR Unsupported option gt"), "{error}");
}

/// What services and servers answer that do not run the scripts, as their manuals quote it. Valkey 9.1.2 without its Lua module was
/// asked.
#[tokio::test]
async fn a_server_that_refuses_scripts_is_refused_with_the_cause() {
    const NO_LUA: &str = "-ERR Could not find scripting engine 'lua'";
    const UNKNOWN: &str = "-ERR unknown command 'EVALSHA', with args beginning with: 'a' '1'";
    const UNDECLARED: &str = "-ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array";
    let cases: [(&'static [(&str, &str)], &str); 5] = [
        (
            &[HELLO, ("EVALSHA", "-NOSCRIPT No matching script."), ("EVAL", NO_LUA)],
            "it has no Lua: load its Lua module",
        ),
        (&[HELLO, ("EVALSHA", UNKNOWN)], "it runs no scripts"),
        (&[HELLO, ("EVALSHA", "-ERR command evalsha not support for normal user")], "it runs no scripts"),
        (&[HELLO, ("EVALSHA", UNDECLARED)], "set its `script_check_enable` to 0"),
        (
            &[HELLO, ("EVALSHA", "-ERR internal error")],
            "it refuses the script with which a client examines a server",
        ),
    ];
    let page = include_str!("../docs/errors.md");
    for (replies, words) in cases {
        let url = server_with(replies).await;
        let error = LockClient::connect_with(url, patient().build().unwrap()).await.unwrap_err();
        assert!(matches!(&error, Error::UnsupportedServer { .. }) && !error.is_transient(), "{error:?}");
        let (text, said) = (error.to_string(), replies.last().unwrap().1.trim_start_matches('-'));
        assert!(text.contains(words) && text.contains(said), "{text}");
        let is_row = |line: &str| line.contains(words) && line.contains("| `UnsupportedServer` |");
        assert!(page.lines().any(is_row), "errors.md lacks {words}");
    }
}

/// The self-test changes no key, even one that somebody gave its name.
#[tokio::test]
async fn the_self_test_changes_nothing() {
    let scene = Scene::start();
    let key = "lockkeeper_client:{lockkeeper:self-test}";
    for words in [&["SET", key, "x"][..], &["SET", key, "x", "PX", "60000"]] {
        scene.server.run::<()>(words);
        let before: i64 = scene.server.run(&["PTTL", key]);
        drop(scene.client().await);
        assert_eq!(scene.server.records(), [key]);
        let after: i64 = scene.server.run(&["PTTL", key]);
        assert!(after > 1_000 || before == after, "{before} {after}");
    }
    scene.server.run::<()>(&["DEL", key]);
    scene.end(()).await;
}

#[tokio::test]
async fn a_server_that_evicts_keys_is_reported() {
    let scene = Scene::start();
    let events = Events::default();
    let _collecting = events.collect();
    drop(scene.client().await);
    assert!(!events.text().contains("maxmemory-policy"), "{}", events.text());
    scene.server.run::<()>(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    drop(scene.client().await);
    events.tell("policy=\"volatile-lru\"").await;
    scene.end(()).await;
}

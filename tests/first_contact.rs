//! What `connect` says about a server that refuses every new client. Each server really does.

use crate::support::{SECOND, soon};
use crate::tls::{certificates, certified};
use lockkeeper::deadpool_redis::{Config, Runtime};
use lockkeeper::{Error, LockClient, LockConfig, Source};
use lockkeeper_testkit::{Refusal, Server};
use redis::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn refusal(source: impl Into<Source>) -> Error {
    soon(LockClient::connect(source)).await.expect_err("the server refuses")
}

#[track_caller]
fn assert_says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(words.iter().all(|words| text.contains(words)), "{text}");
}

/// The page has a row with these words of the error, and with its kind.
#[track_caller]
fn assert_is_listed(error: &Error, words: &str) {
    let page = include_str!("../docs/errors.md");
    let kind = format!("{error:?}").chars().take_while(|letter| letter.is_alphanumeric()).collect::<String>();
    let is_row = |line: &str| line.contains(words) && line.contains(&format!("| `{kind}` |"));
    assert!(error.to_string().contains(words) && page.lines().any(is_row), "{kind}: {error}");
}

#[tokio::test]
async fn protected_mode() {
    let refused = Refusal::protected();
    let error = refusal(&*refused.url).await;
    assert!(matches!(error, Error::Permission(_)), "{error:?}");
    assert_says(&error, &["protected mode", "`requirepass`", "DENIED"]);
    assert_is_listed(&error, "DENIED Redis is running in protected mode");
    // Each of the two remedies helps.
    refused.server.run::<()>(&["CONFIG", "SET", "protected-mode", "no"]);
    soon(LockClient::connect(&*refused.url)).await.unwrap().shutdown().await.unwrap();
    refused.server.run::<()>(&["CONFIG", "SET", "protected-mode", "yes"]);
    refused.server.run::<()>(&["CONFIG", "SET", "requirepass", "secret"]);
    let url = refused.url.replace("redis://", "redis://:secret@");
    soon(LockClient::connect(url)).await.unwrap().shutdown().await.unwrap();
}

#[tokio::test]
async fn too_many_clients() {
    let refused = Refusal::full();
    let error = refusal(&*refused.url).await;
    assert!(matches!(error, Error::Unavailable(_)) && error.is_transient(), "{error:?}");
    assert_says(&error, &["`maxclients`", "max number of clients reached"]);
    assert_is_listed(&error, "ERR max number of clients reached");
}

#[tokio::test]
async fn tls_to_a_port_without_tls() {
    let _ = certificates();
    let refused = Refusal::without_tls();
    let error = refusal(&*refused.url).await;
    assert!(matches!(error, Error::Config(ref wrong) if wrong.field() == "url"), "{error:?}");
    assert_says(&error, &["this port does not speak TLS: use `redis://`"]);
    assert_is_listed(&error, "this port does not speak TLS");
    refused.server.run::<()>(&["CONFIG", "SET", "requirepass", "secret"]);
    assert_says(&refusal(&*refused.url).await, &["this port does not speak TLS: use `redis://`"]);
}

#[tokio::test]
async fn no_tls_to_a_port_with_tls() {
    let refused = Refusal::with_tls();
    let error = refusal(&*refused.url).await;
    assert!(matches!(error, Error::Config(ref wrong) if wrong.field() == "url"), "{error:?}");
    assert_says(&error, &["this port wants TLS: use `rediss://`"]);
    assert_is_listed(&error, "this port wants TLS");
}

#[tokio::test]
async fn no_password() {
    let refused = Refusal::with_password();
    let error = refusal(&*refused.url).await;
    assert!(matches!(error, Error::Authentication(_)), "{error:?}");
    assert_says(&error, &["the server wants a password, and the URL has none", "NOAUTH"]);
    assert_is_listed(&error, "HELLO must be called with the client already authenticated");
    let url = refused.url.replace("redis://", "redis://:wrong@");
    let error = refusal(url).await;
    assert!(matches!(error, Error::Authentication(_)), "{error:?}");
    assert!(!error.to_string().contains("has none"), "{error}");
    assert_is_listed(&error, "Password authentication failed");
}

#[tokio::test]
async fn certificates_of_unknown_authorities() {
    let _ = certificates();
    for refused in [Refusal::with_private_authority(), Refusal::with_certificate_of_authority()] {
        let error = refusal(&*refused.url).await;
        assert!(matches!(error, Error::Config(ref wrong) if wrong.field() == "url"), "{error:?}");
        assert_says(&error, &["`Source::with_root_cert`", "invalid peer certificate"]);
        assert_is_listed(&error, "invalid peer certificate");
    }
}

#[tokio::test]
async fn a_replica() {
    let refused = Refusal::replica();
    let error = refusal(&*refused.url).await;
    assert!(matches!(error, Error::ReadOnly(_)), "{error:?}");
    assert_says(&error, &["read-only replica", "`Source::sentinel`", "`Source::cluster`"]);
    assert_is_listed(&error, "the server is a replica");
    // A pool's connections are used as they are.
    let pool = Config::from_url(&*refused.url).create_pool(Some(Runtime::Tokio1)).unwrap();
    let error = refusal(pool).await;
    assert_says(&error, &["`Source::sentinel`", "`Source::cluster`"]);
    assert_is_listed(&error, "You can't write against a read only replica");
}

/// Valkey from 9.0 on knows databases in a cluster, and by default has only one.
#[tokio::test]
async fn a_database_that_a_cluster_does_not_have() {
    let node = Server::cluster_of_one();
    let error = refusal(Source::cluster([format!("{}3", node.url())])).await;
    let knows_databases = node.try_run::<Value>(&["CONFIG", "GET", "cluster-databases"]);
    let knows_databases =
        knows_databases.is_ok_and(|found| matches!(found, Value::Array(found) if !found.is_empty()));
    let words =
        if knows_databases { "DB index is out of range" } else { "SELECT is not allowed in cluster mode" };
    assert_is_listed(&error, words);
}

#[tokio::test]
async fn other_mistakes_in_a_url() {
    let _ = certificates();
    let (server, files) = (Server::start(), certificates());
    let secured = Server::secured(&files, false, &[]);
    let url = server.url();
    for (url, words) in [
        ("redis://127.0.0.1:1/".to_owned(), "Connection refused"),
        (url.replace("redis://", "redis://:secret@"), "Password authentication failed"),
        (format!("{url}999"), "DB index is out of range"),
    ] {
        assert_is_listed(&refusal(url).await, words);
    }
    let other = secured.url().replace("127.0.0.1", "localhost");
    let trusting = certified(other, &files, None);
    assert_is_listed(&refusal(trusting).await, "certificate not valid for name");
    server.freeze();
    let silent = refusal(server.url()).await; // the library's limit or that of the crate ends first
    let words =
        ["timed out", "no connection in time"].into_iter().find(|words| silent.to_string().contains(words));
    assert_is_listed(&silent, words.expect("the words of a time-out"));
}

/// The same for servers of a cluster, and for sentinels.
#[tokio::test]
async fn servers_of_a_group() {
    for (refused, words) in [
        (Refusal::with_tls(), "this port wants TLS"),
        (Refusal::protected(), "protected mode"),
        (Refusal::full(), "`maxclients`"),
    ] {
        assert_says(&refusal(Source::cluster([&refused.url])).await, &[words]);
        assert_says(&refusal(Source::sentinel("a", [&refused.url], &*refused.url)).await, &[words]);
    }
}

/// Answers each connection as a web server does.
async fn web_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
            });
        }
    });
    port
}

/// Nobody has to wait for `start_timeout`: that does not change it.
#[tokio::test]
async fn a_program_that_is_no_redis_server() {
    let port = web_server().await;
    let url = format!("redis://127.0.0.1:{port}/");
    let config = LockConfig::builder().start_timeout(3_600 * SECOND).build().unwrap();
    let error = soon(LockClient::connect_with(&*url, config)).await.expect_err("no server");
    let words = format!("a program that is no Redis server answers at 127.0.0.1:{port}: check host and port");
    assert!(matches!(error, Error::Config(ref wrong) if wrong.field() == "url"), "{error:?}");
    assert_says(&error, &[&words]);
    assert_is_listed(&error, "a program that is no Redis server answers at");
    let pool = Config::from_url(&*url).create_pool(Some(Runtime::Tokio1)).unwrap();
    assert_says(&refusal(pool).await, &["a program that is no Redis server answers at"]);
}

#[tokio::test]
async fn an_address_that_begins_in_another_way() {
    let words = "must begin with `redis://`, or with `rediss://` for TLS";
    for url in
        ["http://127.0.0.1:6379/", "127.0.0.1:6379", "localhost:6379", "localhost", "redis.internal:6379", ""]
    {
        assert_says(&refusal(url).await, &["`url`", words]);
        assert_says(&refusal(Source::cluster([url])).await, &["`urls`", words]);
        assert_says(&refusal(Source::sentinel("a", [url], "redis://a/")).await, &["`sentinels`", words]);
    }
    assert_says(&refusal("redis://127.0.0.1:none/").await, &["is not an address such as redis://"]);
}

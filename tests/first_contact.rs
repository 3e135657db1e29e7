//! What `connect` says about a server that refuses every new client. Each server really does.

use crate::support::soon;
use crate::tls::certificates;
use lockkeeper::{Error, LockClient, Source};
use lockkeeper_testkit::Refusal;

async fn refusal(source: impl Into<Source>) -> Error {
    soon(LockClient::connect(source)).await.expect_err("the server refuses")
}

#[track_caller]
fn assert_says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(words.iter().all(|words| text.contains(words)), "{text}");
}

#[tokio::test]
async fn protected_mode() {
    let refused = Refusal::protected();
    let error = refusal(&*refused.url).await;
    assert!(matches!(error, Error::Permission(_)), "{error:?}");
    assert_says(&error, &["protected mode", "`requirepass`", "DENIED"]);
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
}

#[tokio::test]
async fn tls_to_a_port_without_tls() {
    let _ = certificates();
    let refused = Refusal::without_tls();
    let error = refusal(&*refused.url).await;
    assert!(matches!(error, Error::InvalidConfig { field: "url", .. }), "{error:?}");
    assert_says(&error, &["this port does not speak TLS: use `redis://`"]);
    refused.server.run::<()>(&["CONFIG", "SET", "requirepass", "secret"]);
    assert_says(&refusal(&*refused.url).await, &["this port does not speak TLS: use `redis://`"]);
}

#[tokio::test]
async fn no_tls_to_a_port_with_tls() {
    let refused = Refusal::with_tls();
    let error = refusal(&*refused.url).await;
    assert!(matches!(error, Error::InvalidConfig { field: "url", .. }), "{error:?}");
    assert_says(&error, &["this port wants TLS: use `rediss://`"]);
}

#[tokio::test]
async fn no_password() {
    let refused = Refusal::with_password();
    let error = refusal(&*refused.url).await;
    assert!(matches!(error, Error::Authentication(_)), "{error:?}");
    assert_says(&error, &["the server wants a password, and the URL has none", "NOAUTH"]);
    let url = refused.url.replace("redis://", "redis://:wrong@");
    let error = refusal(url).await;
    assert!(matches!(error, Error::Authentication(_)), "{error:?}");
    assert!(!error.to_string().contains("has none"), "{error}");
}

#[tokio::test]
async fn certificates_of_unknown_authorities() {
    let _ = certificates();
    for refused in [Refusal::with_private_authority(), Refusal::with_certificate_of_authority()] {
        let error = refusal(&*refused.url).await;
        assert!(matches!(error, Error::InvalidConfig { field: "url", .. }), "{error:?}");
        assert_says(&error, &["`Source::with_certificates`", "invalid peer certificate"]);
    }
}

#[tokio::test]
async fn a_replica() {
    let refused = Refusal::replica();
    let error = refusal(&*refused.url).await;
    assert!(matches!(error, Error::ReadOnly(_)), "{error:?}");
    assert_says(&error, &["read-only replica", "`Source::sentinel`", "`Source::cluster`"]);
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

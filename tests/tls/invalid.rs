//! Certificates that cannot be used.

use lockkeeper::deadpool_redis::Config;
use lockkeeper::{Error, LockClient, Source};
use redis::{ClientTlsConfig, TlsCertificates};

use crate::tls::{certificates, client_side};

const PLAIN: &str = "redis://127.0.0.1:1/";
const SECURED: &str = "rediss://127.0.0.1:1/";

async fn problem(source: Source) -> String {
    match LockClient::connect(source).await {
        Err(Error::Config(wrong)) if wrong.field() == "certificates" => wrong.problem().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn certificates_for_a_source_that_cannot_use_them_are_invalid() {
    let right = certificates();
    let pool = || Config::from_url(SECURED).create_pool(None).unwrap();
    for (source, expected) in [
        (Source::url(PLAIN), "`rediss://`"),
        (Source::from(Config::from_url(PLAIN)), "`rediss://`"),
        (Source::cluster([SECURED, PLAIN]), "`rediss://`"),
        (Source::sentinel("a", [SECURED], PLAIN), "`rediss://`"),
        (Source::from(pool()), "pool"),
        (Source::pool(pool(), SECURED), "pool"),
    ] {
        let name = format!("{source:?}");
        let problem = problem(source.with_certificates(client_side(&right, None))).await;
        assert!(problem.contains(expected), "{name}: {problem}");
    }
}

#[tokio::test]
async fn text_that_is_no_certificate_is_invalid() {
    let right = certificates();
    let key = |client_cert: &[u8], client_key: &[u8]| {
        let client_tls =
            ClientTlsConfig { client_cert: client_cert.to_vec(), client_key: client_key.to_vec() };
        TlsCertificates { client_tls: Some(client_tls), root_cert: None }
    };
    let root = |root_cert: &[u8]| TlsCertificates { client_tls: None, root_cert: Some(root_cert.to_vec()) };
    let damaged = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (certificates, expected) in [
        (root(b"nonsense"), "`root_cert`"),
        (root(damaged), "cannot be used"),
        (key(b"", &right.read("client.key")), "`client_cert`"),
        (key(&right.read("client.crt"), b"nonsense"), "private key"),
    ] {
        for source in [Source::url(SECURED), Source::cluster([SECURED])] {
            let problem = problem(source.with_certificates(certificates.clone())).await;
            assert!(problem.contains(expected), "{problem}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_invalid() {
    let right = certificates();
    let (cert, key) = (right.path("client.crt"), right.path("client.key"));
    for (line, field) in [
        ("root_cert = \"/nowhere/ca.crt\"".to_owned(), "root_cert"),
        (format!("client_cert = {cert:?}"), "client_cert"),
        (format!("client_key = {key:?}"), "client_key"),
        (format!("client_cert = {cert:?}\nclient_key = \"/nowhere/client.key\""), "client_key"),
    ] {
        let file = format!("urls = [\"{SECURED}\"]\n{line}");
        let error = toml::from_str::<Source>(&file).unwrap_err().to_string();
        assert!(error.contains(&format!("`{field}`")), "{file}: {error}");
    }
}

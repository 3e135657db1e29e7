//! Certificates that cannot be used.

use lockkeeper::deadpool_redis::Config;
use lockkeeper::{Error, LockClient, Source};

use crate::tls::{certificates, certified};

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
        let problem = problem(certified(source, &right, None)).await;
        assert!(problem.contains(expected), "{name}: {problem}");
    }
}

#[tokio::test]
async fn text_that_is_no_certificate_is_invalid() {
    let right = certificates();
    let damaged = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for source in [Source::url(SECURED), Source::cluster([SECURED])] {
        let root = |pem: &[u8]| source.clone().with_root_cert(pem);
        let client = |cert: &[u8], key: &[u8]| source.clone().with_client_cert(cert, key);
        for (certified, expected) in [
            (root(b"nonsense"), "`root_cert`"),
            (root(damaged), "cannot be used"),
            (client(b"", &right.read("client.key")), "`client_cert`"),
            (client(&right.read("client.crt"), b"nonsense"), "private key"),
        ] {
            let problem = problem(certified).await;
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

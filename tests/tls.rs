//! TLS: a private certificate authority, certificates of clients, and what `connect` says about those that do not fit.

#[path = "support/mod.rs"]
mod support;

use lockkeeper::{Error, LockClient, Source};
use lockkeeper_testkit::{Certificates, ReservedPort, Server};
use redis::{Client, ClientTlsConfig, TlsCertificates};
use support::{patient, soon};

/// A server that speaks TLS, and its certificates.
struct Secured {
    certificates: Certificates,
    port: ReservedPort,
    server: Server,
}

impl Secured {
    /// `asks`: the server accepts only clients with a certificate.
    fn start(asks: bool) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default(); // another test was faster
        let (certificates, port) = (Certificates::new(), ReservedPort::new());
        let args = certificates.server_args(port.number(), asks);
        let server = Server::with(&args.iter().map(String::as_str).collect::<Vec<_>>());
        Self { certificates, port, server }
    }

    /// A client that trusts the authority of `root`, and shows the certificate of `own`.
    fn source(&self, root: &Certificates, own: Option<&Certificates>) -> Source {
        let client_tls = own.map(|own| ClientTlsConfig {
            client_cert: own.read("client.crt"),
            client_key: own.read("client.key"),
        });
        let certificates = TlsCertificates { client_tls, root_cert: Some(root.read("ca.crt")) };
        Client::build_with_tls(self.url(), certificates).unwrap().into()
    }

    fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.port.number())
    }
}

async fn connect(source: Source) -> lockkeeper::Result<LockClient> {
    soon(LockClient::connect_with(source, patient().build().unwrap())).await
}

/// A waiter is woken, so messages arrive, too.
async fn works(locks: LockClient, server: &Server) {
    let guard = locks.rlock("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.rlock("a").lock().await.unwrap().unlock().await }
    });
    support::eventually("the waiter subscribes", || server.channels(), |channels| !channels.is_empty()).await;
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    locks.shutdown().await.unwrap();
}

fn is_refused(result: lockkeeper::Result<LockClient>, cause: &str) {
    let error = result.expect_err("the certificates do not fit");
    assert!(matches!(error, Error::InvalidConfig { field: "url", .. }), "{error:?}");
    assert!(!error.is_transient() && error.to_string().to_lowercase().contains(cause), "{error}");
}

#[tokio::test]
async fn a_private_authority_is_trusted_if_the_client_names_it() {
    let secured = Secured::start(false);
    let locks = connect(secured.source(&secured.certificates, None)).await.unwrap();
    works(locks, &secured.server).await;
}

#[tokio::test]
async fn a_server_of_another_authority_is_invalid_config() {
    let secured = Secured::start(false);
    is_refused(connect(secured.source(&Certificates::new(), None)).await, "certificate");
    is_refused(connect(secured.url().into()).await, "certificate");
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_accepts_the_right_one_only() {
    let secured = Secured::start(true);
    let (right, wrong) = (&secured.certificates, Certificates::new());
    is_refused(connect(secured.source(right, None)).await, "certificate");
    is_refused(connect(secured.source(right, Some(&wrong))).await, "");
    let locks = connect(secured.source(right, Some(right))).await.unwrap();
    works(locks, &secured.server).await;
}

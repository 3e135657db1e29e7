//! TLS: private certificate authorities, certificates of clients, and what `connect` says about those that do not fit.

#![allow(unreachable_pub, reason = "a test")]

mod cluster;
mod invalid;
mod sentinel;
mod single;

use crate::support::{SECOND, patient, soon};
use lockkeeper::{Error, LockClient, Source};
use lockkeeper_testkit::Certificates;

/// Makes certificates, and tells rustls which crypto provider to use.
pub fn certificates() -> Certificates {
    let _ = rustls::crypto::ring::default_provider().install_default(); // another test was faster
    Certificates::new()
}

/// The source of a client that trusts the authority of `root`, and shows the certificate of `own`.
pub fn certified(source: impl Into<Source>, root: &Certificates, own: Option<&Certificates>) -> Source {
    let source = source.into().with_root_cert(root.read("ca.crt"));
    match own {
        Some(own) => source.with_client_cert(own.read("client.crt"), own.read("client.key")),
        None => source,
    }
}

async fn connect(source: Source) -> lockkeeper::Result<LockClient> {
    // On a busy machine, a replica can need several tries to become a master. A message wakes a waiter, or it sleeps on.
    let config = patient().retry_timeout(60 * SECOND).safety_poll(3_600 * SECOND);
    soon(LockClient::connect_with(source, config.build().unwrap())).await
}

fn is_refused(result: lockkeeper::Result<LockClient>, cause: &str) {
    let error = result.expect_err("the certificates do not fit");
    assert!(matches!(error, Error::Config(ref wrong) if wrong.field() == "url"), "{error:?}");
    assert!(!error.is_transient() && error.to_string().to_lowercase().contains(cause), "{error}");
}

/// Checks that clients with other certificates are refused, whatever kind of source they have.
async fn refuses_all_others(source: Source, right: &Certificates) {
    let wrong = Certificates::new();
    let connect_with = async |root, own| connect(certified(source.clone(), root, own)).await;
    is_refused(connect(source.clone()).await, "certificate");
    is_refused(connect_with(&wrong, Some(right)).await, "certificate");
    is_refused(connect_with(right, None).await, "certificate");
    is_refused(connect_with(right, Some(&wrong)).await, "");
}

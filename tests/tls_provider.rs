//! TLS in a process in which rustls does not know which crypto provider to use. A provider is for the whole process, so
//! this test has one of its own.

use crate::support::child::is_alone;
use crate::support::{ReservedPort, patient, soon};
use lockkeeper::{Error, LockClient, Source};

#[tokio::test]
async fn a_missing_crypto_provider_is_invalid_config() {
    if !is_alone("tls_provider::a_missing_crypto_provider_is_invalid_config") {
        return;
    }
    let port = ReservedPort::new();
    let listener = std::net::TcpListener::bind(("127.0.0.1", port.number())).unwrap();
    let url = &*format!("rediss://127.0.0.1:{}/", port.number());
    let sources = || [Source::url(url), Source::cluster([url]), Source::sentinel("a", [url], url)];
    let refusal =
        async |source| soon(LockClient::connect_with(source, patient().build().unwrap())).await.unwrap_err();
    for source in sources() {
        let error = refusal(source).await;
        assert!(
            matches!(error, Error::Config(ref wrong) if wrong.field() == "url") && !error.is_transient(),
            "{error:?}"
        );
        assert!(error.to_string().contains("`install_default`"), "{error}");
    }
    drop(listener);

    rustls::crypto::ring::default_provider().install_default().expect("there was none");
    for source in sources() {
        let error = refusal(source).await;
        assert!(matches!(error, Error::Unreachable(_)), "nobody listens any more: {error:?}");
    }
}

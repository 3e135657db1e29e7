//! One server.

use lockkeeper::LockClient;
use lockkeeper_testkit::Server;

use crate::support::fixture::RLocks;
use crate::tls::{certificates, certified, connect, is_handed_over, is_refused, refuses_all_others};

async fn works(locks: LockClient, server: &Server) {
    is_handed_over::<RLocks>([&locks, &locks], "a", || server.channels()).await;
    locks.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_private_authority_is_trusted_if_the_client_names_it() {
    let right = certificates();
    let server = Server::secured(&right, false, &[]);
    works(connect(certified(server.url(), &right, None)).await.unwrap(), &server).await;
}

#[tokio::test]
async fn a_server_of_another_authority_is_invalid_config() {
    let server = Server::secured(&certificates(), false, &[]);
    is_refused(connect(certified(server.url(), &certificates(), None)).await, "certificate");
    is_refused(connect(server.url().into()).await, "certificate");
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_accepts_the_right_one_only() {
    let right = certificates();
    let server = Server::secured(&right, true, &[]);
    refuses_all_others(server.url().into(), &right).await;
    works(connect(certified(server.url(), &right, Some(&right))).await.unwrap(), &server).await;
}

/// The pool that lockkeeper makes for such a source has the certificates as well.
#[tokio::test]
async fn a_config_of_deadpool_can_have_certificates() {
    let right = certificates();
    let server = Server::secured(&right, true, &[]);
    let mut config = deadpool_redis::Config::from_url(server.url());
    config.pool = Some(deadpool_redis::PoolConfig::new(4));
    let source = certified(config, &right, Some(&right));
    works(connect(source).await.unwrap(), &server).await;
}

#[tokio::test]
async fn a_file_names_certificates() {
    let right = certificates();
    let server = Server::secured(&right, true, &[]);
    let file = format!(
        "urls = [{:?}]\nroot_cert = {:?}\nclient_cert = {:?}\nclient_key = {:?}",
        server.url(),
        right.path("ca.crt"),
        right.path("client.crt"),
        right.path("client.key")
    );
    works(connect(toml::from_str(&file).unwrap()).await.unwrap(), &server).await;
}

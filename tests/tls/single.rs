//! One server.

use lockkeeper::Source;
use lockkeeper_testkit::Server;

use crate::support::fixture::RLocks;
use crate::support::is_handed_over;
use crate::tls::{certificates, certified, connect, refuses_all_others};

/// Each kind of source, also one for which lockkeeper makes a pool, has the certificates.
#[tokio::test]
async fn a_server_that_asks_for_a_certificate_accepts_the_right_one_only() {
    let right = certificates();
    let server = Server::secured(&right, true, &[]);
    refuses_all_others(server.url().into(), &right).await;
    let mut pooled = deadpool_redis::Config::from_url(server.url());
    pooled.pool = Some(deadpool_redis::PoolConfig::new(4));
    let file = format!(
        "urls = [{:?}]\nroot_cert = {:?}\nclient_cert = {:?}\nclient_key = {:?}",
        server.url(),
        right.path("ca.crt"),
        right.path("client.crt"),
        right.path("client.key")
    );
    let file: Source = toml::from_str(&file).unwrap();
    for source in
        [certified(server.url(), &right, Some(&right)), certified(pooled, &right, Some(&right)), file]
    {
        let locks = connect(source).await.unwrap();
        is_handed_over::<RLocks>([&locks, &locks], "a", || server.channels()).await;
        locks.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_private_authority_is_trusted_if_the_client_names_it() {
    let right = certificates();
    let server = Server::secured(&right, false, &[]);
    connect(certified(server.url(), &right, None)).await.unwrap().shutdown().await.unwrap();
}

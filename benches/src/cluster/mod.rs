//! A cluster beside a single server.

mod held;
mod moving;
mod pairs;
mod waiters;

use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{LockClient, LockConfig, Source};
use lockkeeper_testkit::{Cluster, Server};

use crate::connection::connect;
use crate::info::Info;
use crate::report::Report;
use crate::rounds::Effort;

/// The servers of one candidate.
struct Deployment {
    name: &'static str,
    /// One that is no cluster, or all masters of a cluster.
    urls: Vec<String>,
    is_cluster: bool,
}

pub fn measure(effort: Effort, report: &mut Report) {
    let (single, one, mut three) = (Server::start(), Server::cluster_of_one(), Cluster::start(3, 0));
    let deployments = [
        Deployment { name: "single server", urls: vec![single.url()], is_cluster: false },
        Deployment { name: "cluster of one master", urls: vec![one.url()], is_cluster: true },
        Deployment { name: "cluster of three masters", urls: three.urls(), is_cluster: true },
    ];
    pairs::measure(&deployments, effort, report);
    let [single, _, three_masters] = &deployments;
    held::measure([single, three_masters], effort, report);
    waiters::measure([single, three_masters], effort, report);
    moving::measure(&mut three, effort, report);
}

impl Deployment {
    async fn client(&self) -> LockClient {
        let source = if self.is_cluster {
            Source::cluster(self.urls.clone())
        } else {
            Source::url(self.urls[0].clone())
        };
        LockClient::connect_with(source, patient()).await.expect("a client")
    }

    /// The sum of a value over all servers.
    async fn sum(&self, value: impl Fn(&Info) -> f64) -> f64 {
        let read = async |url: &String| value(&Info::read(&mut connect(url).await, "everything").await);
        join_all(self.urls.iter().map(read)).await.into_iter().sum()
    }
}

/// The default settings, with time limits that no busy machine exceeds.
fn patient() -> LockConfig {
    let limit = Duration::from_secs(60);
    LockConfig::builder().command_timeout(limit).retry_timeout(limit).build().expect("valid")
}

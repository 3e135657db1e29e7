//! The task that asks again and again who the master is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::{FutureExt, StreamExt};
use redis::{RedisResult, Value};
use tokio::sync::watch;

use super::address::Address;
use super::ask::Pollees;
use super::group::{Discovery, Group};
use super::map::Vote;
use crate::base::credentials::Login;
use crate::base::jitter::around;
use crate::base::timer::{Instant, sleep, timeout};
use crate::store::connection::{Endpoint, TopologyLink};

/// The time limit of a question.
const LIMIT: Duration = Duration::from_millis(300);

/// Between two questions, while something is wrong.
const OFTEN: Duration = Duration::from_millis(50);

/// Between two questions, while nothing is wrong. Also between two tries to listen to a sentinel.
const SELDOM: Duration = Duration::from_secs(1);

/// The time between two questions to a cluster. It has many nodes, and each soon knows of every failover. So only one
/// node is asked each time, in turn.
const SELDOM_IN_CLUSTER: Duration = Duration::from_millis(500);

/// Something counts as wrong for this long after the last report.
const CALM: Duration = Duration::from_secs(2);

/// A sentinel that said nothing for this long gets a `PING`.
const PING_AFTER: Duration = Duration::from_secs(1);

/// Where a sentinel publishes that it begins to promote a replica, and that a master was replaced.
const FAILOVERS: [&str; 2] = ["+failover-state-send-slaveof-noone", "+switch-master"];

/// Asks until `update` returns `None`, because the topology is gone. `update` takes the votes, and returns the servers
/// to ask from then on.
pub(super) fn watch<U: Fn(&[Vote]) -> Option<Vec<(Address, Endpoint)>>>(
    group: &Group,
    link: &Arc<TopologyLink>,
    pollees: Pollees,
    update: U,
) -> impl Future<Output = ()> + use<U> {
    let sentinels = match &group.discovery {
        Discovery::Sentinel { .. } => &group.pollees,
        _ => &[][..],
    };
    let listening: Vec<_> =
        sentinels.iter().map(|(_, sentinel)| listen(sentinel.clone(), Arc::clone(link))).collect();
    let logins = group.pollees.first().and_then(|(_, server)| server.logins());
    let asking = ask(Arc::clone(link), pollees, group.is_cluster(), logins, update);
    async { _ = join(asking, join_all(listening)).await }
}

async fn ask(
    link: Arc<TopologyLink>,
    mut pollees: Pollees,
    is_cluster: bool,
    mut logins: Option<watch::Receiver<Login>>,
    update: impl Fn(&[Vote]) -> Option<Vec<(Address, Endpoint)>>,
) {
    let mut hurries_until = Instant::now();
    let seldom = if is_cluster { SELDOM_IN_CLUSTER } else { SELDOM };
    loop {
        let is_wrong = if Instant::now() < hurries_until {
            link.reported().now_or_never().is_some()
        } else {
            timeout(around(seldom), link.reported()).await.is_ok()
        };
        if is_wrong {
            hurries_until = Instant::now() + CALM;
        }
        if let Some(logins) = &mut logins
            && logins.has_changed().unwrap_or(false)
        {
            logins.mark_unchanged();
            pollees.disconnect();
        }
        let votes = if is_cluster && Instant::now() >= hurries_until {
            let answer = pollees.ask_next(LIMIT).await;
            if answer.is_err() {
                link.report(); // so that the next round asks all nodes
            }
            answer.into_iter().collect()
        } else {
            pollees.ask(LIMIT).await.0
        };
        let Some(servers) = update(&votes) else { return };
        pollees.replace(servers);
        sleep(around(OFTEN)).await;
    }
}

/// Reports whenever a sentinel replaces a master.
async fn listen(sentinel: Endpoint, link: Arc<TopologyLink>) {
    loop {
        report_failovers(&sentinel, &link).await;
        sleep(around(SELDOM)).await;
    }
}

/// Ends when the connection breaks or is silent.
async fn report_failovers(sentinel: &Endpoint, link: &TopologyLink) -> Option<()> {
    let subscribing = async {
        let mut messages = sentinel.messages().await?;
        messages.subscribe(&FAILOVERS[..]).await?;
        RedisResult::Ok(messages.split())
    };
    let (mut sink, mut messages) = timeout(sentinel.limit, subscribing).await.ok()?.ok()?;
    link.report(); // a failover before the subscription sent its message to nobody
    loop {
        match timeout(PING_AFTER, messages.next()).await {
            Ok(message) => message.map(|_| link.report())?,
            Err(_) => _ = timeout(sentinel.limit, sink.ping::<Value>()).await.ok()?.ok()?,
        }
    }
}

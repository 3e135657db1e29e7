//! The task that asks again and again who the master is.

use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::{FutureExt, StreamExt};
use redis::RedisError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::address::Address;
use super::ask::{Asked, Way};
use super::group::Group;
use super::map::Vote;
use crate::credentials::Login;
use crate::jitter::around;
use crate::store::connection::{Endpoint, Membership};

/// The time limit of a question.
const LIMIT: Duration = Duration::from_millis(300);

/// Between two questions, while something is wrong.
const OFTEN: Duration = Duration::from_millis(50);

/// Between two questions, while nothing is wrong. Also between two tries to listen to a sentinel.
const SELDOM: Duration = Duration::from_secs(1);

/// The same for a cluster. It has many nodes, and each knows of every failover soon. So one of them is asked, each in its turn.
const SELDOM_IN_CLUSTER: Duration = Duration::from_millis(500);

/// Something counts as wrong for this long after the last complaint.
const CALM: Duration = Duration::from_secs(2);

/// Where a sentinel publishes that it begins to promote a replica, and that a master was replaced.
const FAILOVERS: [&str; 2] = ["+failover-state-send-slaveof-noone", "+switch-master"];

/// Asks until `update`, which takes the votes, says that nobody needs them any more. It returns who is to be asked.
pub(super) fn watch<U: Fn(&[Vote]) -> Option<Vec<(Address, Endpoint)>>>(
    group: &Group,
    membership: &Membership,
    asked: Asked,
    update: U,
) -> impl Future<Output = ()> + use<U> {
    let sentinels = match &group.way {
        Way::Cluster => &[][..],
        Way::Sentinel { .. } => &group.asked,
    };
    let listening: Vec<_> =
        sentinels.iter().map(|(_, sentinel)| listen(sentinel.clone(), membership.clone())).collect();
    let logins = group.asked.first().and_then(|(_, server)| server.logins());
    let is_cluster = matches!(group.way, Way::Cluster);
    let asking = ask(membership.clone(), asked, is_cluster, logins, update);
    async { _ = join(asking, join_all(listening)).await }
}

async fn ask(
    membership: Membership,
    mut asked: Asked,
    is_cluster: bool,
    mut logins: Option<watch::Receiver<Login>>,
    update: impl Fn(&[Vote]) -> Option<Vec<(Address, Endpoint)>>,
) {
    let mut hurries_until = Instant::now();
    let seldom = if is_cluster { SELDOM_IN_CLUSTER } else { SELDOM };
    loop {
        let is_wrong = if Instant::now() < hurries_until {
            membership.complaint().now_or_never().is_some()
        } else {
            timeout(around(seldom), membership.complaint()).await.is_ok()
        };
        if is_wrong {
            hurries_until = Instant::now() + CALM;
        }
        if let Some(logins) = &mut logins
            && logins.has_changed().unwrap_or(false)
        {
            logins.mark_unchanged();
            asked.disconnect();
        }
        let votes = if is_cluster && Instant::now() >= hurries_until {
            let answer = asked.ask_next(LIMIT).await;
            if answer.is_err() {
                membership.complain(); // so all are asked
            }
            answer.into_iter().collect()
        } else {
            asked.ask(LIMIT).await.0
        };
        let Some(servers) = update(&votes) else { return };
        asked.replace(servers);
        sleep(around(OFTEN)).await;
    }
}

/// Complains whenever a sentinel replaces a master.
async fn listen(sentinel: Endpoint, membership: Membership) {
    loop {
        let _ = pass_on(&sentinel, &membership).await;
        sleep(around(SELDOM)).await;
    }
}

async fn pass_on(sentinel: &Endpoint, membership: &Membership) -> Result<(), RedisError> {
    let mut messages = sentinel.messages().await?;
    messages.subscribe(&FAILOVERS[..]).await?;
    membership.complain(); // perhaps a message was missed
    let mut messages = messages.into_on_message();
    while messages.next().await.is_some() {
        membership.complain();
    }
    Ok(())
}

//! What is done when another server becomes the master, perhaps without the last writes of the old one.
//!
//! The client examines the new master like the first one. It renews all holds at once, so that a holder whose lock is
//! lost learns so. All waiters attempt. The client also repeats the releases that the old master confirmed last: if the
//! new master lacks one, the lock would stay held there until its lease ends. A release can run twice at any time,
//! because the id of its owner is not used again.

use std::sync::{Arc, Weak};

use futures_util::future::join;
use futures_util::{FutureExt, StreamExt, stream};

use crate::base::fault::Fault;
use crate::base::limits::limits;
use crate::base::sync::Watched;
use crate::engine::retry::Tries;
use crate::engine::shared::Engine;
use crate::protocol::{Call, ReleaseReply};
use crate::store::Route;

/// Renews all holds after each switch to another master, until the engine ends.
pub(crate) async fn renew_on_each(switches: Arc<Watched>, mut seen: u64, engine: Weak<Engine>) {
    loop {
        switches.next(&mut seen).await;
        let Some(engine) = engine.upgrade() else { return };
        engine.renewals.rush();
    }
}

/// Does the rest after each switch to another master, until the engine ends.
pub(crate) async fn act_on_each(switches: Arc<Watched>, mut seen: u64, engine: Weak<Engine>) {
    loop {
        switches.next(&mut seen).await;
        let Some(engine) = engine.upgrade() else { return };
        engine.heartbeats.rush();
        engine.lines.wake_all();
        // Run both as a background job: a shutdown waits for the jobs, so it does not end before the releases are
        // repeated.
        let releasing = release_again(Arc::clone(&engine));
        let examined = Arc::clone(&engine);
        let examining = async move { examined.store.examine_master(&examined.config).await };
        engine.background.run(join(releasing, examining).map(|_| ()));
    }
}

async fn release_again(engine: Arc<Engine>) {
    let releases = stream::iter(engine.releases.take());
    releases.for_each_concurrent(limits().repeated, |(route, call)| repeat(&engine, route, call)).await;
}

async fn repeat(engine: &Engine, route: Route, call: Call) {
    let mut tries = Tries::new(engine.config.retry_timeout());
    loop {
        match run(engine, route, &call).await {
            // Keep the release in the list: the next master can lack it, too.
            Ok(_) => return engine.releases.keep(route, call),
            Err(fault) if engine.is_closing() => return report(engine, &call, &fault),
            Err(fault) => {
                if let Err(fault) = tries.again(fault).await {
                    return report(engine, &call, &fault);
                }
            }
        }
    }
}

fn report(engine: &Engine, call: &Call, fault: &Fault) {
    if let Some(unreported) = engine.failed_releases.ask() {
        let key = call.keys.first().map(|key| &**key);
        tracing::warn!(%fault, key, unreported, "a release was not repeated after a switch to another master");
    }
}

async fn run(engine: &Engine, route: Route, call: &Call) -> Result<ReleaseReply, Fault> {
    let reply = engine.store.run(&engine.store.connection(route).await?, call).await?;
    ReleaseReply::parse(&reply)
}

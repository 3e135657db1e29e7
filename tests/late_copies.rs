//! Guarantee 3, for each type of lock: a command that is sent again, or that runs late on a broken connection, counts
//! no hold twice, revives no hold and ends no other hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::fixture::{Fixture, for_each_lock};
use crate::support::{MS, Proxy, SECOND, Scene, calls_of, connect, soon};
use lockkeeper::{LockClient, LockConfig};

/// A client behind a proxy that soon notices a silent connection, and a client without a proxy.
async fn clients(scene: &Scene) -> (Proxy, LockClient, LockClient) {
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().command_timeout(500 * MS).connections(1);
    let locks = connect(proxy.url(), config).await;
    (proxy, locks, scene.client().await)
}

async fn holds(beside: &LockClient, name: &str) -> u64 {
    beside.inspect(name).await.unwrap().map_or(0, |found| found.holders[0].holds)
}

/// Guarantee 3.
async fn a_command_whose_reply_is_lost_is_sent_again_and_counted_once<F: Fixture>() {
    let scene = Scene::start();
    let (proxy, locks, beside) = clients(&scene).await;
    for then_cut in [true, false] {
        let swallow = |file| {
            proxy.swallow(0, then_cut, calls_of(file));
            proxy.swallowed()
        };
        let mut lock = F::lock(&locks, "a");

        let before = swallow(F::ACQUIRE);
        let outer = soon(lock.lock()).await.unwrap();
        assert_eq!(
            (proxy.swallowed(), holds(&beside, "a").await),
            (before + 1, 1),
            "acquire, cut {then_cut}"
        );

        let before = swallow(F::SHOW);
        let middle = soon(lock.lock()).await.unwrap();
        assert_eq!(
            (proxy.swallowed(), holds(&beside, "a").await),
            (before + 1, 2),
            "re-enter, cut {then_cut}"
        );
        let inner = soon(lock.lock()).await.unwrap();

        let before = swallow(F::SHOW);
        soon(inner.unlock()).await.unwrap();
        assert_eq!(
            (proxy.swallowed(), holds(&beside, "a").await),
            (before + 1, 2),
            "inner release, cut {then_cut}"
        );
        soon(middle.unlock()).await.unwrap();
        assert_eq!(holds(&beside, "a").await, 1);

        let before = swallow(F::RENEW);
        soon(outer.extend(60 * SECOND)).await.unwrap();
        assert_eq!((proxy.swallowed(), holds(&beside, "a").await), (before + 1, 1), "renew, cut {then_cut}");
        assert!(outer.remaining() > 50 * SECOND);

        let before = swallow(F::RELEASE);
        soon(outer.unlock()).await.expect("the lost reply was that of this release");
        assert_eq!(
            (proxy.swallowed(), holds(&beside, "a").await),
            (before + 1, 0),
            "release, cut {then_cut}"
        );
    }
    locks.shutdown().await.unwrap();
    scene.end((proxy, locks, beside)).await;
}

/// Guarantee 2. The first release ran, and its reply was lost. The server refuses the second one. The third one finds nothing.
async fn a_release_whose_repetition_is_refused_is_still_known_to_have_run<F: Fixture>() {
    let scene = Scene::start();
    let (proxy, locks, beside) = clients(&scene).await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    proxy.swallow(0, true, calls_of(F::RELEASE));
    let (is_release, sent) = (calls_of(F::RELEASE), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&sent);
    proxy.answer(move |words| {
        let is_second = is_release(words) && count.fetch_add(1, Ordering::Relaxed) == 1;
        is_second.then(|| "-BUSY Redis is busy running a script.\r\n".to_owned())
    });
    soon(guard.unlock()).await.expect("the lost reply was that of this release");
    assert_eq!((proxy.swallowed(), holds(&beside, "a").await), (1, 0));
    assert!(sent.load(Ordering::Relaxed) >= 3, "lost, refused, answered");
    locks.shutdown().await.unwrap();
    scene.end((proxy, locks, beside)).await;
}

for_each_lock! {
    a_command_whose_reply_is_lost_is_sent_again_and_counted_once
    a_release_whose_repetition_is_refused_is_still_known_to_have_run
}

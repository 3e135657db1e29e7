//! Who is told of holds and waits that last.
//!
//! The engine does not know what becomes of these events, and no lock depends on them. The engine calls the observer
//! with nothing locked, and never during the lock or unlock of a free lock. An observer keeps neither an engine nor a
//! grant alive for longer than its work takes.

use std::sync::Arc;
use std::time::Duration;

use crate::base::Caller;
use crate::base::clock::Moment;
use crate::base::sync::nothing_is_locked;
use crate::protocol::Call;

/// Is told of holds and waits that last for some time.
pub(crate) trait Observer: Send + Sync {
    /// A hold was renewed for the first time.
    fn lasts(&self, hold: &SeenHold<'_>);

    /// A hold that lasted has ended, or is left to end by itself. Told once for each `lasts`, with its owner.
    fn ended(&self, owner: &Arc<str>);

    /// A call waits: a server refused it, because another owner holds the lock, or it has waited behind others of its
    /// client for a second.
    fn waits(&self, wait: SeenWait<'_>);

    /// A wait ended. Told once for each `waits`, with its number. `outcome`: how the call ended. `None`: the call waits
    /// on with another owner id, or no server had refused it.
    fn waited(&self, number: u64, outcome: Option<Outcome>);
}

/// A hold, as the observer sees it.
pub(crate) struct SeenHold<'a> {
    /// The owner, without the id of the client.
    pub(crate) owner: &'a Arc<str>,
    /// The key of the lock.
    pub(crate) key: &'a Arc<str>,
    /// When the server granted the hold.
    pub(crate) since: Moment,
}

/// A call that waits, as the observer sees it.
pub(crate) struct SeenWait<'a> {
    pub(crate) number: u64,
    /// The name of the lock.
    pub(crate) name: &'a Arc<str>,
    pub(crate) key: &'a Arc<str>,
    /// When the call began.
    pub(crate) since: Moment,
    pub(crate) caller: Caller,
    /// After this time, the wait counts as long. `None`: the call is that of a candidate, whose work is to wait.
    pub(crate) lease: Option<Duration>,
    pub(crate) waiter: Box<dyn SeenWaiter>,
}

/// What can be asked about a call for as long as it waits.
pub(crate) trait SeenWaiter: Send {
    /// The owner of the call, without the id of the client. `None`: the call has ended, or wants permits, which have no
    /// owner.
    fn owner(&self) -> Option<Arc<str>>;

    /// Returns the command that asks for the place of the call, if the lock has a queue.
    fn place(&self) -> Option<Call>;

    /// Reserves what the same `Owner` holds: from here on, no other owner of the client joins these holds or takes them
    /// over. Returns the owners of these holds, without the id of the client.
    fn reserve(&self, now: Moment) -> Vec<Arc<str>>;
}

/// How a call ended that was refused before, because another owner held the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Granted,
    TimedOut,
    /// The call failed, or its future was dropped.
    GivenUp,
}

/// A hold of which an observer was told. Dropping this value tells the observer that the hold ended.
pub(crate) struct Lasting {
    observer: Arc<dyn Observer>,
    owner: Arc<str>,
}

impl Lasting {
    pub(crate) fn begin(
        observer: &Arc<dyn Observer>,
        owner: Arc<str>,
        key: &Arc<str>,
        since: Moment,
    ) -> Self {
        nothing_is_locked();
        observer.lasts(&SeenHold { owner: &owner, key, since });
        Self { observer: Arc::clone(observer), owner }
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        nothing_is_locked();
        self.observer.ended(&self.owner);
    }
}

/// A wait of which an observer was told. Dropping this value tells the observer that the wait ended.
pub(crate) struct Waiting {
    observer: Arc<dyn Observer>,
    pub(crate) number: u64,
    pub(crate) is_refused: bool,
    /// `None`: the call goes on.
    pub(crate) outcome: Option<Outcome>,
}

impl Waiting {
    pub(crate) fn begin(observer: &Arc<dyn Observer>, wait: SeenWait<'_>) -> Self {
        let (observer, number) = (Arc::clone(observer), wait.number);
        nothing_is_locked();
        observer.waits(wait);
        Self { observer, number, is_refused: false, outcome: Some(Outcome::GivenUp) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        nothing_is_locked();
        self.observer.waited(self.number, self.outcome.filter(|_| self.is_refused));
    }
}

#[cfg(all(test, feature = "unstable-simulation"))]
mod tests {
    use std::sync::Mutex;

    use lockkeeper_memory::MemoryServer;

    use super::*;
    use crate::base::config::LockConfig;
    use crate::base::sync::lock;
    use crate::base::timer::{sleep, timeout};
    use crate::engine::{self, Engine};
    use crate::locks::guard::LockGuard;
    use crate::locks::{Lock, MultiLock, RLock};
    use crate::protocol;
    use crate::store::Source;

    const SECOND: Duration = Duration::from_secs(1);

    /// What the observer was told, in order.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Told {
        fn add(&self, what: String) {
            lock(&self.0).push(what);
        }

        fn take(&self) -> Vec<String> {
            std::mem::take(&mut lock(&self.0))
        }
    }

    impl Observer for Told {
        fn lasts(&self, hold: &SeenHold<'_>) {
            self.add(format!("{} lasts on {}", hold.owner, hold.key));
        }

        fn ended(&self, owner: &Arc<str>) {
            self.add(format!("{owner} ended"));
        }

        fn waits(&self, wait: SeenWait<'_>) {
            self.add(format!("{} waits for {}", wait.number, wait.name));
        }

        fn waited(&self, number: u64, outcome: Option<Outcome>) {
            self.add(format!("{number} waited: {outcome:?}"));
        }
    }

    async fn start(server: &MemoryServer) -> (Arc<Engine>, Arc<Told>) {
        let told = Arc::new(Told::default());
        let (source, observer) = (Source::stream(server.connector()), Arc::clone(&told));
        let engine = engine::start(source, LockConfig::default(), Some(observer)).await.expect("it connects");
        (engine, told)
    }

    fn rlock(engine: &Arc<Engine>, name: &str) -> RLock<'static> {
        Lock::single(&protocol::Reentrant, engine, name, Arc::default())
    }

    /// A guard whose hold was renewed.
    async fn lasting(engine: &Arc<Engine>, told: &Told, name: &str) -> LockGuard {
        let guard = rlock(engine, name).lock().await.expect("it is free");
        assert_eq!(told.take(), [""; 0], "it is new");
        sleep(12 * SECOND).await;
        let owner = guard.owner_id();
        let (_, owner) = owner.split_once(':').expect("an owner");
        assert_eq!(told.take(), [format!("{owner} lasts on {name}")]);
        guard
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_that_lasted_ends_once() {
        let server = MemoryServer::new();
        let (engine, told) = start(&server).await;
        for way in ["unlock", "drop", "leak", "lost", "gone", "silent", "shutdown"] {
            let guard = lasting(&engine, &told, way).await;
            let ended = [format!("{} ended", guard.owner_id().split_once(':').expect("an owner").1)];
            match way {
                "unlock" => guard.unlock().await.expect("it is held"),
                "drop" => drop(guard),
                "leak" => guard.leak(),
                "lost" => {
                    server.execute(&["DEL", way]);
                    sleep(12 * SECOND).await;
                    assert!(guard.is_lost());
                    drop(guard);
                }
                "gone" => {
                    server.execute(&["DEL", way]);
                    guard.unlock().await.expect_err("somebody deleted it");
                }
                "silent" => {
                    server.hold(true);
                    sleep(40 * SECOND).await;
                    drop(guard);
                    sleep(60 * SECOND).await;
                    server.hold(false);
                }
                _ => {
                    engine.shutdown(async {}).await.expect("nothing is left");
                    drop(guard);
                }
            }
            sleep(60 * SECOND).await;
            assert_eq!(told.take(), ended, "{way}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_that_is_released_soon_is_not_told() {
        let server = MemoryServer::new();
        let (engine, told) = start(&server).await;
        rlock(&engine, "a").lock().await.expect("it is free").unlock().await.expect("it is held");
        drop(rlock(&engine, "a").lock().await.expect("it is free"));
        sleep(60 * SECOND).await;
        assert_eq!(told.take(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_ends_once() {
        let server = MemoryServer::new();
        let ((engine, told), (other, _)) = (start(&server).await, start(&server).await);
        let [a, b] = [rlock(&other, "a").lock().await, rlock(&other, "b").lock().await].map(Result::unwrap);

        let call = |name, wait| {
            let mut lock = rlock(&engine, name);
            async move { lock.try_lock_for(wait).await.expect("no fault").is_some() }
        };
        assert!(!call("a", SECOND / 2).await);
        assert_eq!(told.take(), ["1 waits for a", "1 waited: Some(TimedOut)"]);

        assert!(timeout(SECOND / 2, call("a", SECOND)).await.is_err());
        assert_eq!(told.take(), ["2 waits for a", "2 waited: Some(GivenUp)"]);

        // The second call waits behind the first and asks no server, so the observer is told of it only after a second.
        let first = tokio::spawn(call("a", 10 * SECOND));
        sleep(SECOND / 10).await;
        assert!(!call("a", SECOND / 2).await);
        assert_eq!(told.take(), ["3 waits for a"]);
        assert!(!call("a", 2 * SECOND).await);
        assert_eq!(told.take(), ["5 waits for a", "5 waited: None"]);
        first.abort();
        assert!(first.await.is_err());
        assert_eq!(told.take(), ["3 waited: Some(GivenUp)"]);

        let mut both = MultiLock::new([rlock(&engine, "a"), rlock(&engine, "b")]).expect("two locks");
        let both = tokio::spawn(async move { both.lock().await });
        sleep(SECOND / 2).await;
        a.unlock().await.expect("it is held");
        sleep(SECOND / 2).await;
        b.unlock().await.expect("it is held");
        drop(both.await.expect("no panic"));
        let all = told.take();
        assert!(all.len() == 4 && all[0].ends_with("waits for a"), "{all:?}");
        assert!(all[1].ends_with("waited: Some(Granted)"), "{all:?}");
        assert!(all[2].ends_with("waits for b") && all[3].ends_with("waited: Some(Granted)"), "{all:?}");
    }
}

//! An id that nobody needs any more, its release, and the hold count that an inner release shows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join;
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use super::state::{Owing, State};
use super::{Grant, PartKey};
use crate::base::clock::{self, Moment};
use crate::base::error::LockId;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::jitter::Backoff;
use crate::base::limits::limits;
use crate::base::sync::{nothing_is_locked, until};
use crate::base::timer::{Instant, sleep, timeout};
use crate::engine::background::{Job, Turn};
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;
use crate::engine::retry::retried;
use crate::protocol::{AcquireReply, Call, ReleaseReply};
use crate::store::Connection;
use crate::telemetry::Counted;

/// The shortest time that Redis can count.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

/// The pauses while the server gives no answer.
const RETRY: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The pauses while the server refuses. They are longer, because a refusal comes at once, and the server perhaps
/// refuses the releases of many locks.
const REFUSED: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(3));

/// The pause during a shutdown, and while an acquire is under way that a shutdown gave up.
const PAUSE: Duration = Duration::from_millis(100);

/// The background gives up if the server is still silent this long after the end of the lease.
const GIVE_UP: Duration = Duration::from_secs(600);

/// An id of which the server can have something, and that nobody needs. Each id has one at most. Dropped, it goes to the background.
pub(crate) struct Owed(Option<Release>);

/// The release of an id.
struct Release {
    grant: Arc<Grant>,
    /// The guard that was given back. If the answer says that the server no longer had its hold, the hold is removed.
    hold: Option<Arc<Hold>>,
    /// A release perhaps ran, and its answer was lost. So if the next one finds nothing, this is no loss.
    is_unsure: bool,
    /// A future waits for the answer.
    answered: Option<oneshot::Sender<Result<(), Fault>>>,
}

impl Owed {
    pub(super) fn new(grant: &Arc<Grant>) -> Self {
        Self(Some(Release { grant: Arc::clone(grant), hold: None, is_unsure: false, answered: None }))
    }

    fn owed(&mut self) -> &mut Release {
        self.0.as_mut().expect("BUG: asked after its release")
    }

    /// The hold of this guard is released.
    pub(super) fn asks_for(mut self, hold: &Arc<Hold>) -> Self {
        self.owed().hold = Some(Arc::clone(hold));
        self
    }

    pub(crate) fn grant(&self) -> &Arc<Grant> {
        &self.0.as_ref().expect("BUG: asked after its release").grant
    }

    /// Releases the hold of a guard. The command leaves with the first poll. Where it cannot, and after a fault that can pass, the background
    /// releases, and this future waits for that. If an acquire can still run, the background releases once more.
    pub(crate) async fn release_for_guard(self) -> Result<(), Fault> {
        let lock = Arc::clone(&self.grant().lock);
        lock.check_runtime()?;
        // If many futures release already, this command would wait in the client behind theirs, while its time limit counts.
        let listed = lock.engine.unlocks.add_at_most(limits().releases, self.grant());
        let mut owed = self; // dropped before `listed`: a shutdown that finds no future must find the job
        let connection = listed.as_ref().and_then(|_| lock.engine.store.opened(lock.route));
        let mut fault = None;
        if let Some(connection) = connection {
            match owed.owed().run(&connection).await {
                Ok(is_over) => {
                    owed.0.take_if(|_| is_over);
                    return Ok(());
                }
                Err(failed) if failed.is_transient() => fault = Some(failed),
                Err(failed) => return Err(failed),
            }
        }
        let (answered, answer) = oneshot::channel();
        owed.owed().answered = Some(answered);
        drop(owed);
        drop(listed);
        // Boxed: this is rare, and its future would make the future of every unlock larger.
        Box::pin(answers(&lock, answer, fault)).await
    }
}

/// Waits until the background was answered. `fault`: why a try before that failed.
async fn answers(
    lock: &LockRef,
    answer: oneshot::Receiver<Result<(), Fault>>,
    fault: Option<Fault>,
) -> Result<(), Fault> {
    let config = &lock.engine.config;
    let first = if fault.is_some() { Duration::ZERO } else { config.command_timeout() };
    // `unconstrained`: a task that awaits thousands of releases spends its tokio budget on the first ones. With the budget, it would poll
    // the others in vain, again and again.
    let answered = unconstrained(timeout(first + config.retry_timeout(), answer));
    let (no_connection, answered) = join(async { lock.connection().await.err() }, answered).await;
    if let Ok(Ok(result)) = answered {
        return result;
    }
    lock.check_runtime()?;
    let late = || Fault::new(FaultKind::TimedOut, Sent::Unknown, "no answer in time");
    Err(fault.or(no_connection).unwrap_or_else(late))
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            nothing_is_locked();
            release.goes_on_in_background(clock::now());
        }
    }
}

impl Release {
    /// Hands the release to the background. Never waits.
    fn goes_on_in_background(self, now: Moment) {
        let lock = Arc::clone(&self.grant.lock);
        let undo = Undo::new(self, now);
        lock.engine.background.release(&lock, lock.server(), |job, turn| undo.run(job, turn).boxed());
        if lock.engine.background.runtime.is_closed()
            && let Some(unreported) = lock.engine.failed_releases.ask()
        {
            let LockId { name, key, server, .. } = lock.id();
            tracing::error!(
                lock = name,
                key,
                server,
                unreported,
                "a lock was not released, its lease has to run out: the client's runtime is gone"
            );
        }
    }

    /// Where acquires wait for replicas, a release on their connection runs after those that were not answered.
    async fn connection(&self) -> Result<Connection, Fault> {
        let Grant { lock, .. } = &*self.grant;
        let waits = lock.engine.config.sync().is_some();
        if waits && self.grant.ask(|state| state.on_server.late_until().is_some()) {
            let behind = lock.connection_of_acquires().await;
            return behind.or_else(|fault| lock.engine.store.opened(lock.route).ok_or(fault));
        }
        lock.connection().await
    }

    /// Releases once. Returns whether the server has nothing from here on.
    async fn run(&mut self, connection: &Connection) -> Result<bool, Fault> {
        let (grant, lock) = (&self.grant, &self.grant.lock);
        let (sent, call) = (clock::now(), lock.protocol.release(grant.holder()));
        let was_unsure = std::mem::replace(&mut self.is_unsure, true); // until the answer comes
        let (is_beside, ends_hold) = grant.ask(|state| {
            let is_beside = state.owing == Owing::Again;
            state.is_released_beside |= is_beside;
            (is_beside, state.lease.was_granted())
        });
        let reply = match grant.send_release(connection, &call, ends_hold).await {
            Ok(reply) => reply,
            // Another client overwrote the key, so the hold is gone.
            Err(fault) if fault.kind == FaultKind::WrongType => ReleaseReply::Gone,
            Err(fault) => {
                self.is_unsure = was_unsure || fault.sent == Sent::Unknown;
                return Err(fault);
            }
        };
        // A master that is promoted later can lack this release, and would keep the lock until its lease ends. So
        // the release is kept for a repetition.
        lock.engine.releases.keep(lock.route, call);
        let (now, hold) = (clock::now(), self.hold.take());
        let mut gone = hold.filter(|_| reply == ReleaseReply::Gone && !was_unsure);
        let is_over = grant.ask(|state| {
            state.is_released_beside &= !(is_beside && reply == ReleaseReply::Gone);
            gone.take_if(|_| state.is_released_beside);
            let is_over = state.on_server.released(connection.number(), sent);
            state.owing = if is_over { Owing::No } else { Owing::Again };
            if let Some(hold) = &gone {
                hold.lose();
                state.loses();
            }
            is_over
        });
        // First, because a layer or recorder of the user can panic below.
        grant.released.notify_waiters();
        lock.engine.background.answers.modify(|count| count + 1);
        tell(&mut self.answered, Ok(()));
        if let Some(hold) = gone {
            grant.event(now, |_| {});
            hold.tell_gone(now);
        }
        report_release(reply, lock);
        Ok(is_over)
    }
}

/// Tells the future that waits, if there is one.
fn tell(answered: &mut Option<oneshot::Sender<Result<(), Fault>>>, result: Result<(), Fault>) {
    if let Some(answered) = answered.take() {
        let _ = answered.send(result);
    }
}

/// The release of an id in the background, until nothing can be left of it.
struct Undo {
    release: Release,
    /// `None`: the user's recorder panicked.
    _counted: Option<Counted>,
    /// When the lease and the place have certainly ended, and no acquire can run.
    ends: Instant,
    refused: Backoff,
    is_over: bool,
}

impl Undo {
    fn new(release: Release, now: Moment) -> Self {
        let lock = &release.grant.lock;
        // One that was refused can have left a place in a queue, or a writer's intent, which lasts for ten times its turn.
        let (config, protocol) = (&lock.engine.config, lock.protocol);
        let trace = match () {
            () if protocol.queue().is_some() => config.fair_allowance() * 4 / 3,
            () if protocol.stops_readers() => 10 * config.writer_turn(),
            () => Duration::ZERO,
        };
        let (longest, late) = release.grant.ask(|state| {
            let lease = state.lease.longest;
            (if state.lease.was_granted() { lease } else { lease.max(trace) }, state.on_server.late_until())
        });
        let late = late.map_or(Duration::ZERO, |until| until.since(now));
        Self {
            _counted: catch_unwind(AssertUnwindSafe(|| lock.engine.metrics.undoing())).ok(),
            ends: Instant::now() + late + longest,
            refused: REFUSED,
            is_over: false,
            release,
        }
    }

    /// Releases until the server has nothing, or gives up. Rests while the server refuses a release whose lease has not ended.
    async fn run(mut self, job: Job, turn: Turn) {
        let lock = Arc::clone(&self.release.grant.lock);
        let (engine, mut retry, mut turn) = (&lock.engine, RETRY, Some(turn));
        loop {
            let (owing, late) = self.release.grant.ask(|state| (state.owing, state.on_server.late_until()));
            if owing == Owing::Again {
                drop(turn.take());
                sleep(late.map_or(PAUSE, |until| until.since(clock::now()) + SHORTEST)).await;
            }
            let fault = match self.release_in_turn(turn.take()).await {
                Ok(true) => {
                    self.is_over = true;
                    return;
                }
                Ok(false) => continue,
                Err(fault) => fault,
            };
            let now = Instant::now();
            let is_left = now < self.ends;
            if fault.is_transient() && now < self.ends + GIVE_UP && (is_left || !engine.is_closing()) {
                self.rest(retry.pause()).await;
                continue;
            }
            tell(&mut self.release.answered, Err(fault.clone()));
            // Every acquire was refused, and its caller has the error already. A place or an intent soon ends by itself.
            let is_nothing = self
                .release
                .grant
                .ask(|state| !state.lease.was_granted() && state.on_server.late_until().is_none());
            let refused_again = !fault.is_transient() && is_left && !is_nothing;
            if !is_nothing
                && (is_left || !engine.is_closing())
                && let Some(unreported) = engine.failed_releases.ask()
            {
                let LockId { name, key, server, .. } = lock.id();
                // A layer of the user can panic, and the release is to be repeated.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    if refused_again {
                        tracing::warn!(
                            %fault, lock = name, key, server, unreported,
                            "a release was refused, it is repeated until the lease has ended"
                        );
                    } else {
                        tracing::warn!(
                            %fault, lock = name, key, server, unreported,
                            "a lock was not released, its lease has to run out"
                        );
                    }
                }));
            }
            if !refused_again {
                return;
            }
            job.rest(self.refused.pause(), (self.ends, lock.error(fault))).await;
        }
    }

    /// Waits for the turn of this release, and releases once. The time limit of the command begins with the turn.
    async fn release_in_turn(&mut self, turn: Option<Turn>) -> Result<bool, Fault> {
        let lock = &self.release.grant.lock;
        let _turn = match turn {
            Some(turn) => turn,
            None => lock.engine.background.turn(&lock.server()).await,
        };
        let released = async {
            let connection = self.release.connection().await?;
            self.release.run(&connection).await
        };
        // Code of the user can panic, such as a `tracing` layer, before the command has left.
        let panicked = || Fault::new(FaultKind::TimedOut, Sent::Unknown, "code of the program panicked");
        AssertUnwindSafe(released).catch_unwind().await.unwrap_or_else(|_| Err(panicked()))
    }

    /// Pauses. During a shutdown, the pause is short.
    async fn rest(&self, pause: Duration) {
        let engine = &self.release.grant.lock.engine;
        if !engine.is_closing() {
            tokio::select! {
                biased;
                () = sleep(pause) => return,
                () = engine.closing() => {}
            }
        }
        sleep(pause.min(PAUSE)).await;
    }
}

/// The job gave up: nobody waits for an answer any more.
impl Drop for Undo {
    fn drop(&mut self) {
        if !self.is_over {
            self.release.grant.ask(|state| {
                state.on_server.forgets();
                state.owing = Owing::No;
            });
            self.release.grant.released.notify_waiters();
        }
    }
}

impl Grant {
    /// Sends a release, and tells the waiters of this client.
    async fn send_release(
        &self,
        connection: &Connection,
        call: &Call,
        ends_hold: bool,
    ) -> Result<ReleaseReply, Fault> {
        let waiters = if ends_hold { self.waiters() } else { None };
        if let Some((line, _)) = &waiters {
            line.with(|state| state.release_begins(clock::now()));
        }
        let reply = self.lock.run_and_tell(connection, call).await;
        let reply = reply.and_then(|reply| ReleaseReply::parse(&reply));
        if let Some((line, has_others)) = &waiters {
            // The reply counts who got the message. In a cluster it counts only those that listen at the same server,
            // so the number is not exact there.
            let is_exact = !has_others && !self.lock.engine.store.is_cluster();
            line.release_ended(match reply {
                Ok(ReleaseReply::Released { receivers }) if is_exact => Some(receivers),
                Ok(ReleaseReply::Released { .. }) => Some(u32::MAX),
                _ => None,
            });
        }
        reply
    }

    /// Releases for a shutdown what the future of a caller began to release, and perhaps nobody polls. Only here, an id has two `Owed`.
    pub(crate) fn release_beside(self: &Arc<Self>) {
        let begins = |state: &mut State| {
            let is_left = state.owing == Owing::Release;
            if is_left {
                state.owing = Owing::Again;
            }
            is_left
        };
        if self.ask(begins) {
            drop(Owed::new(self));
            self.released.notify_waiters(); // it blocks its owner no longer
        }
    }

    /// Waits until a release that is under way was answered.
    pub(crate) async fn until_released(&self) {
        until(&self.released, || !self.blocks()).await;
    }

    /// Shows the hold count of an owner that released an inner hold, and retries after faults. Returns whether the server still has the hold.
    pub(crate) async fn show(self: &Arc<Self>, part: PartKey) -> Result<bool, Fault> {
        self.lock.check_runtime()?;
        let config = &self.lock.engine.config;
        let is_there = retried(config.retry_timeout(), || self.show_once(part)).await?;
        if !is_there {
            // Perhaps this client released the hold meanwhile. The answer to that says whether the hold was lost.
            let _ = timeout(config.command_timeout(), self.until_released()).await;
        }
        Ok(is_there || !self.ask(|state| state.is_gone))
    }

    /// Shows the hold count of an owner. Returns whether the server has the hold.
    async fn show_once(self: &Arc<Self>, part: PartKey) -> Result<bool, Fault> {
        let connection = self.lock.connection().await?;
        let now = clock::now();
        let Some((count, left)) = self.ask(|state| state.shows(part, now)) else { return Ok(true) };
        let call = self.lock.protocol.show(self.holder(), count, left.max(SHORTEST));
        let is_lost = match self.lock.run(&connection, &call).await {
            Ok(reply) => AcquireReply::parse(&reply, false)? == AcquireReply::Lost,
            // Another client overwrote the key, so the hold is gone.
            Err(fault) if fault.kind == FaultKind::WrongType => true,
            Err(fault) => return Err(fault),
        };
        if is_lost {
            self.event(clock::now(), State::finds_nothing);
        }
        Ok(!is_lost)
    }
}

/// Reports what a user should know about a release that succeeded.
pub(crate) fn report_release(reply: ReleaseReply, lock: &LockRef) {
    let is_silent = match reply {
        ReleaseReply::ReleasedInSilence => true,
        ReleaseReply::ReleasedBesideData => false,
        _ => return,
    };
    let LockId { name, key, server, .. } = lock.id();
    if is_silent {
        tracing::warn!(
            lock = name,
            key,
            server,
            "released a lock without a message to its waiters: this user may not publish on its channel"
        );
    } else {
        tracing::warn!(
            lock = name,
            key,
            server,
            "released a lock in whose key somebody else keeps data: the data was left there"
        );
    }
}

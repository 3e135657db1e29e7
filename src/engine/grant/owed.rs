//! An id that nobody needs any more, its release, and the hold count that an inner release shows.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::state::{Owing, State};
use super::{Grant, PartKey};
use crate::base::clock::{self, Moment};
use crate::base::error::LockId;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::jitter::Backoff;
use crate::base::sync::nothing_is_locked;
use crate::base::timer::{Instant, sleep, timeout};
use crate::engine::background::{Job, Refused, Turn};
use crate::engine::hold::Hold;
use crate::engine::line::lines::Receivers;
use crate::engine::lock_ref::LockRef;
use crate::protocol::{AcquireReply, Call, ReleaseReply};
use crate::store::Connection;
use crate::telemetry::Undoing;

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

/// The release of one id.
struct Release {
    grant: Arc<Grant>,
    /// The guard that was given back: the answer says whether the server still had its hold.
    hold: Option<Arc<Hold>>,
    /// A release perhaps ran, and its answer was lost. So if the next one finds nothing, this is no loss.
    is_unsure: bool,
}

impl Owed {
    pub(super) fn new(grant: &Arc<Grant>) -> Self {
        Self(Some(Release { grant: Arc::clone(grant), hold: None, is_unsure: false }))
    }

    /// The hold of this guard is released, and the answer says whether the server still had it.
    pub(super) fn asks_for(mut self, hold: &Arc<Hold>) -> Self {
        if let Some(release) = &mut self.0 {
            release.hold = Some(Arc::clone(hold));
        }
        self
    }

    pub(crate) fn grant(&self) -> &Arc<Grant> {
        &self.0.as_ref().expect("BUG: asked after its release").grant
    }

    /// Whether the background has it, because nobody seemed to poll the future.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.0.as_ref().is_some_and(Release::is_taken_over)
    }

    /// Releases once. Returns whether the server still had the hold of the guard. If an acquire can still run, the background releases
    /// once more, when this value is dropped.
    pub(crate) async fn release(&mut self) -> Result<bool, Fault> {
        let Some(release) = &mut self.0 else { return Ok(true) };
        if release.is_taken_over() {
            let patience = release.grant.lock.engine.config.retry_timeout();
            let released = timeout(patience, release.grant.until_released()).await;
            return released
                .map(|()| true)
                .map_err(|_| Fault::new(FaultKind::TimedOut, Sent::Unknown, "no answer in time"));
        }
        let connection = release.grant.lock.connection().await?;
        let (was_held, is_over) = release.once(connection).await?;
        if is_over {
            self.0 = None;
        }
        Ok(was_held)
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            nothing_is_locked();
            release.in_background(clock::now());
        }
    }
}

impl Release {
    fn is_taken_over(&self) -> bool {
        !matches!(self.grant.ask(|state| state.owing), Owing::Future(_) | Owing::Again)
    }

    /// Hands the release to the background, unless that has one. Never waits.
    fn in_background(self, now: Moment) {
        let hands_over = |state: &mut State| {
            let hands_over = matches!(state.owing, Owing::Future(_) | Owing::Again);
            if let Owing::Future(_) = state.owing {
                (state.owing, state.is_moved) = (Owing::Background, true);
            }
            hands_over
        };
        if !self.grant.event(now, |state, _| hands_over(state)) {
            return;
        }
        let lock = Arc::clone(&self.grant.lock);
        let undo = Undo::new(self, now);
        if !lock.engine.background.release(lock.server(), move |turn| undo.job(Some(turn)))
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

    /// The connection on which acquires wait for replicas, if all that were not answered were sent there: a release on it runs after
    /// them. One on the usual connection can overtake them.
    async fn behind_acquires(&self) -> Option<Connection> {
        let lock = &self.grant.lock;
        lock.engine.config.sync()?;
        let late_on = self.grant.ask(|state| state.on_server.late_on())?;
        let connection = lock.connection_of_acquires().await.ok()?;
        (connection.number() == late_on).then_some(connection)
    }

    /// Releases once. Returns whether the server still had the hold of the guard, and whether it has nothing from here on.
    async fn once(&mut self, connection: Connection) -> Result<(bool, bool), Fault> {
        let grant = &self.grant;
        let lock = &grant.lock;
        let (sent, call) = (clock::now(), lock.protocol.release(grant.holder()));
        let was_unsure = std::mem::replace(&mut self.is_unsure, true); // until the answer comes
        let (mine, ends_hold) = grant.ask(|state| (state.owing, state.lease.was_granted()));
        let reply = match grant.send_release(&connection, &call, ends_hold).await {
            Ok(reply) => reply,
            // Another client overwrote the key, so the hold is gone.
            Err(fault) if fault.kind == FaultKind::WrongType => ReleaseReply::Gone,
            Err(fault) => {
                self.is_unsure = was_unsure || fault.sent == Sent::Unknown;
                return Err(fault);
            }
        };
        self.is_unsure = was_unsure;
        let _answered = Answered(grant);
        // A master that is promoted later can lack this release, and would keep the lock until its lease ends. So
        // the release is kept for a repetition.
        lock.engine.releases.keep(lock.route, call);
        let hold = self.hold.take();
        let mut gone = hold.filter(|_| reply == ReleaseReply::Gone && !was_unsure);
        let (was_held, is_over) = grant.event(clock::now(), |state, effects| {
            if state.owing != mine {
                return (true, true); // meanwhile the background has it, and perhaps released before
            }
            let was_held = gone.is_none();
            state.is_moved = true;
            let is_over = state.on_server.released(connection.number(), sent);
            state.owing = if is_over { Owing::No } else { Owing::Again };
            if let Some(hold) = gone.take() {
                effects.was_gone(hold);
                state.loses(effects);
            }
            (was_held, is_over)
        });
        report_release(reply, lock);
        Ok((was_held, is_over))
    }
}

/// A release was answered. Dropping this value tells those who wait, also if code of the user panics.
struct Answered<'a>(&'a Grant);

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        self.0.released.notify_waiters();
        self.0.lock.engine.background.answered();
    }
}

/// Lists a grant among those that the background releases, until this value is dropped. A shutdown that gives up names
/// one of these grants in its error.
pub(crate) struct Listed {
    grant: Arc<Grant>,
    key: usize,
}

impl Listed {
    pub(crate) fn new(grant: &Arc<Grant>) -> Self {
        Self { grant: Arc::clone(grant), key: grant.lock.engine.undoing.add(Arc::clone(grant)) }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.grant.lock.engine.undoing.remove(self.key);
    }
}

/// The release of an id in the background, until nothing can be left of it.
struct Undo {
    release: Release,
    _counted: Undoing,
    _listed: Listed,
    /// When the lease has certainly ended, and no acquire can run.
    ends: Instant,
    refused: Backoff,
}

impl Undo {
    fn new(release: Release, now: Moment) -> Self {
        let grant = &release.grant;
        let (longest, late) = grant.ask(|state| (state.lease.longest, state.on_server.late_until()));
        let late = late.map_or(Duration::ZERO, |until| until.since(now));
        Self {
            _counted: grant.lock.engine.metrics.undoing(),
            _listed: Listed::new(grant),
            ends: Instant::now() + late + longest,
            refused: REFUSED,
            release,
        }
    }

    fn job(self, turn: Option<Turn>) -> Job {
        self.run(turn).boxed()
    }

    /// Releases until the server has nothing, or gives up. Fails if the server refuses a release whose lease has not ended.
    async fn run(mut self, mut turn: Option<Turn>) -> Result<(), Refused> {
        let lock = Arc::clone(&self.release.grant.lock);
        let (engine, mut retry) = (&lock.engine, RETRY);
        loop {
            let (owing, late) = self.release.grant.ask(|state| (state.owing, state.on_server.late_until()));
            let mut behind = None;
            if owing == Owing::Again {
                drop(turn.take());
                behind = self.release.behind_acquires().await;
                if behind.is_none() {
                    sleep(late.map_or(PAUSE, |until| until.since(clock::now()) + SHORTEST)).await;
                }
            }
            let fault = match self.release_in_turn(turn.take(), behind).await {
                Ok(true) => return Ok(()),
                Ok(false) => continue,
                Err(fault) => fault,
            };
            let now = Instant::now();
            let is_left = now < self.ends;
            if fault.is_transient() && now < self.ends + GIVE_UP && (is_left || !engine.is_closing()) {
                self.rest(retry.pause()).await;
                continue;
            }
            // The caller has the error of the acquire already.
            let is_nothing = self.release.grant.ask(|state| state.on_server.was_only_refused());
            let refused_again = !fault.is_transient() && is_left && !is_nothing;
            if !is_nothing
                && (is_left || !engine.is_closing())
                && let Some(unreported) = engine.failed_releases.ask()
            {
                let LockId { name, key, server, .. } = lock.id();
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
            }
            if refused_again {
                let (ends, pause) = (self.ends, self.refused.pause());
                return Err(Refused {
                    error: Box::new(lock.error(fault)),
                    ends,
                    pause,
                    again: self.job(None),
                });
            }
            self.release.grant.ask(|state| {
                state.on_server.forgets();
                state.owing = Owing::No;
            });
            self.release.grant.released.notify_waiters();
            return Ok(());
        }
    }

    /// Waits for the turn of this release, and releases once. The time limit of the command begins with the turn.
    async fn release_in_turn(
        &mut self,
        turn: Option<Turn>,
        connection: Option<Connection>,
    ) -> Result<bool, Fault> {
        let lock = &self.release.grant.lock;
        let _turn = match turn {
            Some(turn) => turn,
            None => lock.engine.background.turn(&lock.server()).await,
        };
        let connection = match connection {
            Some(connection) => connection,
            None => lock.connection().await?,
        };
        self.release.once(connection).await.map(|(_, is_over)| is_over)
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

impl Grant {
    /// Lets the background release what a future has to release that perhaps nobody polls. If that future learns an answer later, it
    /// counts for nothing.
    pub(crate) fn release_for_future(self: &Arc<Self>, now: Moment) {
        if self.ask(|state| matches!(state.owing, Owing::Future(_))) {
            Release { grant: Arc::clone(self), hold: None, is_unsure: true }.in_background(now);
        }
    }

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
                Ok(ReleaseReply::Released { receivers }) if is_exact => Some(Receivers::Exactly(receivers)),
                Ok(ReleaseReply::Released { .. }) => Some(Receivers::PerhapsOthers),
                _ => None,
            });
        }
        reply
    }

    /// Waits until a release that is under way was answered.
    pub(crate) async fn until_released(&self) {
        loop {
            let mut released = pin!(self.released.notified());
            released.as_mut().enable(); // enlist first, then look
            if !self.blocks() {
                return;
            }
            released.await;
        }
    }

    /// Shows the hold count of an owner that released an inner hold. Returns whether the server still has the hold.
    pub(crate) async fn show(self: &Arc<Self>, part: PartKey) -> Result<bool, Fault> {
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
        if !is_lost {
            return Ok(true);
        }
        if !self.event(clock::now(), |state, effects| state.finds_nothing(effects)) {
            // This client released the hold meanwhile. The answer to that says whether the hold was lost.
            let _ = timeout(self.lock.engine.config.command_timeout(), self.until_released()).await;
        }
        Ok(!self.ask(|state| state.is_gone()))
    }

    /// Lets the background show the hold count of an owner.
    pub(super) fn show_soon(self: &Arc<Self>, part: PartKey) {
        let grant = Arc::clone(self);
        // A count that is only shown is not worth another try.
        self.lock.engine.background.release(self.lock.server(), move |turn| {
            async move {
                let _ = grant.show(part).await;
                drop(turn);
                Ok(())
            }
            .boxed()
        });
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

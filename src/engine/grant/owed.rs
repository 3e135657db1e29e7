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
use crate::engine::background::{Job, Turn};
use crate::engine::hold::Hold;
use crate::engine::line::lines::Receivers;
use crate::engine::lock_ref::LockRef;
use crate::engine::retry::Tries;
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
pub(crate) struct Owed(Option<Arc<Grant>>);

impl Owed {
    pub(super) fn new(grant: &Arc<Grant>) -> Self {
        Self(Some(Arc::clone(grant)))
    }

    /// The hold of this guard is released. If the answer says that the server no longer had it, the hold is removed.
    pub(super) fn asks_for(self, hold: &Arc<Hold>) -> Self {
        self.grant().ask(|state| {
            if let Owing::Future(_) = state.owing {
                state.given_back = Some(Arc::clone(hold));
            }
        });
        self
    }

    pub(crate) fn grant(&self) -> &Arc<Grant> {
        self.0.as_ref().expect("BUG: asked after its release")
    }

    /// Whether the background has it, because nobody seemed to poll the future.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.0.as_ref().is_some_and(|grant| grant.is_taken_over())
    }

    /// Releases once. If an acquire can still run, the background releases once more, when this value is dropped.
    pub(crate) async fn release(&mut self) -> Result<(), Fault> {
        let Some(grant) = &self.0 else { return Ok(()) };
        if grant.is_taken_over() {
            return grant.is_released_in_time().await;
        }
        let connection = grant.lock.connection().await?;
        if grant.release_once(&connection).await? {
            self.0 = None;
        }
        Ok(())
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(grant) = self.0.take() {
            nothing_is_locked();
            grant.release_in_background(clock::now());
        }
    }
}

impl Grant {
    fn is_taken_over(&self) -> bool {
        !matches!(self.ask(|state| state.owing), Owing::Future(_) | Owing::Again)
    }

    /// Hands the release to the background, unless that has one. Never waits.
    fn release_in_background(self: Arc<Self>, now: Moment) {
        let hands_over = |state: &mut State| {
            let hands_over = matches!(state.owing, Owing::Future(_) | Owing::Again);
            if let Owing::Future(_) = state.owing {
                (state.owing, state.is_moved) = (Owing::Background, true);
            }
            hands_over
        };
        if !self.event(now, |state| hands_over(state)) {
            return;
        }
        let lock = Arc::clone(&self.lock);
        let undo = Undo::new(self, now);
        lock.engine.background.release(&lock, lock.server(), |job, turn| undo.run(job, turn).boxed());
        if lock.engine.background.is_gone()
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
        let lock = &self.lock;
        lock.engine.config.sync()?;
        let late_on = self.ask(|state| state.on_server.late_on())?;
        let connection = lock.connection_of_acquires().await.ok()?;
        (connection.number() == late_on).then_some(connection)
    }

    /// Releases once. Returns whether the server has nothing from here on.
    async fn release_once(self: &Arc<Self>, connection: &Connection) -> Result<bool, Fault> {
        let lock = &self.lock;
        let (sent, call) = (clock::now(), lock.protocol.release(self.holder()));
        let (mine, was_unsure, ends_hold) = self.ask(|state| {
            let was_unsure = std::mem::replace(&mut state.is_unsure, true); // until the answer comes
            (state.owing, was_unsure, state.lease.was_granted())
        });
        let reply = match self.send_release(connection, &call, ends_hold).await {
            Ok(reply) => reply,
            // Another client overwrote the key, so the hold is gone.
            Err(fault) if fault.kind == FaultKind::WrongType => ReleaseReply::Gone,
            Err(fault) => {
                let is_known = fault.sent != Sent::Unknown;
                self.ask(|state| state.is_unsure &= was_unsure || !is_known || state.owing != mine);
                return Err(fault);
            }
        };
        let _answered = Answered(self);
        // A master that is promoted later can lack this release, and would keep the lock until its lease ends. So
        // the release is kept for a repetition.
        lock.engine.releases.keep(lock.route, call);
        // The hold is dropped after unlocking.
        let now = clock::now();
        let (is_over, is_gone, hold) = self.event(now, |state| {
            if state.owing != mine {
                return (true, false, None); // meanwhile the background has it, and perhaps released before
            }
            state.is_moved = true;
            let is_over = state.on_server.released(connection.number(), sent);
            state.owing = if is_over { Owing::No } else { Owing::Again };
            let hold = state.given_back.take();
            let is_gone = reply == ReleaseReply::Gone && !was_unsure && hold.is_some();
            if is_gone {
                hold.iter().for_each(|hold| hold.lose());
                state.loses();
            }
            (is_over, is_gone, hold)
        });
        if let Some(hold) = hold.filter(|_| is_gone) {
            hold.tell_gone(now);
        }
        report_release(reply, lock);
        Ok(is_over)
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

/// The release of an id in the background, until nothing can be left of it.
struct Undo {
    grant: Arc<Grant>,
    _counted: Undoing,
    /// When the lease and the place have certainly ended, and no acquire can run.
    ends: Instant,
    refused: Backoff,
    is_over: bool,
}

impl Undo {
    fn new(grant: Arc<Grant>, now: Moment) -> Self {
        // One that was refused can have left a place in a queue, or a writer's intent, which lasts for ten times its turn.
        let (config, protocol) = (&grant.lock.engine.config, grant.lock.protocol);
        let trace = match () {
            () if protocol.queue().is_some() => config.fair_allowance() * 4 / 3,
            () if protocol.stops_readers() => 10 * config.writer_turn(),
            () => Duration::ZERO,
        };
        let (longest, late) = grant.ask(|state| {
            let lease = state.lease.longest;
            (if state.lease.was_granted() { lease } else { lease.max(trace) }, state.on_server.late_until())
        });
        let late = late.map_or(Duration::ZERO, |until| until.since(now));
        Self {
            _counted: grant.lock.engine.metrics.undoing(),
            ends: Instant::now() + late + longest,
            refused: REFUSED,
            is_over: false,
            grant,
        }
    }

    /// Releases until the server has nothing, or gives up. Rests while the server refuses a release whose lease has not ended.
    async fn run(mut self, job: Job, turn: Turn) {
        let lock = Arc::clone(&self.grant.lock);
        let (engine, mut retry, mut turn) = (&lock.engine, RETRY, Some(turn));
        loop {
            let (owing, late) = self.grant.ask(|state| (state.owing, state.on_server.late_until()));
            let mut behind = None;
            if owing == Owing::Again {
                drop(turn.take());
                behind = self.grant.behind_acquires().await;
                if behind.is_none() {
                    sleep(late.map_or(PAUSE, |until| until.since(clock::now()) + SHORTEST)).await;
                }
            }
            let fault = match self.release_in_turn(turn.take(), behind).await {
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
            // The caller has the error of the acquire already.
            let is_nothing = self.grant.ask(|state| state.on_server.was_only_refused());
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
            if !refused_again {
                return;
            }
            job.rest(self.refused.pause(), (self.ends, lock.error(fault))).await;
        }
    }

    /// Waits for the turn of this release, and releases once. The time limit of the command begins with the turn.
    async fn release_in_turn(
        &mut self,
        turn: Option<Turn>,
        connection: Option<Connection>,
    ) -> Result<bool, Fault> {
        let lock = &self.grant.lock;
        let _turn = match turn {
            Some(turn) => turn,
            None => lock.engine.background.turn(&lock.server()).await,
        };
        let connection = match connection {
            Some(connection) => connection,
            None => lock.connection().await?,
        };
        self.grant.release_once(&connection).await
    }

    /// Pauses. During a shutdown, the pause is short.
    async fn rest(&self, pause: Duration) {
        let engine = &self.grant.lock.engine;
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

/// The job gave up, or code of the user panicked: nobody waits for an answer any more.
impl Drop for Undo {
    fn drop(&mut self) {
        if !self.is_over {
            self.grant.ask(|state| {
                state.on_server.forgets();
                state.owing = Owing::No;
            });
            self.grant.released.notify_waiters();
        }
    }
}

impl Grant {
    /// Lets the background release what a future has to release that perhaps nobody polls. If that future learns an answer later, it
    /// counts for nothing.
    pub(crate) fn release_for_future(self: &Arc<Self>, now: Moment) {
        if self.ask(|state| matches!(state.owing, Owing::Future(_))) {
            Arc::clone(self).release_in_background(now);
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

    /// Waits for the answer to a release of the background.
    pub(crate) async fn is_released_in_time(&self) -> Result<(), Fault> {
        let _ = timeout(self.lock.engine.config.retry_timeout(), self.until_released()).await;
        let is_answered = self.ask(|state| state.given_back.is_none());
        let late = || Fault::new(FaultKind::TimedOut, Sent::Unknown, "no answer in time");
        is_answered.then_some(()).ok_or_else(late)
    }

    /// Shows the hold count of an owner that released an inner hold, and retries after faults. Returns whether the server still has the hold.
    pub(crate) async fn show(self: &Arc<Self>, part: PartKey) -> Result<bool, Fault> {
        self.lock.check_runtime()?;
        let config = &self.lock.engine.config;
        let (mut unshown, mut tries) = (self.unshown(part), Tries::new(config.retry_timeout()));
        let is_there = loop {
            match self.show_once(part).await {
                Ok(is_there) => break is_there,
                Err(fault) => tries.again(fault).await?,
            }
        };
        unshown.0 = None;
        if !is_there {
            // Perhaps this client released the hold meanwhile. The answer to that says whether the hold was lost.
            let _ = timeout(config.command_timeout(), self.until_released()).await;
        }
        Ok(is_there || !self.ask(|state| state.is_gone()))
    }

    /// Returns a value that lets the background show the hold count, if it is dropped as it is.
    pub(crate) const fn unshown(self: &Arc<Self>, part: PartKey) -> Unshown<'_> {
        Unshown(Some((self, part)))
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

    /// Lets the background show the hold count of an owner.
    pub(super) fn show_soon(self: &Arc<Self>, part: PartKey) {
        let grant = Arc::clone(self);
        // A count that is only shown is not worth another try.
        self.lock.engine.background.release(&self.lock, self.lock.server(), move |_, turn| {
            async move {
                let _ = grant.show_once(part).await;
                drop(turn);
            }
            .boxed()
        });
    }
}

/// A hold count that was not shown yet. Dropped, it goes to the background.
pub(crate) struct Unshown<'a>(Option<(&'a Arc<Grant>, PartKey)>);

impl Drop for Unshown<'_> {
    fn drop(&mut self) {
        if let Some((grant, part)) = self.0.filter(|(grant, part)| grant.ask(|state| state.shows_soon(*part)))
        {
            grant.show_soon(part);
        }
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

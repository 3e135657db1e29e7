//! Acquiring: attempt, and if another owner holds the lock, stand in the line of this client, whose task attempts again.
//!
//! This module undoes nothing: whoever drops a pending hold, the background undoes it. So a call that reaches its time
//! limit, or is cancelled, only drops a future.

pub(crate) mod acquirer;
pub(crate) mod attempts;
pub(crate) mod call;
mod claim;
pub(crate) mod wait;

use std::pin::{Pin, pin};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::consume_budget;

use attempts::Attempts;
use call::Outcome;
pub(crate) use claim::claim;
use wait::{Wait, Waiting};

use super::grant::Grant;
use super::grant::sharing::{Given, Offer, join, keep_for_readers};
use super::handle::Handle;
use super::line::lines::{Asking, Place};
use super::line::state::Polled;
use super::retry::Tries;
use crate::base::clock::Moment;
use crate::base::config::LockConfig;
use crate::base::error::{Error, Result};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::timer::{Instant, elapsed, timeout, timeout_at};
use crate::base::{Caller, clock};
use crate::engine::held::HeldLock;
use crate::engine::waits::WaitOutcome;

/// How long a call waits for a lock that another owner holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    /// The call does not wait.
    None,
    /// The call does not wait, and attempts only once.
    Once,
    For(Duration),
    Forever,
    /// Forever, for a candidate of an election: its work is to wait, so a long wait is not reported.
    StandBy,
}

/// Returns when a call with this limit has to end, if an answer has said that another owner holds the lock.
pub(crate) fn end_of(limit: WaitLimit) -> Result<Option<Instant>> {
    let WaitLimit::For(wait) = limit else { return Ok(None) };
    let too_long = || Error::InvalidDuration {
        argument: "wait",
        problem: "is longer than the clock can count".to_owned(),
    };
    Instant::now().checked_add(wait).map(Some).ok_or_else(too_long)
}

/// How long an attempt may last until its server answers.
pub(crate) fn answers_in(config: &LockConfig) -> Duration {
    config.command_timeout() + config.sync().map_or(Duration::ZERO, |sync| sync.timeout)
}

/// Joins other readers of this client, without a question to the server. `None`: there is no hold to join, or the owner still has
/// something on this name that comes first.
pub(crate) async fn joined(
    handle: &mut Handle,
    limit: WaitLimit,
    caller: Caller,
) -> Option<Result<HeldLock>> {
    if !handle.can_share() || handle.check_lock().is_err() || end_of(limit).is_err() {
        return None;
    }
    // Yield before joining: a join never suspends, so a loop of joins would starve the other tasks of this thread.
    // Do not yield after the join: an unpolled future would keep the hold that it joined, and no reader could be
    // the last to leave.
    consume_budget().await;
    let (lock, owner, now) = (&handle.lock, &handle.owner, clock::now());
    let given = if owner.is_idle(now) { join(lock, caller, now) } else { None };
    given.map(|given| Untaken::Given(given).take(handle, now))
}

/// What a call was granted. Nothing renews it before it is taken, and dropping it releases it.
pub(crate) enum Untaken {
    /// By the server.
    Asked(Attempts),
    /// By another owner of this client.
    Given(Given),
}

impl Untaken {
    /// Makes it a hold. The call of this handle began at `start`.
    pub(crate) fn take(self, handle: &Handle, start: Moment) -> Result<HeldLock> {
        let (mut pending, until) = match self {
            Self::Asked(mut attempts) => return attempts.take(handle, start),
            Self::Given(given) => given,
        };
        let now = clock::now();
        let held = HeldLock::take(handle, &mut pending, until, (start, now))?;
        handle.owner.add(&pending, now);
        Ok(held)
    }

    /// Keeps it for a call for several locks, until that has enough. If nobody polls the call, a shutdown finds it in the list.
    pub(crate) fn keep(mut self, handle: &Handle) -> Result<Self> {
        if let Self::Given((pending, _)) = &mut self {
            pending.enlist();
            handle.lock.engine.check_open()?;
            handle.owner.add(pending, clock::now());
        }
        Ok(self)
    }

    /// Whether the lease that was granted lasts, and no answer said meanwhile that the server has nothing of this owner.
    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        let until = match self {
            Self::Asked(attempts) => attempts.until(),
            Self::Given((_, until)) => *until,
        };
        now < until && !self.grant().is_gone()
    }

    pub(crate) const fn grant(&self) -> &Arc<Grant> {
        match self {
            Self::Asked(attempts) => &attempts.pending.grant,
            Self::Given((pending, _)) => &pending.grant,
        }
    }
}

/// Acquires the lock, and takes what was granted, or keeps it. `None`: another owner holds it.
pub(crate) async fn acquire<T>(
    handle: &mut Handle,
    limit: WaitLimit,
    caller: Caller,
    take: impl FnOnce(Untaken, &Handle, Moment) -> Result<T>,
) -> Result<Option<T>> {
    let handle = &*handle;
    handle.check_lock()?;
    let limits = Deadlines::new(limit, handle.config())?;
    let is_standby = matches!(limit, WaitLimit::StandBy);
    let mut call = Call { handle, caller, limits, start: clock::now(), is_standby, waiting: None };
    let is_try = matches!(limit, WaitLimit::None | WaitLimit::Once);
    let (mut attempts, before) = Attempts::start(handle, caller)?;
    // Check after `start`, which adds the acquire to `under_way`. A shutdown first closes, and then waits for that
    // list. With the check before, an acquire could begin for which the shutdown does not wait.
    handle.lock.engine.check_open()?;
    if !before.is_empty() {
        end(&before, handle, limits).await;
    }
    let waits = !is_try && !attempts.is_reentry();
    let asking = if waits {
        handle.lock.engine.lines.begin(&handle.lock.line(), handle.can_share())
    } else {
        Some(Asking(None))
    };
    let Some(asking) = asking else {
        drop(attempts);
        let place = call.place(None);
        return call.stands(place, take).await;
    };
    let mut tries = Tries::new(if matches!(limit, WaitLimit::Once) {
        Duration::ZERO
    } else {
        handle.config().retry_timeout()
    });
    let outcome = loop {
        let attempted = pin!(call.attempt(&mut attempts, is_try)).await?;
        match attempted {
            Outcome::Granted => return call.granted(attempts, asking, take).map(Some),
            Outcome::Refused(_) if is_try => return Ok(None),
            Outcome::Failed(_) if !waits && handle.lock.engine.is_closing() => return Err(Error::Closed),
            Outcome::Failed(fault) if !waits => {
                tries.again(fault).await.map_err(|fault| call.error(fault))?
            }
            Outcome::Failed(fault) if !fault.is_transient() => return Err(call.error(fault)),
            outcome => break outcome,
        }
    };
    let place = call.place(Some((attempts, outcome)));
    drop(asking); // from here on, the line asks for those who came meanwhile
    call.stands(place, take).await
}

/// How often a call whose time is up looks whether there was an answer.
const LOOK: Duration = Duration::from_millis(5);

/// When a call has to end.
#[derive(Clone, Copy)]
struct Deadlines {
    /// The end of the call if an answer has said that another owner holds the lock.
    contended: Instant,
    /// The end of the call if no server has answered yet. Without an answer, the call cannot say whether the lock is
    /// held, so it lasts at least for the time limit of one command.
    unanswered: Instant,
}

/// An acquire of one handle.
struct Call<'a> {
    handle: &'a Handle,
    caller: Caller,
    limits: Option<Deadlines>,
    /// When the call began.
    start: Moment,
    is_standby: bool,
    /// The call stands in the line, or stood there.
    waiting: Option<Waiting>,
}

impl Call<'_> {
    /// Attempts once. The time limit of the call can pass before any answer. `None` would tell the caller that another owner holds the lock,
    /// so the call fails then.
    async fn attempt(&self, attempts: &mut Attempts, is_try: bool) -> Result<Outcome> {
        let attempt = pin!(attempts.attempt(is_try)); // where it is made, as it is large
        match self.limits {
            None => attempt.await,
            Some(limits) => {
                timeout_at(limits.end(), attempt).await.unwrap_or_else(|_| Err(self.error(late())))
            }
        }
    }

    /// Ends a call to which the server granted the lock.
    fn granted<T>(
        &mut self,
        attempts: Attempts,
        asking: Asking<Offer>,
        take: impl FnOnce(Untaken, &Handle, Moment) -> Result<T>,
    ) -> Result<T> {
        attempts.end_earlier();
        attempts.is_granted_beside_line();
        let taken = take(Untaken::Asked(attempts), self.handle, self.start);
        let Handle { lock, .. } = self.handle;
        asking.is_granted(|| (keep_for_readers(lock, clock::now()), self.handle.standing()));
        taken
    }

    fn place(&mut self, attempted: Option<(Attempts, Outcome)>) -> Place<Offer> {
        let Handle { lock, owner, .. } = self.handle;
        let wait = Arc::new(Wait {
            lock: Arc::clone(lock),
            owner: Arc::clone(owner),
            caller: self.caller,
            since: self.start,
            is_standby: self.is_standby,
            is_refused: AtomicBool::default(),
            due: Mutex::default(),
            holders_seen: OnceLock::default(),
        });
        // A call with a time limit waits until the limit.
        let patience = self.limits.is_none().then(|| self.handle.config().retry_timeout());
        let place = acquirer::stand(&wait, (self.handle.standing(), patience), attempted);
        self.waiting = Some(Waiting::begins(wait, place.is_answered()));
        if lock.protocol.stops_readers() {
            // A writer of this client waits from here on, so no reader of the client joins a lingering hold any more.
            // End the lingering now. Otherwise the writer would wait until it is over.
            lock.engine.read_grants.end_lingering(&lock.keys.lock, clock::now());
        }
        place
    }

    /// Stands in the line until the call gets the lock, or its time is up.
    async fn stands<T>(
        &mut self,
        place: Place<Offer>,
        take: impl FnOnce(Untaken, &Handle, Moment) -> Result<T>,
    ) -> Result<Option<T>> {
        let Handle { lock, metrics, .. } = self.handle;
        let _waiting = metrics.waiting();
        loop {
            let Some(got) = self.waits(&place).await? else {
                return self.end_of_time(place).await.map(|()| None);
            };
            let now = clock::now();
            let given = match got {
                Polled::Ends(error) => return Err(error),
                Polled::Takes(offer) => {
                    let given = offer.accept(self.caller, now);
                    if given.is_none() {
                        place.line.change(|state, now| state.hears(now)); // so that it asks again
                    }
                    given
                }
                Polled::Joins => join(lock, self.caller, now),
            };
            if let Some(given) = given {
                self.ends(WaitOutcome::Granted);
                // The call leaves the line when it has the hold.
                return take(Untaken::Given(given), self.handle, self.start).map(Some);
            }
        }
    }

    /// Waits until the line has something for the call. `None`: the time limit of the call has passed.
    async fn waits(&self, place: &Place<Offer>) -> Result<Option<Polled<Offer, Error>>> {
        let handle = self.handle;
        // The task of the line ends calls whose attempts fail for too long. If the client's runtime does not run, nobody attempts, and
        // this call gives up by itself.
        let patience = handle.config().retry_timeout().max(2 * handle.config().command_timeout());
        let (mut looks_at, mut seen) = (self.limits.is_none().then(|| Instant::now() + patience), None);
        let got = {
            let next = pin!(async {
                let mut next = pin!(place.next());
                loop {
                    tokio::select! {
                        biased;
                        got = &mut next => return Some(got),
                        () = handle.lock.engine.ended() => return None,
                        () = elapsed(looks_at) => {
                            let retry_at = place.line.with(|state| state.retry_at());
                            if let Some(error) = place.error().filter(|_| retry_at == seen) {
                                return Some(Polled::Ends(error));
                            }
                            (looks_at, seen) = (Some(Instant::now() + patience), retry_at);
                        }
                    }
                }
            });
            match self.limits {
                Some(limits) => limits.run(|| place.is_answered(), next).await,
                None => Some(next.await),
            }
        };
        // The wait above also ends for a shutdown.
        handle.lock.engine.check_open()?;
        Ok(got.flatten())
    }

    /// Ends a call that stood in the line, and whose time limit has passed.
    async fn end_of_time(&mut self, place: Place<Offer>) -> Result<()> {
        if let Some(error) = place.error() {
            return Err(error);
        }
        if !place.is_answered() {
            return Err(self.error(late()));
        }
        self.ends(WaitOutcome::TimedOut);
        let line = Arc::clone(&place.line);
        drop(place);
        // So that this call leaves no place in a queue, and readers are admitted again after a writer.
        let _ = timeout(self.handle.config().command_timeout() / 2, line.ended()).await;
        Ok(())
    }

    fn ends(&mut self, outcome: WaitOutcome) {
        self.waiting.iter_mut().for_each(|waiting| waiting.outcome = outcome);
    }

    fn error(&self, fault: Fault) -> Error {
        match self.handle.check() {
            Err(Error::RuntimeGone) => Error::RuntimeGone,
            _ => self.handle.lock.error(fault),
        }
    }
}

impl Deadlines {
    fn new(limit: WaitLimit, config: &LockConfig) -> Result<Option<Self>> {
        let Some(contended) = end_of(limit)? else { return Ok(None) };
        Ok(Some(Self { contended, unanswered: Instant::now() + answers_in(config) }))
    }

    /// The end of the call, whether or not a server has answered.
    fn end(self) -> Instant {
        self.contended.max(self.unanswered)
    }

    /// Runs a step until the time limit. `None`: the limit has passed.
    async fn run<F: Future>(
        self,
        is_answered: impl Fn() -> bool,
        mut step: Pin<&mut F>,
    ) -> Option<F::Output> {
        match timeout_at(self.contended, &mut step).await {
            Ok(output) => Some(output),
            Err(_) if is_answered() => None,
            Err(_) => loop {
                // An answer wakes no call, so this one looks for it.
                let at = self.unanswered.min(Instant::now() + LOOK);
                match timeout_at(at, &mut step).await {
                    Ok(output) => return Some(output),
                    Err(_) if is_answered() || at >= self.unanswered => return None,
                    Err(_) => {}
                }
            },
        }
    }
}

/// Waits for the end of what this owner held or attempted before, so that the owner does not block itself. At most for
/// half of `command_timeout`: the call needs the rest of its time for the attempt.
async fn end(before: &[Arc<Grant>], handle: &Handle, limits: Option<Deadlines>) {
    let enough = handle.config().command_timeout() / 2;
    let ended = timeout(enough, join_all(before.iter().map(|grant| grant.until_released())));
    let _ = match limits {
        Some(limits) => timeout_at(limits.end(), ended).await.ok(),
        None => Some(ended.await),
    };
}

pub(crate) fn late() -> Fault {
    Fault::new(FaultKind::TimedOut, Sent::Unknown, "no answer before the time of the call was up")
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_after_the_time_limit_ends_the_call() {
        let start = Instant::now();
        let [contended, answered, unanswered] = [1, 20, 1_000].map(|ms| start + Duration::from_millis(ms));
        let limits = Deadlines { contended, unanswered };
        assert_eq!(limits.run(|| Instant::now() >= answered, pin!(pending::<()>())).await, None);
        assert!((answered..answered + 2 * LOOK).contains(&Instant::now()));
        assert_eq!(limits.run(|| false, pin!(pending::<()>())).await, None);
        assert!(Instant::now() >= unanswered);
    }
}

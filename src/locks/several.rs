//! What a lock handle contains: one lock, or several that are acquired as one. The engine knows only single ones.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, join_all, ready, select_all};
use smallvec::{SmallVec, smallvec};

use super::guard::{Extra, LockGuard};
use super::span::AcquireSpan;
use super::votes::vote;
use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::error::{ConfigError, Error, LockId, Lost, Result};
use crate::base::jitter::{self, Backoff};
use crate::base::options::LockOptions;
use crate::base::timer::{Instant, elapsed, sleep, timeout};
use crate::engine::{self, Handle, HeldLock, Untaken, WaitLimit, end_of};
use crate::protocol::LockType;
use crate::store::Identity;
use crate::telemetry::inside;

/// Back-off after a round that acquired some locks, but too few.
const SPLITS: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));

/// How long a failed round waits for the release of what it acquired. The background does the rest.
const RELEASE_WAIT: Duration = Duration::from_millis(50);

/// The content of every lock handle.
pub(crate) struct Locks {
    /// In an order that is the same for all clients.
    pub(crate) each: SmallVec<[Handle; 1]>,
    /// `None`: there is only one.
    whole: Option<Arc<Whole>>,
}

/// Shows the name, and takes no mutex.
impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name(), f)
    }
}

/// Several locks as one.
pub(super) struct Whole {
    /// All names, keys and servers.
    pub(super) id: LockId,
    /// How many of the locks must be held.
    pub(super) needed: usize,
    lock_type: LockType,
}

impl Locks {
    pub(crate) fn one(handle: Handle) -> Self {
        Self { each: smallvec![handle], whole: None }
    }

    /// Joins these locks: [`Multi`](LockType::Multi) needs all, [`Red`](LockType::Red) a majority of independent servers.
    pub(crate) fn join(
        members: impl Iterator<Item = Self>,
        lock_type: LockType,
    ) -> Result<Self, ConfigError> {
        let mut each: SmallVec<[Handle; 1]> = members.flat_map(|member| member.each).collect();
        let invalid = |problem| Err(ConfigError::new("members", problem));
        let Some(terms) = each.first().map(|first| first.terms) else { return invalid("are missing") };
        if each.iter().any(|one| one.terms != terms) {
            return invalid("have different options");
        }
        let group = each[0].metrics.group().cloned();
        let group = group.filter(|group| each.iter().all(|one| one.metrics.group() == Some(group)));
        each.sort_by(|one, other| order(one).cmp(&order(other)));
        let any_pair = |is: fn(&Handle, &Handle) -> bool| {
            (1..each.len()).any(|b| each[..b].iter().any(|a| is(a, &each[b])))
        };
        let is_majority = lock_type == LockType::Red;
        let problem = match each.len() {
            1 => None,
            2 if is_majority => Some("are two, so a majority is both and one failed server stops the lock"),
            _ if is_majority && each.iter().any(|one| !identity(one).is_known()) => {
                Some("are on a server that did not tell its ids: the user may not call INFO")
            }
            _ if is_majority => any_pair(|one, other| identity(one).meets(&identity(other)))
                .then_some("are on one server, so they are lost together"),
            _ if any_pair(is_same_lock) => Some("have one lock twice"),
            _ => any_pair(may_be_same_lock)
                .then_some("with the same key may be one lock: a server did not tell its ids"),
        };
        if let Some(problem) = problem {
            return invalid(problem);
        }
        let metrics = each[0].lock.engine.metrics.of(lock_type, group.as_ref());
        for one in &mut each {
            (one.metrics, one.is_member) = (metrics.clone(), true);
        }
        let ids: Vec<LockId> = each.iter().map(|one| one.lock.id()).collect();
        let all = |of: fn(&LockId) -> &str| ids.iter().map(of).collect::<Vec<_>>().join(", ");
        let id = LockId { name: all(|id| &id.name), key: all(|id| &id.key), server: all(|id| &id.server) };
        let needed = if is_majority { each.len() / 2 + 1 } else { each.len() };
        Ok(Self { each, whole: Some(Arc::new(Whole { id, needed, lock_type })) })
    }

    pub(crate) fn name(&self) -> &str {
        self.whole.as_ref().map_or_else(|| &**self.each[0].name(), |whole| &whole.id.name)
    }

    pub(crate) fn lock_type(&self) -> LockType {
        self.whole.as_ref().map_or_else(|| self.each[0].lock_type(), |whole| whole.lock_type)
    }

    /// How many of the locks must be held.
    pub(super) fn needed(&self) -> usize {
        self.whole.as_ref().map_or(1, |whole| whole.needed)
    }

    pub(crate) fn set_options(&mut self, options: &LockOptions) {
        let metrics = self.each[0].lock.engine.metrics.of(self.lock_type(), options.shared_group());
        for one in &mut self.each {
            (one.terms, one.metrics) = (options.terms(), metrics.clone());
        }
    }

    /// Acquires the lock for a guard, and does the rest of the call with it. `None`: another owner holds the lock.
    pub(crate) async fn acquire<T: Extra, G>(
        &mut self,
        limit: WaitLimit,
        caller: Caller,
        end: impl FnOnce(Option<LockGuard<T>>) -> G + Send,
    ) -> Result<G> {
        let acquiring = AcquireSpan::begin((self.name(), self.lock_type(), &self.each[0].metrics), limit);
        // Pinned where it is made: it is large, so moving it would take a tenth of the time of a read.
        let acquired = pin!(async {
            let Some(whole) = self.whole.clone() else {
                let one = &mut self.each[0];
                // First, and alone: the future of an acquire is large, and a read of many needs none of it.
                let held = match engine::joined(one, limit, caller).await {
                    Some(held) => held.map(Some),
                    None => engine::acquire(one, limit, caller, Untaken::take).await,
                };
                return match held {
                    Ok(held) => Ok(held.map(LockGuard::one)),
                    // Boxed: this is rare, and its size would burden every call.
                    Err(error) => Err(Box::pin(engine::with_type(&one.lock, error)).await),
                };
            };
            // Boxed: its size would burden the calls for one lock.
            let holds = Box::pin(acquire(&mut self.each, whole.needed, limit, caller)).await?;
            Ok(holds.map(|holds| LockGuard::several(holds, whole)))
        });
        let guard = inside(&acquiring.span, acquired).await;
        acquiring.ends(&guard);
        guard.map(end)
    }
}

impl Whole {
    pub(super) fn loss(&self, lost: &Lost) -> Lost {
        Lost { lock: self.id.clone(), cause: lost.cause }
    }

    /// Asks about each hold, and fails unless enough of them were held until then.
    pub(super) async fn ask(
        &self,
        asked: impl Iterator<Item = impl Future<Output = Result<()>>>,
    ) -> Result<()> {
        let is_held = |answer: &Result<()>| match answer {
            Err(Error::NotHeld(_) | Error::Lost(_)) => Some(false),
            answer => answer.is_ok().then_some(true),
        };
        let (verdict, answers) = vote(asked, self.needed, is_held).await;
        if verdict == Some(true) {
            return Ok(());
        }
        // If too few were held, the loss is the error. Otherwise a fault is.
        let mut decisive = answers.into_iter().filter(|answer| is_held(answer) == verdict);
        match decisive.find_map(Result::err) {
            Some(Error::NotHeld(lost)) => Err(Error::NotHeld(self.loss(&lost))),
            Some(Error::Lost(lost)) => Err(Error::Lost(self.loss(&lost))),
            error => error.map_or(Ok(()), Err),
        }
    }
}

/// Acquires at least `needed` of these locks. `None`: other owners hold too many of them.
async fn acquire(
    each: &mut [Handle],
    needed: usize,
    limit: WaitLimit,
    caller: Caller,
) -> Result<Option<SmallVec<[HeldLock; 1]>>> {
    let (start, end) = (clock::now(), end_of(limit)?);
    let locks: Vec<_> = each.iter().map(|one| Arc::clone(&one.lock)).collect();
    each.iter().try_for_each(Handle::check)?;
    let granted = tokio::select! {
        biased;
        granted = rounds(each, needed, (limit, end), caller) => granted?,
        // The call for one lock notices only the end of its own client. What the others granted is dropped.
        _ = select_all(locks.iter().map(|lock| Box::pin(lock.engine.ended()))) => None,
    };
    each.iter().try_for_each(Handle::check)?;
    let Some(granted) = granted else { return Ok(None) };
    // Only here: what a failed round acquires ends at once, whatever its shortest hold.
    let take = |(index, granted): (usize, Untaken)| granted.take(&each[index], start);
    let holds = granted.into_iter().map(take).collect::<Result<SmallVec<_>>>()?;
    let counted = holds.iter().map(|held: &HeldLock| &held.hold.metrics);
    each[0].metrics.granted_together((start, clock::now()), holds.len() - needed, counted);
    Ok(Some(holds))
}

/// Attempts until enough of these locks are granted. Returns them with their indices.
///
/// A call that needs all waits for one lock, and then tries the others at once. A call that needs a majority tries all at
/// once. If too few are granted, it releases them, and waits for the first lock that another owner holds. So while it
/// waits for a lock, it holds no other.
async fn rounds(
    each: &mut [Handle],
    needed: usize,
    (limit, end): (WaitLimit, Option<Instant>),
    caller: Caller,
) -> Result<Option<Vec<(usize, Untaken)>>> {
    let spare = each.len() - needed;
    // The settings of the first say how often the call polls.
    let safety_poll = each[0].config().safety_poll();
    // An attempt that began just before the end of the call has until then for its answer.
    let last = end.and_then(|end| end.checked_add(engine::answers_in(each[0].config())));
    let mut pauses = SPLITS;
    let mut awaited = (spare == 0).then_some(0);
    loop {
        let mut others: Vec<_> = each.iter_mut().enumerate().collect();
        let mut has_failed = false;
        let round = match awaited {
            None => ask(&mut others, needed, caller, last, None).await,
            Some(index) => {
                let (_, one) = others.remove(index);
                let limit =
                    end.map_or(limit, |end| WaitLimit::For(end.saturating_duration_since(Instant::now())));
                let mut waiting = pin!(engine::acquire(one, limit, caller, keep));
                loop {
                    tokio::select! {
                        biased;
                        granted = &mut waiting => {
                            if spare == 0 && !matches!(granted, Ok(Some(_))) {
                                return granted.map(|_| None);
                            }
                            has_failed = granted.is_err();
                            break ask(&mut others, needed, caller, last, Some((index, granted))).await;
                        }
                        // No message tells that the others can be enough without this one.
                        round = async {
                            sleep(jitter::up_to(safety_poll)).await;
                            ask(&mut others, needed, caller, last, None).await
                        }, if spare > 0 => {
                            if round.granted.len() >= needed || round.faults.len() > spare {
                                break round;
                            }
                            give_back(round.granted).await;
                        }
                    }
                }
            }
        };
        let Round { mut granted, refused, faults } = round;
        let now = clock::now();
        let is_valid = |(_, granted): &(usize, Untaken)| granted.is_valid(now);
        if granted.iter().filter(|one| is_valid(one)).count() >= needed {
            granted.retain(is_valid);
            granted.sort_unstable_by_key(|(index, _)| *index);
            return Ok(Some(granted));
        }
        let was_split = !granted.is_empty();
        give_back(granted).await;
        let is_over = end.is_some_and(|end| end <= Instant::now());
        // Without a majority of servers, the refusal of another says nothing.
        let fault = (faults.len() > spare || refused.is_none()).then(|| faults.into_iter().next()).flatten();
        awaited = match fault {
            Some((_, error)) if has_failed || is_over || !error.is_transient() => return Err(error),
            // The engine retries it.
            Some((index, _)) => Some(index),
            None if refused.is_some() && (is_over || matches!(limit, WaitLimit::None)) => return Ok(None),
            // All were granted, and the lease of one had ended before the others answered.
            None if refused.is_none() && is_over => return Err(each[0].lock.error(engine::late())),
            None => refused,
        };
        // Several owners perhaps acquired some locks each, and none acquired enough. A random pause lets one of them
        // attempt before the others. Without it, they would split the locks again.
        if was_split {
            tokio::select! {
                () = sleep(jitter::within(pauses.pause() * 2)) => {}
                () = elapsed(end) => {}
            }
        }
    }
}

/// What a lock answered, with its index.
type Answer = (usize, Result<Option<Untaken>>);

/// What the servers answered that were asked at once. The numbers are the indices of the locks.
#[derive(Default)]
struct Round {
    granted: Vec<(usize, Untaken)>,
    /// The first lock, in the order of all clients, that another owner holds. If all clients wait for the same one, they
    /// seldom split the others.
    refused: Option<usize>,
    faults: Vec<(usize, Error)>,
}

fn keep(granted: Untaken, handle: &Handle, _: Moment) -> Result<Untaken> {
    granted.keep(handle)
}

/// Tries the others of these locks at once, until so many are granted, or cannot be any more. `last`: then, what has no answer fails.
/// `known`: the answer of one more.
async fn ask(
    others: &mut [(usize, &mut Handle)],
    needed: usize,
    caller: Caller,
    last: Option<Instant>,
    known: Option<Answer>,
) -> Round {
    let asked = others.iter_mut().map(async |(index, handle)| {
        let answer = tokio::select! {
            biased;
            answer = engine::acquire(handle, WaitLimit::Once, caller, keep) => answer,
            () = elapsed(last) => Err(handle.lock.error(engine::late())),
        };
        (*index, answer)
    });
    let asked = asked.map(FutureExt::left_future).chain(known.map(|known| ready(known).right_future()));
    let is_granted = |(_, answer): &Answer| match answer {
        Ok(granted) => Some(granted.is_some()),
        // A fault that can pass decides nothing: the others can still be enough.
        Err(error) => (!error.is_transient()).then_some(false),
    };
    let mut round = Round::default();
    for (index, answer) in vote(asked, needed, is_granted).await.1 {
        match answer {
            Ok(Some(granted)) => round.granted.push((index, granted)),
            Ok(None) => round.refused = Some(round.refused.map_or(index, |first| first.min(index))),
            Err(error) => round.faults.push((index, error)),
        }
    }
    round
}

/// Releases what a failed round acquired.
async fn give_back(granted: Vec<(usize, Untaken)>) {
    let grants: Vec<_> = granted.iter().map(|(_, granted)| Arc::clone(granted.grant())).collect();
    drop(granted);
    let _ = timeout(RELEASE_WAIT, join_all(grants.iter().map(|grant| grant.until_released()))).await;
}

fn identity(one: &Handle) -> Identity {
    one.lock.engine.store.identity()
}

/// The sort key of a lock. It is the same in all clients, so all have one order.
fn order(one: &Handle) -> (&str, Identity) {
    (&one.lock.keys.lock, identity(one))
}

fn may_be_same_lock(one: &Handle, other: &Handle) -> bool {
    one.lock.keys.lock == other.lock.keys.lock && !(identity(one).is_known() && identity(other).is_known())
}

fn is_same_lock(one: &Handle, other: &Handle) -> bool {
    let (first, second) = (&one.lock.engine, &other.lock.engine);
    let is_same_store = Arc::ptr_eq(first, second)
        || (identity(one).meets(&identity(other)) && first.store.database() == second.store.database());
    is_same_store && one.lock.keys.lock == other.lock.keys.lock
}

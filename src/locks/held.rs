//! What a guard holds: one lock, or several.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, select_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::{SmallVec, smallvec};
use tracing::Span;

use super::several::Whole;
use super::votes::vote;
use crate::base::error::{Error, Lost, Result};
use crate::engine::{HeldLock, HoldTimes};

/// What a guard holds. Each of several holds is watched, counted and reported by itself. Dropping them releases the locks
/// in the background.
#[allow(unnameable_types, unreachable_pub, reason = "the sealed part of a public trait takes it")]
#[allow(missing_debug_implementations, reason = "nobody outside has one")]
pub struct Held {
    /// In the order of the locks.
    pub(super) holds: SmallVec<[HeldLock; 1]>,
    /// `None`: there is only one.
    pub(super) whole: Option<Arc<Whole>>,
}

impl Held {
    pub(crate) fn one(held: HeldLock) -> Self {
        Self { holds: smallvec![held], whole: None }
    }

    /// How many of the holds the guard needs.
    pub(crate) fn needed(&self) -> usize {
        self.whole.as_ref().map_or(1, |whole| whole.needed)
    }

    pub(crate) fn first(&self) -> &HeldLock {
        &self.holds[0]
    }

    /// Puts later events about the holds into this span.
    pub(crate) fn begins(&self, span: &Span) {
        self.holds.iter().for_each(|held| held.begins(span.clone()));
    }

    pub(crate) fn name(&self) -> &str {
        self.whole.as_ref().map_or_else(|| self.first().name(), |whole| &whole.id.name)
    }

    /// Returns the error of a lost guard, with the cause of the first lost hold.
    pub(crate) fn loss(&self) -> Lost {
        let lost = self.holds.iter().find(|held| held.is_lost()).unwrap_or(self.first()).loss();
        self.whole.as_ref().map_or_else(|| lost.clone(), |whole| whole.loss(&lost))
    }

    pub(crate) fn owner_id(&self) -> String {
        self.holds.iter().map(HeldLock::owner_id).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.holds.iter().filter(|held| !held.is_lost()).count() < self.needed()
    }

    pub(crate) fn remaining(&self) -> Duration {
        of_quorum(self.holds.iter().map(HeldLock::remaining), self.needed())
    }

    /// Counts the holds of this owner that can be relied on.
    pub(crate) fn holds(&self) -> u32 {
        of_quorum(self.holds.iter().map(HeldLock::holds), self.needed())
    }

    /// What says until when the holds can be relied on, and does not keep them.
    pub(crate) fn times(&self) -> SmallVec<[HoldTimes; 1]> {
        self.holds.iter().map(HeldLock::times).collect()
    }

    /// Waits until the hold is released or lost.
    pub(crate) fn ended(&self) -> impl Future<Output = Result<(), Lost>> + Send + use<> {
        let Some(whole) = self.whole.clone() else { return self.first().ended().left_future() };
        let mut ends: FuturesUnordered<_> = self.holds.iter().map(HeldLock::ended).collect();
        let ended = async move {
            let mut first = None;
            // All are released together, so the first release is the end.
            while let Some(Err(lost)) = ends.next().await {
                let first = first.get_or_insert(lost);
                if ends.len() < whole.needed {
                    return Err(whole.loss(first));
                }
            }
            Ok(())
        };
        ended.right_future()
    }

    /// Waits until another owner waits for one of its locks, or the hold has ended.
    pub(crate) fn wanted(&self) -> impl Future<Output = ()> + Send + use<> {
        let wanted = select_all(self.holds.iter().map(|held| Box::pin(held.wanted())));
        let ended = self.ended();
        async move {
            tokio::select! {
                biased;
                _ = ended => {}
                _ = wanted => {}
            }
        }
    }

    /// Releases the hold. Fails if the hold was gone.
    pub(crate) async fn unlock(mut self) -> Result<()> {
        match self.whole {
            None => self.holds.remove(0).unlock().await,
            // Boxed: its size would burden the guards of one lock.
            Some(whole) => Box::pin(whole.ask(self.holds.into_iter().map(HeldLock::unlock))).await,
        }
    }

    /// Leaves the hold to end with its lease.
    pub(crate) fn leak(self) {
        self.holds.into_iter().for_each(HeldLock::leak);
    }

    /// Renews the lease for a time that the caller chose.
    pub(crate) async fn extend(&self, lease: Duration) -> Result<()> {
        match &self.whole {
            None => self.first().extend(lease).await,
            Some(whole) => Box::pin(whole.ask(self.holds.iter().map(|held| held.extend(lease)))).await,
        }
    }
}

impl Whole {
    fn loss(&self, lost: &Lost) -> Lost {
        Lost { lock: self.id.clone(), cause: lost.cause }
    }

    /// Asks about each hold, and fails unless enough of them were held until then.
    async fn ask(&self, asked: impl Iterator<Item = impl Future<Output = Result<()>>>) -> Result<()> {
        let is_held = |answer: &Result<()>| match answer {
            Err(Error::NotHeld(_) | Error::Lost(_)) => Some(false),
            answer => answer.is_ok().then_some(true),
        };
        let (verdict, answers) = pin!(vote(asked, self.needed, is_held)).await;
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

/// Returns the value that at least `needed` of these reach.
pub(crate) fn of_quorum<T: Ord>(values: impl Iterator<Item = T>, needed: usize) -> T {
    let mut values: SmallVec<[T; 4]> = values.collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.swap_remove(needed - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_reaches_the_value_of_its_least() {
        for (needed, value) in [(1, 9), (2, 7), (3, 5)] {
            assert_eq!(of_quorum([5, 9, 7].into_iter(), needed), value);
        }
    }
}

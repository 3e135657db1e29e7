//! What a lock handle is: a set of members, how many of them it takes, and on which terms.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::smallvec;

use super::grant::{Grant, Seat, Target};
use super::kind::Kind;
use super::lease;
use super::{Engine, PerMember};
use crate::clock::{self, Moment};
use crate::error::{Error, Result};
use crate::sync::lock;

/// The part of a lock handle that all types have in common.
#[derive(Debug)]
#[allow(unnameable_types, unreachable_pub, reason = "the sealed part of a public trait returns it")]
pub struct Handle {
    pub(crate) engine: Arc<Engine>,
    /// As the user gave it.
    name: Box<str>,
    pub(crate) members: PerMember<Member>,
    /// How many members it takes to hold the lock.
    pub(crate) quorum: usize,
    pub(crate) terms: Terms,
}

/// One lock on one server, as one owner sees it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) target: Target,
    holds: Arc<Holds>,
}

/// One owner's holds on one name.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Option<Arc<Grant>>>);

/// For how long a lock is taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    /// A fixed lease; without one, the watchdog renews.
    pub(crate) lease: Option<Duration>,
    /// However it is renewed, no longer than this.
    pub(crate) max_hold: Option<Duration>,
}

/// [`Terms`] that can be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) time: Duration,
    pub(crate) is_watched: bool,
    pub(crate) max_hold: Option<Duration>,
}

impl Handle {
    /// A lock of one member.
    pub(crate) fn single(
        engine: &Arc<Engine>,
        kind: &'static dyn Kind,
        name: &str,
        holds: Arc<Holds>,
    ) -> Self {
        let key = engine.key(name);
        let target = Target { engine: Arc::clone(engine), kind, channel: kind.channel(&key), name: key };
        Self {
            engine: Arc::clone(engine),
            name: name.into(),
            members: smallvec![Member { target, holds }],
            quorum: 1,
            terms: Terms::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Holds that can be relied on now.
    pub(crate) fn hold_count(&self) -> u32 {
        let now = clock::now();
        let mut counts: PerMember<u32> = self.members.iter().map(|member| member.holds.live(now)).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts[self.quorum - 1]
    }

    /// Refuses what can not be asked for at all.
    pub(crate) fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        self.engine.check_open()
    }

    /// The lease to ask for.
    pub(crate) fn lease(&self) -> Result<Lease> {
        let config = &self.engine.config;
        let check = |argument, time: Option<Duration>| {
            time.map(|time| lease::check(argument, time, config.margin)).transpose()
        };
        let fixed = check("lease", self.terms.lease)?;
        let max_hold = check("max_hold", self.terms.max_hold)?;
        let time = fixed.unwrap_or(config.watchdog_lease);
        // A lease that lasts to the end of the longest hold needs no renewal.
        let is_watched = fixed.is_none() && max_hold.is_none_or(|most| most > time);
        Ok(Lease { time: max_hold.map_or(time, |most| most.min(time)), is_watched, max_hold })
    }
}

pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() { Err(Error::InvalidName { problem: "it is empty" }) } else { Ok(()) }
}

impl Member {
    /// Where to go on: re-enter the grant there is, or begin with a new one. Then also what was there before and is
    /// over, given back or lost.
    pub(crate) fn seat(&self) -> (Seat, Option<Arc<Grant>>) {
        let mut current = lock(&self.holds.0);
        match current.as_ref().and_then(Seat::again) {
            Some(seat) => (seat, None),
            None => (self.fresh_seat(), current.take()),
        }
    }

    pub(crate) fn fresh_seat(&self) -> Seat {
        Seat::fresh(self.target.clone())
    }

    /// What its owner holds from now on.
    pub(crate) fn hold(&self, grant: &Arc<Grant>) {
        *lock(&self.holds.0) = Some(Arc::clone(grant));
    }
}

impl Holds {
    fn live(&self, now: Moment) -> u32 {
        lock(&self.0).as_ref().map_or(0, |grant| grant.live(now))
    }

    /// Whether there is nothing here to remember.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.0).as_ref().is_none_or(|grant| grant.live(clock::now()) == 0 && grant.is_settled())
    }
}

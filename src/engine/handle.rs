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
pub(crate) struct Holds(Mutex<Grants>);

/// Of a read-write lock, an owner may hold both.
#[derive(Debug, Default)]
struct Grants {
    exclusive: Option<Arc<Grant>>,
    shared: Option<Arc<Grant>>,
}

/// Where to go on with an acquire.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) seat: Seat,
    /// What this owner held before and gave back or lost, and the server may still have.
    pub(crate) ended: PerMember<Arc<Grant>>,
}

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
        let mut counts: PerMember<u32> = self.members.iter().map(|member| member.live(now)).collect();
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
    /// Re-enters the grant there is, or begins with a new one.
    ///
    /// # Errors
    ///
    /// What this owner holds on the name is in the way, and will be for as long as it waits.
    pub(crate) fn start(&self, name: &str) -> Result<Start> {
        let mut grants = lock(&self.holds.0);
        let mine = grants.of(self.is_shared());
        if let Some(seat) = mine.as_ref().and_then(Seat::again) {
            let is_read_write = seat.grant.target.kind.is_read_write();
            if is_read_write != self.target.kind.is_read_write() {
                return Err(Error::wrong_kind(name, is_read_write));
            }
            return Ok(Start { seat, ended: PerMember::new() });
        }
        let mut ended: PerMember<_> = mine.take().into_iter().collect();
        let seat = self.begin(&grants, name)?;
        ended.extend(grants.of(!self.is_shared()).clone().filter(|other| other.live(clock::now()) == 0));
        ended.retain(|grant| !grant.is_settled());
        Ok(Start { seat, ended })
    }

    /// Begins with a new grant.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub(crate) fn fresh_seat(&self, name: &str) -> Result<Seat> {
        self.begin(&lock(&self.holds.0), name)
    }

    /// Within a write hold, an owner may read. Within a read hold it can not write: it would wait for itself.
    fn begin(&self, grants: &Grants, name: &str) -> Result<Seat> {
        let now = clock::now();
        let is_live = |grant: &&Arc<Grant>| grant.live(now) > 0;
        if !self.is_shared() && grants.shared.as_ref().is_some_and(|grant| is_live(&grant)) {
            return Err(Error::Upgrade { name: name.to_owned() });
        }
        let within = grants.exclusive.as_ref().filter(is_live);
        Ok(Seat::fresh(self.target.clone(), within.map(|grant| &**grant)))
    }

    /// What its owner holds from now on.
    pub(crate) fn hold(&self, grant: &Arc<Grant>) {
        *lock(&self.holds.0).of(self.is_shared()) = Some(Arc::clone(grant));
    }

    /// Holds that can be relied on now.
    fn live(&self, now: Moment) -> u32 {
        lock(&self.holds.0).of(self.is_shared()).as_ref().map_or(0, |grant| grant.live(now))
    }

    fn is_shared(&self) -> bool {
        self.target.kind.is_shared()
    }
}

impl Grants {
    const fn of(&mut self, is_shared: bool) -> &mut Option<Arc<Grant>> {
        if is_shared { &mut self.shared } else { &mut self.exclusive }
    }
}

impl Holds {
    /// Whether there is nothing here to remember.
    pub(crate) fn is_idle(&self) -> bool {
        let now = clock::now();
        let grants = lock(&self.0);
        let mut all = grants.exclusive.iter().chain(&grants.shared);
        all.all(|grant| grant.live(now) == 0 && grant.is_settled())
    }
}

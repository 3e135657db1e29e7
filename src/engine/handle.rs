//! What a lock handle is: a set of members, how many of them it takes, and on which terms.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::select_all;
use smallvec::smallvec;

use super::grant::{Grant, Seat, Target};
use super::kind::Kind;
use super::lease;
use super::{Engine, PerMember};
use crate::clock::{self, Moment};
use crate::config::LockConfig;
use crate::error::{Error, Result};
use crate::store::Fault;
use crate::sync::lock;

/// The part of a lock handle that all types have in common.
#[derive(Debug)]
#[allow(unnameable_types, unreachable_pub, reason = "the sealed part of a public trait returns it")]
pub struct Handle {
    /// Of several members, all their names.
    joined: Option<Arc<str>>,
    /// Of those that are all needed, in an order that is the same for all clients.
    pub(crate) members: PerMember<Member>,
    /// How many members it takes to hold the lock.
    pub(crate) quorum: usize,
    pub(crate) terms: Terms,
}

/// One lock on one server, as one owner sees it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) target: Arc<Target>,
    /// As the user gave it.
    name: Arc<str>,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// A fixed lease; without one, the watchdog renews.
    pub(crate) lease: Option<Duration>,
    /// However it is renewed, no longer than this.
    pub(crate) max_hold: Option<Duration>,
}

/// [`Terms`] that can be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    fixed: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
}

/// How many members of a lock it takes to hold it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Quorum {
    All,
    /// Of independent servers.
    Majority,
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
        let name = if *key == *name { Arc::clone(&key) } else { name.into() };
        let target = Arc::new(Target::new(engine, kind, key));
        Self {
            joined: None,
            members: smallvec![Member { target, name, holds }],
            quorum: 1,
            terms: Terms::default(),
        }
    }

    /// A lock of several members, which are handles until then.
    pub(crate) fn joined(handles: Vec<Self>, quorum: Quorum) -> Result<Self> {
        let wrong = |problem: &'static str| Err(Error::InvalidMembers { problem });
        let terms = handles.first().map(|handle| handle.terms).unwrap_or_default();
        if handles.iter().any(|handle| handle.terms != terms) {
            return wrong("their `lease` or `max_hold` differ");
        }
        let mut members: PerMember<Member> = handles.into_iter().flat_map(|handle| handle.members).collect();
        members.sort_by(|a, b| a.key().cmp(&b.key()));
        let pairs = || (1..members.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
        let are = |is: fn(&Member, &Member) -> bool| pairs().any(|(a, b)| is(&members[a], &members[b]));
        match (quorum, members.len()) {
            (_, 0) => return wrong("there are none"),
            (_, 1) => {}
            (Quorum::All, _) if are(Member::is_same_lock) => return wrong("one lock is among them twice"),
            (Quorum::All, _) if are(Member::may_be_same_lock) => {
                return wrong("two of one name may be one lock: a server did not say which it is");
            }
            (Quorum::All, _) => {}
            (Quorum::Majority, 2) => return wrong("a majority of two is both, so one that fails stops all"),
            (Quorum::Majority, _) if members.iter().any(|member| member.server().is_none()) => {
                return wrong("a server did not say which it is: the user may not call INFO");
            }
            (Quorum::Majority, _) if are(|a, b| a.server() == b.server()) => {
                return wrong("two are on one server, so they are lost together");
            }
            (Quorum::Majority, _) => {}
        }
        let names: Vec<&str> = members.iter().map(|member| &*member.name).collect();
        let joined = (members.len() > 1).then(|| names.join(", ").into());
        let quorum = match quorum {
            Quorum::All => members.len(),
            Quorum::Majority => members.len() / 2 + 1,
        };
        Ok(Self { joined, members, quorum, terms })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        self.joined.as_ref().unwrap_or(&self.members[0].name)
    }

    pub(crate) fn needs_all(&self) -> bool {
        self.spare() == 0
    }

    /// So many members can fail.
    pub(crate) fn spare(&self) -> usize {
        self.members.len() - self.quorum
    }

    /// The one whose settings say how long a call goes on. Of several members, that of the first.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.members[0].target.engine
    }

    fn engines(&self) -> impl Iterator<Item = &Arc<Engine>> {
        self.members.iter().map(|member| &member.target.engine)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.engines().any(|engine| engine.is_closing())
    }

    /// Waits until a client of a member is being shut down.
    pub(crate) async fn closing(&self) {
        match &self.members[..] {
            [member] => member.target.engine.closing().await,
            _ => drop(select_all(self.engines().map(|engine| Box::pin(engine.closing()))).await),
        }
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
        self.members.iter().try_for_each(|member| check_name(&member.name))?;
        self.engines().try_for_each(|engine| engine.check_open())
    }

    /// The lease to ask for.
    pub(crate) fn lease(&self) -> Result<Lease> {
        let margins = || self.engines().map(|engine| engine.config.margin);
        let check = |argument, time: Option<Duration>| {
            time.map(|time| lease::check(argument, time, margins())).transpose()
        };
        let fixed = check("lease", self.terms.lease)?;
        Ok(Lease { fixed, max_hold: check("max_hold", self.terms.max_hold)? })
    }

    /// Whether the watchdog has to renew what is taken on these terms. A lease that lasts to the end of the longest hold
    /// needs no renewal.
    pub(crate) fn is_watched(&self, lease: Lease) -> bool {
        let is_short =
            |engine: &Arc<Engine>| lease.max_hold.is_none_or(|most| most > engine.config.watchdog_lease);
        lease.fixed.is_none() && self.engines().any(is_short)
    }
}

impl Lease {
    /// The time that one attempt asks for.
    pub(crate) fn time(self, config: &LockConfig) -> Duration {
        let time = self.fixed.unwrap_or(config.watchdog_lease);
        self.max_hold.map_or(time, |most| most.min(time))
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
    pub(crate) fn start(&self, now: Moment) -> Result<Start> {
        let mut grants = lock(&self.holds.0);
        self.check_family(&grants, now)?;
        let again = |grant| Seat::again(grant, now);
        if let Some(seat) = grants.of(self.is_shared()).as_ref().and_then(again) {
            return Ok(Start { seat, ended: PerMember::new() });
        }
        let seat = self.begin(&grants, now)?;
        let mut ended: PerMember<_> = grants.of(self.is_shared()).take().into_iter().collect();
        ended.extend(grants.of(!self.is_shared()).clone().filter(|other| other.live(now) == 0));
        ended.retain(|grant| !grant.is_settled());
        Ok(Start { seat, ended })
    }

    /// Begins with a new grant.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub(crate) fn fresh_seat(&self) -> Result<Seat> {
        self.begin(&lock(&self.holds.0), clock::now())
    }

    /// An owner has locks of one family under a name at a time.
    fn check_family(&self, grants: &Grants, now: Moment) -> Result<()> {
        let mut families =
            grants.all().filter(|grant| grant.live(now) > 0).map(|grant| grant.target.kind.family());
        match families.find(|&found| found != self.target.kind.family()) {
            Some(found) => Err(Error::WrongKind { name: self.name.to_string(), found }),
            None => Ok(()),
        }
    }

    /// Within a write hold, an owner may read. Within a read hold it can not write: it would wait for itself.
    fn begin(&self, grants: &Grants, now: Moment) -> Result<Seat> {
        let is_live = |grant: &&Arc<Grant>| grant.live(now) > 0;
        if !self.is_shared() && grants.shared.as_ref().is_some_and(|grant| is_live(&grant)) {
            return Err(Error::Upgrade { name: self.name.to_string() });
        }
        let within = grants.exclusive.as_ref().filter(is_live);
        Ok(Seat::fresh(Arc::clone(&self.target), within.map(|grant| &**grant)))
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

    pub(crate) fn error(&self, fault: Fault) -> Error {
        Error::of_lock(&self.name, fault)
    }

    /// The name is in use as what this is not.
    pub(crate) fn other_kind(&self) -> Error {
        Error::wrong_kind(&self.name, !self.target.kind.is_read_write())
    }

    /// Which server it is on, if that is known.
    fn server(&self) -> Option<&str> {
        self.target.engine.store.server()
    }

    /// By this, all clients put the members of a lock in one order.
    fn key(&self) -> (&str, Option<&str>) {
        (&self.target.keys.lock, self.server())
    }

    fn may_be_same_lock(&self, other: &Self) -> bool {
        let is_known = self.server().is_some() && other.server().is_some();
        !is_known && self.target.keys.lock == other.target.keys.lock
    }

    fn is_same_lock(&self, other: &Self) -> bool {
        let is_same_store = Arc::ptr_eq(&self.target.engine, &other.target.engine)
            || (self.server().is_some()
                && self.server() == other.server()
                && self.target.engine.store.database() == other.target.engine.store.database());
        is_same_store && self.target.keys.lock == other.target.keys.lock
    }
}

impl Grants {
    fn all(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.exclusive.iter().chain(&self.shared)
    }

    const fn of(&mut self, is_shared: bool) -> &mut Option<Arc<Grant>> {
        if is_shared { &mut self.shared } else { &mut self.exclusive }
    }
}

impl Holds {
    /// Whether there is nothing here to remember.
    pub(crate) fn is_idle(&self) -> bool {
        let now = clock::now();
        let grants = lock(&self.0);
        grants.all().all(|grant| grant.live(now) == 0 && grant.is_settled())
    }
}

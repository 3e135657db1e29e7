//! A lock handle: its members, how many of them the lock needs, and how long a hold lasts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use smallvec::smallvec;

use super::hold::{Named, Renews, Subject, Term};
use super::lock_ref::LockRef;
use super::members::PerMember;
use super::shared::Engine;
use crate::base::clock::{self, Moment};
use crate::base::config::LockConfig;
use crate::base::error::{ConfigError, LockId, Result};
use crate::base::options::{Lease, LockOptions, Terms};
use crate::engine::grant::owner_grants::OwnerGrants;
use crate::protocol::{LockType, Protocol};
use crate::store::Identity;
use crate::telemetry::OfLock;

/// The content of every public lock handle.
#[allow(unnameable_types, unreachable_pub, reason = "the sealed part of a public trait returns it")]
pub struct Handle {
    /// The names of all members, if there are several.
    joined_name: Option<Arc<str>>,
    /// The members. They stand in an order that is the same for all clients, so that all clients acquire them in one
    /// order.
    pub(crate) members: PerMember<Member>,
    /// How many members must be held to hold the lock.
    pub(crate) quorum: usize,
    terms: Terms,
    pub(crate) lock_type: LockType,
    pub(crate) metrics: OfLock,
}

/// One lock on one server, for one owner.
pub(crate) struct Member {
    pub(crate) lock: Arc<LockRef>,
    pub(crate) owner: Arc<OwnerGrants>,
}

/// How many members must be held to hold a lock of several members.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Quorum {
    All,
    /// The members are on independent servers.
    Majority,
}

impl Handle {
    /// Makes a lock of one member.
    pub(crate) fn single(
        engine: &Arc<Engine>,
        protocol: &'static dyn Protocol,
        name: &str,
        owner: Arc<OwnerGrants>,
    ) -> Self {
        Self::of(LockRef::new(engine, protocol, name), owner)
    }

    /// Makes the handle of a semaphore, which never acquires itself.
    pub(crate) fn semaphore(engine: &Arc<Engine>, name: &str, total: u32) -> Self {
        Self::of(LockRef::semaphore(engine, name, total), Arc::default())
    }

    /// Makes the handle of a group of claims, which never acquires itself.
    pub(crate) fn group(engine: &Arc<Engine>, name: &str) -> Self {
        Self::of(LockRef::group(engine, name), Arc::default())
    }

    fn of(lock: LockRef, owner: Arc<OwnerGrants>) -> Self {
        let lock_type = lock.protocol.lock_type();
        let metrics = lock.engine.metrics.of(lock_type, None);
        Self {
            joined_name: None,
            members: smallvec![Member { lock: Arc::new(lock), owner }],
            quorum: 1,
            terms: Terms::default(),
            lock_type,
            metrics,
        }
    }

    /// Makes a handle of the semaphore for one hold with this many permits. The handle is a new owner.
    pub(crate) fn for_permits(&self, wanted: u32) -> Self {
        let lock = &self.members[0].lock;
        let lock = if wanted == lock.permits.count() {
            Arc::clone(lock)
        } else {
            Arc::new(lock.for_permits(wanted))
        };
        self.for_lock(lock)
    }

    /// Makes a handle with the same terms for this lock. The handle is a new owner.
    pub(crate) fn for_lock(&self, lock: Arc<LockRef>) -> Self {
        Self {
            joined_name: None,
            members: smallvec![Member { lock, owner: Arc::default() }],
            quorum: self.quorum,
            terms: self.terms,
            lock_type: self.lock_type,
            metrics: self.metrics.clone(),
        }
    }

    /// Combines handles into a lock of several members.
    pub(crate) fn joined(handles: Vec<Self>, quorum: Quorum) -> Result<Self, ConfigError> {
        let invalid = |problem| Err(ConfigError::new("members", problem));
        let terms = handles.first().map(|handle| handle.terms).unwrap_or_default();
        if handles.iter().any(|handle| handle.terms != terms) {
            return invalid("have different options");
        }
        let group = handles.first().and_then(|handle| handle.metrics.group()).cloned();
        let group = group.filter(|group| handles.iter().all(|handle| handle.metrics.group() == Some(group)));
        let mut members: PerMember<Member> = handles.into_iter().flat_map(|handle| handle.members).collect();
        members.sort_by(|a, b| a.order().cmp(&b.order()));
        let pairs = || (1..members.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
        let any_pair = |is: fn(&Member, &Member) -> bool| pairs().any(|(a, b)| is(&members[a], &members[b]));
        match (quorum, members.len()) {
            (_, 0) => return invalid("are missing"),
            (_, 1) => {}
            (Quorum::All, _) if any_pair(Member::is_same_lock) => {
                return invalid("have one lock twice");
            }
            (Quorum::All, _) if any_pair(Member::may_be_same_lock) => {
                return invalid("with the same key may be one lock: a server did not tell its ids");
            }
            (Quorum::All, _) => {}
            (Quorum::Majority, 2) => {
                return invalid("are two, so a majority is both and one failed server stops the lock");
            }
            (Quorum::Majority, _) if members.iter().any(|member| !member.identity().is_known()) => {
                return invalid("are on a server that did not tell its ids: the user may not call INFO");
            }
            (Quorum::Majority, _) if any_pair(|a, b| a.identity().meets(&b.identity())) => {
                return invalid("are on one server, so they are lost together");
            }
            (Quorum::Majority, _) => {}
        }
        let names: Vec<&str> = members.iter().map(|member| &*member.lock.name).collect();
        let joined_name = (members.len() > 1).then(|| names.join(", ").into());
        let lock_type = match quorum {
            Quorum::All => LockType::Multi,
            Quorum::Majority => LockType::Red,
        };
        let quorum = match quorum {
            Quorum::All => members.len(),
            Quorum::Majority => members.len() / 2 + 1,
        };
        let metrics = members[0].lock.engine.metrics.of(lock_type, group.as_ref());
        Ok(Self { joined_name, members, quorum, terms, lock_type, metrics })
    }

    pub(crate) fn set_options(&mut self, options: &LockOptions) {
        self.terms = options.terms();
        self.metrics = self.members[0].lock.engine.metrics.of(self.lock_type, options.shared_group());
    }

    /// The name, as the user gave it.
    pub(crate) fn name(&self) -> &Arc<str> {
        self.joined_name.as_ref().unwrap_or(&self.members[0].lock.name)
    }

    /// The locks of these members, for errors and events.
    pub(crate) fn subject(&self, members: impl IntoIterator<Item = usize>) -> Subject {
        let lock = |index: usize| -> Arc<dyn Named> { Arc::<LockRef>::clone(&self.members[index].lock) };
        let members = members.into_iter().map(lock).collect();
        Subject { name: Arc::clone(self.name()), members }
    }

    pub(crate) fn id(&self) -> LockId {
        self.subject(0..self.members.len()).id()
    }

    pub(crate) fn needs_all(&self) -> bool {
        self.spare() == 0
    }

    /// How many members can fail without failing the lock.
    pub(crate) fn spare(&self) -> usize {
        self.members.len() - self.quorum
    }

    /// The settings for how long a call continues: those of the first member.
    pub(crate) fn config(&self) -> &LockConfig {
        &self.members[0].lock.engine.config
    }

    fn engines(&self) -> impl Iterator<Item = &Arc<Engine>> {
        self.members.iter().map(|member| &member.lock.engine)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.engines().any(|engine| engine.is_closing())
    }

    /// Waits until calls cannot continue: a member's client is shut down, or its runtime has ended.
    pub(crate) async fn ended(&self) {
        match &self.members[..] {
            [member] => member.lock.engine.ended().await,
            _ => drop(select_all(self.engines().map(|engine| Box::pin(engine.ended()))).await),
        }
    }

    /// Counts the holds that can be relied on now.
    pub(crate) fn hold_count(&self) -> u32 {
        let now = clock::now();
        let mut counts: PerMember<u32> = self.members.iter().map(|member| member.live(now)).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts[self.quorum - 1]
    }

    /// Refuses names and types that cannot be used, and clients that are closed.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_members()?;
        self.check_open()
    }

    /// Refuses names that cannot be used, types of locks that the server does not support, and options that have no effect
    /// on this type.
    pub(crate) fn check_members(&self) -> Result<()> {
        let can_linger = matches!(&self.members[..], [only] if only.lock.protocol.is_read_write());
        if self.terms.linger.is_some() && !can_linger {
            return Err(ConfigError::new("linger", "has an effect on read locks only").into());
        }
        self.members
            .iter()
            .try_for_each(|Member { lock, .. }| lock.check_name().and_then(|()| lock.check_type()))
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        self.engines().try_for_each(|engine| engine.check_open())
    }

    /// The lease that an attempt asks for.
    pub(crate) fn lease(&self, config: &LockConfig) -> Duration {
        self.terms.first_lease(config.watchdog_lease())
    }

    /// Whether a waiter of this handle can take a hold of another owner over. The lease of such a hold is that of the
    /// watchdog.
    pub(crate) fn can_take_over(&self) -> bool {
        matches!(&self.members[..], [only] if only.lock.can_be_passed_on()) && self.terms.are_usual()
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.members[0].lock.protocol.is_shared()
    }

    /// Whether readers of this handle share a hold with other readers of the client.
    pub(crate) fn can_share(&self) -> bool {
        matches!(&self.members[..], [only] if only.lock.protocol.is_shared())
            && self.terms.are_usual()
            && !self.config().sharing().is_zero()
    }

    /// For how long a read hold stays after its last reader has left.
    pub(crate) const fn linger(&self) -> Option<Duration> {
        self.terms.linger
    }

    /// How long a hold lasts if it begins now.
    pub(crate) fn term(&self, now: Moment) -> Term {
        let Terms { lease, max_hold, is_of_leader, .. } = self.terms;
        // If the first lease lasts until `max_hold` is over, the watchdog has nothing to renew.
        let needs_renewal =
            |engine: &Arc<Engine>| max_hold.is_none_or(|most| most > self.lease(&engine.config));
        let renews = match lease {
            Lease::Fixed(_) => Renews::Nothing,
            _ if !self.engines().any(needs_renewal) => Renews::Nothing,
            Lease::Usual => Renews::Usual,
            Lease::Renewed(lease) => Renews::Lease(lease),
        };
        Term {
            renews,
            ends: max_hold.map(|most| now.plus(most)),
            is_bounded: max_hold.is_some_and(|most| most <= self.lease(self.config())),
            is_of_leader,
        }
    }

    /// Returns the end of the minimum hold time, if the hold begins now.
    pub(crate) fn min_hold(&self, now: Moment) -> Option<Moment> {
        self.terms.min_hold.map(|least| now.plus(least))
    }
}

impl Member {
    fn live(&self, now: Moment) -> u32 {
        self.owner.live(self.lock.protocol.is_shared(), now)
    }

    fn identity(&self) -> Identity {
        self.lock.engine.store.identity()
    }

    /// The sort key of a member. It is the same in all clients, so all acquire the members in one order.
    fn order(&self) -> (&str, Identity) {
        (&self.lock.keys.lock, self.identity())
    }

    fn may_be_same_lock(&self, other: &Self) -> bool {
        let is_known = self.identity().is_known() && other.identity().is_known();
        !is_known && self.lock.keys.lock == other.lock.keys.lock
    }

    fn is_same_lock(&self, other: &Self) -> bool {
        let (one, two) = (&self.lock.engine, &other.lock.engine);
        let is_same_store = Arc::ptr_eq(one, two)
            || (self.identity().meets(&other.identity()) && one.store.database() == two.store.database());
        is_same_store && self.lock.keys.lock == other.lock.keys.lock
    }
}

/// Shows the name, and takes no mutex.
impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self.name(), f)
    }
}

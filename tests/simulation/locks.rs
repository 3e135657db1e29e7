//! A lock of any type, and the ways to acquire it.

use std::time::Duration;

use lockkeeper::{
    BaseLock, FairLock, FencedLock, Lock, LockClient, LockGuard, LockOptions, LockOptionsBuilder, MultiLock,
    Owner, RLock, ReadWriteLock, RedLock, Result, Semaphore,
};

use crate::plan::{Kind, Plan};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Lock,
    Try,
    For(Duration),
}

/// How long a hold lasts, if it is not renewed for as long as it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    Renewed,
    Fixed(Duration),
    AtMost(Duration),
}

/// What excludes other owners: a key on a server, alone or with others who read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub server: usize,
    pub name: usize,
    pub is_shared: bool,
    /// How many permits of a semaphore. 0: it is a lock.
    pub permits: u32,
}

pub const NAMES: [&str; 6] = ["lock:a", "lock:b", "lock:c", "lock:d", "lock:e", "lock:f"];

/// How many of them a cluster has.
pub const NAMES_IN_CLUSTER: usize = 3;

/// What a worker locks with. `name` and the rest say the same as the handle.
pub struct Handle {
    lock: AnyLock,
    pub claims: Vec<Claim>,
    pub term: Term,
    /// The shortest hold.
    pub least: Option<Duration>,
    /// A majority of the claims is enough.
    pub is_majority: bool,
    /// Holds of this owner that were leaked, until when each may count.
    pub leaked: Vec<Duration>,
    /// A release was dropped: when it began, and whose hold it was to release.
    pub unreleased: Option<(Duration, String)>,
}

/// How a handle is to lock.
pub struct Wanted {
    pub name: usize,
    /// The names of a `MultiLock`, in their order.
    pub members: Vec<usize>,
    pub reads: bool,
    /// How many of a semaphore.
    pub permits: u32,
    pub term: Term,
    pub least: Option<Duration>,
}

enum AnyLock {
    RLock(RLock<'static>),
    Fair(FairLock<'static>),
    Fenced(FencedLock<'static>),
    ReadWrite(Box<ReadWriteLock<'static>>),
    Multi(MultiLock),
    Red(RedLock),
    Owner(Owner, Kind, LockOptions),
    Semaphore(Semaphore),
}

impl Handle {
    /// Makes a handle. `clients`: one for each server.
    pub fn new(plan: &Plan, clients: &[LockClient], wanted: Wanted) -> Self {
        let Wanted { name, members, reads, permits, term, least } = wanted;
        let client = &clients[0];
        let claim = |server| Claim { server, name, is_shared: reads, permits };
        let mut claims = vec![claim(0)];
        let options = options(term, least, plan.linger);
        macro_rules! with_term {
            ($lock:expr) => {
                $lock.with(&options)
            };
        }
        let lock = match plan.kind {
            Kind::RLock => AnyLock::RLock(with_term!(client.rlock(NAMES[name]))),
            Kind::Fair => AnyLock::Fair(with_term!(client.fair_lock(NAMES[name]))),
            Kind::Fenced => AnyLock::Fenced(with_term!(client.fenced_lock(NAMES[name]))),
            Kind::ReadWrite => AnyLock::ReadWrite(Box::new(with_term!(client.read_write_lock(NAMES[name])))),
            Kind::Multi => {
                let member = |name: &usize| Claim { name: *name, ..claim(server_of(*name, clients.len())) };
                claims = members.iter().map(member).collect();
                let members = claims.iter().map(|claim| clients[claim.server].rlock(NAMES[claim.name]));
                let lock = MultiLock::new(members).expect("different locks");
                // The lock sorts its members, and so does its guard.
                claims.sort_by_key(|claim| claim.name);
                AnyLock::Multi(with_term!(lock))
            }
            Kind::Red => {
                claims = (0..clients.len()).map(claim).collect();
                let members = clients.iter().map(|client| client.rlock(NAMES[name]));
                AnyLock::Red(with_term!(RedLock::new(members).expect("different servers")))
            }
            Kind::Owner => AnyLock::Owner(client.owner(), plan.inner(), options),
            Kind::Semaphore => AnyLock::Semaphore(with_term!(client.semaphore(NAMES[name], plan.permits))),
        };
        Self {
            lock,
            claims,
            term,
            least,
            is_majority: plan.kind == Kind::Red,
            leaked: Vec::new(),
            unreleased: None,
        }
    }

    /// Turns to the side to read of a read-write lock, or to the side to write.
    pub fn turn(&mut self, reads: bool) {
        self.claims[0].is_shared = reads;
    }

    /// The longest lease that it asks for.
    pub fn lease(&self, plan: &Plan) -> Duration {
        match self.term {
            Term::Renewed => plan.lease,
            Term::Fixed(time) | Term::AtMost(time) => time.max(plan.lease),
        }
    }

    /// Whether it is an owner, which can lock other names, too.
    pub const fn is_owner(&self) -> bool {
        matches!(self.lock, AnyLock::Owner(..))
    }

    /// Sets how many permits a semaphore has.
    pub async fn resize(&self, total: u32) -> Result<()> {
        match &self.lock {
            AnyLock::Semaphore(semaphore) => semaphore.resize(total).await,
            _ => Ok(()),
        }
    }

    /// Also returns the fencing token, if there is one.
    pub async fn acquire(&mut self, how: How) -> Result<Option<(LockGuard, Option<u64>)>> {
        let Claim { is_shared: reads, permits, .. } = self.claims[0];
        let name = NAMES[self.claims[0].name];
        match &mut self.lock {
            AnyLock::RLock(lock) => plain(lock, how).await,
            AnyLock::Fair(lock) => plain(lock, how).await,
            AnyLock::Fenced(lock) => {
                let fenced = match how {
                    How::Lock => Some(lock.lock().await?),
                    How::Try => lock.try_lock().await?,
                    How::For(time) => lock.try_lock_for(time).await?,
                };
                Ok(fenced.map(|guard| {
                    let token = guard.token().get();
                    (guard.into_plain(), Some(token))
                }))
            }
            AnyLock::ReadWrite(lock) if reads => plain(lock.read(), how).await,
            AnyLock::ReadWrite(lock) => plain(lock.write(), how).await,
            AnyLock::Semaphore(semaphore) => {
                let permit = match how {
                    How::Lock => Some(semaphore.acquire_many(permits).await?),
                    How::Try => semaphore.try_acquire_many(permits).await?,
                    How::For(time) => semaphore.try_acquire_many_for(permits, time).await?,
                };
                Ok(permit.map(|permit| (permit.into_plain(), None)))
            }
            AnyLock::Multi(lock) => plain(lock, how).await,
            AnyLock::Red(lock) => plain(lock, how).await,
            AnyLock::Owner(owner, kind, options) => match kind {
                Kind::Fair => plain(&mut owner.fair_lock(name).with(options), how).await,
                Kind::Fenced => plain(&mut owner.fenced_lock(name).with(options), how).await,
                _ => plain(&mut owner.rlock(name).with(options), how).await,
            },
        }
    }
}

async fn plain<K: BaseLock>(lock: &mut Lock<'_, K>, how: How) -> Result<Option<(LockGuard, Option<u64>)>> {
    let guard = match how {
        How::Lock => Some(lock.lock().await?),
        How::Try => lock.try_lock().await?,
        How::For(time) => lock.try_lock_for(time).await?,
    };
    Ok(guard.map(|guard| (guard.into_plain(), None)))
}

fn options(term: Term, least: Option<Duration>, linger: Option<Duration>) -> LockOptions {
    let options = match term {
        Term::Renewed => LockOptions::builder(),
        Term::Fixed(lease) => LockOptions::builder().fixed(lease),
        Term::AtMost(most) => LockOptions::builder().max_hold(most),
    };
    let linger = linger.filter(|_| matches!(term, Term::Renewed) && least.is_none());
    let options = linger.into_iter().fold(options, LockOptionsBuilder::linger);
    let options = least.into_iter().fold(options, LockOptionsBuilder::min_hold);
    options.build().expect("valid options")
}

/// The server of a member of a `MultiLock`.
pub const fn server_of(name: usize, servers: usize) -> usize {
    if name == 1 { servers - 1 } else { 0 }
}

//! A lock of any type, and the ways to acquire it.

use std::time::Duration;

use lockkeeper::{
    BaseLock, FairLock, FencedLock, LockClient, LockGuard, LockOptions, MultiLock, Owner, RLock,
    ReadWriteLock, RedLock, Result, Semaphore,
};

use crate::plan::{Kind, Plan};

#[derive(Clone, Copy, Debug)]
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

pub const NAMES: [&str; 3] = ["lock:a", "lock:b", "lock:c"];

/// What a worker locks with. `name` and the rest say the same as the handle.
pub struct Handle {
    lock: AnyLock,
    pub claims: Vec<Claim>,
    pub term: Term,
    /// A majority of the claims is enough.
    pub is_majority: bool,
    /// Holds of this owner that were leaked, until when each may count.
    pub leaked: Vec<Duration>,
}

enum AnyLock {
    RLock(RLock),
    Fair(FairLock),
    Fenced(FencedLock),
    ReadWrite(Box<ReadWriteLock>),
    Multi(MultiLock),
    Red(RedLock),
    Owner(Owner, Kind, Term),
    Semaphore(Semaphore),
}

impl Handle {
    /// Makes a handle. `clients`: one for each server. `permits`: how many of a semaphore.
    pub fn new(
        plan: &Plan,
        clients: &[LockClient],
        name: usize,
        reads: bool,
        permits: u32,
        term: Term,
    ) -> Self {
        let client = &clients[0];
        let claim = |server| Claim { server, name, is_shared: reads, permits };
        let mut claims = vec![claim(0)];
        macro_rules! with_term {
            ($lock:expr) => {
                match term {
                    Term::Renewed => $lock,
                    Term::Fixed(lease) => $lock.with(&fixed(lease)),
                    Term::AtMost(most) => $lock.with(&at_most(most)),
                }
            };
        }
        let lock = match plan.kind {
            Kind::RLock => AnyLock::RLock(with_term!(client.rlock(NAMES[name]))),
            Kind::Fair => AnyLock::Fair(with_term!(client.fair_lock(NAMES[name]))),
            Kind::Fenced => AnyLock::Fenced(with_term!(client.fenced_lock(NAMES[name]))),
            Kind::ReadWrite => AnyLock::ReadWrite(Box::new(with_term!(client.read_write_lock(NAMES[name])))),
            Kind::Multi => {
                // Sets that overlap: a and b, b and c, or one alone.
                let other = clients.len() - 1;
                claims = match name {
                    0 => vec![Claim { name: 0, ..claim(0) }, Claim { name: 1, ..claim(other) }],
                    1 => vec![Claim { name: 1, ..claim(other) }, Claim { name: 2, ..claim(0) }],
                    _ => vec![Claim { name: 0, ..claim(0) }],
                };
                let members = claims.iter().map(|claim| clients[claim.server].rlock(NAMES[claim.name]));
                AnyLock::Multi(with_term!(MultiLock::new(members).expect("different locks")))
            }
            Kind::Red => {
                claims = (0..clients.len()).map(claim).collect();
                let members = clients.iter().map(|client| client.rlock(NAMES[name]));
                AnyLock::Red(with_term!(RedLock::new(members).expect("different servers")))
            }
            Kind::Owner => AnyLock::Owner(client.owner(), plan.inner(), term),
            Kind::Semaphore => AnyLock::Semaphore(with_term!(client.semaphore(NAMES[name], plan.permits))),
        };
        Self { lock, claims, term, is_majority: plan.kind == Kind::Red, leaked: Vec::new() }
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
                    (guard.into(), Some(token))
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
                Ok(permit.map(|permit| (permit.into(), None)))
            }
            AnyLock::Multi(lock) => plain(lock, how).await,
            AnyLock::Red(lock) => plain(lock, how).await,
            AnyLock::Owner(owner, kind, term) => {
                macro_rules! of_owner {
                    ($lock:expr) => {
                        match term {
                            Term::Renewed => plain(&mut $lock, how).await,
                            Term::Fixed(lease) => plain(&mut $lock.with(&fixed(*lease)), how).await,
                            Term::AtMost(most) => plain(&mut $lock.with(&at_most(*most)), how).await,
                        }
                    };
                }
                match kind {
                    Kind::Fair => of_owner!(owner.fair_lock(name)),
                    Kind::Fenced => of_owner!(owner.fenced_lock(name)),
                    _ => of_owner!(owner.rlock(name)),
                }
            }
        }
    }
}

async fn plain<L: BaseLock>(lock: &mut L, how: How) -> Result<Option<(LockGuard, Option<u64>)>> {
    let guard = match how {
        How::Lock => Some(lock.lock().await?),
        How::Try => lock.try_lock().await?,
        How::For(time) => lock.try_lock_for(time).await?,
    };
    Ok(guard.map(|guard| (guard, None)))
}

fn fixed(lease: Duration) -> LockOptions {
    LockOptions::builder().fixed(lease).build().expect("a valid lease")
}

fn at_most(most: Duration) -> LockOptions {
    LockOptions::builder().max_hold(most).build().expect("a valid time")
}

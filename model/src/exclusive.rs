//! Locks that one owner holds alone: `rlock/`, `fenced/`, `claims/`, and what their holders announce.

use crate::{Announcement, Counter, Fault, Hash, Holder, Lock, Message, Ms, Owner, Reply, Run};

impl Run<'_> {
    /// `rlock/acquire`: creates a hold if the lock is free.
    pub(crate) fn rlock_acquire(&mut self, lock: usize, owner: Owner, lease: Ms) -> Reply {
        match self.rlock_state(lock) {
            Reply::Free => self.hold(lock, owner, lease),
            occupied => occupied,
        }
    }

    /// Creates a hold.
    pub(crate) fn hold(&mut self, lock: usize, owner: Owner, lease: Ms) -> Reply {
        let (holders, ends) = ([(Holder::Owner(owner), 1)].into(), Some(self.now + lease));
        self.state.locks[lock] = Some(Lock::Hash(Hash { holders, ends, ..Hash::default() }));
        Reply::Done
    }

    /// The reply to an owner that does not hold the lock.
    pub(crate) fn occupied(&self, hash: &Hash) -> Reply {
        match hash.mode {
            _ if hash.is_single() => self.left(hash.ends),
            Some(_) => Reply::OtherKind,
            None => Reply::NotALock,
        }
    }

    /// `rlock/show`: shows the hold count of a hold that exists, and makes its lease longer.
    pub(crate) fn rlock_show(&mut self, lock: usize, holder: Holder, count: i64, lease: Ms) -> Reply {
        match self.rlock_renew(lock, holder, lease) {
            _ if matches!(self.state.locks[lock], Some(Lock::Other)) => Reply::Error,
            Reply::Renewed => {
                self.state.hash_mut(lock).holders.insert(holder, count);
                Reply::Done
            }
            lost => lost,
        }
    }

    /// `rlock/renew`: makes the lease of a hold that exists longer. A lease of 0 only asks whether it exists.
    pub(crate) fn rlock_renew(&mut self, lock: usize, holder: Holder, lease: Ms) -> Reply {
        let ends = self.now + lease;
        if self.fault == Some(Fault::RenewalCreates) && self.state.locks[lock].is_none() {
            self.state.hash_mut(lock).holders.insert(holder, 1);
        }
        match &mut self.state.locks[lock] {
            Some(Lock::Hash(hash)) if hash.holders.contains_key(&holder) => {
                if lease > 0 {
                    hash.extend(ends);
                }
                Reply::Renewed
            }
            _ => Reply::Lost,
        }
    }

    /// `rlock/release`: ends the hold of this owner, and wakes a waiter.
    pub(crate) fn rlock_release(&mut self, lock: usize, owner: Owner) -> Reply {
        match self.end_hold(lock, owner) {
            Reply::Done => self.publish(Message::Released),
            Reply::BesideData => {
                self.publish(Message::Released);
                Reply::BesideData
            }
            lost => lost,
        }
    }

    /// `includes/end_hold`: `Done`, `Lost`, or `BesideData`. Data of another program stays, without the expiry that was the lease.
    pub(crate) fn end_hold(&mut self, lock: usize, owner: Owner) -> Reply {
        let is_other = self.state.locks[lock] == Some(Lock::Other);
        let is_any = self.fault == Some(Fault::ReleaseDoesNotCompareOwner);
        let Some(Lock::Hash(hash)) = &mut self.state.locks[lock] else {
            return if is_other { Reply::Error } else { Reply::Lost };
        };
        if hash.holders.remove(&Holder::Owner(owner)).is_none() {
            if !is_any {
                return Reply::Lost;
            }
            hash.holders.clear();
        }
        let hash = hash.clone();
        let is_data = hash.fields() > 0 && self.occupied(&hash) == Reply::NotALock;
        if is_data {
            self.state.hash_mut(lock).ends = None;
        }
        self.state.tidy(lock);
        if is_data { Reply::BesideData } else { Reply::Done }
    }

    /// `rlock/state`
    pub(crate) fn rlock_state(&self, lock: usize) -> Reply {
        match &self.state.locks[lock] {
            None => Reply::Free,
            Some(Lock::Other) => Reply::Error,
            Some(Lock::Hash(hash)) => self.occupied(hash),
        }
    }

    /// `fenced/acquire`: as `rlock/acquire`, with a token that is greater than all before. Without a token, it grants nothing.
    pub(crate) fn fenced_acquire(&mut self, owner: Owner, lease: Ms) -> Reply {
        match self.rlock_state(0) {
            Reply::Free => {}
            occupied => return occupied,
        }
        let Some(token) = self.count_up(self.state.counter) else { return Reply::CannotCount };
        self.state.counter = Some(Counter::Number(token));
        self.hold(0, owner, lease);
        Reply::Token(token)
    }

    /// `includes/count_up`: the next token, at least the server's time. So a counter that was lost repeats no token.
    fn count_up(&self, counter: Option<Counter>) -> Option<i64> {
        let by = i64::from(self.fault != Some(Fault::TokenRepeats));
        match counter {
            None => Some(self.now_us),
            Some(Counter::Number(last)) => Some(last.checked_add(by)?.max(self.now_us * by)),
            Some(Counter::Text) => None,
        }
    }

    /// `claims/acquire`: acquires the first free one of these locks, with a token.
    pub(crate) fn claims_acquire(&mut self, locks: &[usize], owner: Owner, lease: Ms) -> Reply {
        let mut free = None;
        for (at, lock) in locks.iter().enumerate() {
            match &self.state.locks[*lock] {
                None => free = free.or(Some(at)),
                Some(Lock::Hash(hash)) if self.occupied(hash) != Reply::NotALock => {}
                _ => return Reply::NotALockAt(at + 1),
            }
        }
        let Some(at) = free else { return Reply::Done };
        let Some(token) = self.count_up(self.state.claims) else { return Reply::CannotCount };
        self.state.claims = Some(Counter::Number(token));
        self.hold(locks[at], owner, lease);
        Reply::Claimed(at + 1, token)
    }

    /// `announcements/write`: only the holder of the lock announces.
    pub(crate) fn announcements_write(&mut self, owner: Owner, text: u8) -> Reply {
        let hash = match &self.state.locks[0] {
            Some(Lock::Other) => return Reply::Error,
            Some(Lock::Hash(hash)) if hash.has(owner) => hash,
            _ => return Reply::Lost,
        };
        let ends = hash.ends.unwrap_or(0).max(self.now + 1000);
        let before = self.state.announcement.replace(Announcement { owner, text, ends });
        if before.is_none_or(|before| (before.owner, before.text) != (owner, text)) {
            self.publish(Message::Announced);
        }
        Reply::Done
    }

    /// `announcements/remove`: leaves what a later holder announces.
    pub(crate) fn announcements_remove(&mut self, owner: Owner) -> Reply {
        self.state.announcement = self.state.announcement.filter(|said| said.owner != owner);
        self.publish(Message::Announced);
        Reply::Done
    }
}

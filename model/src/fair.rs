//! `fair/`
//!
//! The scripts stop after 2,000 dead waiters and say so; here they do not.

use crate::{Fault, Lock, Message, Ms, Owner, Queue, Record, Reply, Run};

/// The scores of our waiters are at least this much later than now: Java lowers them.
const SLACK: Ms = 60_000;

/// The longest wait of a Java client.
pub(crate) const JAVA_WAIT: Ms = 300_000;

/// The keys that Java uses expire this long after the latest score.
const KEEP: Ms = 86_400_000;

/// For how long a waiter counts as alive: the allowance, and time for a heartbeat that is late.
fn alive(allowance: Ms) -> Ms {
    allowance + allowance / 3
}

impl Queue {
    /// Our waiters in the order of their tickets.
    fn by_ticket(&self) -> Vec<Owner> {
        let mut waiters: Vec<_> =
            self.tickets.value.iter().map(|(owner, ticket)| (*ticket, *owner)).collect();
        waiters.sort_unstable();
        waiters.into_iter().map(|(_, owner)| owner).collect()
    }

    fn forget(&mut self, owner: Owner) {
        self.scores.value.remove(&owner);
        self.records.value.remove(&owner);
        self.tickets.value.remove(&owner);
        self.tidy();
    }

    /// If only Java's waiters are left, nothing renews the expiry of their keys, so it is removed.
    fn leave_to_java(&mut self) {
        if self.tickets.value.is_empty() && !self.list.value.is_empty() {
            (self.list.ends, self.scores.ends) = (None, None);
        }
    }

    /// Whether `foremost`, our waiter with the smallest ticket, is missing in front of `first`.
    fn is_missing(&self, foremost: Owner, first: Owner) -> bool {
        let scores = &self.scores.value;
        self.tickets.value.contains_key(&first)
            || !scores.contains_key(&foremost) && scores.len() >= self.list.value.len()
    }

    /// Puts back our waiters that were removed from the front.
    fn put_back(&mut self, first: Option<Owner>, now: Ms) -> bool {
        let most = first.and_then(|first| self.tickets.value.get(&first).copied());
        let is_missing = |owner: &Owner| match most {
            Some(most) => self.tickets.value[owner] < most,
            None => first.is_none() || !self.scores.value.contains_key(owner),
        };
        let missing: Vec<_> = self.by_ticket().into_iter().take_while(is_missing).collect();
        for owner in missing.iter().rev() {
            self.list.value.retain(|other| other != owner);
            self.list.value.insert(0, *owner);
            self.scores.value.insert(*owner, now + SLACK);
        }
        !missing.is_empty()
    }

    /// The record of the first of our waiters among these, and the Java clients in front of it.
    fn skip_java(&self, waiters: impl Iterator<Item = Owner>) -> (Option<Record>, Vec<Owner>) {
        let mut java = Vec::new();
        for waiter in waiters {
            match self.records.value.get(&waiter) {
                Some(record) => return (Some(*record), java),
                None => java.push(waiter),
            }
        }
        (None, java)
    }

    fn expire_after(&mut self, now: Ms, score: Ms, allowance: Ms) {
        for (ends, after) in [
            (&mut self.list.ends, KEEP),
            (&mut self.scores.ends, KEEP),
            (&mut self.records.ends, alive(allowance)),
            (&mut self.tickets.ends, alive(allowance)),
        ] {
            *ends = Some(now + score + after);
        }
        self.tidy();
    }
}

impl Run<'_> {
    /// `includes/fair/head`: the first living waiter. Removes the dead ones in front of it.
    fn head(&mut self) -> Option<Owner> {
        let now = self.now;
        let keeps_dead = self.fault == Some(Fault::DeadWaiterStays);
        let queue = &mut self.state.queue;
        loop {
            let first = queue.list.value.first().copied();
            let foremost = queue.by_ticket().first().copied();
            if let Some(foremost) = foremost.filter(|_| foremost != first)
                && first.is_none_or(|first| queue.is_missing(foremost, first))
                && queue.put_back(first, now)
            {
                continue;
            }
            let first = first?;
            if let Some(record) = queue.records.value.get(&first) {
                if record.until > now || keeps_dead {
                    return Some(first);
                }
                while let Some(dead) = queue.list.value.first().copied()
                    && queue.records.value.get(&dead).is_some_and(|record| record.until <= now)
                {
                    queue.list.value.remove(0);
                    queue.forget(dead);
                }
                queue.leave_to_java();
            } else if *queue.scores.value.entry(first).or_insert(now + JAVA_WAIT) > now {
                return Some(first);
            } else {
                queue.list.value.remove(0);
                queue.forget(first);
            }
        }
    }

    fn record(&self, allowance: Ms, java_before: i64) -> Record {
        Record { until: self.now + alive(allowance), java_before }
    }

    /// `fair/acquire`: creates a hold if the lock is free and this owner is the first in the queue. Otherwise queues.
    pub(crate) fn fair_acquire(&mut self, owner: Owner, lease: Ms, allowance: Ms) -> Reply {
        let mut left = Reply::Free;
        match &self.state.locks[0] {
            None => {}
            Some(Lock::Other) => return Reply::Error,
            // A waiter that attempted again after a lost reply.
            Some(Lock::Hash(hash)) if hash.has(owner) => {
                let ends = self.now + lease;
                self.state.hash_mut(0).raise(ends);
                return Reply::Done;
            }
            Some(Lock::Hash(hash)) => {
                left = self.occupied(hash);
                if matches!(left, Reply::OtherKind | Reply::NotALock) {
                    return left;
                }
            }
        }
        let is_free = left == Reply::Free;
        let mut own_record = self.state.queue.records.value.get(&owner).copied();
        if let Some(own) = own_record {
            // Before the dead are removed: this waiter lives, however late its record is.
            let record = self.record(allowance, own.java_before);
            self.state.queue.records.value.insert(owner, record);
        }
        let Queue { list, tickets, .. } = &self.state.queue;
        let is_empty = list.value.is_empty() && tickets.value.is_empty();
        let looks = own_record.is_some() || !is_free || !is_empty;
        let mut first = if looks { self.head() } else { None };
        if first != Some(owner) && !self.state.queue.tickets.value.contains_key(&owner) {
            own_record = None;
        }
        if is_free && first.is_none_or(|first| first == owner) {
            self.hold(0, owner, lease);
            if first.is_some() {
                let queue = &mut self.state.queue;
                queue.list.value.remove(0);
                queue.forget(owner);
                queue.leave_to_java();
            }
            return Reply::Done;
        }
        let is_new = allowance > 0
            && (own_record.is_none() || self.fault == Some(Fault::QueuePlaceLost))
            && self.enqueue(owner, first, allowance);
        if is_new {
            first = first.or(Some(owner));
        }
        if let Some(first) = first.filter(|_| is_free) {
            self.publish(Message::Next(first));
        }
        match left {
            _ if is_new => Reply::Queued,
            Reply::Left(_) if first == Some(owner) => left,
            _ => Reply::NoKnownEnd,
        }
    }

    /// Adds a waiter at the end of the queue. Returns false if it finds its place.
    fn enqueue(&mut self, owner: Owner, first: Option<Owner>, allowance: Ms) -> bool {
        let (now, now_us) = (self.now, self.now_us);
        let record = |java_before| Record { until: now + alive(allowance), java_before };
        let loses = self.fault == Some(Fault::QueuePlaceLost);
        let queue = &mut self.state.queue;
        let mut score = now + allowance + SLACK;
        let had_score = queue.scores.value.insert(owner, score).is_some();
        let (queued, last) = (queue.list.value.len(), queue.tickets.value.values().max().copied());
        // Tickets state the order, so they grow whatever the clock does.
        let ticket = now_us.max(last.unwrap_or(0) + 1);
        let has_place =
            queue.tickets.value.contains_key(&owner) || had_score && queued >= queue.scores.value.len();
        if has_place && !loses {
            queue.tickets.value.entry(owner).or_insert(ticket);
            queue.records.value.insert(owner, record(0));
            queue.expire_after(now, score - now, allowance);
            return false;
        }
        let mut java_before = 0;
        if first.is_some() {
            let tail = *queue.list.value.last().expect("the first one");
            let (nearest, java) = queue.skip_java(queue.list.value.iter().rev().copied());
            java_before = java.len() as i64 + nearest.map_or(0, |nearest| nearest.java_before);
            if java_before > 0 {
                let tail = queue.scores.value.get(&tail).copied().unwrap_or(0);
                score = score.max(tail) + java.len() as i64 * JAVA_WAIT;
                queue.scores.value.insert(owner, score);
            }
        }
        queue.tickets.value.insert(owner, ticket);
        queue.records.value.insert(owner, record(java_before));
        if queued + 1 != queue.scores.value.len() || loses {
            queue.list.value.retain(|other| *other != owner);
        }
        queue.list.value.push(owner);
        if last.is_none() {
            queue.expire_after(now, score - now, allowance);
        }
        true
    }

    /// `fair/heartbeat`: keeps the places of these waiters, removes the dead in front, and wakes the first one if the lock is free.
    pub(crate) fn fair_heartbeat(&mut self, owners: &[Owner], allowance: Ms) -> Reply {
        let now = self.now;
        let queue = &mut self.state.queue;
        let is_complete = queue.records.value.len() == queue.tickets.value.len();
        let mut found = Vec::new();
        for owner in owners {
            let record = queue.records.value.get(owner).copied();
            let record = record.filter(|_| is_complete || queue.tickets.value.contains_key(owner));
            found.push(record.map(|record| (*owner, record.java_before)));
        }
        for (owner, java_before) in found.iter().flatten() {
            queue
                .records
                .value
                .insert(*owner, Record { until: now + alive(allowance), java_before: *java_before });
        }
        let first = self.head();
        let queue = &mut self.state.queue;
        if found.iter().any(Option::is_some) {
            let (nearest, java) = queue.skip_java(queue.list.value.iter().copied());
            let mut score = now + allowance + SLACK;
            for waiter in java {
                score = score.max(queue.scores.value.get(&waiter).copied().unwrap_or(0)) + JAVA_WAIT;
            }
            let passed = nearest.map_or(0, |nearest| nearest.java_before);
            let mut most = score;
            for (owner, java_before) in found.iter().flatten() {
                let own = score + (java_before - passed).max(0) * JAVA_WAIT;
                most = most.max(own);
                // A waiter that Java removed gets no score.
                queue.scores.value.entry(*owner).and_modify(|score| *score = own);
            }
            queue.expire_after(now, most - now, allowance);
        }
        let next = first.filter(|_| self.state.locks[0].is_none());
        if let Some(next) = next {
            self.publish(Message::Next(next));
        }
        let replies = found.iter().map(|found| match found {
            None => Reply::Lost,
            Some((owner, _)) if Some(*owner) == next => Reply::FirstAndFree,
            Some(_) => Reply::PlaceKept,
        });
        Reply::List(replies.collect())
    }

    /// `fair/release`: ends the hold of this owner and wakes the first waiter. An owner that waits leaves the queue.
    pub(crate) fn fair_release(&mut self, owner: Owner) -> Reply {
        let ended = self.end_hold(0, owner);
        if ended == Reply::Error {
            return Reply::Error;
        }
        if ended == Reply::Lost {
            let queue = &mut self.state.queue;
            let is_known = queue.records.value.contains_key(&owner)
                || queue.scores.value.contains_key(&owner)
                || queue.tickets.value.contains_key(&owner);
            if !is_known {
                return Reply::Lost;
            }
            queue.forget(owner);
            if let Some(place) = queue.list.value.iter().position(|other| *other == owner) {
                queue.list.value.remove(place);
            }
            queue.tidy();
            queue.leave_to_java();
            if self.state.locks[0].is_some() {
                return Reply::Number(0);
            }
        }
        if let Some(first) = self.head() {
            self.publish(Message::Next(first));
        }
        if ended == Reply::BesideData { ended } else { Reply::Number(0) }
    }
}

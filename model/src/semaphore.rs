//! `semaphore/`

use crate::{Counter, ENDLESS, Fault, Message, Ms, Permit, Reply, Run};

/// For how much the clocks of Java can be ahead.
const SLACK: Ms = 500;

impl Run<'_> {
    /// How many permits are available, or the reply of a script that finds no number.
    fn available(&self) -> Result<Option<i64>, Reply> {
        match self.state.available {
            None => Ok(None),
            Some(Counter::Number(number)) => Ok(Some(number)),
            Some(Counter::Text) => Err(Reply::NotALock),
        }
    }

    fn in_use(&self) -> i64 {
        self.state.permits.len() as i64
    }

    /// How many of these permits are in use.
    fn found(&self, ids: &[Permit]) -> i64 {
        ids.iter().filter(|id| self.state.permits.contains_key(id)).count() as i64
    }

    /// Adds permits that came back, if there is a semaphore, and tells how many are available.
    fn add(&mut self, count: i64) -> i64 {
        let mut available = count;
        if let Some(Counter::Number(number)) = &mut self.state.available {
            *number += count;
            available = *number;
        }
        available
    }

    /// `semaphore/acquire`: all of these permits, or none. Removes permits whose leases ended if no others are left.
    pub(crate) fn semaphore_acquire(&mut self, ids: &[Permit], total: i64, lease: Ms) -> Reply {
        let wanted = ids.len() as i64;
        let before = match self.available() {
            Ok(before) => before,
            Err(reply) => return reply,
        };
        let mut available = before.unwrap_or(0);
        if before.is_none_or(|before| before <= wanted) {
            let all = self.in_use();
            let now = self.now;
            self.state.permits.retain(|_, ends| *ends >= now - SLACK);
            let expired = all - self.in_use();
            let first = self.state.permits.values().min().copied();
            if expired > 0 && before.is_some() {
                available = self.add(expired);
                if available > 0 {
                    self.publish(Message::Permits(available));
                }
            }
            if before.is_none() {
                available = total - self.in_use();
            } else if available <= 0 && self.in_use() == 0 {
                // The set of permits was lost, so counting starts again from the total.
                available = total;
            }
            if available < wanted {
                let sum = available + self.in_use();
                return match first {
                    _ if wanted > sum => Reply::TooMany(sum),
                    Some(first) if first < ENDLESS => Reply::Left((first + SLACK - self.now).max(0)),
                    _ => Reply::NoKnownEnd,
                };
            }
        }
        let ends = self.now + lease + SLACK;
        self.state.permits.extend(ids.iter().map(|id| (*id, ends)));
        available -= wanted;
        self.state.available = Some(Counter::Number(available));
        Reply::Permits(available.max(0), available + self.in_use())
    }

    /// `semaphore/renew`: makes the leases longer, if all of these permits are in use.
    pub(crate) fn semaphore_renew(&mut self, ids: &[Permit], lease: Ms) -> Reply {
        if self.found(ids) < ids.len() as i64 {
            return Reply::Lost;
        }
        if lease > 0 {
            for id in ids {
                let ends = self.state.permits.entry(*id).or_default();
                *ends = (*ends).max(self.now + lease + SLACK);
            }
        }
        Reply::Renewed
    }

    /// `semaphore/release`: a semaphore that was deleted is not created again.
    pub(crate) fn semaphore_release(&mut self, ids: &[Permit]) -> Reply {
        let released = self.found(ids);
        if released == 0 {
            return Reply::Lost;
        }
        if self.state.available == Some(Counter::Text) {
            // The number cannot change, so the permits stay, as if their leases had ended.
            self.state.permits.iter_mut().filter(|(id, _)| ids.contains(id)).for_each(|(_, ends)| *ends = 1);
            return Reply::Error;
        }
        self.state.permits.retain(|id, _| !ids.contains(id));
        let is_twice = self.fault == Some(Fault::PermitsComeBackTwice);
        let available = self.add(if is_twice { 2 * released } else { released });
        let told = if available > 0 { self.publish(Message::Permits(available)) } else { Reply::Number(0) };
        if released < ids.len() as i64 { Reply::Lost } else { told }
    }

    /// `semaphore/resize`: permits in use stay.
    pub(crate) fn semaphore_resize(&mut self, total: i64) -> Reply {
        let before = match self.available() {
            Ok(before) => before,
            Err(reply) => return reply,
        };
        let available = total - self.in_use();
        self.state.available = Some(Counter::Number(available));
        if available > 0 && before != Some(available) {
            self.publish(Message::Permits(available));
        }
        Reply::Permits(available, before.map_or(total, |before| before + self.in_use()))
    }

    /// `semaphore/delete`
    pub(crate) fn semaphore_delete(&mut self, total: i64) -> Reply {
        if let Err(reply) = self.available() {
            return reply;
        }
        let deleted = i64::from(self.state.available.take().is_some()) + i64::from(self.in_use() > 0);
        self.state.permits.clear();
        if deleted > 0 {
            self.publish(Message::Permits(total));
        }
        Reply::Number(deleted)
    }

    /// `semaphore/state`: the available permits, with those whose leases ended, and the total.
    pub(crate) fn semaphore_state(&self, total: i64) -> Reply {
        let before = match self.available() {
            Ok(before) => before,
            Err(reply) => return reply,
        };
        let known = before.filter(|before| *before > 0 || self.in_use() > 0);
        let available = known.unwrap_or_else(|| total - self.in_use());
        let expired = self.state.permits.values().filter(|ends| **ends < self.now - SLACK).count() as i64;
        Reply::Permits(available + expired, available + self.in_use())
    }
}

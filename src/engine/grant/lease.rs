//! The lease that the server counts, and when the watchdog renews it or looks at the hold. Pure.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::engine::hold::lease::{self, Rules};

/// A hold is renewed for the first time when it is this old, or after a third of its lease if that is sooner. From then on the server
/// tells of changes of its key. Shorter holds cost no renewal.
const FIRST: Duration = Duration::from_secs(1);

/// The end of a hold that has none.
const NEVER: Moment = Moment::from_nanos(u64::MAX);

/// The lease of one hold of the server.
#[derive(Default)]
pub(super) struct Lease {
    pub(super) granted_at: Option<Moment>,
    /// An owner had a hold.
    pub(super) was_held: bool,
    /// The deadline of what the server granted or renewed last.
    pub(super) until: Moment,
    /// The longest lease that was asked for.
    pub(super) longest: Duration,
    /// The server can keep the lock for longer than a hold lasts.
    pub(super) outlasts: bool,
    /// When the next renewal is due.
    pub(super) renew_at: Option<Moment>,
    pub(super) look: Look,
}

/// What the watchdog has to keep.
#[derive(Default)]
pub(super) struct Wanted {
    /// The longest lease of a renewed hold: a renewal never shortens a lease.
    pub(super) renewed: Option<Duration>,
    /// When the last of the renewed holds ends.
    last_end: Moment,
    /// When the watchdog acts, whatever is renewed: a hold ends that the server keeps for longer.
    acts_at: Option<Moment>,
    pub(super) has_guards: bool,
}

impl Wanted {
    /// `ends`: as [`acts`](Self::acts). `None`: the hold has no end.
    pub(super) fn renews(&mut self, lease: Duration, ends: Option<Moment>) {
        self.renewed = self.renewed.max(Some(lease));
        self.last_end = self.last_end.max(ends.unwrap_or(NEVER));
        ends.into_iter().for_each(|ends| self.acts(ends));
    }

    pub(super) fn acts(&mut self, at: Moment) {
        self.acts_at = self.acts_at.into_iter().chain([at]).min();
    }

    fn is_nothing(&self) -> bool {
        self.renewed.is_none() && self.acts_at.is_none() && !self.has_guards
    }

    /// Whether there is something for a renewal to do.
    fn is_renewed(&self, rules: &Rules) -> bool {
        self.renewed.is_some() || (rules.is_checked && self.has_guards)
    }

    /// The lease that sets the pace of a look.
    pub(super) fn paced_by(&self, rules: &Rules) -> Duration {
        self.renewed.unwrap_or(rules.lease)
    }

    /// Returns the lease to ask for. If all holds end before this lease, it is no longer than what is left, because the release that
    /// follows their end needs the runtime of the program, which perhaps is blocked. It is rounded up to a twentieth of the lease,
    /// so that one command can renew holds that end at other times. With what a deadline is earlier than its lease, that is less than a
    /// sixteenth.
    fn lease_to_ask(&self, now: Moment) -> Option<Duration> {
        let lease = self.renewed?;
        if self.last_end == NEVER {
            return Some(lease);
        }
        let part = (lease / 20).max(Duration::from_millis(1));
        let left = self.last_end.since(now) + lease::margin(lease);
        let parts = left.as_nanos().div_ceil(part.as_nanos());
        Some(lease.min(part * u32::try_from(parts).unwrap_or(u32::MAX).min(1 << 16)))
    }
}

/// Draws the time of the first renewal, so that holds that began together are not all renewed at the same moment.
fn first_renewal(now: Moment, period: Duration, rules: &Rules) -> Moment {
    let least = FIRST.min(period * 2 / 3);
    now.plus(least).plus((rules.within)(least / 2))
}

fn period(lease: Duration, rules: &Rules) -> Duration {
    rules.periods.renewal(lease, rules.is_shared)
}

impl Lease {
    /// Records a hold until `until`, whose lease is renewed or not.
    pub(super) fn is_held(
        &mut self,
        renewed: Option<Duration>,
        until: Moment,
        now: Moment,
        is_gone: bool,
        rules: &Rules,
    ) {
        let had_one = std::mem::replace(&mut self.was_held, true);
        // If the lock was held before, another hold perhaps made the server's lease longer than this hold lasts. Then
        // the watchdog has to act when this hold ends.
        self.outlasts |= had_one;
        self.until = self.until.max(until);
        if let Some(lease) = renewed {
            // The next renewal comes at the latest one period after the command for this lease was sent: the reply
            // perhaps took long, or the renewal that is due next belongs to a longer lease.
            let period = period(lease, rules);
            let next = self.renew_at.unwrap_or_else(|| first_renewal(now, period, rules));
            let sent = until.plus(lease::margin(lease)).minus(lease);
            self.renew_at = Some(next.min(sent.plus(period)));
            if is_gone {
                // An answer said that the server has nothing, perhaps to a command that ran after this acquire. A
                // renewal asks at once, so that a loss is found.
                self.renew_at = Some(now);
            }
        } else if !had_one {
            // Nothing renews it. So a look lets the server tell of its changes.
            self.look.due = Some(first_renewal(now, period(Duration::ZERO, rules), rules));
        }
    }

    /// Records that the server granted a hold until `until`, which nobody has yet.
    pub(super) fn is_granted(&mut self, until: Moment, now: Moment) {
        self.granted_at = Some(now);
        self.until = self.until.max(until);
    }

    pub(super) const fn was_granted(&self) -> bool {
        self.granted_at.is_some()
    }

    /// Records that a command that was sent at `sent` set this lease on the server. Returns the deadline.
    pub(super) fn is_kept_for(&mut self, lease: Duration, sent: Moment) -> Moment {
        let deadline = lease::deadline(sent, lease);
        self.until = self.until.max(deadline);
        deadline
    }

    /// Records that a confirmation set the usual lease.
    pub(super) fn is_confirmed(&mut self, sent: Moment, rules: &Rules) {
        let next = sent.plus(period(rules.lease, rules));
        self.renew_at = self.renew_at.map(|at| at.max(next));
    }

    /// Returns when the watchdog has to act next: for a renewal, or at the end of a hold that the server can keep for
    /// longer.
    pub(super) fn due(&mut self, wanted: &Wanted, now: Moment, rules: &Rules) -> Option<Moment> {
        if wanted.is_nothing() {
            self.renew_at = None;
            return None; // the usual case: no hold, and nothing is kept
        }
        if !wanted.is_renewed(rules) {
            self.renew_at = None;
        } else if self.renew_at.is_none() {
            self.renew_at =
                Some(first_renewal(now, period(wanted.renewed.unwrap_or_default(), rules), rules));
        }
        wanted.acts_at.into_iter().chain(self.renew_at).chain(self.look.due).min()
    }

    /// Begins what was due at `due`, or is done now because everything is. Returns the lease to ask for. Zero: the server changes the
    /// lease only if another client shortened it. `None`: there is nothing to do.
    pub(super) fn begins(
        &mut self,
        wanted: &Wanted,
        due: Moment,
        now: Moment,
        rules: &Rules,
    ) -> Option<Duration> {
        // A hold that comes before it is due is renewed: the scheduler fills a batch, or renews everything. A hold
        // that is due is renewed only if `renew_at` has come: perhaps it is here only because another hold has ended. Nor is one that
        // is here because of a look.
        let look = self.look.due.take_if(|at| *at <= now.max(due)).filter(|_| wanted.has_guards);
        let is_due = match self.renew_at {
            Some(at) if at > now => now < due && (look.is_none() || at <= due),
            _ => true,
        };
        let lease = wanted.lease_to_ask(now);
        if is_due && wanted.is_renewed(rules) {
            self.look.due = None; // the renewal shows the same
            return Some(lease.unwrap_or_default());
        }
        self.look.is_running = look.is_some();
        self.look.is_running.then_some(Duration::ZERO)
    }

    /// Records that the command sent at `sent` for this lease found the hold. Returns whether it was a renewal.
    pub(super) fn found(
        &mut self,
        wanted: &Wanted,
        lease: Duration,
        (sent, now): (Moment, Moment),
        rules: &Rules,
    ) -> bool {
        // Holds that began together were renewed together for the first time. From then on they are spread over the period.
        let (is_first, whole) = (self.look.found_at == Moment::PAST, period(lease, rules));
        let pause = if is_first { whole / 3 + (rules.within)(whole * 2 / 3) } else { whole };
        if self.look.found(now, period(Duration::ZERO, rules)) {
            return false;
        }
        // If the lease lasts until all holds have ended, nothing is left to renew. Perhaps one came meanwhile that ends later.
        let sets_lease = !lease.is_zero() && !rules.is_shared;
        let is_last = sets_lease && wanted.last_end <= lease::deadline(sent, lease);
        let next = sent.plus(pause);
        self.renew_at = Some(if is_last { wanted.last_end.max(next) } else { next });
        true
    }

    /// Records that the command failed. The next try is due at `next`. Returns whether it was a renewal.
    pub(super) fn failed(&mut self, next: Moment) -> bool {
        if std::mem::take(&mut self.look.is_running) {
            self.look.due = Some(next);
            return false;
        }
        self.renew_at = Some(next);
        true
    }
}

/// Looks at a hold because the server said that somebody changed its key. A look is a renewal that writes nothing: whatever a renewal
/// writes would be told to other clients, and those would renew.
#[derive(Default)]
pub(super) struct Look {
    /// When the next look is due.
    pub(super) due: Option<Moment>,
    /// The command under way is a look.
    pub(super) is_running: bool,
    /// When a look or a renewal found the hold last, and until when no look follows. The pause doubles while looks find nothing wrong.
    found_at: Moment,
    pause: Duration,
    /// When the server told of the last change.
    told_at: Moment,
}

impl Look {
    /// The first pause after a look that found the hold.
    const PAUSE: Duration = Duration::from_millis(250);

    /// Records that somebody changed the key. `is_common`: the renewals of others change it, too, so only the first change is followed.
    pub(super) fn is_told(&mut self, now: Moment, is_common: bool, rules: &Rules) {
        let period = period(Duration::ZERO, rules);
        if now.since(self.told_at) > 2 * period {
            self.pause = Duration::ZERO;
        } else if is_common && !self.pause.is_zero() {
            self.pause = period;
        }
        self.told_at = now;
        self.is_due(now.max(self.found_at.plus(self.pause)));
    }

    /// Makes a look due at this time, or before.
    pub(super) fn is_due(&mut self, at: Moment) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Records that a command found the hold. Returns whether it was a look.
    fn found(&mut self, now: Moment, period: Duration) -> bool {
        self.found_at = now;
        let is_look = std::mem::take(&mut self.is_running);
        if is_look {
            self.pause = (2 * self.pause).max(Self::PAUSE).min(period);
        }
        is_look
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::LockConfig;
    use crate::base::options;
    use crate::engine::grant::state::State;
    use crate::engine::grant::state::tests::{LEASE, NOW, SECOND, granted, hold, rules, usual};
    use crate::engine::hold::Term;
    use crate::engine::hold::lease::Periods;

    fn due(state: &mut State, now: Moment) -> Option<Moment> {
        let wanted = state.wanted(now, &rules());
        state.lease.due(&wanted, now, &rules())
    }

    fn begins(state: &mut State, due: Moment, now: Moment) -> Option<Duration> {
        let wanted = state.wanted(now, &rules());
        state.lease.begins(&wanted, due, now, &rules())
    }

    fn found(state: &mut State, lease: Option<Duration>, sent: Moment) {
        let (wanted, lease) = (state.wanted(sent, &rules()), lease.expect("it has begun"));
        state.lease.found(&wanted, lease, (sent, sent), &rules());
        if !lease.is_zero() {
            state.keeps_lease(lease, sent, sent);
        }
    }

    #[test]
    fn the_last_renewal_lasts_until_the_end_of_the_hold() {
        let now = NOW.plus(LEASE - SECOND);
        for part in 1..100 {
            let end = now.plus(SECOND + LEASE / 100 * part);
            let (mut state, _, hold) = granted(usual(Some(end)));
            let at = due(&mut state, now).expect("a renewal");
            let asked = begins(&mut state, at, now).expect("a renewal");
            found(&mut state, Some(asked), now);
            if asked < LEASE {
                let left = end.since(now);
                assert!(asked < left + LEASE / 16 && hold.deadline() == end, "{asked:?} for {left:?}");
                assert_eq!(due(&mut state, now), Some(end), "nothing is left to renew");
            }
        }
    }

    #[test]
    fn a_hold_that_comes_during_the_last_renewal_of_another_is_renewed() {
        let (mut state, part, first) = granted(usual(Some(NOW.plus(LEASE + SECOND))));
        let now = NOW.plus(LEASE - SECOND);
        let asked = begins(&mut state, now, now);
        assert!(asked.is_some_and(|asked| asked < LEASE));
        let until = now.plus(LEASE);
        state.reenters(part, now).expect("it is held");
        assert!(state.holds(part, hold(until, usual(Some(NOW.plus(100 * LEASE)))), (until, now), &rules()));
        found(&mut state, asked, now);
        state.gives_back(part, &first, now);
        assert!(due(&mut state, now).expect("a renewal") < until);
    }

    /// The scheduler takes what is due a little later, to fill a batch. A renewal in place of a look would write.
    #[test]
    fn a_look_that_comes_early_is_no_renewal() {
        let (mut state, ..) = granted(usual(None));
        state.lease.look.is_told(NOW.plus(SECOND / 2), false, &rules());
        let at = due(&mut state, NOW).expect("a look");
        assert_eq!(begins(&mut state, at, NOW), Some(Duration::ZERO));
        found(&mut state, Some(Duration::ZERO), NOW);
        let at = due(&mut state, NOW).expect("the renewal");
        assert_eq!(begins(&mut state, at, NOW), Some(LEASE), "the scheduler fills a batch");
    }

    /// Renewals find the hold, too. So the changes by renewals of others lead to no looks in the end.
    #[test]
    fn a_hold_whose_key_changes_all_the_time_is_only_renewed() {
        for (is_common, most) in [(false, 7), (true, 1)] {
            let ((mut state, ..), mut looks, mut late) = (granted(usual(None)), 0, 0);
            for tick in 1..1_000 {
                let now = NOW.plus(SECOND / 10 * tick);
                state.lease.look.is_told(now, is_common, &rules());
                let at = due(&mut state, now).expect("it is renewed");
                if at <= now {
                    let asked = begins(&mut state, at, now);
                    let is_look = asked == Some(Duration::ZERO);
                    (looks, late) = (looks + u32::from(is_look), late + u32::from(is_look && tick > 500));
                    found(&mut state, asked, now);
                }
            }
            assert!(looks <= most && late == 0, "{looks} looks, {late} of them late");
            let [quiet, now] = [120, 140].map(|seconds| NOW.plus(SECOND * seconds));
            let asked = begins(&mut state, quiet, quiet);
            found(&mut state, asked, quiet);
            state.lease.look.is_told(now, is_common, &rules());
            assert_eq!(state.lease.look.due, Some(now), "after a time without changes, at once");
        }
    }

    /// The server can keep the lock for longer than a hold that nothing renews. Until then, nothing is due beside one look.
    #[test]
    fn the_end_of_a_hold_that_the_server_can_keep_for_longer_is_due() {
        let (mut state, ..) = granted(Term { lease: options::Lease::Fixed(LEASE), ..Term::default() });
        let look = due(&mut state, NOW).expect("a look");
        assert!(look < NOW.plus(LEASE) && begins(&mut state, look, look) == Some(Duration::ZERO));
        found(&mut state, Some(Duration::ZERO), look);
        state.lease.renew_at = None;
        assert_eq!(due(&mut state, look), None);
        state.lease.outlasts = true;
        assert_eq!(due(&mut state, look), Some(NOW.plus(LEASE)));
    }

    /// The margin of its lease is longer than the pace that Java's watchdog sets.
    #[test]
    fn a_reader_with_a_long_lease_is_not_renewed_at_once() {
        let lease = 3_600 * SECOND;
        let config = LockConfig::builder().watchdog_lease(lease).build().expect("valid");
        let rules = Rules { lease, periods: Periods::new(&config), is_shared: true, ..rules() };
        let mut of_server = Lease::default();
        of_server.is_held(Some(lease), lease::deadline(NOW, lease), NOW, false, &rules);
        assert!(of_server.renew_at.expect("a renewal") >= NOW.plus(FIRST));
        of_server.is_held(Some(lease), lease::deadline(NOW, lease), NOW, true, &rules);
        assert_eq!(of_server.renew_at, Some(NOW), "the server perhaps has nothing");
    }
}

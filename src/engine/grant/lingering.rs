//! A read hold that stays on the server for the readers of this client that come later.
//!
//! From its grant on, the hold *lingers*: readers join it, also after the last one has left. When its time is over, the
//! client asks the server once, with a *confirmation*, whether the hold is still there and whether somebody waits. If
//! nobody joined since the last answer, it asks nothing, and the hold ends with the readers that are inside. So nothing
//! polls under one long reader, and a lock that is read once costs what it costs without the option.

use std::time::Duration;

use super::state::{Epoch, State};
use crate::base::clock::Moment;
use crate::engine::hold::lease::Rules;

/// A waiter that the server does not know of waits about this long: the first confirmation after this time makes the
/// lock free for a moment.
const GAP: Duration = Duration::from_secs(1);

/// A hold that lingers.
#[derive(Clone, Copy)]
pub(super) struct Lingering {
    /// How long after the grant, or after a confirmation, the next confirmation is due.
    time: Duration,
    /// When the hold began to linger.
    began: Moment,
    /// Until when readers can join. This is a quarter of `time` after the confirmation is due, so that readers need not
    /// wait for its answer.
    pub(super) until: Moment,
    /// A reader joined since the last confirmation was sent.
    pub(super) was_joined: bool,
}

impl Lingering {
    pub(super) fn new(time: Duration, now: Moment) -> Self {
        Self { time, began: now, until: now.plus(time * 5 / 4), was_joined: false }
    }

    /// When the next confirmation is due.
    pub(super) fn confirms_at(&self) -> Moment {
        self.until.minus(self.time / 4)
    }
}

/// Begins a confirmation that is due. Returns the time of the lingering, and whether the lock becomes free for a moment, whatever the server
/// sees. `None`: the lingering ends instead.
pub(super) fn begins(state: &mut State, epoch: Epoch, now: Moment) -> Option<(Duration, bool)> {
    let lingering = state.lingers.as_mut()?;
    if now >= lingering.until || !lingering.was_joined || state.epoch != epoch {
        state.closes();
        return None;
    }
    lingering.was_joined = false;
    Some((lingering.time, now.since(lingering.began) >= GAP))
}

/// Records that the confirmation sent at `sent` found the hold. `is_wanted`: somebody perhaps waits.
pub(super) fn confirmed(
    state: &mut State,
    sent: Moment,
    is_wanted: bool,
    (epoch, now): (Epoch, Moment),
    rules: &Rules,
) {
    state.keeps_lease(rules.lease, sent, now);
    state.lease.is_confirmed(sent, rules);
    state.is_moved = true;
    let Some(lingering) = &mut state.lingers else { return };
    lingering.until = sent.plus(lingering.time * 5 / 4);
    if is_wanted || state.epoch != epoch || now >= lingering.until {
        state.closes();
    }
}

//! Leases: what is valid, and until when a hold may rely on one. No I/O, and no clock: time is an argument.

use std::time::Duration;

use super::PerMember;
use crate::clock::Moment;
use crate::error::{Error, Result};

/// Long enough for anybody, and short enough that no server overflows.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3_600);

/// Until when a hold may rely on its lease.
///
/// `sent` is when the command was sent that got or renewed the lease: the server counted from later, so it still
/// keeps the lock when this moment comes. The margin is for timers that are late.
pub(crate) fn deadline(sent: Moment, lease: Duration, margin: Duration) -> Moment {
    sent.plus(lease).minus(margin.max(lease / 100))
}

/// The moment from which fewer than `quorum` of the members are left.
pub(crate) fn quorum_deadline(members: impl ExactSizeIterator<Item = Moment>, quorum: usize) -> Moment {
    if members.len() == quorum {
        return members.min().unwrap_or(Moment::PAST);
    }
    let mut deadlines: PerMember<Moment> = members.collect();
    deadlines.sort_unstable_by(|a, b| b.cmp(a));
    deadlines.get(quorum.saturating_sub(1)).copied().unwrap_or(Moment::PAST)
}

/// A lease in the whole milliseconds that Redis counts in, if it is one that can be held with all of these margins.
pub(crate) fn check(
    argument: &'static str,
    lease: Duration,
    margins: impl IntoIterator<Item = Duration>,
) -> Result<Duration> {
    let margin = margins.into_iter().max().unwrap_or_default();
    let shortest = (4 * margin).max(Duration::from_millis(10));
    if !(shortest..=LONGEST).contains(&lease) {
        let [lease, shortest, longest] = [lease, shortest, LONGEST].map(humantime::format_duration);
        let problem = format!("must be from {shortest} to {longest}, not {lease}");
        return Err(Error::InvalidDuration { argument, problem });
    }
    Ok(Duration::from_millis(millis(lease)))
}

pub(crate) fn millis(lease: Duration) -> u64 {
    u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_deadline_counts_from_sending_and_keeps_the_larger_margin() {
        assert_eq!(deadline(at(1_000), 500 * MS, 10 * MS), at(1_490));
        assert_eq!(deadline(at(1_000), 30_000 * MS, 10 * MS), at(30_700));
        assert_eq!(deadline(at(0), 5 * MS, 10 * MS), Moment::PAST);
    }

    #[test]
    fn a_quorum_ends_with_the_member_that_breaks_it() {
        let members = || [at(5), at(9), at(7)].into_iter();
        assert_eq!(quorum_deadline(members(), 1), at(9));
        assert_eq!(quorum_deadline(members(), 2), at(7));
        assert_eq!(quorum_deadline(members(), 3), at(5));
        assert_eq!(quorum_deadline(members(), 4), Moment::PAST);
        assert_eq!(quorum_deadline([at(5), Moment::PAST, at(7)].into_iter(), 3), Moment::PAST);
    }

    #[test]
    fn leases_that_can_not_be_held_are_refused() {
        for lease in [Duration::ZERO, Duration::from_nanos(1), 39 * MS, LONGEST + MS, Duration::MAX] {
            assert!(check("lease", lease, [10 * MS]).is_err(), "{lease:?}");
        }
        assert_eq!(check("lease", Duration::from_micros(40_900), [MS, 10 * MS]).ok(), Some(40 * MS));
        assert_eq!(check("lease", LONGEST, [10 * MS]).ok(), Some(LONGEST));
    }
}

//! Leases: which durations are valid, and until when a hold relies on its lease. No I/O and no clock: time is an argument.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::engine::per_member::PerMember;

/// Returns the deadline: until when a hold relies on its lease.
///
/// `sent` is a time before the command for this lease was sent. The server counts the lease from a later time, so it still keeps
/// the lock at this deadline. The margin covers timers that fire late, and is at most a
/// quarter of the lease.
pub(crate) fn deadline(sent: Moment, lease: Duration, margin: Duration) -> Moment {
    sent.plus(lease).minus(margin.max(lease / 100).min(lease / 4))
}

/// Returns the moment from which fewer than `quorum` members are held.
pub(crate) fn quorum_deadline(members: impl ExactSizeIterator<Item = Moment>, quorum: usize) -> Moment {
    if members.len() == quorum {
        return members.min().unwrap_or(Moment::PAST);
    }
    let mut deadlines: PerMember<Moment> = members.collect();
    deadlines.sort_unstable_by(|a, b| b.cmp(a));
    deadlines.get(quorum.saturating_sub(1)).copied().unwrap_or(Moment::PAST)
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
        assert_eq!(deadline(at(1_000), 20 * MS, 10 * MS), at(1_015), "a quarter at most");
        assert_eq!(deadline(at(0), Duration::ZERO, 10 * MS), Moment::PAST);
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
}

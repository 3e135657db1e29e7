//! Leases: which durations are valid, and until when a hold relies on its lease. No I/O and no clock: time is an argument.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::engine::per_member::PerMember;

/// The shortest time between the deadline of a hold and the end of its lease. It covers timers that fire late: those of tokio have a
/// resolution of 1 ms, and a busy runtime polls a task some milliseconds late. A pause that is longer than this ends leases of any
/// client, so a longer margin would only make each lease shorter.
const MARGIN: Duration = Duration::from_millis(10);

/// Returns the deadline: until when a hold relies on its lease.
///
/// `sent` is a time before the command for this lease was sent. The server counts the lease from a later time, so it still keeps
/// the lock at this deadline. The margin is a hundredth of the lease, or [`MARGIN`] if that is longer, and at most a quarter of the lease.
pub(crate) fn deadline(sent: Moment, lease: Duration) -> Moment {
    sent.plus(lease).minus(MARGIN.max(lease / 100).min(lease / 4))
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
        assert_eq!(deadline(at(1_000), 500 * MS), at(1_490));
        assert_eq!(deadline(at(1_000), 30_000 * MS), at(30_700));
        assert_eq!(deadline(at(1_000), 20 * MS), at(1_015), "a quarter at most");
        assert_eq!(deadline(at(0), Duration::ZERO), Moment::PAST);
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

//! Which server is the master, from what several servers say. Pure: asks nobody.

use std::collections::BTreeMap;
use std::time::Duration;

use super::address::Address;
use super::slots::Map;

/// For this long after a switch, votes of a lower rank are ignored: they come from sentinels that have not heard of the switch.
/// Afterwards they count if more than half of all sentinels agree: perhaps the sentinels were set up anew.
const STALE_FOR: Duration = Duration::from_secs(10);

/// Which of two answers is the later one. Sentinels number their failovers, and most of them have to agree to each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// The number of the last failover that is complete.
    pub(super) failover: u64,
    /// The next failover has begun, and its new master is a master by now.
    pub(super) is_promotion: bool,
}

/// The answer of one server that was asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vote {
    pub(super) rank: Rank,
    pub(super) map: Map,
    /// Who else can be asked.
    pub(super) others: Vec<Address>,
}

impl Vote {
    /// One server is the master of everything.
    pub(super) fn one(rank: Rank, master: Address) -> Self {
        Self { rank, map: Map::of_one(master), others: Vec::new() }
    }
}

/// Of the latest votes, the most frequent one. In a tie, the present map stays. `None`: there is no vote.
pub(super) fn elect(votes: &[Vote], present: Option<&Map>) -> Option<Vote> {
    let latest = votes.iter().map(|vote| vote.rank).max()?;
    let mut counts: BTreeMap<&Vote, usize> = BTreeMap::new();
    for vote in votes.iter().filter(|vote| vote.rank == latest) {
        *counts.entry(vote).or_default() += 1;
    }
    let winner = counts.into_iter().max_by_key(|(vote, count)| (*count, present == Some(&vote.map)));
    winner.map(|(vote, _)| vote.clone())
}

/// Like [`elect`], with the rank of the present master, this long after it became the master. `None`: it stays.
pub(super) fn elect_next(
    votes: &[Vote],
    asked: usize,
    (rank, present): (Rank, &Map),
    since_switch: Duration,
) -> Option<Vote> {
    let vote = elect(votes, Some(present))?;
    let can_go_back = || since_switch >= STALE_FOR && has_majority(&vote, votes, asked);
    (vote.rank >= rank || can_go_back()).then_some(vote)
}

/// Whether more than half of those who were asked agree.
pub(super) fn is_decided(votes: &[Vote], asked: usize) -> bool {
    votes.iter().any(|vote| has_majority(vote, votes, asked))
}

/// Whether more than half of those who were asked say this.
fn has_majority(vote: &Vote, votes: &[Vote], asked: usize) -> bool {
    votes.iter().filter(|other| *other == vote).count() * 2 > asked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> Address {
        Address { host: host.to_owned(), port: 6379 }
    }

    fn map(host: &str) -> Map {
        Map::of_one(at(host))
    }

    fn vote(master: &str) -> Vote {
        Vote::one(Rank::default(), at(master))
    }

    fn vote_in(failover: u64, is_promotion: bool, master: &str) -> Vote {
        Vote::one(Rank { failover, is_promotion }, at(master))
    }

    fn elected(votes: &[Vote], present: &str) -> Option<Map> {
        elect(votes, Some(&map(present))).map(|vote| vote.map)
    }

    #[test]
    fn the_majority_of_those_that_answer_wins() {
        assert_eq!(elected(&[vote("a"), vote("b"), vote("b")], "a"), Some(map("b")));
        assert_eq!(elected(&[vote("b")], "a"), Some(map("b")));
        assert_eq!(elected(&[], "a"), None);
    }

    #[test]
    fn in_a_tie_the_present_master_stays() {
        for present in ["a", "b"] {
            assert_eq!(elected(&[vote("a"), vote("b")], present), Some(map(present)));
        }
    }

    #[test]
    fn a_later_failover_outweighs_those_who_have_not_heard_of_it() {
        let (old, promoted, new) = (vote_in(3, false, "a"), vote_in(3, true, "b"), vote_in(4, false, "b"));
        for later in [promoted.clone(), new.clone()] {
            assert_eq!(elect(&[old.clone(), later.clone(), old.clone()], Some(&map("a"))), Some(later));
        }
        assert!(old.rank < promoted.rank && promoted.rank < new.rank);
    }

    /// The present master is `b`, since failover 4. Three sentinels are asked.
    #[test]
    fn a_vote_of_a_lower_rank_counts_only_late_and_with_a_majority_of_all() {
        let (soon, late) = (Duration::from_millis(9_999), Duration::from_secs(10));
        let (old, same, next) = (vote_in(3, false, "a"), vote_in(4, false, "b"), vote_in(5, false, "c"));
        let promoted = vote_in(4, true, "c");
        let other_of_rank = vote_in(4, false, "a");
        let cases: [(&str, &[&Vote], Duration, Option<&Vote>); 14] = [
            ("nobody answers", &[], late, None),
            ("all confirm the present master", &[&same, &same, &same], soon, Some(&same)),
            ("one knows of the next failover", &[&same, &same, &next], soon, Some(&next)),
            ("one sees the promotion", &[&same, &same, &promoted], soon, Some(&promoted)),
            ("a failover outranks its promotion", &[&promoted, &promoted, &next], soon, Some(&next)),
            (
                "most name another one of this rank",
                &[&same, &other_of_rank, &other_of_rank],
                soon,
                Some(&other_of_rank),
            ),
            ("a tie in this rank", &[&other_of_rank, &same], soon, Some(&same)),
            ("one has not heard of the switch", &[&old, &same], soon, Some(&same)),
            ("all who answer are stale, soon", &[&old, &old, &old], soon, None),
            ("one cut off with the old master, late", &[&old], late, None),
            ("two of three, soon", &[&old, &old], soon, None),
            ("two of three were set up anew, late", &[&old, &old], late, Some(&old)),
            ("all were set up anew, late", &[&old, &old, &old], late, Some(&old)),
            ("two anew, and one knows better, late", &[&old, &old, &same], late, Some(&same)),
        ];
        for (what, votes, since_switch, expected) in cases {
            let votes: Vec<Vote> = votes.iter().copied().cloned().collect();
            let next = elect_next(&votes, 3, (same.rank, &map("b")), since_switch);
            assert_eq!(next.as_ref(), expected, "{what}");
        }
    }

    #[test]
    fn more_than_half_of_all_decide() {
        assert!(!is_decided(&[vote("a"), vote("b")], 3));
        assert!(is_decided(&[vote("a"), vote("b"), vote("b")], 3));
        assert!(!is_decided(&[vote("a")], 2));
        assert!(is_decided(&[vote("a")], 1));
    }
}

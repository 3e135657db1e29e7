//! Which server is the master of each slot. Pure: asks nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::address::Address;

/// A cluster divides its keys into so many slots.
const SLOTS: u16 = 16_384;

/// Which server is the master of each slot. Without a cluster, one server is the master of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Map(Vec<Range>);

/// Slots that follow each other and have the same master.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    /// Masters number their claims. Of two claims to a slot, the one with the higher number counts.
    pub(super) epoch: u64,
    pub(super) master: Address,
}

impl Range {
    /// `None`: there are no such slots.
    pub(super) fn new(first: u16, last: u16, epoch: u64, master: Address) -> Option<Self> {
        (first <= last && last < SLOTS).then_some(Self { first, last, epoch, master })
    }
}

impl Map {
    pub(super) fn of_one(master: Address) -> Self {
        Self(vec![Range { first: 0, last: SLOTS - 1, epoch: 0, master }])
    }

    /// These ranges do not overlap.
    pub(super) fn of_ranges(mut ranges: Vec<Range>) -> Self {
        ranges.sort_unstable();
        Self(ranges)
    }

    pub(crate) fn master(&self, slot: u16) -> Option<&Address> {
        let after = self.0.partition_point(|range| range.first <= slot);
        let range = self.0[..after].last()?;
        (slot <= range.last).then_some(&range.master)
    }

    /// Some master. Without a cluster, the only one.
    pub(super) fn first(&self) -> Option<&Address> {
        self.0.first().map(|range| &range.master)
    }

    /// A slot of each master.
    pub(crate) fn one_slot_of_each(&self) -> Vec<u16> {
        let firsts = self.0.iter().map(|range| (&range.master, range.first));
        firsts.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    pub(crate) fn masters(&self) -> BTreeSet<&Address> {
        self.0.iter().map(|range| &range.master).collect()
    }

    /// Whether this server is the master of any slot.
    pub(super) fn has(&self, server: &Address) -> bool {
        self.0.iter().any(|range| range.master == *server)
    }

    /// Returns the present master of a slot that this server had before.
    pub(super) fn successor<'a>(&'a self, server: &Address, before: &Self) -> Option<&'a Address> {
        let range = before.0.iter().find(|range| range.master == *server)?;
        self.master(range.first)
    }

    /// Sets the master of one slot. Changes nothing if there is no such slot.
    pub(super) fn set(&mut self, slot: u16, master: &Address) {
        let mut claims = self.claims();
        if let Some(claim) = claims.get_mut(usize::from(slot)) {
            *claim = Some((0, master));
        }
        *self = Self::of_claims(&claims);
    }

    /// The slots that have another master in the other map.
    pub(crate) fn difference(&self, other: &Self) -> Vec<RangeInclusive<u16>> {
        let ranges = self.0.iter().chain(&other.0);
        let mut edges: Vec<u16> = ranges.flat_map(|range| [range.first, range.last + 1]).collect();
        edges.sort_unstable();
        edges.dedup();
        // Between two edges, each slot has the same master.
        let parts = edges.windows(2).map(|edges| edges[0]..=edges[1] - 1);
        parts.filter(|part| self.master(*part.start()) != other.master(*part.start())).collect()
    }

    /// Returns, for each slot, the claim that counts of all claims of these maps. A slot without a claim keeps its
    /// master. So does a slot whose claims are older, unless most of those who were asked have answered: a node that
    /// was stopped for a while knows only old claims.
    pub(super) fn updated<'a>(
        &self,
        others: impl IntoIterator<Item = &'a Self>,
        have_most_answered: bool,
    ) -> Self {
        // Mostly all nodes report exactly this map. Then the table of all slots is not built.
        let different: BTreeSet<&Self> = others.into_iter().collect();
        if different.iter().all(|map| *map == self) {
            return self.clone();
        }
        let mut claims: Vec<Option<(u64, &Address)>> = vec![None; usize::from(SLOTS)];
        for Range { first, last, epoch, master } in different.into_iter().flat_map(|map| &map.0) {
            for claim in &mut claims[usize::from(*first)..=usize::from(*last)] {
                *claim = (*claim).max(Some((*epoch, master)));
            }
        }
        for (claim, old) in claims.iter_mut().zip(self.claims()) {
            let is_older = matches!((*claim, old), (Some((epoch, _)), Some((known, _))) if epoch < known);
            *claim = if is_older && !have_most_answered { old } else { claim.or(old) };
        }
        Self::of_claims(&claims)
    }

    /// The claim to each slot.
    fn claims(&self) -> Vec<Option<(u64, &Address)>> {
        let mut claims = vec![None; usize::from(SLOTS)];
        for Range { first, last, epoch, master } in &self.0 {
            claims[usize::from(*first)..=usize::from(*last)].fill(Some((*epoch, master)));
        }
        claims
    }

    fn of_claims(claims: &[Option<(u64, &Address)>]) -> Self {
        let mut ranges: Vec<Range> = Vec::new();
        for (slot, claim) in (0..SLOTS).zip(claims) {
            let Some((epoch, master)) = *claim else { continue };
            match ranges.last_mut() {
                Some(last) if last.last + 1 == slot && last.epoch == epoch && last.master == *master => {
                    last.last = slot;
                }
                _ => ranges.push(Range { first: slot, last: slot, epoch, master: master.clone() }),
            }
        }
        Self(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> Address {
        Address { host: host.to_owned(), port: 6379 }
    }

    fn range(first: u16, last: u16, epoch: u64, master: &str) -> Range {
        Range { first, last, epoch, master: at(master) }
    }

    fn halves(epoch: u64, low: &str, high: &str) -> Map {
        Map::of_ranges(vec![range(8_192, 16_383, epoch, high), range(0, 8_191, epoch, low)])
    }

    /// Whether each slot has the same master in both.
    fn agree(one: &Map, other: &Map) -> bool {
        (0..SLOTS).all(|slot| one.master(slot) == other.master(slot))
    }

    #[test]
    fn a_slot_has_the_master_of_its_range() {
        let map = halves(1, "a", "b");
        assert_eq!((map.master(0), map.master(8_191)), (Some(&at("a")), Some(&at("a"))));
        assert_eq!((map.master(8_192), map.master(16_383)), (Some(&at("b")), Some(&at("b"))));
        let part = Map::of_ranges(vec![range(5, 9, 1, "a")]);
        assert_eq!((part.master(4), part.master(10), part.master(9)), (None, None, Some(&at("a"))));
    }

    #[test]
    fn one_slot_can_move() {
        let mut map = halves(1, "a", "b");
        map.set(100, &at("c"));
        let masters: Vec<_> = [99, 100, 101, 9_000].map(|slot| map.master(slot).unwrap().host.clone()).into();
        assert_eq!(masters, ["a", "c", "a", "b"]);
        assert!(map.has(&at("c")) && !agree(&map, &halves(1, "a", "b")));
    }

    #[test]
    fn slots_that_move_one_by_one_are_one_range_again() {
        for slots in [[100, 101, 102], [102, 101, 100], [100, 102, 101]] {
            let mut map = halves(1, "a", "b");
            slots.into_iter().for_each(|slot| map.set(slot, &at("c")));
            let expected = [
                range(0, 99, 1, "a"),
                range(100, 102, 0, "c"),
                range(103, 8_191, 1, "a"),
                range(8_192, 16_383, 1, "b"),
            ];
            assert_eq!(map.0, expected, "{slots:?}");
        }
    }

    #[test]
    fn a_slot_at_any_edge_can_move() {
        let part = Map::of_ranges(vec![range(0, 9, 1, "a"), range(12, 16_383, 1, "b")]);
        for slot in [0, 9, 10, 11, 12, 16_383] {
            let mut map = part.clone();
            map.set(slot, &at("c"));
            let others = (0..SLOTS).filter(|other| *other != slot);
            assert_eq!(map.master(slot), Some(&at("c")));
            assert!(others.into_iter().all(|other| map.master(other) == part.master(other)), "{slot}");
            map.set(slot, &at("d"));
            assert_eq!(map.master(slot), Some(&at("d")));
        }
    }

    #[test]
    fn the_difference_is_the_slots_that_have_another_master() {
        let (before, mut after) = (halves(1, "a", "b"), halves(2, "a", "c"));
        after.set(100, &at("b"));
        after.set(101, &at("c"));
        assert_eq!(before.difference(&after), [100..=100, 101..=101, 8_192..=16_383]);
        assert_eq!(before.difference(&halves(2, "a", "b")), [], "only the numbers of the claims differ");
        let part = Map::of_ranges(vec![range(5, 9, 1, "a")]);
        assert_eq!(before.difference(&part), [0..=4, 10..=8_191, 8_192..=16_383]);
        assert_eq!(part.difference(&Map::default()), [5..=9]);
    }

    #[test]
    fn a_slot_that_cannot_be_is_not_in_a_map() {
        let (before, mut map) = (halves(1, "a", "b"), halves(1, "a", "b"));
        map.set(16_384, &at("c"));
        assert_eq!(map, before);
        for (first, last) in [(0, 16_384), (20_000, 30_000), (9, 8)] {
            assert_eq!(Range::new(first, last, 1, at("c")), None, "{first}-{last}");
        }
        assert_eq!(Range::new(0, 16_383, 1, at("c")), Some(range(0, 16_383, 1, "c")));
    }

    #[test]
    fn the_claim_with_the_highest_number_counts_however_many_say_otherwise() {
        let (old, new) = (halves(1, "a", "b"), halves(2, "a", "c"));
        let map = old.updated([&old, &new, &old], true);
        assert!(agree(&map, &new));
        assert_eq!(map.successor(&at("b"), &old), Some(&at("c")));
        assert!(agree(&new.updated([&old, &new, &old], true), &new), "also where nothing is news");
    }

    #[test]
    fn a_slot_that_nobody_claims_keeps_its_master() {
        let map = halves(1, "a", "b").updated([&Map::of_ranges(vec![range(0, 8_191, 2, "c")])], false);
        assert_eq!((map.master(1), map.master(9_000)), (Some(&at("c")), Some(&at("b"))));
        assert!(agree(&halves(1, "a", "b").updated([], false), &halves(1, "a", "b")));
    }

    #[test]
    fn a_few_that_know_only_older_claims_do_not_count() {
        let (old, new) = (halves(1, "a", "b"), halves(2, "a", "c"));
        assert!(agree(&new.updated([&old], false), &new));
        assert!(agree(&new.updated([&old], true), &old), "the cluster was made anew");
    }
}

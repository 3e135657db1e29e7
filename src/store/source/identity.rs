//! What identifies a server, whatever its address is.

use std::collections::BTreeSet;

/// The ids that a server told. Two servers are the same one if they have an id in common: the id of its run, which ends with its
/// process, or the id of its data, which a master shares with its replicas. A group of servers collects those of all its masters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    /// The id of the last master comes first: so most clients put servers into the same order.
    last: Option<Box<str>>,
    all: BTreeSet<Box<str>>,
}

impl Identity {
    /// None of the ids: this user has no right to ask.
    pub(crate) fn new(ids: impl IntoIterator<Item = Box<str>>) -> Self {
        let mut ids = ids.into_iter().peekable();
        Self { last: ids.peek().cloned(), all: ids.collect() }
    }

    /// Another server took the place of this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.last = other.last.or_else(|| self.last.take());
        self.all.extend(other.all);
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.all.is_empty()
    }

    /// Whether both are known, and are the same server.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        !self.all.is_disjoint(&other.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(ids: &[&str]) -> Identity {
        Identity::new(ids.iter().map(|id| (*id).into()))
    }

    #[test]
    fn servers_with_an_id_in_common_are_the_same() {
        assert!(identity(&["data", "run"]).meets(&identity(&["data", "other run"])));
        assert!(!identity(&["data", "run"]).meets(&identity(&["other data", "other run"])));
        assert!(!identity(&[]).meets(&identity(&[])));
        assert!(!identity(&[]).is_known());
    }

    #[test]
    fn a_group_is_each_of_its_masters() {
        let mut group = identity(&["old data", "old run"]);
        group.add(identity(&["new data", "new run"]));
        assert!(group.meets(&identity(&["old data"])) && group.meets(&identity(&["new run"])));
        assert!(group < identity(&["old data"]), "the last master decides the order");
        group.add(identity(&[]));
        assert!(group.is_known());
    }
}

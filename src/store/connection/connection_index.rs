//! Which of the connections to a server a command uses.

use crate::base::config::LockConfig;

/// Selects one of the connections to a server, whatever their number is: a master of a cluster has fewer of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionIndex {
    hash: u32,
    purpose: Purpose,
}

/// For which commands a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Most,
    /// Acquires that wait for replicas, and releases behind them.
    Acquires,
    /// Renewals.
    Upkeep,
}

/// Where the commands about a key go: to the master of its slot, on one of the connections to that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// Without a cluster, all keys are in slot 0.
    pub(crate) slot: u16,
    pub(crate) index: ConnectionIndex,
}

impl ConnectionIndex {
    /// The connection for questions while a client starts.
    pub(crate) const FIRST: Self = Self { hash: 0, purpose: Purpose::Most };

    /// Selects the connection for commands about a key.
    pub(crate) fn of(key: &str) -> Self {
        // FNV-1a. Its low bits are weak, so the high ones are mixed in.
        let hash = key
            .bytes()
            .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Self { hash: hash ^ hash >> 16, purpose: Purpose::Most }
    }

    /// Selects the connection for acquires that wait for replicas, beside the one for other commands. It runs one of them at a time,
    /// or a release that has to run after one.
    pub(crate) const fn beside(self) -> Self {
        Self { purpose: Purpose::Acquires, ..self }
    }

    /// Selects the connection for renewals. Only commands that create nothing, lower nothing and end nothing may use it: it has no order
    /// with the others.
    pub(crate) const fn for_upkeep(self) -> Self {
        Self { purpose: Purpose::Upkeep, ..self }
    }

    /// Returns whether this selects the connection for renewals.
    pub(crate) const fn is_for_upkeep(self) -> bool {
        matches!(self.purpose, Purpose::Upkeep)
    }

    /// The same number for all commands about one key.
    pub(crate) const fn number(self) -> u32 {
        self.hash
    }

    /// Returns whether this selects a connection of acquires that wait for replicas.
    pub(crate) const fn waits(self) -> bool {
        matches!(self.purpose, Purpose::Acquires)
    }
}

/// How many connections a client has to one server. The number stays while the server is used, so that the commands about one lock
/// keep their connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionCount {
    commands: u32,
    /// The connections of acquires that wait for replicas. Each master has this number, and masters do not divide it:
    /// such a connection runs one acquire at a time, so fewer connections would mean fewer acquires.
    acquires: u32,
}

impl ConnectionCount {
    /// Divides the connections between so many masters. Each has at least one.
    pub(crate) fn of(config: &LockConfig, masters: usize) -> Self {
        let connections = u32::try_from(config.connections()).unwrap_or(1);
        let masters = u32::try_from(masters).unwrap_or(u32::MAX);
        Self {
            commands: connections.checked_div(masters).unwrap_or(connections).max(1),
            acquires: if config.sync().is_some() { connections } else { 0 },
        }
    }

    /// Returns one index for each connection, in the order of their positions.
    pub(crate) fn all(self) -> impl Iterator<Item = ConnectionIndex> {
        let select = |purpose| move |hash| ConnectionIndex { hash, purpose };
        let most = (0..self.commands).map(select(Purpose::Most));
        most.chain((0..self.acquires).map(select(Purpose::Acquires)))
            .chain([ConnectionIndex::FIRST.for_upkeep()])
    }

    /// Returns the position of the selected connection.
    pub(crate) const fn position(self, ConnectionIndex { hash, purpose }: ConnectionIndex) -> usize {
        let position = match purpose {
            Purpose::Acquires if self.acquires > 0 => self.commands + hash % self.acquires,
            Purpose::Upkeep => self.commands + self.acquires,
            _ => hash % self.commands,
        };
        position as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_share_the_connections_and_each_has_one() {
        let cases =
            [(2, 0, 2), (2, 1, 2), (2, 2, 1), (2, 3, 1), (6, 3, 2), (6, 4, 1), (7, 3, 2), (64, 3, 21)];
        for (connections, masters, expected) in cases {
            let config = LockConfig::builder().connections(connections).build().unwrap();
            let count = ConnectionCount::of(&config, masters);
            assert_eq!(
                count.all().count(),
                expected + 1,
                "{connections} for {masters} masters, and one for renewals"
            );
        }
    }

    #[test]
    fn each_connection_is_selected_by_some_key() {
        let config = LockConfig::builder().connections(6).sync_replicas(1).build().unwrap();
        let count = ConnectionCount::of(&config, 2);
        assert!(count.all().map(|index| count.position(index)).eq(0..10));
        assert_eq!(count.position(ConnectionIndex::of("a").for_upkeep()), 9);
        let mut selected = [false; 9];
        for number in 0..200 {
            let index = ConnectionIndex::of(&number.to_string());
            let (other, waits) = (count.position(index), count.position(index.beside()));
            assert!(other < 3 && (3..9).contains(&waits), "{other} and {waits}");
            selected[other] = true;
            selected[waits] = true;
        }
        assert_eq!(selected, [true; 9]);
        assert_eq!(count.position(ConnectionIndex::FIRST), 0);
    }
}

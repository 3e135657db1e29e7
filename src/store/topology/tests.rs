use std::slice;

use super::*;
use crate::store::connection::ConnectionIndex;
use slots::Range;

fn at(port: u16) -> Address {
    Address { host: "127.0.0.1".to_owned(), port }
}

/// The master of the lower half, and that of the upper half.
fn halves(low: u16, high: u16) -> Map {
    let range = |first, last, master| Range::new(first, last, 1, at(master)).unwrap();
    Map::of_ranges(vec![range(0, 8_191, low), range(8_192, 16_383, high)])
}

/// A topology whose servers are never connected to.
fn topology(map: Map) -> Topology {
    let seed = Endpoint::new("redis://127.0.0.1:1/", None, Duration::from_secs(1)).unwrap();
    let group = Group { discovery: Discovery::Cluster, pollees: vec![(at(1), seed)] };
    Topology::new(group, LockConfig::default(), (&Arc::default(), Upkeep::unused()), (Rank::default(), map))
}

fn hear(topology: &Topology, map: Map) {
    topology.update(slice::from_ref(&Vote { rank: Rank::default(), map, others: Vec::new() }));
}

fn knows(topology: &Topology, server: &Address) -> bool {
    lock(&topology.state).servers.contains_key(server)
}

#[tokio::test]
async fn a_failover_is_a_switch_although_a_redirect_led_to_the_master_just_before() {
    for is_for_once in [false, true] {
        let topology = topology(halves(1, 2));
        topology.record_redirect(100, at(2), is_for_once);
        hear(&topology, halves(1, 3));
        assert_eq!((topology.switches.get(), knows(&topology, &at(2))), (1, false));
    }
}

#[tokio::test]
async fn a_failover_is_a_switch_although_redirects_told_of_all_slots_before() {
    let mut map = halves(1, 1);
    map.set(100, &at(2));
    let topology = topology(map);
    topology.record_redirect(100, at(3), false);
    let mut map = halves(1, 1);
    map.set(100, &at(3));
    hear(&topology, map);
    assert_eq!((topology.switches.get(), knows(&topology, &at(2))), (1, false));
}

#[tokio::test]
async fn a_new_server_stays_while_only_a_redirect_names_it() {
    let topology = topology(halves(1, 2));
    for is_for_once in [true, false] {
        topology.record_redirect(100, at(3), is_for_once);
        hear(&topology, halves(1, 2));
        assert_eq!((topology.switches.get(), knows(&topology, &at(3))), (0, true));
    }
    // Once the other servers name the new one, it is a master like any other.
    hear(&topology, halves(1, 3));
    assert_eq!((topology.switches.get(), knows(&topology, &at(2))), (1, false));
    hear(&topology, halves(1, 4));
    assert_eq!((topology.switches.get(), knows(&topology, &at(3))), (2, false));
}

/// What was sent to it fails at once, and nothing more is sent.
#[tokio::test]
async fn a_server_that_is_no_master_any_more_is_left() {
    let topology = topology(halves(1, 2));
    let old = topology.server(16_383).unwrap();
    hear(&topology, halves(1, 3));
    let fault = old.connection(ConnectionIndex::FIRST).await.err().unwrap();
    assert!(fault.to_string().contains("another server is the master"), "{fault}");
}

/// Without the second change, those who listen would stay where they are if the nodes say the same afterwards.
#[tokio::test]
async fn a_redirect_changes_the_map_unless_it_is_for_once() {
    let topology = topology(halves(1, 2));
    let facts = || (topology.map().master(100).cloned(), topology.changes.get());
    topology.record_redirect(100, at(2), true);
    assert_eq!(facts(), (Some(at(1)), 0));
    for _ in 0..2 {
        topology.record_redirect(100, at(2), false);
        assert_eq!(facts(), (Some(at(2)), 1));
    }
}

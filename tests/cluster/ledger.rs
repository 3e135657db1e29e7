//! The ledger of the load finds what it is for.

use lockkeeper::FencingToken;
use tokio::time::Instant;

use crate::support::MS;
use crate::support::load::{Section, check};

/// Sections of one name, by the milliseconds of their start and end.
fn checked(sections: &[(u32, u32, bool)]) {
    let now = Instant::now();
    let section = |(start, end, is_shared): &(u32, u32, bool)| Section {
        start: now + *start * MS,
        end: now + *end * MS,
        is_shared: *is_shared,
        token: None,
    };
    check("a", sections.iter().map(section).collect());
}

#[test]
fn readers_may_overlap() {
    checked(&[(0, 2, false), (2, 9, true), (3, 5, true), (9, 10, false)]);
}

#[test]
#[should_panic(expected = "overlap")]
fn two_writers_that_overlap_are_found() {
    checked(&[(3, 5, false), (0, 4, false)]);
}

#[test]
#[should_panic(expected = "overlap")]
fn a_writer_beside_a_long_read_is_found() {
    checked(&[(0, 9, true), (1, 3, true), (4, 5, false)]);
}

#[test]
#[should_panic(expected = "overlap")]
fn a_reader_beside_a_long_write_is_found() {
    checked(&[(0, 9, false), (8, 10, true)]);
}

#[test]
#[should_panic(expected = "then")]
fn a_token_that_does_not_grow_is_found() {
    let now = Instant::now();
    let section = |number: u32| Section {
        start: now + number * MS,
        end: now + number * MS,
        is_shared: false,
        token: Some(FencingToken::from(7)),
    };
    check("a", [1, 2].map(section).into());
}

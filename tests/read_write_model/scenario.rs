//! A scenario: what happens, as plain data.
//!
//! Every step can be done in every state, or does nothing. So a scenario stays valid when steps are left out of it.

use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::read_write_model::command::Side;

const STEPS: usize = 200;
const CLIENTS: usize = 3;
pub const MOST_HOLDS: u32 = 4;

const LEASES_MS: [u64; 8] = [30_000, 30_000, 30_000, 10_000, 20_000, 60_000, 120_000, 300_000];
const PAUSES_MS: [u64; 8] = [10_000, 10_000, 10_000, 20_000, 20_000, 30_000, 60_000, 130_000];

#[derive(Clone, Debug)]
pub struct Scenario {
    pub lock: &'static str,
    pub clients: usize,
    pub has_java: bool,
    pub steps: Vec<Numbered>,
}

/// A step with its number, from 1. It keeps the number when others are left out.
pub type Numbered = (usize, Step);

#[derive(Clone, Debug)]
pub enum Step {
    /// A client acquires a side of the lock. If it holds that side already, it does something else with its hold.
    Use {
        client: usize,
        side: Side,
        /// The side if the client holds the write lock.
        side_if_writing: Side,
        lease_ms: u64,
        otherwise: Otherwise,
        fate: Fate,
        /// Whether the client first drops the holds whose lease has ended.
        drops_expired: bool,
    },
    /// A client undoes one of its commands whose outcome it does not know: the oldest, or so many behind it.
    Undo {
        client: usize,
        skip: usize,
    },
    TimePasses {
        ms: u64,
    },
    /// A command arrives once more, or for the first time. It is the last one that was sent up to this step.
    LateCopy {
        of: usize,
        is_undone: bool,
    },
    ClientDies {
        client: usize,
    },
    JavaReads {
        lease_ms: u64,
    },
    JavaRenews,
    /// Somebody forces Java's hold.
    JavaIsForced,
}

/// What a client does with a side that it holds.
#[derive(Clone, Copy, Debug)]
pub enum Otherwise {
    Release,
    Reenter,
    /// Releases an inner hold.
    Leave,
    Renew,
    /// Renews the lock, and leaves its own lease as it is.
    RenewLock,
}

/// What happens to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Answered,
    /// It runs, and the answer is lost.
    Unanswered,
    /// It does not run now. A late copy may.
    Delayed,
}

/// proptest simplifies the parts from left to right. So it leaves out steps first, each that is not needed to fail. It
/// goes through them twice: what needed an early step may be left out later in the same pass.
pub fn scenarios() -> impl Strategy<Value = Scenario> {
    let kept = || vec(weighted(1.0), STEPS);
    let steps: Vec<_> = (1..=STEPS).map(step).collect();
    // A client that is alone gets into deeper nests.
    let setting = (select(vec!["myLock", "{grp}:a"]), 1..=CLIENTS, weighted(0.75));
    (kept(), kept(), steps, setting).prop_map(|(first, second, steps, (lock, clients, has_java))| {
        let is_kept = |number: usize| first[number - 1] && second[number - 1];
        let steps = (1..).zip(steps).filter(|&(number, _)| is_kept(number)).collect();
        Scenario { lock, clients, has_java, steps }
    })
}

fn step(number: usize) -> impl Strategy<Value = Step> {
    let client = || 0..CLIENTS;
    let lease_ms = || select(LEASES_MS.to_vec());
    let side = |reads: u32| prop_oneof![reads => Just(Side::Read), 100 - reads => Just(Side::Write)];
    prop_oneof![
        46 => (client(), side(40), side(70), lease_ms(), otherwise(), fate(), any::<bool>()).prop_map(
            |(client, side, side_if_writing, lease_ms, otherwise, fate, drops_expired)| {
                Step::Use { client, side, side_if_writing, lease_ms, otherwise, fate, drops_expired }
            }
        ),
        15 => (client(), 0..4_usize).prop_map(|(client, skip)| Step::Undo { client, skip }),
        12 => select(PAUSES_MS.to_vec()).prop_map(|ms| Step::TimePasses { ms }),
        20 => (distance(), weighted(0.7)).prop_map(move |(distance, is_undone)| Step::LateCopy {
            of: number.saturating_sub(distance),
            is_undone
        }),
        3 => client().prop_map(|client| Step::ClientDies { client }),
        2 => lease_ms().prop_map(|lease_ms| Step::JavaReads { lease_ms }),
        2 => Just(Step::JavaRenews),
        1 => Just(Step::JavaIsForced),
    ]
}

/// How many steps ago the command was sent. Mostly few: what is long over no longer matters to many scripts.
fn distance() -> impl Strategy<Value = usize> {
    prop_oneof![1..=6_usize, 1..=25_usize, 1..=STEPS]
}

fn otherwise() -> impl Strategy<Value = Otherwise> {
    prop_oneof![
        1 => Just(Otherwise::Release),
        3 => Just(Otherwise::Leave),
        3 => Just(Otherwise::Reenter),
        2 => Just(Otherwise::Renew),
        1 => Just(Otherwise::RenewLock),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![83 => Just(Fate::Answered), 7 => Just(Fate::Unanswered), 10 => Just(Fate::Delayed)]
}

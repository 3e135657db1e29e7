use std::collections::{BTreeSet, VecDeque};

use super::*;
use crate::base::config::LockConfig;
use crate::protocol::{
    Arg, Call, HolderRef, LockKeys, PermitIds, Protocol, Reentrant, Semaphore, record_list,
};

fn enter(outbox: &mut Outbox<u32>, call: u32) -> Entered {
    outbox.enter(|| call)
}

/// Returns an outbox with so many writes in flight that further calls wait.
fn busy() -> Outbox<u32> {
    let mut outbox = Outbox::new(false);
    for _ in 0..IN_FLIGHT {
        assert_eq!(enter(&mut outbox, 0), Entered::Now);
    }
    outbox
}

#[test]
fn calls_wait_while_writes_are_in_flight_and_go_out_together() {
    let mut outbox = busy();
    for call in [1, 2, 3] {
        assert!(matches!(enter(&mut outbox, call), Entered::Waits(_)));
    }
    assert!(outbox.answered(), "the reply makes room for what waits");
    assert_eq!(outbox.take(), [1, 2, 3]);
    assert!(!outbox.written(), "nothing waits");
    assert!(!outbox.answered());
    assert_eq!(enter(&mut outbox, 4), Entered::Now);
}

#[test]
fn where_keys_have_slots_no_call_waits_for_others() {
    let mut outbox = Outbox::new(true);
    assert!((0..1_000).all(|call| enter(&mut outbox, call) == Entered::Now));
}

#[test]
fn no_call_overtakes_those_that_are_being_written() {
    let mut outbox = busy();
    enter(&mut outbox, 1);
    assert!(outbox.answered());
    assert_eq!(outbox.take(), [1]);
    for _ in 1..IN_FLIGHT {
        assert!(!outbox.answered(), "all other writes are answered, and one is not written yet");
    }
    assert!(matches!(enter(&mut outbox, 2), Entered::Waits(_)), "the first one is not written yet");
    assert!(outbox.written(), "now the second one can follow");
    assert_eq!(outbox.take(), [2]);
}

#[test]
fn what_the_server_did_not_run_goes_before_what_waits() {
    let mut outbox = busy();
    enter(&mut outbox, 3);
    assert!(outbox.put_back(vec![1, 2]).is_empty());
    assert_eq!(outbox.take(), [1, 2, 3]);
    assert!(outbox.close().is_empty());
    assert_eq!(outbox.put_back(vec![4]), [4], "the connection is no longer used");
}

#[test]
fn a_call_is_withdrawn_only_while_it_waits() {
    let mut outbox = busy();
    let [Entered::Waits(first), Entered::Waits(second)] = [1, 2].map(|call| enter(&mut outbox, call)) else {
        panic!("they wait")
    };
    assert_eq!(outbox.withdraw(first), Some(1));
    assert_eq!(outbox.withdraw(first), None, "once");
    assert_eq!(outbox.take(), [2]);
    assert_eq!(outbox.withdraw(second), None, "perhaps it is sent already");
}

#[test]
fn nothing_is_sent_on_a_connection_that_perhaps_does_not_work() {
    let mut outbox = Outbox::new(false);
    outbox.hold();
    assert!(matches!(enter(&mut outbox, 1), Entered::Waits(_)));
    assert!(!outbox.answered());
    assert!(outbox.go_on(), "it works");
    assert_eq!(outbox.take(), [1]);

    let mut outbox = busy();
    outbox.hold();
    enter(&mut outbox, 1);
    assert_eq!(outbox.close(), [1], "not sent");
    assert!(!outbox.go_on() && !outbox.answered());
    assert_eq!(enter(&mut outbox, 2), Entered::Closed);
}

/// Everything that can happen, up to three calls that wait: somebody sends what waits, and only one at a time.
#[test]
fn what_waits_is_always_sent_by_somebody() {
    type State = (usize, bool, bool, bool, usize);
    let state_of = |outbox: &Outbox<u32>| -> State {
        (outbox.in_flight, outbox.is_writing, outbox.is_held, outbox.is_closed, outbox.waiting.len())
    };
    const MOST: usize = 2;
    let outbox_in = |(in_flight, is_writing, is_held, is_closed, waiting): State| Outbox {
        most: MOST,
        in_flight,
        is_writing,
        is_held,
        is_closed,
        waiting: (0..waiting).map(|_| Waiting { ticket: Ticket(1), call: 0 }).collect(),
        last: Ticket(1),
    };
    let mut seen = BTreeSet::new();
    let mut open = VecDeque::from([state_of(&Outbox::new(false))]);
    while let Some(state) = open.pop_front() {
        if !seen.insert(state) {
            continue;
        }
        let (in_flight, is_writing, is_held, is_closed, waiting) = state;
        assert!(in_flight <= MOST, "{state:?}");
        assert!(waiting == 0 || in_flight > 0 || is_held, "nobody sends what waits: {state:?}");
        assert!(!is_writing || in_flight > 0, "{state:?}");
        assert!(!is_closed || waiting == 0, "{state:?}");
        let mut next = |event: &dyn Fn(&mut Outbox<u32>)| {
            let mut outbox = outbox_in(state);
            event(&mut outbox);
            open.push_back(state_of(&outbox));
        };
        if waiting < 3 {
            next(&|outbox| _ = outbox.enter(|| 0));
        }
        // Only the sender whose write is in flight puts calls back.
        if waiting < 3 && in_flight > 0 {
            next(&|outbox| _ = outbox.put_back(vec![0]));
        }
        // If a write is still being written, it is in flight but cannot be answered yet.
        if in_flight > usize::from(is_writing) {
            next(&|outbox| _ = outbox.answered());
        }
        if is_writing {
            next(&|outbox| {
                outbox.take();
                let _ = outbox.written();
            });
            next(&|outbox| {
                // All callers have left meanwhile, so nothing is written.
                outbox.take();
                let is_next = outbox.written();
                let goes_on = outbox.answered();
                assert!(!(is_next && goes_on));
            });
        }
        next(&|outbox| _ = outbox.withdraw(Ticket(1)));
        next(&|outbox| outbox.hold());
        next(&|outbox| _ = outbox.go_on());
        next(&|outbox| _ = outbox.close());
    }
    assert!(seen.len() > 40, "{} states", seen.len());
}

#[derive(Debug)]
struct Queued {
    number: usize,
    lock: u32,
    mode: Mode,
    call: Call,
}

impl Piece for Queued {
    fn call(&self) -> &Call {
        &self.call
    }

    fn lock(&self) -> u32 {
        self.lock
    }

    fn mode(&self) -> Mode {
        self.mode
    }
}

fn keys(lock: u32) -> LockKeys {
    Reentrant.keys(format!("{{{lock}}}").into())
}

fn state(lock: u32) -> (u32, Mode, Call) {
    (lock, Mode::Together, Reentrant.state(&keys(lock)))
}

fn release(lock: u32) -> (u32, Mode, Call) {
    let (keys, owner, config) = (keys(lock), Arg::from(1_u64), LockConfig::default());
    let holder = HolderRef { keys: &keys, owner: &owner, grant: 1, total: 1, config: &config };
    (lock, Mode::Together, Reentrant.release(holder, 0))
}

/// A script that has no form for several calls.
fn list(lock: u32) -> (u32, Mode, Call) {
    (lock, Mode::Together, record_list(&keys(lock).lock))
}

/// The numbers of the calls in each command.
fn commands(calls: impl IntoIterator<Item = (u32, Mode, Call)>, by_slot: bool) -> Vec<Vec<usize>> {
    let queued = |(number, (lock, mode, call))| Queued { number, lock, mode, call };
    let groups = grouped(calls.into_iter().enumerate().map(queued).collect(), by_slot);
    groups.iter().map(|group| group.calls.iter().map(|call| call.number).collect()).collect()
}

#[test]
fn calls_of_one_script_go_out_in_one_command() {
    let calls = [state(1), release(2), state(3), list(4), list(5), release(6)];
    assert_eq!(commands(calls, false), [vec![0, 2], vec![1, 5], vec![3], vec![4]]);
}

#[test]
fn a_call_for_many_permits_goes_out_alone() {
    let acquire = |lock: u32, count| {
        let (keys, owner) =
            (Semaphore.keys(format!("{{{lock}}}").into()), PermitIds { client: 1, first: 1, count });
        let (owner, config) = (Arg::Permits(owner), LockConfig::default());
        let holder = HolderRef { keys: &keys, owner: &owner, grant: 1, total: 1, config: &config };
        (lock, Mode::Together, Semaphore.release(holder, 0))
    };
    let calls = [acquire(1, 1), acquire(2, 1_000), acquire(3, 1_000), acquire(4, 2)];
    assert_eq!(commands(calls, false), [vec![0, 3], vec![1], vec![2]]);
}

#[test]
fn calls_about_one_lock_keep_their_order() {
    let calls = [release(1), state(2), release(2), state(1), state(2), release(3)];
    // The release of 2 comes after the first look at 2, and before the second one.
    assert_eq!(commands(calls, false), [vec![0], vec![1, 3], vec![2, 5], vec![4]]);
    let calls = [state(1), release(1), state(1), release(1)];
    assert_eq!(commands(calls, false), [[0], [1], [2], [3]]);
    let calls = [state(1), state(1)];
    assert_eq!(commands(calls, false), [[0, 1]], "a command runs its calls in their order");
}

#[test]
fn a_command_has_no_more_calls_than_its_script_allows() {
    let most = release(1).2.script.most_calls();
    let counts: Vec<usize> = commands((0..150).map(release), false).iter().map(Vec::len).collect();
    assert_eq!(counts, [most, most, 150 - 2 * most]);
}

#[test]
fn in_a_cluster_the_calls_of_a_command_have_one_slot() {
    let calls = [state(1), state(2), state(1), state(2)];
    assert_eq!(commands(calls, true), [[0, 2], [1, 3]]);
}

#[test]
fn what_the_server_refused_is_sent_alone() {
    let alone = |(lock, _, call), mode| (lock, mode, call);
    let calls = [
        alone(state(1), Mode::Alone),
        alone(state(2), Mode::Alone),
        state(3),
        alone(state(4), Mode::Asking),
        state(5),
    ];
    assert_eq!(commands(calls, false), [vec![0], vec![1], vec![2, 4], vec![3]]);
    let without_keys = |lock| {
        let (lock, mode, call) = state(lock);
        (lock, mode, call.without_keys())
    };
    assert_eq!(
        commands([without_keys(1), without_keys(2)], false),
        [[0], [1]],
        "nobody could tell them apart"
    );
    let text = [alone(state(1), Mode::TogetherAsText), alone(state(2), Mode::TogetherAsText), state(3)];
    assert_eq!(commands(text, false), [vec![0, 1], vec![2]]);
}

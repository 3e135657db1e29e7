use super::*;
use crate::base::config::LockConfig;
use crate::protocol::{
    Arg, Call, HolderRef, LockKeys, PermitIds, Protocol, Reentrant, Semaphore, client_read,
};

#[test]
fn a_call_sends_itself_only_while_nothing_is_in_flight() {
    let (outbox, mut entered) = Outbox::new();
    assert_eq!(outbox.enter(|| 1), Entered::Now);
    assert_eq!([2, 3].map(|call| outbox.enter(|| call)), [Entered::Waits, Entered::Waits]);
    outbox.alone_answered();
    assert_eq!(outbox.enter(|| 4), Entered::Waits, "it would overtake those that wait");
    assert_eq!([2, 3, 4].map(|_| entered.try_recv().ok()), [2, 3, 4].map(Some));
    outbox.answered(2);
    outbox.left(1);
    assert_eq!(outbox.enter(|| 5), Entered::Now);
}

#[test]
fn a_call_whose_future_gave_up_is_in_flight_until_a_later_reply() {
    let (outbox, _entered) = Outbox::new();
    assert_eq!(outbox.enter(|| 1), Entered::Now);
    assert_eq!(outbox.enter(|| 2), Entered::Waits, "nobody knows whether the first one was answered");
    outbox.left(1);
    assert_eq!(outbox.enter(|| 3), Entered::Waits);
    outbox.answered(1);
    assert_eq!(outbox.enter(|| 4), Entered::Now);
}

#[test]
fn nothing_is_sent_on_a_connection_that_perhaps_does_not_work() {
    let (outbox, _entered) = Outbox::new();
    assert!(!outbox.hold() && outbox.hold(), "one probe at a time");
    assert_eq!(outbox.enter(|| 1), Entered::Waits);
    outbox.go_on();
    outbox.left(1);
    assert_eq!(outbox.enter(|| 2), Entered::Now);
    outbox.close("it is silent");
    assert_eq!(outbox.enter(|| 3), Entered::Closed);
    assert_eq!(outbox.closed(), Some("it is silent"));
}

#[test]
fn without_a_sender_the_outbox_is_closed() {
    let (outbox, entered) = Outbox::new();
    drop(entered);
    assert_eq!([1, 2].map(|call| outbox.enter(|| call)), [Entered::Now, Entered::Closed]);
}

fn keys(lock: u32) -> LockKeys {
    Reentrant.keys(format!("{{{lock}}}").into())
}

fn state(lock: u32) -> (u32, Mode, Call) {
    (lock, Mode { way: Way::Together, is_text: false }, Reentrant.state(&keys(lock)))
}

fn release(lock: u32) -> (u32, Mode, Call) {
    let (keys, owner, config) = (keys(lock), Arg::from(1_u64), LockConfig::default());
    let holder = HolderRef { keys: &keys, owner: &owner, grant: 1, total: 1, config: &config };
    (lock, Mode { way: Way::Together, is_text: false }, Reentrant.release(holder))
}

/// A script that has no form for several calls.
fn list(lock: u32) -> (u32, Mode, Call) {
    (lock, Mode { way: Way::Together, is_text: false }, client_read([&keys(lock).lock]))
}

/// The numbers of the calls in each command.
fn commands(calls: impl IntoIterator<Item = (u32, Mode, Call)>, by_slot: bool) -> Vec<Vec<usize>> {
    let queued = |(answer, (lock, mode, call))| Waiting { place: Place::new(call), lock, mode, answer };
    let groups = grouped(calls.into_iter().enumerate().map(queued).collect(), by_slot);
    groups.iter().map(|group| group.calls.iter().map(|call| call.answer).collect()).collect()
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
        (lock, Mode { way: Way::Together, is_text: false }, Semaphore.release(holder))
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
        alone(state(1), Mode { way: Way::Alone, is_text: false }),
        alone(state(2), Mode { way: Way::Alone, is_text: false }),
        state(3),
        alone(state(4), Mode { way: Way::Asking, is_text: false }),
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
    let text = [
        alone(state(1), Mode { way: Way::Together, is_text: true }),
        alone(state(2), Mode { way: Way::Together, is_text: true }),
        state(3),
    ];
    assert_eq!(commands(text, false), [vec![0, 1], vec![2]]);
}

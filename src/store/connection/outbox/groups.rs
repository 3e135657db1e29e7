//! Which calls go out in one command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::protocol::{self, Arg, Call};

/// A call that waits to be sent.
#[derive(Debug)]
pub(crate) struct Waiting<A> {
    pub(crate) place: Arc<Place>,
    /// The same number for all calls about one lock. Calls about other locks can have it, too.
    pub(crate) lock: u32,
    pub(crate) mode: Mode,
    /// Where the answer goes.
    pub(crate) answer: A,
}

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) call: Call,
    /// The sender took the call, or its caller withdrew it. Who sets this first has the call.
    is_taken: AtomicBool,
}

impl Place {
    pub(crate) fn new(call: Call) -> Arc<Self> {
        Arc::new(Self { call, is_taken: AtomicBool::new(false) })
    }

    pub(crate) fn takes(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }
}

/// How a call is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mode {
    pub(crate) way: Way,
    /// With the text of the script, which the server did not know.
    pub(crate) is_text: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// With other calls of its script.
    Together,
    /// The server refused the command in which it was with others.
    Alone,
    /// Alone, after `ASKING`.
    Asking,
}

/// Calls that go out in one command.
#[derive(Debug)]
pub(crate) struct Group<A> {
    pub(crate) mode: Mode,
    pub(crate) calls: Vec<Waiting<A>>,
}

/// Divides calls into commands. Calls about one lock keep their order. `by_slot`: the keys of a command have to be in one slot.
pub(crate) fn grouped<A>(calls: Vec<Waiting<A>>, by_slot: bool) -> Vec<Group<A>> {
    let mut groups = Vec::<Group<A>>::new();
    // `kinds[i]`: what all calls of group `i` have in common. There are few groups, so a linear search is enough.
    let mut kinds = Vec::new();
    for waiting in calls {
        let (call, mode) = (&waiting.place.call, waiting.mode);
        let is_alone = mode.way != Way::Together
            || call.keys.is_empty()
            || call.script.most_calls() == 1
            || is_large(call);
        let slot = call.keys.first().filter(|_| by_slot).map(|key| protocol::slot(key));
        let kind = (!is_alone).then_some((std::ptr::from_ref(call.script), mode, slot));
        let overtakes = |at: usize| {
            let mut later = groups[at + 1..].iter().flat_map(|group| &group.calls);
            later.any(|other| other.lock == waiting.lock)
        };
        let has_place = |at: &usize| groups[*at].calls.len() < call.script.most_calls() && !overtakes(*at);
        let found = if is_alone { None } else { kinds.iter().rposition(|other| *other == kind) };
        let at = found.filter(has_place).unwrap_or(groups.len());
        if at == groups.len() {
            kinds.push(kind);
            groups.push(Group { mode, calls: Vec::new() });
        }
        groups[at].calls.push(waiting);
    }
    groups
}

/// Whether a call is about many permits, so that the server needs as long for it as for many calls.
fn is_large(call: &Call) -> bool {
    call.args.iter().any(|arg| matches!(arg, Arg::Permits(permits) if permits.count > 16))
}

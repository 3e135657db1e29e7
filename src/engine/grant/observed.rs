//! The most that the server can have for a grant.

use crate::engine::members::PerMember;
use crate::store::Connection;

/// The most that the server can have. An attempt raises it before anything is sent, and replies correct it. It is locked while a
/// command that changes the count is under way.
#[derive(Default)]
pub(crate) struct Observed {
    /// The server has at most this count. A place in a queue or an intent counts as one.
    pub(crate) at_most: u32,
    /// A full release was sent and not answered. If the next release finds nothing, the unanswered one released the hold.
    pub(crate) was_released: bool,
    /// A release to this count was answered, and no attempt was sent since.
    undone_to: Option<u32>,
    /// The server refused every attempt. So most likely it has nothing, whatever the count says.
    was_only_refused: bool,
    /// The connections on which a first acquire was sent and no later command was answered. A copy of the acquire can still run.
    unanswered: PerMember<u64>,
}

impl Observed {
    /// Whether the server has one hold at most, and every command about it was answered.
    pub(crate) fn is_certainly_one(&self) -> bool {
        self.at_most == 1 && !self.was_released && !self.may_run_late()
    }

    /// An attempt to hold `want` times is about to be sent.
    pub(crate) fn attempts(&mut self, connection: &Connection, want: u32) {
        self.at_most = self.at_most.max(want);
        self.undone_to = None;
        if want == 1 {
            self.unanswered.push(connection.number());
        }
    }

    /// The attempt found the connection ended, or another server has the key. So no copy of it is under way. A copy of an earlier
    /// attempt can still run on that connection. The count stays: in theory, the server ran the attempt before the connection ended.
    pub(crate) fn not_sent(&mut self, connection: &Connection, want: u32) {
        if want == 1
            && let Some(last) = self.unanswered.iter().rposition(|number| *number == connection.number())
        {
            self.unanswered.remove(last);
        }
    }

    /// A command on this connection was answered. Every command that was sent before on this connection has run, or never will.
    pub(crate) fn answered(&mut self, connection: &Connection, at_most: u32) {
        self.unanswered.retain(|number| *number != connection.number());
        self.was_only_refused = false;
        // A first acquire that can still run on another connection can still create a hold.
        self.at_most = at_most.max(u32::from(self.may_run_late()));
    }

    /// An attempt on this connection was refused. Perhaps a part of its script ran, if the attempt `leaves_trace`. The server had at
    /// most the count `before`.
    pub(crate) fn refused(&mut self, connection: &Connection, before: u32, leaves_trace: bool) {
        let was_only_refused = before == 0 || self.was_only_refused;
        self.answered(connection, before.max(leaves_trace.into()));
        self.was_only_refused = was_only_refused && !self.may_run_late();
    }

    /// Whether the server refused every attempt.
    pub(crate) const fn was_only_refused(&self) -> bool {
        self.was_only_refused
    }

    /// A release to this count was answered on this connection.
    pub(crate) fn released(&mut self, connection: &Connection, keep: u32, is_gone: bool) {
        self.answered(connection, if is_gone { 0 } else { keep });
        self.undone_to = Some(keep);
    }

    /// Whether the server can have more than `keep`, and has not answered a release to `keep` yet.
    pub(crate) fn owes_release(&self, keep: u32) -> bool {
        self.at_most > keep && self.undone_to.is_none_or(|to| to > keep)
    }

    /// Whether a first acquire was sent on this connection, and no later command was answered there.
    pub(crate) fn is_unanswered_on(&self, connection: &Connection) -> bool {
        self.unanswered.contains(&connection.number())
    }

    /// Whether a copy of a first acquire can still run.
    pub(crate) fn may_run_late(&self) -> bool {
        !self.unanswered.is_empty()
    }
}

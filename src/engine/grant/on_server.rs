//! What the server can have of one id: a hold, a place in a queue, or a writer's intent. Pure.
//!
//! Only an acquire creates anything, and each says until when it may run, by the server's clock. So after that time, or behind the
//! acquire on its own connection, one release ends everything. Nobody counts copies.

use crate::base::clock::Moment;

/// The number of a connection. No two connections of a client have the same one.
pub(super) type ConnectionNumber = u64;

/// What the server can have of one id. An acquire is recorded before it is sent, so this is right wherever a future is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OnServer {
    /// The server has something, by the newest answer.
    has: bool,
    /// Where an acquire was sent for whose answer somebody waits.
    asked: Option<ConnectionNumber>,
    late: Option<Late>,
}

/// Acquires that were not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Late {
    /// From then on, they can no longer run.
    until: Moment,
    /// Where they were sent. `None`: on different connections.
    connection: Option<ConnectionNumber>,
}

impl OnServer {
    /// Whether the server can have something.
    pub(super) const fn may_exist(&self) -> bool {
        self.has || self.asked.is_some() || self.late.is_some()
    }

    /// Whether the server has something, and every acquire was answered.
    pub(super) const fn is_certain(&self) -> bool {
        self.has && self.asked.is_none() && self.late.is_none()
    }

    /// Until when an acquire without an answer can run.
    pub(super) fn late_until(&self) -> Option<Moment> {
        self.late.map(|late| late.until)
    }

    /// Records an acquire that is about to be sent. If the future of an earlier one was dropped, that one can run until `late`.
    pub(super) fn sends(&mut self, connection: ConnectionNumber, late: Moment) {
        self.waits_no_more(late);
        self.asked = Some(connection);
    }

    /// Records that the acquire did not run where it was sent, and is sent on to another server. If a shutdown gave it up meanwhile, it can
    /// run until `late`.
    pub(super) fn sends_on(&mut self, connection: ConnectionNumber, late: Moment) {
        if self.asked.is_some() {
            self.asked = Some(connection);
        } else {
            self.may_run(late);
        }
    }

    /// Records that nobody waits for the answer any more. If the acquire was sent, it can run until then.
    pub(super) fn waits_no_more(&mut self, until: Moment) {
        let Some(connection) = self.asked.take() else { return };
        let (before, connection) = match self.late {
            Some(late) => (late.until, late.connection.filter(|before| *before == connection)),
            None => (until, Some(connection)),
        };
        self.late = Some(Late { until: until.max(before), connection });
    }

    /// Records that an acquire can run until then that was perhaps sent on unseen.
    pub(super) fn may_run(&mut self, until: Moment) {
        self.late = Some(Late { until, connection: None });
    }

    /// Records the answer to an acquire, which came on this connection. `has`: whether the server has something, from whether it had
    /// something before.
    pub(super) fn answered(&mut self, connection: ConnectionNumber, has: impl FnOnce(bool) -> bool) {
        self.asked = None;
        self.late.take_if(|late| late.connection == Some(connection));
        self.has = has(self.has);
    }

    /// Records the answer to a release that was sent then. False: an acquire can still run, so another release has to follow.
    pub(super) fn released(&mut self, connection: ConnectionNumber, sent: Moment) -> bool {
        self.late.take_if(|late| late.connection == Some(connection) || sent > late.until);
        self.has = false;
        !self.may_exist()
    }

    /// The lease has ended, and no acquire can run.
    pub(super) fn forgets(&mut self) {
        *self = Self::default();
    }
}

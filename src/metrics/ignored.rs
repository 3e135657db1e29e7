//! The same as `recorded.rs`, without the feature `metrics`: nothing is recorded.

use std::borrow::Cow;
use std::marker::PhantomData;

use tokio::time::Instant;

use super::kinds::{Acquired, ConnectionUse, LossCause, Renewed};
use crate::base::clock::Moment;
use crate::base::fault::Sent;
use crate::protocol::LockType;

pub(crate) struct OfClient;

impl OfClient {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) const fn of(&self, _lock_type: LockType) -> OfLock {
        OfLock
    }

    pub(crate) fn in_group(&self, _lock_type: LockType, _group: Cow<'static, str>) -> OfLock {
        OfLock
    }

    pub(crate) const fn undoing(&self) -> Undoing {
        Undoing
    }
}

#[derive(Clone)]
pub(crate) struct OfLock;

impl OfLock {
    pub(crate) const fn group(&self) -> Option<&Cow<'static, str>> {
        None
    }

    pub(crate) const fn acquired(&self, _outcome: Acquired) {}

    pub(crate) const fn waiting(&self) -> Waiting<'_> {
        Waiting(PhantomData)
    }

    pub(crate) const fn granted(&self, _start: Moment, _now: Moment) -> Held {
        Held
    }
}

pub(crate) struct Waiting<'a>(PhantomData<&'a ()>);

impl Waiting<'_> {
    pub(crate) const fn begins(&mut self) {}
}

#[derive(Default)]
pub(crate) struct Held;

impl Held {
    pub(crate) const fn ends(&self, _now: Moment) {}

    pub(crate) const fn is_lost(&self, _cause: LossCause, _now: Moment) {}
}

#[derive(Default)]
pub(crate) struct Renewing;

impl Renewing {
    pub(crate) const fn begins(&mut self, _hold: &Held, _due: Moment) {}

    pub(crate) const fn ends(&mut self, _outcome: Renewed) {}
}

pub(crate) struct Undoing;

pub(crate) struct Commands;

impl Commands {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) const fn sends(&self, _start: Instant) -> Command<'_> {
        Command(PhantomData)
    }
}

pub(crate) struct Command<'a>(PhantomData<&'a ()>);

impl Command<'_> {
    pub(crate) fn ends(self, _result: Result<(), Sent>) {}
}

pub(crate) struct Reconnects;

impl Reconnects {
    pub(crate) const fn of(_connections: ConnectionUse) -> Self {
        Self
    }

    pub(crate) const fn count(&self) {}
}

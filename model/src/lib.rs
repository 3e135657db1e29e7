//! What the scripts of `lua/` do, as one pure function: [`step`]. It has no clock, no network and no Lua.
//!
//! `tests/model/` compares it with the scripts, on a real server and on the one in memory. [`protocol`] explores what clients that keep
//! to the rules can do with it. `docs/internals/model.md` says what is modelled and what is not.
//!
//! All keys are those of one name. Each file here has the scripts of some folders of `lua/`, and each method the name of its script.

#![allow(clippy::exhaustive_enums, clippy::exhaustive_structs, reason = "it is not published")]

mod exclusive;
mod fair;
pub mod protocol;
mod read_write;
mod semaphore;
mod state;

pub use state::*;

/// A call of a script: one variant for each script that decides about a lock.
///
/// `valid_until` is in seconds of the server's time: the script does nothing after them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the arguments are those in the headers of the scripts")]
#[rustfmt::skip]
pub enum Call {
    /// `rlock/acquire`
    Acquire { lock: usize, owner: Owner, lease: Ms, valid_until: i64 },
    /// `rlock/show`
    Show { lock: usize, holder: Holder, count: i64, lease: Ms },
    /// `rlock/renew`, for one hold
    Renew { lock: usize, holder: Holder, lease: Ms },
    /// `rlock/release`
    Release { lock: usize, owner: Owner },
    /// `rlock/state`
    State { lock: usize },
    /// `fenced/acquire`
    Fence { owner: Owner, lease: Ms, valid_until: i64 },
    /// `claims/acquire`
    Claim { locks: Vec<usize>, owner: Owner, lease: Ms, valid_until: i64 },
    /// `fair/acquire`
    Queue { owner: Owner, lease: Ms, allowance: Ms, valid_until: i64 },
    /// `fair/heartbeat`
    Heartbeat { owners: Vec<Owner>, allowance: Ms, valid_until: i64 },
    /// `fair/release`
    Leave { owner: Owner },
    /// `fair/waiters`
    Waiters,
    /// `place`
    Place { owner: Owner },
    /// `read/acquire`
    Read { owner: Owner, grant: i64, lease: Ms, valid_until: i64 },
    /// `read/show`
    ReadShow { owner: Owner, grant: i64, count: i64, lease: Ms },
    /// `read/confirm`
    ReadConfirm { owner: Owner, grant: i64, lease: Ms, stop: Ms, calm: Ms, is_gap: bool },
    /// `read/renew`, for one hold
    ReadRenew { owner: Owner, grant: i64, lease: Ms, keep: Ms },
    /// `read/release`. A grant of 0 stands for any
    ReadRelease { owner: Owner, grant: i64, usual: Ms },
    /// `read/state`
    ReadState,
    /// `write/acquire`
    Write { owner: Owner, lease: Ms, turn: Ms, valid_until: i64 },
    /// `write/release`
    WriteRelease { owner: Owner },
    /// `write/state`
    WriteState,
    /// `semaphore/acquire`
    Take { ids: Vec<Permit>, total: i64, lease: Ms, valid_until: i64 },
    /// `semaphore/renew`, for the permits of one hold
    TakeRenew { ids: Vec<Permit>, lease: Ms },
    /// `semaphore/release`
    Give { ids: Vec<Permit> },
    /// `semaphore/resize`
    Resize { total: i64 },
    /// `semaphore/delete`
    Delete { total: i64 },
    /// `semaphore/state`
    Available { total: i64 },
    /// `announcements/write`
    Announce { owner: Owner, text: u8 },
    /// `announcements/read`
    Announced,
    /// `announcements/remove`
    Unannounce { owner: Owner },
}

/// What a script replies. The names without a comment are those of `lua/includes/replies.lua`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "lua/README.md explains each")]
#[rustfmt::skip]
pub enum Reply {
    /// nil: granted, or done.
    Done,
    /// Granted, with this token.
    Token(i64),
    /// Granted: the place in the list of names, from 1 on, and the token.
    Claimed(usize, i64),
    /// Two numbers about a semaphore, such as the permits that are available and the total.
    Permits(i64, i64),
    /// Another owner holds the lock, for these milliseconds.
    Left(Ms),
    /// An amount, such as the number of connections that a message reached.
    Number(i64),
    /// What a leader announces.
    Text(Owner, u8),
    /// The key at this place of the list of names is no lock.
    NotALockAt(usize),
    /// The call wants more permits than this total.
    TooMany(i64),
    /// One for each waiter.
    List(Vec<Self>),
    /// The server refuses a command of the script: the key has another type.
    Error,
    NoKnownEnd, Free, OtherKind, Queued, NotALock, CannotCount, Lost, Late, BesideData, Renewed, PlaceKept, FirstAndFree, Wanted,
}

/// What a script publishes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// "0" on the channel of the lock.
    Released,
    /// "0" on the channel of this waiter for a fair lock.
    Next(Owner),
    /// On the channel of the read-write lock: "0", or "1", which wakes all.
    ReadWrite(i64),
    /// On the channel of the semaphore: how many permits are available.
    Permits(i64),
    /// "0" on the channel of the announcements.
    Announced,
}

/// A script that is wrong: for the tests that show that [`protocol`] notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Fault {
    AcquireIgnoresItsEnd,
    DeadWaiterStays,
    PermitsComeBackTwice,
    QueuePlaceLost,
    ReleaseDoesNotCompareOwner,
    RenewalCreates,
    TokenRepeats,
    WriterBesideReader,
}

/// Runs a script: changes the state as the script does, and returns its reply and what it publishes. `now_us` is the server's time.
pub fn step(state: &mut State, call: &Call, now_us: i64) -> (Reply, Vec<Message>) {
    step_with(None, state, call, now_us)
}

/// The same with a fault.
pub fn step_with(fault: Option<Fault>, state: &mut State, call: &Call, now_us: i64) -> (Reply, Vec<Message>) {
    state.expire(now_us / 1000);
    let mut run = Run { state, now: now_us / 1000, now_us, fault, published: Vec::new() };
    let reply = run.call(call);
    (reply, run.published)
}

/// One run of a script.
struct Run<'a> {
    state: &'a mut State,
    now: Ms,
    now_us: i64,
    fault: Option<Fault>,
    published: Vec<Message>,
}

impl Run<'_> {
    fn call(&mut self, call: &Call) -> Reply {
        use Call as C;
        if call.valid_until().is_some_and(|end| self.now / 1000 > end)
            && self.fault != Some(Fault::AcquireIgnoresItsEnd)
        {
            return Reply::Late;
        }
        match *call {
            C::Acquire { lock, owner, lease, .. } => self.rlock_acquire(lock, owner, lease),
            C::Show { lock, holder, count, lease } => self.rlock_show(lock, holder, count, lease),
            C::Renew { lock, holder, lease } => self.rlock_renew(lock, holder, lease),
            C::Release { lock, owner } => self.rlock_release(lock, owner),
            C::State { lock } => self.rlock_state(lock),
            C::Fence { owner, lease, .. } => self.fenced_acquire(owner, lease),
            C::Claim { ref locks, owner, lease, .. } => self.claims_acquire(locks, owner, lease),
            C::Queue { owner, lease, allowance, .. } => self.fair_acquire(owner, lease, allowance),
            C::Heartbeat { ref owners, allowance, .. } => self.fair_heartbeat(owners, allowance),
            C::Leave { owner } => self.fair_release(owner),
            C::Waiters => Reply::Number(self.state.queue.list.value.len() as i64),
            C::Place { owner } => {
                let place = self.state.queue.list.value.iter().position(|other| *other == owner);
                Reply::Number(place.map_or(0, |place| place as i64 + 1))
            }
            C::Read { owner, grant, lease, .. } => self.read_acquire(owner, grant, lease),
            C::ReadShow { owner, grant, count, lease } => self.read_show(owner, grant, count, lease),
            C::ReadConfirm { owner, grant, lease, stop, calm, is_gap } => {
                self.read_confirm(owner, grant, lease, stop, calm, is_gap)
            }
            C::ReadRenew { owner, grant, lease, keep } => self.read_renew(owner, grant, lease.max(keep)),
            C::ReadRelease { owner, grant, usual } => self.read_release(owner, grant, usual),
            C::ReadState => self.read_state(),
            C::Write { owner, lease, turn, .. } => self.write_acquire(owner, lease, turn),
            C::WriteRelease { owner } => self.write_release(owner),
            C::WriteState => self.write_state(),
            C::Take { ref ids, total, lease, .. } => self.semaphore_acquire(ids, total, lease),
            C::TakeRenew { ref ids, lease } => self.semaphore_renew(ids, lease),
            C::Give { ref ids } => self.semaphore_release(ids),
            C::Resize { total } => self.semaphore_resize(total),
            C::Delete { total } => self.semaphore_delete(total),
            C::Available { total } => self.semaphore_state(total),
            C::Announce { owner, text } => self.announcements_write(owner, text),
            C::Announced => {
                self.state.announcement.map_or(Reply::Done, |said| Reply::Text(said.owner, said.text))
            }
            C::Unannounce { owner } => self.announcements_remove(owner),
        }
    }

    /// Publishes a message. Returns how many connections it reaches.
    fn publish(&mut self, message: Message) -> Reply {
        self.published.push(message);
        Reply::Number(self.state.listeners)
    }

    /// Milliseconds until a time, as PTTL says it.
    fn left(&self, ends: Option<Ms>) -> Reply {
        ends.map_or(Reply::NoKnownEnd, |ends| Reply::Left(ends - self.now))
    }
}

impl Call {
    /// Until when the call can take effect, if it expires.
    pub fn valid_until(&self) -> Option<i64> {
        match *self {
            Self::Acquire { valid_until, .. }
            | Self::Fence { valid_until, .. }
            | Self::Claim { valid_until, .. }
            | Self::Queue { valid_until, .. }
            | Self::Heartbeat { valid_until, .. }
            | Self::Read { valid_until, .. }
            | Self::Write { valid_until, .. }
            | Self::Take { valid_until, .. } => Some(valid_until),
            _ => None,
        }
    }
}

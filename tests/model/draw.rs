//! Draws calls, and what else happens to the keys: time passes, and other programs and Java change them.

use fastrand::Rng;
use lockkeeper_model::{
    Call, Counter, ENDLESS, Hash, Holder, Intent, Lock, Mode, Owner, Permit, Read, State,
};

use super::wire::JAVA;

/// What the calls of some steps are about, so that they meet.
#[derive(Clone, Copy, Debug)]
pub enum Theme {
    Alone,
    Claims,
    Fair,
    ReadWrite,
    Semaphore,
}

pub const THEMES: [Theme; 5] = [Theme::Alone, Theme::Claims, Theme::Fair, Theme::ReadWrite, Theme::Semaphore];

/// The longest wait of a Java client, as our clients assume it.
const JAVA_WAIT: i64 = 300_000;

pub struct Dice {
    pub rng: Rng,
    pub theme: Theme,
}

impl Dice {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    fn lease(&mut self) -> i64 {
        self.pick(&[20_000, 30_000, 30_000, 60_000, 120_000, 300_000])
    }

    fn ids(&mut self) -> Vec<Permit> {
        let first = self.rng.u8(1..=6);
        (first..=first + self.rng.u8(0..3)).collect()
    }

    /// A call of a script.
    pub fn call(&mut self) -> Call {
        let theme = if self.rng.u8(..20) == 0 { self.pick(&THEMES) } else { self.theme };
        let valid_until = if self.rng.u8(..16) == 0 { 1_000_000_000 } else { 9_999_999_999 };
        let (owner, lock, lease) = (self.rng.u8(1..=3), self.rng.usize(..3), self.lease());
        let (lock, is_look) = (if matches!(theme, Theme::Claims) { lock } else { 0 }, self.rng.u8(..4) == 0);
        let (holder, renews, count) =
            (Holder::Owner(owner), if is_look { 0 } else { lease }, self.rng.i64(1..=3));
        match theme {
            Theme::Alone => match self.rng.u8(..16) {
                0..=2 => Call::Acquire { lock, owner, lease, valid_until },
                3..=5 => Call::Fence { owner, lease, valid_until },
                6 => Call::Show { lock, holder, count, lease },
                7 => Call::Renew { lock, holder, lease: renews },
                8..=10 => Call::Release { lock, owner },
                11 => Call::State { lock },
                12 => Call::Announced,
                13 => Call::Unannounce { owner },
                _ => Call::Announce { owner, text: self.rng.u8(..2) },
            },
            Theme::Claims => match self.rng.u8(..10) {
                0..=4 => {
                    let mut locks = vec![0, 1, 2];
                    self.rng.shuffle(&mut locks);
                    locks.truncate(self.rng.usize(1..=3));
                    Call::Claim { locks, owner, lease, valid_until }
                }
                5 => Call::Acquire { lock, owner, lease, valid_until },
                6 => Call::Renew { lock, holder, lease: renews },
                _ => Call::Release { lock, owner },
            },
            Theme::Fair => {
                let allowance = self.pick(&[0, 6_000, 30_000, 30_000]);
                match self.rng.u8(..16) {
                    0..=6 => Call::Queue { owner, lease, allowance, valid_until },
                    7..=9 => {
                        let mut owners = vec![1, 2, 3];
                        self.rng.shuffle(&mut owners);
                        owners.truncate(self.rng.usize(1..=3));
                        Call::Heartbeat { owners, allowance: allowance.max(6_000), valid_until }
                    }
                    10..=12 => Call::Leave { owner },
                    13 => Call::Waiters,
                    14 => Call::Place { owner },
                    _ => Call::Renew { lock, holder, lease: renews },
                }
            }
            Theme::ReadWrite => {
                let (owner, grant, usual) = (self.rng.u8(4..=7), self.rng.i64(1..=3), 30_000);
                let holder = Holder::Writer(owner);
                match self.rng.u8(..24) {
                    0..=6 => Call::Read { owner, grant, lease, valid_until },
                    7 => Call::ReadShow { owner, grant, count, lease },
                    8 => {
                        let (stop, is_gap) = (self.pick(&[20, 5_000]), self.rng.bool());
                        Call::ReadConfirm { owner, grant, lease, stop, calm: stop, is_gap }
                    }
                    9 | 10 => {
                        Call::ReadRenew { owner, grant, lease: renews, keep: self.pick(&[0, 0, 40_000]) }
                    }
                    11..=13 => {
                        let (owner, grant) =
                            if self.rng.u8(..8) == 0 { (JAVA[0], 0) } else { (owner, grant) };
                        Call::ReadRelease { owner, grant, usual }
                    }
                    14 => Call::ReadState,
                    15..=18 => Call::Write { owner, lease, turn: self.pick(&[0, 1_000]), valid_until },
                    19 => Call::Show { lock: 0, holder, count, lease },
                    20 => Call::Renew { lock: 0, holder, lease: renews },
                    21 | 22 => Call::WriteRelease { owner },
                    _ => Call::WriteState,
                }
            }
            Theme::Semaphore => {
                let total = self.rng.i64(1..=4);
                match self.rng.u8(..16) {
                    0..=6 => Call::Take { ids: self.ids(), total, lease, valid_until },
                    7 | 8 => Call::TakeRenew { ids: self.ids(), lease: renews },
                    9..=12 => Call::Give { ids: self.ids() },
                    13 => Call::Resize { total },
                    14 if self.rng.bool() => Call::Delete { total },
                    _ => Call::Available { total },
                }
            }
        }
    }

    /// Lets something happen to the keys of this theme.
    pub fn disturb(&mut self, state: &mut State, now: i64) {
        match (self.theme, self.rng.u8(..24)) {
            (_, 0..=3) => self.time_passes(state),
            (Theme::Alone | Theme::Claims | Theme::Fair, 4) => self.change_lock(state, now),
            (Theme::Alone | Theme::Claims, 5) => {
                let number = self.pick(&[-5, 0, 7, 9_000_000_000_000_000, i64::MAX - 1, i64::MAX]);
                let counter = self.pick(&[
                    None,
                    Some(Counter::Text),
                    Some(Counter::Number(number)),
                    Some(Counter::Number(number)),
                ]);
                (state.counter, state.claims) = (counter, counter);
            }
            (Theme::Fair, 5..=8) => self.change_queue(state, now),
            (Theme::ReadWrite, 4..=6) => self.change_readers(state, now),
            (Theme::Semaphore, 4) => self.change_permits(state, now),
            _ => {}
        }
        state.listeners = self.rng.i64(0..3);
    }

    fn time_passes(&mut self, state: &mut State) {
        let by = self.pick(&[1, 9, 1_003, 11_017, 33_029, 70_031, 310_037]);
        for_each_time(state, &mut |time, scale| *time -= by * scale);
    }

    fn change_lock(&mut self, state: &mut State, now: i64) {
        let lock =
            &mut state.locks[if matches!(self.theme, Theme::Claims) { self.rng.usize(..3) } else { 0 }];
        match (self.rng.u8(..8), lock) {
            (0, lock) => *lock = None,
            (1, lock) => *lock = Some(Lock::Other),
            (2, Some(Lock::Hash(hash))) if hash.mode.is_none() => hash.has_data = true,
            (3, Some(Lock::Hash(hash))) => hash.ends = None,
            (4, Some(Lock::Hash(hash))) if hash.mode.is_none() => {
                hash.holders.insert(Holder::Owner(JAVA[0]), 1);
            }
            (number, lock) => {
                let owner = if number == 5 { 4 } else { JAVA[0] };
                let holders = [(Holder::Owner(owner), 2)].into();
                let mode = (owner == 4).then_some(Mode::Read);
                *lock = Some(Lock::Hash(Hash { mode, holders, has_data: false, ends: Some(now + 45_000) }));
            }
        }
    }

    /// Java queues, and removes others; another program removes a part of what is stored about a waiter.
    fn change_queue(&mut self, state: &mut State, now: i64) {
        let queue = &mut state.queue;
        let waiter = self.rng.u8(1..=3);
        let java = self.pick(&JAVA);
        match self.rng.u8(..10) {
            0..=3 if !queue.list.value.contains(&java) => {
                queue.list.value.push(java);
                queue.scores.value.insert(java, now + JAVA_WAIT);
            }
            4 => queue.list.value.retain(|other| *other != waiter),
            5 => drop(queue.scores.value.remove(&self.pick(&[waiter, java]))),
            6 => drop(queue.records.value.remove(&waiter)),
            7 => drop(queue.tickets.value.remove(&waiter)),
            8 => self.rng.shuffle(&mut queue.list.value),
            _ => {
                queue.list.value.retain(|other| *other != waiter);
                queue.scores.value.remove(&waiter);
            }
        }
        for ends in [&mut queue.list.ends, &mut queue.records.ends] {
            *ends = ends.filter(|_| self.rng.u8(..4) > 0);
        }
        state.expire(now);
    }

    /// Java reads and renews; keys are removed; somebody's client stops readers.
    fn change_readers(&mut self, state: &mut State, now: i64) {
        let java = JAVA[0];
        let owner = self.rng.u8(4..=8);
        let lease = self.lease();
        let is_written = state.hash(0).is_some_and(|hash| hash.mode != Some(Mode::Read));
        match (self.rng.u8(..10), &mut state.locks[0]) {
            (0..=2, Some(Lock::Hash(hash))) if !is_written => {
                let count = hash.holders.entry(Holder::Owner(java)).or_insert(0);
                *count = (*count + 1).min(3);
                let number = u8::try_from(*count).expect("at most 3");
                hash.ends = hash.ends.map(|ends| ends.max(now + lease));
                state.reads.insert((java, number), Read { grant: 1, ends: now + lease });
            }
            (3, Some(Lock::Hash(hash))) if hash.holders.contains_key(&Holder::Owner(java)) => {
                hash.ends = Some(now + 30_000);
                let keys = state.reads.iter_mut().filter(|((owner, _), _)| *owner == java);
                keys.for_each(|(_, read)| read.ends = now + 30_000);
            }
            (4 | 5, _) => state.reads.retain(|(reader, _), _| *reader != owner),
            (6, lock) => *lock = None,
            (7, _) => {
                let calm = self.pick(&[20, 5_000]);
                state.intent =
                    Some(Intent { calm, writer: None, ends: now + calm + self.pick(&[20, 5_000]) });
            }
            (8, _) => state.intent = None,
            _ => {}
        }
    }

    fn change_permits(&mut self, state: &mut State, now: i64) {
        let id = self.rng.u8(1..=8);
        match self.rng.u8(..6) {
            0 => state.available = None,
            1 => state.available = Some(Counter::Text),
            2 => state.available = Some(Counter::Number(self.rng.i64(-2..=3))),
            3 => drop(state.permits.insert(id, if self.rng.bool() { ENDLESS } else { now + 25_000 })),
            4 => state.permits.clear(),
            _ => drop(state.permits.remove(&id)),
        }
    }
}

/// Changes each time of a state: `f` gets it, and how many of its units are a millisecond.
pub fn for_each_time(state: &mut State, f: &mut dyn FnMut(&mut i64, i64)) {
    let queue = &mut state.queue;
    let ends =
        [&mut queue.list.ends, &mut queue.scores.ends, &mut queue.records.ends, &mut queue.tickets.ends];
    let locks = state.locks.iter_mut().filter_map(|lock| match lock {
        Some(Lock::Hash(hash)) => hash.ends.as_mut(),
        _ => None,
    });
    let of_keys = locks.chain(ends.into_iter().flatten());
    let of_items = state.reads.values_mut().map(|read| &mut read.ends).chain(queue.scores.value.values_mut());
    let of_records = queue.records.value.values_mut().map(|record| &mut record.until);
    let of_permits = state.permits.values_mut().filter(|ends| **ends < ENDLESS);
    let others = [
        state.intent.as_mut().map(|intent| &mut intent.ends),
        state.announcement.as_mut().map(|said| &mut said.ends),
    ];
    let all = of_keys.chain(of_items).chain(of_records).chain(of_permits).chain(others.into_iter().flatten());
    all.for_each(|time| f(time, 1));
    queue.tickets.value.values_mut().for_each(|ticket| f(ticket, 1000));
}

/// The other owner of a list.
pub fn is_reader(holder: &Holder) -> Option<Owner> {
    match holder {
        Holder::Owner(owner) => Some(*owner),
        Holder::Writer(_) => None,
    }
}

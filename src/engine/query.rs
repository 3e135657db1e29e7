//! Questions to the server, and the one command that ends what is not ours.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::Engine;
use super::gather::{gather, is_decided};
use super::grant::Target;
use super::handle::{Handle, Member, check_name};
use super::kind::Settled;
use super::retry::Tries;
use crate::error::{Error, Result};
use crate::script::{self, Arg, Call, Reply};
use crate::store::{Fault, FaultKind, Sent};

/// What the server knows of a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) owners: Vec<Holding>,
    pub(crate) is_read_write: bool,
}

/// What one owner holds.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) owner: String,
    pub(crate) holds: u64,
    /// How long its lease lasts; the longest there is, if it has no expiry. `None`: it ended, and the server has not
    /// noticed.
    pub(crate) left: Option<Duration>,
    /// The number of its grant, for a read hold.
    grant: u64,
}

/// `None`: the lock is free.
pub(crate) async fn inspect(engine: &Engine, name: &str) -> Result<Option<Found>> {
    check_name(name)?;
    let key = engine.key(name);
    let found = ask(engine, &key).await.map_err(|fault| Error::of_lock(name, fault))?;
    Ok(Some(found).filter(|found| found.left().is_some()))
}

async fn ask(engine: &Engine, key: &Arc<str>) -> Result<Found, Fault> {
    Found::read(&run(engine, key, &script::inspect(key)).await?)
}

pub(crate) async fn is_locked(handle: &Handle) -> Result<bool> {
    let (all, quorum) = (handle.members.len(), handle.quorum);
    let count = |answers: &Answers| {
        let held = answered(answers).filter(|(_, found)| found.left().is_some()).count();
        (held, answered(answers).count() - held)
    };
    let is_decided = |(held, free)| is_decided(held, free, quorum, all);
    let answers = find(handle, |answers| is_decided(count(answers))).await?;
    let (held, free) = count(&answers);
    if is_decided((held, free)) { Ok(held >= quorum) } else { Err(failure(handle, answers)) }
}

/// `None`: the lock is free. What has no expiry has the longest lease there is. Of several members, the moment from which
/// fewer than a quorum of those that answered are held.
pub(crate) async fn remaining_lease(handle: &Handle) -> Result<Option<Duration>> {
    let answers = find_quorum(handle).await?;
    let mut left: Vec<Duration> = answered(&answers).filter_map(|(_, found)| found.left()).collect();
    left.sort_unstable_by(|a, b| b.cmp(a));
    Ok(left.get(handle.quorum - 1).copied())
}

/// Ends the holds there are, whose ever they are. False: there were none.
///
/// The holders are looked up first and then named, so that a copy of the command that runs late can not end the hold
/// of somebody who came after.
pub(crate) async fn force_unlock(handle: &Handle) -> Result<bool> {
    let answers = find_quorum(handle).await?;
    let was_held = answered(&answers).any(|(_, found)| found.left().is_some());
    let forcing = answered(&answers).flat_map(|(member, found)| {
        found.owners.iter().map(move |holding| force(&handle.members[member].target, holding))
    });
    try_join_all(forcing).await.map_err(|fault| Error::of_lock(handle.name(), fault))?;
    Ok(was_held)
}

async fn force(target: &Target, holding: &Holding) -> Result<Settled, Fault> {
    let owner = Arg::Text(holding.owner.as_str().into());
    let call = target.kind.release(target.of(&owner, holding.grant), 0);
    let lock = &target.keys.lock;
    Settled::read(&run(&target.engine, lock, &call).await?, lock)
}

/// What the servers of the members answered, each with the index of its member.
type Answers = [(usize, Result<Found>)];

fn answered(answers: &Answers) -> impl Iterator<Item = (usize, &Found)> {
    answers.iter().filter_map(|(member, answer)| Some((*member, answer.as_ref().ok()?)))
}

/// Why too few of them answered.
fn failure(handle: &Handle, answers: Vec<(usize, Result<Found>)>) -> Error {
    let late = || Fault::new(FaultKind::TimedOut, Sent::Unknown, "too few servers answered in time");
    let error = answers.into_iter().find_map(|(_, answer)| answer.err());
    error.unwrap_or_else(|| Error::of_lock(handle.name(), late()))
}

/// What at least a quorum of the members answered.
async fn find_quorum(handle: &Handle) -> Result<Vec<(usize, Result<Found>)>> {
    let is_enough = |answers: &Answers| answered(answers).count() >= handle.quorum;
    let answers = find(handle, is_enough).await?;
    if is_enough(&answers) { Ok(answers) } else { Err(failure(handle, answers)) }
}

/// Asks each member, which has to be a lock of its kind, until it is decided.
async fn find(
    handle: &Handle,
    decide: impl Fn(&Answers) -> bool + Send + Sync,
) -> Result<Vec<(usize, Result<Found>)>> {
    handle.check()?;
    Ok(gather(handle.members.iter().map(ask_member), decide).await)
}

async fn ask_member(member: &Member) -> Result<Found> {
    let answer = ask(&member.target.engine, &member.target.keys.lock).await;
    answer.map_err(|fault| member.error(fault))?.of_kind(member)
}

async fn run(engine: &Engine, key: &str, call: &Call) -> Result<Reply, Fault> {
    let mut tries = Tries::new(engine);
    loop {
        match run_once(engine, key, call).await {
            Err(fault) => tries.again(fault).await?,
            answer => return answer,
        }
    }
}

async fn run_once(engine: &Engine, key: &str, call: &Call) -> Result<Reply, Fault> {
    let store = &engine.store;
    store.run(&store.route(store.lane(key)).await?, call).await
}

impl Found {
    /// How long the last lease lasts. `None`: the lock is free.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.owners.iter().filter_map(|holding| holding.left).max()
    }

    /// The holds of the member's kind.
    fn of_kind(mut self, member: &Member) -> Result<Self> {
        let kind = member.target.kind;
        if !self.owners.is_empty() && self.is_read_write != kind.is_read_write() {
            return Err(member.other_kind());
        }
        self.owners.retain_mut(|holding| match kind.owner(&holding.owner) {
            Some(owner) => {
                holding.owner = owner.to_owned();
                true
            }
            None => false,
        });
        Ok(self)
    }

    fn read(reply: &Reply) -> Result<Self, Fault> {
        let unexpected = || Fault::unexpected(reply);
        let Reply::List(list) = reply else { return Err(unexpected()) };
        let mut found = Self::default();
        for row in list.chunks(4) {
            let [Reply::Text(field), Reply::Text(value), Reply::Int(left), Reply::Text(grant)] = row else {
                return Err(unexpected());
            };
            if field == "mode" {
                found.is_read_write = true;
                continue;
            }
            let left = match left {
                -2 => None,
                left => Some(u64::try_from(*left).map_or(Duration::MAX, Duration::from_millis)),
            };
            let number = |text: &str| text.parse().unwrap_or_default();
            let (owner, holds, grant) = (field.clone(), number(value), number(grant));
            found.owners.push(Holding { owner, holds, left, grant });
        }
        Ok(found)
    }
}

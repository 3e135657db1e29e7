//! Questions to the server, and the one command that ends what is not ours.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use smallvec::smallvec;

use super::gather::{gather, is_decided};
use super::grant::Target;
use super::handle::{Handle, Member, check_name};
use super::kind::Settled;
use super::retry::Tries;
use super::{Engine, PerMember};
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
    let answers = find(handle, |answers| {
        let held = answers.iter().flatten().filter(|found| found.left().is_some()).count();
        is_decided(held, answers.iter().flatten().count() - held, quorum, all)
    })
    .await?;
    let held = answers.found.iter().flatten().filter(|found| found.left().is_some()).count();
    let unknown = all - answers.found.iter().flatten().count();
    if held < quorum && held + unknown >= quorum { Err(answers.failure(handle)) } else { Ok(held >= quorum) }
}

/// `None`: the lock is free. What has no expiry has the longest lease there is. Of several members, the moment from which
/// fewer than a quorum of those that answered are held.
pub(crate) async fn remaining_lease(handle: &Handle) -> Result<Option<Duration>> {
    let found = find_quorum(handle).await?;
    let mut left: Vec<Duration> = found.iter().filter_map(Found::left).collect();
    left.sort_unstable_by(|a, b| b.cmp(a));
    Ok(left.get(handle.quorum - 1).copied())
}

/// Ends the holds there are, whose ever they are. False: there were none.
///
/// The holders are looked up first and then named, so that a copy of the command that runs late can not end the hold
/// of somebody who came after.
pub(crate) async fn force_unlock(handle: &Handle) -> Result<bool> {
    let found = find_quorum(handle).await?;
    let was_held = found.iter().any(|found| found.left().is_some());
    let mut forcing = Vec::new();
    for (member, found) in handle.members.iter().zip(found) {
        forcing.extend(found.owners.into_iter().map(|holding| force(member.target.clone(), holding)));
    }
    try_join_all(forcing).await.map_err(|fault| Error::of_lock(handle.name(), fault))?;
    Ok(was_held)
}

async fn force(target: Target, holding: Holding) -> Result<Settled, Fault> {
    let owner = Arg::Text(holding.owner.into());
    let call = target.kind.release(target.of(&owner, holding.grant), 0);
    Settled::read(&run(&target.engine, &target.name, &call).await?, &target.name)
}

/// What the members' servers know.
struct Answers {
    /// The holds of its kind on each member. `None`: no answer.
    found: PerMember<Option<Found>>,
    error: Option<Error>,
}

impl Answers {
    fn failure(self, handle: &Handle) -> Error {
        let late = || Fault::new(FaultKind::TimedOut, Sent::Unknown, "too few servers answered in time");
        self.error.unwrap_or_else(|| Error::of_lock(handle.name(), late()))
    }
}

/// What is known of each member once a quorum answered; of the others, nothing.
async fn find_quorum(handle: &Handle) -> Result<Vec<Found>> {
    let answered = |answers: &[Option<Found>]| answers.iter().flatten().count();
    let answers = find(handle, |answers| answered(answers) >= handle.quorum).await?;
    if answered(&answers.found) < handle.quorum {
        return Err(answers.failure(handle));
    }
    Ok(answers.found.into_iter().map(Option::unwrap_or_default).collect())
}

/// Asks each member, which has to be a lock of its kind, until it is decided.
async fn find(handle: &Handle, decide: impl Fn(&[Option<Found>]) -> bool + Send + Sync) -> Result<Answers> {
    handle.check()?;
    let in_order = |outputs: &[(usize, Result<Found>)]| {
        let mut found: PerMember<Option<Found>> = smallvec![None; handle.members.len()];
        for (member, answer) in outputs {
            found[*member] = answer.as_ref().ok().cloned();
        }
        found
    };
    let outputs = gather(handle.members.iter().map(ask_member), |outputs| decide(&in_order(outputs))).await;
    let found = in_order(&outputs);
    Ok(Answers { found, error: outputs.into_iter().find_map(|(_, answer)| answer.err()) })
}

async fn ask_member(member: &Member) -> Result<Found> {
    let answer = ask(&member.target.engine, &member.target.name).await;
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
    engine.store.run(&engine.store.route(key).await?, call).await
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

//! Questions to the server, and the one command that ends what is not ours.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::Engine;
use super::grant::Target;
use super::handle::{Handle, Member, check_name};
use super::kind::{Kind, Settled};
use super::retry::Tries;
use crate::error::{Error, Result};
use crate::script::{self, Arg, Call, Reply};
use crate::store::Fault;

/// What the server knows of a lock that is held.
#[derive(Debug)]
pub(crate) struct Found {
    /// The longest there is, if it has no expiry.
    pub(crate) left: Duration,
    /// Owners, and how many holds each has.
    pub(crate) owners: Vec<(String, u64)>,
    pub(crate) is_read_write: bool,
}

/// `None`: the lock is free.
pub(crate) async fn inspect(engine: &Engine, name: &str) -> Result<Option<Found>> {
    check_name(name)?;
    let key = engine.key(name);
    ask(engine, &key).await.map_err(|fault| Error::of_lock(name, fault))
}

async fn ask(engine: &Engine, key: &Arc<str>) -> Result<Option<Found>, Fault> {
    Found::read(run(engine, key, &script::inspect(key)).await?)
}

async fn ask_member(target: Target) -> Result<Option<Found>, Fault> {
    ask(&target.engine, &target.name).await
}

pub(crate) async fn is_locked(handle: &Handle) -> Result<bool> {
    let held = find(handle).await?.iter().flatten().count();
    Ok(held >= handle.quorum)
}

/// `None`: the lock is free. What has no expiry has the longest lease there is.
pub(crate) async fn remaining_lease(handle: &Handle) -> Result<Option<Duration>> {
    let found = find(handle).await?;
    let mut left: Vec<Duration> = found.iter().flatten().map(|found| found.left).collect();
    left.sort_unstable_by(|a, b| b.cmp(a));
    Ok(left.get(handle.quorum - 1).copied())
}

/// Ends the holds there are, whose ever they are. False: there were none.
///
/// The holders are looked up first and then named, so that a copy of the command that runs late can not end the hold
/// of somebody who came after.
pub(crate) async fn force_unlock(handle: &Handle) -> Result<bool> {
    let found = find(handle).await?;
    let mut forcing = Vec::new();
    for (member, found) in handle.members.iter().zip(found) {
        for (owner, _) in found.map(|found| found.owners).unwrap_or_default() {
            forcing.push(force(member.target.clone(), Arg::Text(owner.into())));
        }
    }
    let ended = try_join_all(forcing).await.map_err(|fault| Error::of_lock(handle.name(), fault))?;
    Ok(!ended.is_empty())
}

async fn force(target: Target, owner: Arg) -> Result<Settled, Fault> {
    let call = target.kind.release(target.of(&owner, 0), 0);
    Settled::read(&run(&target.engine, &target.name, &call).await?, &target.name)
}

/// What each member's server knows of the holds of this kind on the lock, which has to be one of its kind.
async fn find(handle: &Handle) -> Result<Vec<Option<Found>>> {
    handle.check()?;
    let mut asking = Vec::with_capacity(handle.members.len());
    for member in &handle.members {
        asking.push(ask_member(member.target.clone()));
    }
    let found = try_join_all(asking).await.map_err(|fault| Error::of_lock(handle.name(), fault))?;
    let of_kind = |(member, found): (&Member, Option<Found>)| match found {
        Some(found) => found
            .of_kind(member.target.kind)
            .map_err(|is_read_write| Error::wrong_kind(handle.name(), is_read_write)),
        None => Ok(None),
    };
    handle.members.iter().zip(found).map(of_kind).collect()
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
    /// The holds of that kind, if there are any. Fails if the lock is none that such holds can be on, with whether it is
    /// a read-write lock.
    fn of_kind(mut self, kind: &dyn Kind) -> Result<Option<Self>, bool> {
        if self.is_read_write != kind.is_read_write() {
            return Err(self.is_read_write);
        }
        let owner = |(field, holds): (String, u64)| kind.owner(&field).map(|owner| (owner.to_owned(), holds));
        self.owners = self.owners.into_iter().filter_map(owner).collect();
        Ok(Some(self).filter(|found| !found.owners.is_empty()))
    }

    fn read(reply: Reply) -> Result<Option<Self>, Fault> {
        let Reply::List(list) = &reply else { return Err(Fault::unexpected(&reply)) };
        let [Reply::Int(left), fields @ ..] = &**list else { return Err(Fault::unexpected(&reply)) };
        if *left == -2 {
            return Ok(None);
        }
        let left = u64::try_from(*left).map_or(Duration::MAX, Duration::from_millis);
        let mut found = Self { left, owners: Vec::new(), is_read_write: false };
        for field in fields.chunks(2) {
            match field {
                [Reply::Text(name), Reply::Text(_)] if name == "mode" => found.is_read_write = true,
                [Reply::Text(owner), Reply::Text(count)] => {
                    found.owners.push((owner.clone(), count.parse().unwrap_or_default()));
                }
                _ => return Err(Fault::unexpected(&reply)),
            }
        }
        Ok(Some(found))
    }
}

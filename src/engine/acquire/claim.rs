//! Claiming: acquires the first free one of several locks. A claim does not wait.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;

use super::late;
use crate::base::Caller;
use crate::base::clock;
use crate::base::error::{ConfigError, Error, Result};
use crate::base::timer::timeout;
use crate::engine::grant::Grant;
use crate::engine::grant::pending::PendingHold;
use crate::engine::handle::Handle;
use crate::engine::held::HeldLock;
use crate::engine::retry::Tries;
use crate::protocol::ClaimReply;

/// The most names in one call: the server runs no other command while the script looks at them.
const MOST_NAMES: usize = 100;

/// Acquires the first lock of the group that is free, in the order of these names. `None`: other owners hold all of
/// them.
///
/// Each call is a new owner. Whatever it does not return is undone when the pending holds are dropped.
pub(crate) async fn claim(group: &Handle, names: &[String], caller: Caller) -> Result<Option<HeldLock>> {
    check(group, names)?;
    let start = clock::now();
    let of_group = &group.lock;
    let locks = names.iter().map(|name| Arc::new(of_group.in_group(name))).collect::<Vec<_>>();
    locks.iter().try_for_each(|lock| lock.check_name())?;
    let mut pending = PendingHold::claim(locks.clone(), caller);
    // Check after the pending holds were added to `under_way`. A shutdown first closes, and then waits for that list.
    // With the check before, a claim could begin for which the shutdown does not wait.
    group.lock.engine.check_open()?;
    if pending.is_empty() {
        return Ok(None);
    }
    let lease = group.lease();
    let mut tries = Tries::new(group.config().retry_timeout());
    loop {
        let grants = pending.iter().map(|pending| Arc::clone(&pending.grant)).collect::<Vec<_>>();
        let fault = match Grant::attempt_first(&grants, lease).await {
            Ok((ClaimReply::Granted(place, _), until)) => {
                let now = clock::now();
                if until > now {
                    let mut granted = pending.swap_remove(place);
                    let handle = group.for_lock(Arc::clone(&granted.grant.lock));
                    return HeldLock::take(&handle, &mut granted, until, (start, now)).map(Some);
                }
                late() // the answer came after the deadline of the new lease
            }
            Ok((ClaimReply::NoneFree, _)) => return Ok(None),
            Ok((ClaimReply::NotALock(place), _)) => return Err(grants[place].lock.not_a_lock()),
            Ok((ClaimReply::CannotCount, _)) => return Err(of_group.cannot_count()),
            Err(_) if group.lock.engine.is_closing() => return Err(Error::Closed),
            Err(fault) => fault,
        };
        // Perhaps the server ran the claim, and the background releases what it has. The next one has a new id.
        pending = PendingHold::claim(locks.clone(), caller);
        tries.again(fault).await.map_err(|fault| match group.check() {
            Err(Error::RuntimeGone) => Error::RuntimeGone,
            _ => of_group.error(fault),
        })?;
        let _ = timeout(
            group.config().command_timeout(),
            join_all(grants.iter().map(|grant| grant.until_released())),
        )
        .await;
    }
}

/// Refuses what no call of the group can use.
fn check(group: &Handle, names: &[String]) -> Result<()> {
    group.check_lock()?;
    let invalid = |name: &str, problem: &str| {
        Err(Error::InvalidName { name: name.to_owned(), problem: problem.to_owned() })
    };
    if group.name().contains(['{', '}']) {
        return invalid(
            group.name(),
            "the name of a group of claims has no braces: they enclose it in the keys",
        );
    }
    if names.len() > MOST_NAMES {
        let problem = format!("must be at most {MOST_NAMES} in one call, and are {}", names.len());
        return Err(ConfigError::new("names", problem).into());
    }
    let mut known = HashSet::with_capacity(names.len());
    match names.iter().find(|name| !known.insert(&***name)) {
        Some(twice) => invalid(twice, "it is in the list twice"),
        None => Ok(()),
    }
}

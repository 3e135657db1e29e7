//! Giving back what is held.

use std::sync::Arc;
use std::time::Duration;

use super::PerMember;
use super::gather::{gather, is_decided};
use super::grant::{Grant, Part};
use super::hold::Hold;
use super::lease;
use super::retry::Tries;
use crate::clock;
use crate::error::{Error, Result};
use crate::store::Fault;

/// Grants that are given back, whole or in part. Dropped at any point, the rest is done in the background.
#[derive(Debug)]
pub(crate) struct Releasing(PerMember<Arc<Grant>>);

impl Releasing {
    pub(crate) fn new(grants: impl IntoIterator<Item = Arc<Grant>>) -> Self {
        Self(grants.into_iter().collect())
    }

    /// One try for each. Once so many are left that can be done without, does not wait for these.
    pub(crate) async fn settle_but(&self, spare: usize) {
        let all = self.0.len();
        gather(self.0.iter().map(|grant| grant.settle()), |settled| settled.len() + spare >= all).await;
    }

    /// Releases on all servers. True: at least `quorum` of them still had the hold.
    pub(crate) async fn release(self, quorum: usize) -> Result<bool, Fault> {
        if let [grant] = &self.0[..] {
            return release(grant).await; // the common case, without what it costs to wait for many
        }
        let all = self.0.len();
        let results = gather(self.0.iter().map(|grant| release(grant)), |results| {
            let held = count(results, |result| matches!(result, Ok(true)));
            is_decided(held, results.len() - held, quorum, all)
        })
        .await;
        let held = count(&results, |result| matches!(result, Ok(true)));
        match results.into_iter().find_map(|(_, result)| result.err()) {
            Some(fault) if held < quorum => Err(fault),
            _ => Ok(held >= quorum),
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        for grant in &self.0 {
            grant.settle_later();
        }
    }
}

/// Settles one grant, through faults. True: the server still had the hold.
async fn release(grant: &Grant) -> Result<bool, Fault> {
    let mut tries = Tries::new(&grant.target.engine);
    loop {
        match grant.settle().await {
            Ok(_) => return Ok(!grant.is_gone()),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

/// Renews a hold for a time that the caller chose.
pub(crate) async fn extend(name: &str, hold: &Hold, parts: &[Part], lease: Duration) -> Result<()> {
    let Some(first) = parts.first().filter(|_| !hold.is_lost(clock::now())) else {
        return Err(lost(name));
    };
    let lease = lease::check("lease", lease, first.grant.target.engine.config.margin)?;
    let (all, quorum) = (parts.len(), hold.quorum());
    let results = gather(parts.iter().map(|part| extend_one(part, hold, lease)), |results| {
        let extended = count(results, |result| matches!(result, Ok(true)));
        is_decided(extended, results.len() - extended, quorum, all)
    })
    .await;
    if hold.is_lost(clock::now()) {
        return Err(lost(name));
    }
    let extended = count(&results, |result| matches!(result, Ok(true)));
    match results.into_iter().find_map(|(_, result)| result.err()) {
        Some(fault) if extended < quorum => Err(Error::of_lock(name, fault)),
        None if extended < quorum => Err(lost(name)),
        _ => Ok(()),
    }
}

fn count<T>(results: &[(usize, T)], is: impl Fn(&T) -> bool) -> usize {
    results.iter().filter(|(_, result)| is(result)).count()
}

/// False: the server knows nothing of it.
async fn extend_one(part: &Part, hold: &Hold, lease: Duration) -> Result<bool, Fault> {
    let Part { grant, member } = part;
    let mut tries = Tries::new(&grant.target.engine);
    loop {
        match grant.extend(hold, *member, lease).await {
            Err(fault) => tries.again(fault).await?,
            Ok(()) => return Ok(hold.relies_on(*member, clock::now())),
        }
    }
}

fn lost(name: &str) -> Error {
    Error::Lost { name: name.to_owned() }
}

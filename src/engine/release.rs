//! Giving back what is held.

use std::sync::Arc;
use std::time::Duration;

use super::PerMember;
use super::gather::{gather, vote};
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
        vote(self.0.iter().map(|grant| release(grant)), quorum).await
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
    let lost = || Err(Error::Lost { name: name.to_owned() });
    if parts.is_empty() || hold.is_lost(clock::now()) {
        return lost();
    }
    let lease =
        lease::check("lease", lease, parts.iter().map(|part| part.grant.target.engine.config.margin))?;
    let extended = vote(parts.iter().map(|part| extend_one(part, hold, lease)), hold.quorum()).await;
    if hold.is_lost(clock::now()) {
        return lost();
    }
    match extended {
        Ok(true) => Ok(()),
        Ok(false) => lost(),
        Err(fault) => Err(Error::of_lock(name, fault)),
    }
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

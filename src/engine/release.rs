//! Giving back what is held.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::grant::Grant;
use super::hold::Hold;
use super::lease;
use super::retry::Tries;
use crate::clock;
use crate::error::{Error, Result};
use crate::store::Fault;

/// Grants that are given back, whole or in part. Dropped at any point, the rest is done in the background.
#[derive(Debug)]
pub(crate) struct Releasing(Vec<Arc<Grant>>);

impl Releasing {
    pub(crate) fn new(grants: impl IntoIterator<Item = Arc<Grant>>) -> Self {
        Self(grants.into_iter().collect())
    }

    pub(crate) async fn settle_once(&self) -> Result<(), Fault> {
        for result in join_all(self.0.iter().map(|grant| grant.settle())).await {
            result?;
        }
        Ok(())
    }

    /// Releases on all servers. True: at least `quorum` of them still had the hold.
    pub(crate) async fn release(self, quorum: usize) -> Result<bool, Fault> {
        let mut held = 0;
        let mut failed = None;
        for result in join_all(self.0.iter().map(|grant| release(grant))).await {
            match result {
                Ok(true) => held += 1,
                Ok(false) => {}
                Err(fault) => failed = Some(fault),
            }
        }
        match failed {
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
pub(crate) async fn extend(
    name: &str,
    hold: &Hold,
    grants: &[(Arc<Grant>, usize)],
    lease: Duration,
) -> Result<()> {
    let Some((first, _)) = grants.first().filter(|_| !hold.is_lost(clock::now())) else {
        return Err(lost(name));
    };
    let lease = lease::check("lease", lease, first.target.engine.config.margin)?;
    let extending = grants.iter().map(|(grant, member)| extend_one(grant, hold, *member, lease));
    let results = join_all(extending).await;
    if hold.is_lost(clock::now()) {
        return Err(lost(name));
    }
    let failed = results.into_iter().find_map(Result::err);
    failed.map_or(Ok(()), |fault| Err(Error::of_lock(name, fault)))
}

async fn extend_one(grant: &Grant, hold: &Hold, member: usize, lease: Duration) -> Result<(), Fault> {
    let mut tries = Tries::new(&grant.target.engine);
    loop {
        match grant.extend(hold, member, lease).await {
            Err(fault) => tries.again(fault).await?,
            extended => return extended,
        }
    }
}

fn lost(name: &str) -> Error {
    Error::Lost { name: name.to_owned() }
}

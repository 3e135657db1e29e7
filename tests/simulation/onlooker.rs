//! An onlooker: it looks at the locks of others, and releases some by force. And one that shuts down clients in the middle of work.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lockkeeper::{LockClient, LockKind};
use tokio::time::{sleep, timeout};

use crate::locks::{Claim, Handle, How, NAMES, Term, Wanted, server_of};
use crate::plan::{Kind, MS, SECOND, up_to};
use crate::world::World;

/// In front of this number stand those of the workers.
pub const NUMBER: usize = 100;

pub struct Onlooker {
    process: usize,
    world: Arc<World>,
    clients: Vec<LockClient>,
    rng: Rng,
}

impl Onlooker {
    pub fn new(process: usize, world: &Arc<World>, clients: &[LockClient]) -> Self {
        let rng = Rng::with_seed(world.plan.seed.wrapping_mul(97).wrapping_add(process as u64));
        Self { process, world: Arc::clone(world), clients: clients.to_vec(), rng }
    }

    pub async fn run(mut self) {
        let (looks, forces) = (self.world.plan.extras.looks, self.world.plan.extras.forces);
        loop {
            sleep(up_to(&mut self.rng, 3 * SECOND)).await;
            if self.world.is_over() || self.world.oracle().is_closing(self.process, self.world.now()) {
                return;
            }
            let names = self.world.oracle().waits.names();
            let name = self.rng.usize(..names);
            let server = match self.world.plan.kind {
                Kind::Multi => server_of(name, self.clients.len()),
                _ => 0,
            };
            let is_shared = self.world.plan.kind == Kind::ReadWrite && self.rng.bool();
            let claim = Claim { server, name, is_shared, permits: 0 };
            if forces && (!looks || self.rng.u32(..100) < 15) {
                self.force(claim).await;
            } else if self.rng.u32(..100) < 60 {
                self.inspect(claim).await;
            } else {
                self.list(server).await;
            }
        }
    }

    async fn inspect(&self, claim: Claim) {
        let begun = self.world.now();
        let result = self.clients[claim.server].inspect(NAMES[claim.name]).await;
        let now = self.world.now();
        let mut oracle = self.world.oracle();
        match result {
            Ok(info) => oracle.inspected(now, begun, &claim, info.as_ref()),
            Err(error) => oracle.failed(now, begun, NUMBER, self.process, &[claim], &error),
        }
    }

    async fn list(&self, server: usize) {
        let begun = self.world.now();
        let result = self.clients[server].list("lock:*").await;
        let now = self.world.now();
        let mut oracle = self.world.oracle();
        let claim = |name| Claim { server, name, is_shared: false, permits: 0 };
        let list = match result {
            Ok(list) => list,
            Err(error) => return oracle.failed(now, begun, NUMBER, self.process, &[claim(0)], &error),
        };
        for (name, text) in NAMES.iter().enumerate().take(oracle.waits.names()) {
            let Some(listed) = list.locks.iter().find(|lock| lock.name == *text) else {
                // While its slot moves, the list tells that it could not look at the lock, or it asks both servers at wrong times.
                let has_moved =
                    self.world.cluster.as_ref().is_some_and(|cluster| cluster.has_moved(text, begun));
                if has_moved || list.skipped.iter().any(|name| name == text) {
                    oracle.excuse("a list while a slot moves");
                } else {
                    oracle.is_unlisted(now, begun, &claim(name));
                }
                continue;
            };
            oracle.inspected(now, begun, &claim(name), Some(listed));
            let is_read_write = matches!(listed.kind, LockKind::Read | LockKind::Write);
            if is_read_write != (self.world.plan.kind == Kind::ReadWrite) {
                oracle.violate(now, "w", format!("{text} is listed as {:?}", listed.kind));
            }
        }
    }

    async fn force(&mut self, claim: Claim) {
        let begun = self.world.now();
        let number = self.world.oracle().forces(begun, &claim);
        let (client, name) = (&self.clients[claim.server], NAMES[claim.name]);
        let plan = &self.world.plan;
        let kind = if plan.kind == Kind::Owner { plan.inner() } else { plan.kind };
        let result = match kind {
            Kind::Fair => client.fair_lock(name).force_unlock().await,
            Kind::Fenced => client.fenced_lock(name).force_unlock().await,
            Kind::ReadWrite if claim.is_shared => client.read_write_lock(name).read().force_unlock().await,
            Kind::ReadWrite => client.read_write_lock(name).write().force_unlock().await,
            _ => client.rlock(name).force_unlock().await,
        };
        let now = self.world.now();
        let mut oracle = self.world.oracle();
        oracle.forced(now, number, result.as_ref().ok().copied());
        if let Err(error) = result {
            oracle.failed(now, begun, NUMBER, self.process, &[claim], &error);
        }
    }
}

/// Shuts down the clients of a process in the middle of its work.
pub async fn shut_down(world: Arc<World>, process: usize, clients: Vec<LockClient>, at: Duration) {
    sleep(at).await;
    // What these calls leave when they are dropped is released before the shutdown returns.
    let mut rng = Rng::with_seed(world.plan.seed.wrapping_mul(61));
    let names = world.oracle().waits.names();
    let mut handle = || {
        let name = rng.usize(..names);
        let reads = world.plan.kind == Kind::ReadWrite && rng.bool();
        let wanted =
            Wanted { name, members: vec![name], reads, permits: 0, term: Term::Renewed, least: None };
        Handle::new(&world.plan, &clients, wanted)
    };
    let [mut one, mut two, mut three] = [handle(), handle(), handle()];
    let used = [&one, &two, &three].map(|handle| handle.claims.clone()).concat();
    let calls =
        async { tokio::join!(one.acquire(How::Lock), two.acquire(How::Lock), three.acquire(How::Try)) };
    world.oracle().waits.uses(&used);
    let _ = timeout(up_to(&mut rng, 8 * MS), calls).await;
    world.oracle().waits.used(world.now(), &used);
    let begun = world.now();
    world.oracle().closes(begun, process);
    let all: Vec<Claim> =
        (0..clients.len()).map(|server| Claim { server, name: 0, is_shared: false, permits: 0 }).collect();
    for client in &clients {
        let result = timeout(120 * SECOND, client.shutdown()).await;
        let now = world.now();
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // What an earlier attempt left perhaps still had to be undone.
                let from = begun.saturating_sub(world.plan.settle());
                return world.oracle().failed(now, from, NUMBER, process, &all, &error);
            }
            Err(_) => {
                return world.oracle().violate(now, "s", format!("process {process} does not shut down"));
            }
        }
    }
    let left: Vec<String> = clients.iter().flat_map(|client| world.left_of(&client.id())).collect();
    let now = world.now();
    world.oracle().closed(now, process, &left);
}

//! Bursts: many calls of one client at one moment, so that several go out in one command. They want locks of their own.
//!
//! Rule x: who has a guard that is not lost, is the one holder on the server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use lockkeeper::{LockClient, LockGuard, LockOptions, RLock};
use tokio::time::{sleep, timeout};

use crate::locks::Claim;
use crate::onlooker::NUMBER;
use crate::plan::{FaultKind, MS, SECOND, one, up_to};
use crate::world::World;

/// How many calls come together, and how many locks there are for them.
const CALLS: usize = 20;
const NAMES: usize = 28;

/// All come together at a multiple of this.
const EVERY: Duration = Duration::from_secs(4);

/// The guards of each lock, with their processes.
#[derive(Default)]
pub struct Bursts(Mutex<BTreeMap<String, Guards>>);

type Guards = Vec<(usize, Weak<LockGuard>)>;

struct Burst {
    world: Arc<World>,
    process: usize,
    guards: Arc<Bursts>,
}

pub async fn run(number: usize, process: usize, world: Arc<World>, locks: LockClient, guards: Arc<Bursts>) {
    let mut rng = Rng::with_seed(world.plan.seed.wrapping_mul(71).wrapping_add(number as u64));
    let burst = Burst { world, process, guards };
    loop {
        let rest = Duration::from_secs_f64(burst.world.now().as_secs_f64() % EVERY.as_secs_f64());
        sleep(EVERY * rng.u32(1..=4) - rest).await;
        sleep(up_to(&mut rng, 2 * MS)).await;
        if burst.world.is_over() || burst.world.oracle().is_closing(process, burst.world.now()) {
            return;
        }
        let mut names: Vec<_> = (0..NAMES).collect();
        rng.shuffle(&mut names);
        let calls = names.iter().take(CALLS).map(|name| burst.call(&locks, *name, rng.fork()));
        join_all(calls.collect::<Vec<_>>()).await;
    }
}

impl Burst {
    async fn call(&self, locks: &LockClient, name: usize, mut rng: Rng) {
        let lease = self.world.plan.lease;
        let name = format!("burst {name}");
        let options = match rng.u8(..3) {
            0 => LockOptions::builder().fixed((lease / 4).max(up_to(&mut rng, 2 * lease))),
            _ => LockOptions::builder(),
        };
        let mut lock: RLock<'static> = locks.rlock(&*name).with(&options.build().expect("valid"));
        let begun = self.world.now();
        let result = match rng.u8(..10) {
            0 => timeout(up_to(&mut rng, 20 * MS), lock.try_lock()).await.unwrap_or(Ok(None)),
            1..4 => lock.try_lock_for(up_to(&mut rng, SECOND)).await,
            _ => lock.try_lock().await,
        };
        let guard = match result {
            Ok(Some(guard)) => Arc::new(guard),
            Ok(None) => return,
            Err(error) => {
                let (now, on_server) =
                    (self.world.now(), Claim { server: 0, name: 0, is_shared: false, permits: 0 });
                return self.world.oracle().failed(now, begun, NUMBER, self.process, &[on_server], &error);
            }
        };
        self.world.oracle().knows(self.process, guard.owner_id());
        self.world.oracle().count("held in bursts");
        self.guards.check_alone((&self.world, self.process), &name, &guard);
        let longest = one(&mut rng, &[5 * MS, 50 * MS, 2 * lease]);
        for _ in 0..3 {
            self.check_held(&name, &guard);
            sleep(up_to(&mut rng, longest / 3)).await;
        }
        self.check_held(&name, &guard);
        let owner = guard.owner_id();
        let guard = Arc::into_inner(guard).expect("nobody else has it");
        if rng.u8(..4) == 0 {
            return drop(guard);
        }
        // Later, a copy of an attempt can come that was late, and an owner of the same client can take the hold.
        let is_free =
            self.world.plan.faults.is_empty() && self.world.plan.sharing.is_zero() && !guard.is_lost();
        if guard.unlock().await.is_ok() && is_free && self.world.has(0, &name, &owner) {
            let now = self.world.now();
            self.world.oracle().violate(now, "x", format!("{owner} was released, and holds {name:?}"));
        }
    }

    /// The hold of a guard that is not lost is on the server, unless that lost its data.
    fn check_held(&self, name: &str, guard: &LockGuard) {
        let plan = &self.world.plan;
        if !guard.is_lost() && !may_lose(&self.world) && !self.world.has(0, name, &guard.owner_id()) {
            let (now, left) = (self.world.now(), guard.remaining());
            let text = format!(
                "{name:?} is not held by {}, whose guard has {left:?} of {:?}",
                guard.owner_id(),
                plan.lease
            );
            self.world.oracle().violate(now, "x", text);
        }
    }
}

fn may_lose(world: &World) -> bool {
    let loses = |fault: &FaultKind| fault.loses() || *fault == FaultKind::StepClock;
    world.plan.can_switch() || world.plan.faults.iter().any(loses)
}

impl Bursts {
    /// Nobody else has a guard that is not lost.
    fn check_alone(&self, (world, process): (&World, usize), name: &str, new: &Arc<LockGuard>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let guards = all.entry(name.to_owned()).or_default();
        guards.retain(|(_, guard)| guard.strong_count() > 0);
        let valid = guards.iter().filter_map(|(process, guard)| {
            let guard = guard.upgrade()?;
            let is_lost = world.processes[*process].enter(|| guard.is_lost());
            (!is_lost && !world.is_killed(*process)).then(|| guard.owner_id())
        });
        let others: Vec<_> = valid.filter(|owner| *owner != new.owner_id()).collect();
        if !others.is_empty() && !may_lose(world) && !new.is_lost() {
            let now = world.now();
            world.oracle().violate(now, "x", format!("{} has {name:?} beside {others:?}", new.owner_id()));
        }
        guards.push((process, Arc::downgrade(new)));
    }
}

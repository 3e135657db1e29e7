//! A worker: it acquires locks in all ways, does something, and releases them in all ways.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lockkeeper::{Error, LockClient, LockGuard};
use tokio::time::{sleep, timeout};

use crate::locks::{Handle, How, Term, Wanted};
use crate::losses;
use crate::oracle::Releasing;
use crate::plan::{Kind, MOST_PERMITS, MS, SECOND, one, up_to};
use crate::world::World;

pub struct Worker {
    pub number: usize,
    pub process: usize,
    pub world: Arc<World>,
    pub clients: Vec<LockClient>,
    rng: Rng,
    /// What only some worlds draw, so that the others stay the same.
    pub more: Rng,
}

/// What a call came to.
pub enum Outcome {
    Held(Arc<LockGuard>),
    Nothing,
}

impl Worker {
    pub fn new(number: usize, process: usize, world: &Arc<World>, clients: &[LockClient]) -> Self {
        let seed = world.plan.seed.wrapping_mul(31).wrapping_add(number as u64 + 1);
        Self {
            number,
            process,
            world: Arc::clone(world),
            clients: clients.to_vec(),
            rng: Rng::with_seed(seed),
            more: Rng::with_seed(!seed),
        }
    }

    pub async fn run(mut self) {
        let mut handle = self.handle();
        while !self.world.is_over() && !self.is_shut() {
            let competes = self.world.plan.extras.competes;
            let most = if self.percent(10) && !competes { 2 * SECOND } else { self.world.plan.pause };
            let most = if competes { 5 * MS } else { most };
            self.pause(most).await;
            if self.percent(30) {
                handle = self.handle();
            }
            if self.world.plan.kind == Kind::Semaphore && self.percent(4) {
                self.resize(&handle).await;
            }
            self.section(&mut handle).await;
        }
        self.world.say(format_args!("worker {}", self.number), format_args!("is done"));
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    pub fn more_percent(&mut self, percent: u32) -> bool {
        self.more.u32(..100) < percent
    }

    fn is_shut(&self) -> bool {
        self.world.oracle().is_closing(self.process, self.world.now())
    }

    async fn pause(&mut self, most: Duration) {
        sleep(up_to(&mut self.rng, most)).await;
    }

    fn handle(&mut self) -> Handle {
        let plan = &self.world.plan;
        let (kind, lease, longest, total) = (plan.kind, plan.lease, plan.longest_lease(), plan.permits);
        let names = if kind == Kind::Multi { 3 } else { plan.names };
        let term = match self.rng.u32(..100) {
            0..75 => Term::Renewed,
            75..88 => Term::Fixed((lease / 4).max(up_to(&mut self.rng, longest))),
            _ => Term::AtMost((lease / 4).max(up_to(&mut self.rng, longest))),
        };
        let reads = kind == Kind::ReadWrite && self.percent(55);
        let permits = match kind {
            Kind::Semaphore if self.percent(30) => self.rng.u32(1..=total),
            Kind::Semaphore => 1,
            _ => 0,
        };
        let name = self.rng.usize(..names);
        let extras = &self.world.plan.extras;
        let (keeps, reorders, keeps_long) = (extras.keeps, extras.reorders, extras.keeps_long);
        let competes = extras.competes && self.more_percent(90);
        let (name, term) = if competes { (0, Term::Renewed) } else { (name, term) };
        let least = (keeps && self.more_percent(30)).then(|| {
            let longest = match term {
                Term::Renewed if keeps_long => longest,
                Term::Renewed => lease,
                Term::Fixed(time) | Term::AtMost(time) => time,
            };
            (10 * MS).max(up_to(&mut self.more, longest))
        });
        // Sets that overlap: a and b, b and c, or one alone.
        let mut members = [vec![0, 1], vec![1, 2], vec![0]].get(name).cloned().unwrap_or_default();
        if reorders {
            members = vec![0, 1, 2];
            self.more.shuffle(&mut members);
            members.truncate(self.more.usize(2..=3));
        }
        let wanted = Wanted { name, members, reads, permits, term, least };
        Handle::new(&self.world.plan, &self.clients, wanted)
    }

    async fn resize(&mut self, handle: &Handle) {
        let total = self.rng.u32(1..=MOST_PERMITS);
        let begun = self.world.now();
        self.world.say(format_args!("worker {}", self.number), format_args!("sets the total to {total}"));
        let result = handle.resize(total).await;
        let now = self.world.now();
        let mut oracle = self.world.oracle();
        match result {
            Ok(()) => oracle.count("resized"),
            Err(error) => oracle.failed(now, begun, self.number, self.process, &handle.claims, &error),
        }
    }

    /// Acquires, works and releases.
    async fn section(&mut self, handle: &mut Handle) {
        let how = match self.rng.u32(..100) {
            0..62 => How::Lock,
            62..75 => How::Try,
            _ => How::For(up_to(&mut self.rng, 3 * SECOND)),
        };
        let competes = self.world.plan.extras.competes;
        let how = if competes && self.more_percent(80) { How::Lock } else { how };
        self.world.oracle().waits.uses(&handle.claims);
        let drops = self.world.plan.extras.drops && self.more_percent(30);
        let outcome = if self.percent(15) || drops {
            let begun = self.world.now();
            match self.cancelled(handle, how).await {
                Outcome::Nothing if drops => self.use_again(handle, begun, None).await,
                Outcome::Nothing if self.world.plan.extras.hurries && self.more_percent(70) => {
                    let how = if self.more_percent(50) { How::Lock } else { How::Try };
                    self.acquire(handle, how, true).await
                }
                outcome => outcome,
            }
        } else if self.parks() {
            self.unpolled(handle, how).await
        } else {
            self.acquire(handle, how, true).await
        };
        self.use_guard(handle, outcome).await;
        if let Some((begun, owner)) = handle.unreleased.take().filter(|_| !self.is_shut()) {
            let outcome = self.use_again(handle, begun, Some(owner)).await;
            self.use_guard(handle, outcome).await;
        }
        let now = self.world.now();
        self.world.oracle().waits.used(now, &handle.claims);
    }

    /// Works with the hold that a call returned, and releases it.
    async fn use_guard(&mut self, handle: &mut Handle, outcome: Outcome) {
        if let Outcome::Held(guard) = outcome {
            let downgrades = self.world.plan.extras.downgrades && handle.least.is_none();
            if downgrades && !handle.claims[0].is_shared && self.more_percent(50) {
                self.read_within(handle, guard).await;
            } else {
                self.hold(handle, guard).await;
            }
        }
    }

    /// Whether this call is not polled for a while.
    fn parks(&mut self) -> bool {
        let plan = &self.world.plan;
        plan.parks && self.world.now() < plan.faults_end && self.percent(8)
    }

    pub async fn acquire(&mut self, handle: &mut Handle, how: How, is_first: bool) -> Outcome {
        let asked_at = self.begin(handle, how);
        let result = handle.acquire(how).await;
        self.end(handle, asked_at, result, is_first)
    }

    /// A call whose future is dropped after a while.
    async fn cancelled(&mut self, handle: &mut Handle, how: How) -> Outcome {
        let most = one(&mut self.rng, &[3, 20, 500, 3_000]) * MS;
        let limit = up_to(&mut self.rng, most);
        let asked_at = self.begin(handle, how);
        match timeout(limit, handle.acquire(how)).await {
            Ok(result) => self.end(handle, asked_at, result, true),
            Err(_) => {
                self.dropped(handle);
                Outcome::Nothing
            }
        }
    }

    /// Uses a handle at once after a call of it was dropped, which began at `begun`. Perhaps drops that, too. `former`: it was to release
    /// this hold.
    async fn use_again(&mut self, handle: &mut Handle, begun: Duration, former: Option<String>) -> Outcome {
        for _ in 0..self.more.usize(0..=2) {
            let how = if self.more_percent(50) { How::Lock } else { How::Try };
            if let outcome @ Outcome::Held(_) = self.cancelled(handle, how).await {
                return outcome;
            }
        }
        let how = if self.more_percent(40) { How::Lock } else { How::Try };
        let asked_at = self.begin(handle, how);
        let result = handle.acquire(how).await;
        if matches!((&result, how), (Ok(None), How::Try)) {
            let (now, claims) = (self.world.now(), &handle.claims);
            self.world.oracle().refused_in_a_hurry(now, begun, self.number, self.process, claims, former);
        }
        self.end(handle, asked_at, result, true)
    }

    /// Drops a call of an owner that has the lock. It keeps what it has.
    async fn drop_reentry(&mut self, handle: &mut Handle, guards: &mut Vec<Arc<LockGuard>>) {
        let limit = up_to(&mut self.more, 4 * MS);
        let how = if self.more_percent(50) { How::Lock } else { How::Try };
        let asked_at = self.begin(handle, how);
        match timeout(limit, handle.acquire(how)).await {
            Err(_) => self.dropped(handle),
            Ok(result) => {
                if let Outcome::Held(guard) = self.end(handle, asked_at, result, false) {
                    guards.push(guard);
                }
            }
        }
        self.check_count(handle, guards);
    }

    /// A call of a handle was dropped.
    fn dropped(&self, handle: &Handle) {
        let now = self.world.now();
        let mut oracle = self.world.oracle();
        oracle.count("cancelled");
        oracle.waits.end(now, self.number);
        oracle.ends_in_vain(now, self.number, self.process, &handle.claims);
        oracle.may_have_asked(now, self.number, handle.lease(&self.world.plan));
    }

    /// A call whose future is polled for a while, and then not.
    async fn unpolled(&mut self, handle: &mut Handle, how: How) -> Outcome {
        let asked_at = self.begin(handle, how);
        let (polled, unpolled) = (up_to(&mut self.rng, 50 * MS), up_to(&mut self.rng, 12 * SECOND));
        let unpolled = unpolled.min(self.world.plan.faults_end - asked_at);
        let continues = self.percent(50);
        let (world, process, number) = (Arc::clone(&self.world), self.process, self.number);
        let mut call = Box::pin(handle.acquire(how));
        let result = match timeout(polled, &mut call).await {
            Ok(result) => Some(result),
            Err(_) => {
                world.oracle().waits.parks(number);
                let now = world.now();
                let fault = world.oracle().begin_fault(now, None, Some(process), None);
                sleep(unpolled).await;
                let now = world.now();
                world.oracle().end_fault(now, fault);
                world.oracle().waits.unparks(now, number, continues);
                if continues { Some(call.as_mut().await) } else { None }
            }
        };
        drop(call);
        match result {
            Some(result) => self.end(handle, asked_at, result, true),
            None => {
                let now = self.world.now();
                self.world.oracle().ends_in_vain(now, self.number, self.process, &handle.claims);
                Outcome::Nothing
            }
        }
    }

    pub fn begin(&self, handle: &Handle, how: How) -> Duration {
        let now = self.world.now();
        let mut oracle = self.world.oracle();
        oracle.waits.begin(now, self.number, self.process, &handle.claims, how);
        oracle.say(now, format_args!("worker {}", self.number), format_args!("asks for {:?}", handle.claims));
        now
    }

    pub fn end(
        &self,
        handle: &Handle,
        asked_at: Duration,
        result: lockkeeper::Result<Option<(LockGuard, Option<u64>)>>,
        is_first: bool,
    ) -> Outcome {
        let now = self.world.now();
        let mut oracle = self.world.oracle();
        oracle.check_waits(now);
        let was_behind = oracle.waits.end(now, self.number);
        match result {
            Ok(Some((guard, token))) => {
                let guard = Arc::new(guard);
                let ends = match handle.term {
                    Term::Renewed => None,
                    Term::Fixed(time) | Term::AtMost(time) => Some(now + time),
                };
                let (claims, is_majority) = (&handle.claims, handle.is_majority);
                oracle.say(
                    now,
                    format_args!("worker {}", self.number),
                    format_args!("holds {claims:?} as {}", guard.owner_id()),
                );
                oracle.asks(now, &guard.owner_id(), handle.term, handle.least);
                oracle.granted(now, self.number, self.process, claims, is_majority, asked_at, ends, &guard);
                if oracle.plan.classes.suspends {
                    let is_fixed = matches!(handle.term, Term::Fixed(_));
                    let told = losses::told(Arc::clone(&self.world), self.number, is_fixed, &guard);
                    tokio::spawn(self.world.processes[self.process].run(told));
                }
                if let Some(token) = token
                    && !guard.is_lost()
                {
                    oracle.token(now, claims, token, is_first && handle.leaked.is_empty(), &guard);
                }
                return Outcome::Held(guard);
            }
            Ok(None) => {
                oracle.ends_in_vain(now, self.number, self.process, &handle.claims);
                oracle.may_have_asked(now, self.number, handle.lease(&self.world.plan));
                oracle.refused(now, asked_at, self.number, self.process, &handle.claims, was_behind);
            }
            Err(error) => {
                oracle.ends_in_vain(now, self.number, self.process, &handle.claims);
                oracle.may_have_asked(now, self.number, handle.lease(&self.world.plan));
                oracle.failed(now, asked_at, self.number, self.process, &handle.claims, &error);
            }
        }
        Outcome::Nothing
    }

    async fn hold(&mut self, handle: &mut Handle, guard: Arc<LockGuard>) {
        let kept_until =
            handle.least.map(|least| self.world.oracle().kept_until(self.world.now(), &guard, least));
        if let Some(least) = handle.least {
            self.world.oracle().check_first_lease(self.world.now(), &guard, least);
        }
        let mut guards = vec![guard];
        let again = if self.percent(25) { self.rng.usize(1..=2) } else { 0 };
        let competes = self.world.plan.extras.competes;
        let again = if handle.least.is_some() || competes { 0 } else { again };
        if self.world.plan.extras.nests && handle.least.is_none() && self.more_percent(40) {
            self.nested(handle).await;
        }
        for _ in 0..again {
            let time = up_to(&mut self.rng, 20 * MS);
            self.work(guards.last().expect("one"), time).await;
            let how = if self.percent(50) { How::Lock } else { How::Try };
            // Whoever has a permit and waits for another one can wait for itself.
            let how = if self.world.plan.kind == Kind::Semaphore { How::Try } else { how };
            if guards.len() == 1 && self.percent(25) {
                // A release beside a re-entry.
                let guard = guards.pop().expect("one");
                let asked_at = self.begin(handle, how);
                let release = self.release_of(&guard);
                let guard = Arc::try_unwrap(guard).expect("nobody else has it");
                let (released, acquired) = if self.percent(50) {
                    tokio::join!(guard.unlock(), handle.acquire(how))
                } else {
                    let (acquired, released) = tokio::join!(handle.acquire(how), guard.unlock());
                    (released, acquired)
                };
                self.released(&release, asked_at, released);
                if let Outcome::Held(guard) = self.end(handle, asked_at, acquired, false) {
                    guards.push(guard);
                } else {
                    return;
                }
            } else if let Outcome::Held(guard) = self.acquire(handle, how, false).await {
                guards.push(guard);
                self.check_count(handle, &guards);
            }
        }
        let is_lock = self.world.plan.kind != Kind::Semaphore;
        if self.world.plan.extras.drops && is_lock && handle.least.is_none() {
            if self.more_percent(30) {
                self.extend(guards.last().expect("one"), handle.term).await;
            }
            if self.more_percent(30) {
                self.drop_reentry(handle, &mut guards).await;
            }
        }
        let (lease, long) = (self.world.plan.lease, self.world.plan.classes.long);
        let time = match handle.term {
            Term::Fixed(time) | Term::AtMost(time) if self.percent(25) => time.mul_f64(1.1),
            _ if self.percent(long) => lease.mul_f64(0.1 + 1.7 * self.rng.f64()),
            _ => {
                let most = one(&mut self.rng, &[1, 10, 100]) * MS;
                up_to(&mut self.rng, most)
            }
        };
        let time = if competes && self.more_percent(95) { up_to(&mut self.more, 60 * MS) } else { time };
        self.work(guards.last().expect("one"), time).await;
        let extends = self.world.plan.extras.extends && self.more_percent(30);
        if self.percent(12) || extends {
            self.extend(guards.last().expect("one"), handle.term).await;
            self.work(guards.last().expect("one"), time).await;
        }
        self.check_count(handle, &guards);
        while let Some(guard) = guards.pop() {
            let is_last = guards.is_empty();
            self.give_back(handle, guard, is_last, kept_until).await;
        }
    }

    /// Rule b: `holds` counts the guards of the owner that are not lost.
    fn check_count(&self, handle: &Handle, guards: &[Arc<LockGuard>]) {
        let last = guards.last().expect("one");
        // A shutdown leaves holds that are kept to their leases.
        if handle.is_majority || self.is_shut() {
            return;
        }
        let owner = last.owner_id();
        let live = guards.iter().filter(|guard| guard.owner_id() == owner && !guard.is_lost()).count();
        let now = self.world.now();
        let leaked = handle.leaked.iter().filter(|until| now < **until).count();
        if !(live..=live + leaked).contains(&(last.hold_count() as usize)) {
            let text = format!(
                "worker {}: holds() is {}, and there are {live} guards",
                self.number,
                last.hold_count()
            );
            self.world.oracle().violate(now, "b", text);
        }
    }

    pub async fn work(&mut self, guard: &Arc<LockGuard>, time: Duration) {
        let is_lost = if self.percent(50) {
            guard.run(losses::steps(&self.world, guard, sleep(time))).await.is_err()
        } else {
            self.sleep(time / 2).await;
            let was_lost = guard.is_lost();
            self.sleep(time / 2).await;
            was_lost || guard.is_lost()
        };
        let now = self.world.now();
        if is_lost || guard.is_lost() {
            self.world.oracle().lost(now, guard);
        }
    }

    /// Sleeps by a timer of this process, if its host can be suspended.
    async fn sleep(&self, time: Duration) {
        if self.world.plan.classes.suspends {
            self.world.processes[self.process].sleep(time).await;
        } else {
            sleep(time).await;
        }
    }

    async fn extend(&mut self, guard: &Arc<LockGuard>, term: Term) {
        let (begun, lease) = (self.world.now(), self.world.plan.lease);
        let lease = lease / 2 + up_to(&mut self.rng, lease);
        let extras = &self.world.plan.extras;
        let lease = if extras.extends || extras.drops { self.world.plan.longest_lease() } else { lease };
        let was_lost = guard.is_lost();
        self.world.oracle().extends(self.number);
        let result = guard.extend(lease).await;
        let now = self.world.now();
        let mut oracle = self.world.oracle();
        // A longest hold stays what it is.
        let asked = if matches!(term, Term::AtMost(_)) { Duration::ZERO } else { lease };
        oracle.may_have_asked(now, self.number, asked);
        match result {
            Ok(()) if was_lost => oracle.violate(now, "b", "a lost hold was extended"),
            Ok(()) if !matches!(term, Term::AtMost(_)) => oracle.extended(guard, begun + lease),
            Ok(()) => {}
            Err(Error::Lost(_)) => oracle.lost(now, guard),
            Err(error) => {
                let release = oracle.before_release(guard);
                oracle.failed_with_a_hold(now, begun, &release, &error);
            }
        }
    }

    /// Gives a guard back in one of all ways. `kept_until`: the hold has a shortest time, which ends between these times.
    async fn give_back(
        &mut self,
        handle: &mut Handle,
        guard: Arc<LockGuard>,
        is_last: bool,
        kept_until: Option<(Duration, Duration)>,
    ) {
        let begun = self.world.now();
        let mut release = self.release_of(&guard);
        let way = self.rng.u32(..100);
        // Other holds of the owner would keep a leaked one company.
        let leaks = is_last && (93..98).contains(&way) && !handle.is_majority;
        if leaks {
            let now = self.world.now();
            let remaining = guard.remaining();
            // A guard would report its loss a little earlier.
            let least = remaining.saturating_sub(self.world.plan.margin).mul_f64(0.98);
            self.world.oracle().leaks(&guard, now + least);
            // Of several holds, one can be lost, and the others stay.
            let most =
                if handle.claims.len() > 1 { remaining.max(2 * self.world.plan.lease) } else { remaining };
            let most = now + most.mul_f64(1.02);
            handle.leaked.push(most);
            self.world.oracle().waits.leaked(&handle.claims, most);
        }
        let kept_until = kept_until.filter(|(_, most)| begun < *most && !leaks);
        if let Some((_, most)) = kept_until {
            // Also if its guard is lost.
            self.world.oracle().waits.leaked(&handle.claims, most + self.world.plan.lease / 10);
        }
        if let Some((_, most)) = kept_until.filter(|_| guard.is_lost()) {
            self.world.oracle().stays(self.process, &release.owner, most);
        }
        let kept_until = kept_until.filter(|_| !guard.is_lost());
        if let Some((until, most)) = kept_until {
            self.world.oracle().keeps(&guard, until, most);
            release.is_kept = true;
            // Beside another hold, it stays one of its owner.
            if handle.leaked.iter().any(|leaked| begun < *leaked) {
                handle.leaked.push(most + self.world.plan.lease / 10);
            }
        }
        let guard = Arc::try_unwrap(guard).expect("nobody else has it");
        let drops = self.world.plan.extras.drops && self.more_percent(15);
        match way {
            _ if leaks => guard.leak(),
            _ if drops => {
                // Another owner perhaps gets a hold that is passed on.
                let plan = &self.world.plan;
                let is_released = plan.sharing.is_zero() || !plan.passes_on();
                if is_last && kept_until.is_none() && is_released && !handle.is_majority {
                    handle.unreleased = Some((begun, release.owner.clone()));
                }
                drop(timeout(up_to(&mut self.more, 4 * MS), guard.unlock()).await);
            }
            0..80 => {
                self.world.oracle().unlocks(&release.owner);
                let result = guard.unlock().await;
                let is_ok = result.is_ok();
                self.released(&release, begun, result);
                let lingers = self.world.plan.linger.is_some() && handle.claims[0].is_shared;
                let has_leaked = handle.leaked.iter().any(|until| begun < *until);
                if let Some((until, _)) = kept_until {
                    if is_ok && self.world.now() < until {
                        self.check_kept(&release);
                    }
                } else if is_last && is_ok && !handle.is_majority && !has_leaked && !lingers {
                    self.check_nothing_left(begun, &release.owner, &release.claims);
                }
            }
            80..98 => drop(guard),
            _ => drop(timeout(up_to(&mut self.rng, 5 * MS), guard.unlock()).await),
        }
    }

    pub fn release_of(&self, guard: &Arc<LockGuard>) -> Releasing {
        let now = self.world.now();
        let mut oracle = self.world.oracle();
        oracle.say(
            now,
            format_args!("worker {}", self.number),
            format_args!("releases {}", guard.owner_id()),
        );
        if guard.is_lost() {
            oracle.lost(now, guard);
        }
        oracle.before_release(guard)
    }

    pub fn released(&self, release: &Releasing, begun: Duration, result: Result<(), Error>) {
        let now = self.world.now();
        self.world.oracle().released(now, begun, release, &result);
    }

    fn check_kept(&self, release: &Releasing) {
        for (owner, claim) in release.owner.split(", ").zip(&release.claims) {
            if !self.world.has_field(claim, owner) {
                let now = self.world.now();
                self.world.oracle().is_not_kept(now, claim, owner);
            }
        }
    }

    pub fn check_nothing_left(&self, begun: Duration, owners: &str, claims: &[crate::locks::Claim]) {
        // A claim on a semaphore has several ids.
        for (owner, claim) in owners.split(", ").zip(claims.iter().cycle()) {
            if self.world.has_field(claim, owner) {
                let now = self.world.now();
                self.world.oracle().is_left_behind(now, begun, claim, owner);
            }
        }
    }
}

//! Sections within sections: an owner that writes also reads, and a worker holds several names.

use std::sync::Arc;

use lockkeeper::{Error, LockGuard};

use crate::locks::{Claim, Handle, How, Term, Wanted};
use crate::plan::{Kind, MS, up_to};
use crate::worker::{Outcome, Worker};

impl Worker {
    /// An owner that writes reads, too, and mostly goes on when it no longer writes.
    pub async fn read_within(&mut self, handle: &mut Handle, write: Arc<LockGuard>) {
        let writes = handle.claims.clone();
        let reads = [Claim { is_shared: true, ..writes[0] }];
        self.world.oracle().waits.uses(&reads);
        for _ in 0..self.more.usize(0..=1) {
            if let Some(read) = self.read(handle, &write).await {
                self.end_hold(handle, read).await;
            }
        }
        let read = self.read(handle, &write).await;
        let Some(read) = read else {
            self.world.oracle().waits.used(self.world.now(), &reads);
            return self.end_hold(handle, write).await;
        };
        if self.more_percent(70) {
            self.end_hold(handle, write).await;
            self.world.oracle().waits.used(self.world.now(), &writes);
            // The section ends as that of a reader.
            handle.turn(true);
            let time = self.world.plan.lease.mul_f64(1.5 * self.more.f64() * self.more.f64());
            self.work(&read, time).await;
            // A leaked hold would be one to write.
            if handle.leaked.is_empty() && self.more_percent(30) {
                self.upgrade(handle, &read).await;
            }
            self.end_hold(handle, read).await;
        } else {
            self.end_hold(handle, read).await;
            self.world.oracle().waits.used(self.world.now(), &reads);
            self.end_hold(handle, write).await;
        }
    }

    /// The owner of a write lock reads.
    async fn read(&mut self, handle: &mut Handle, write: &Arc<LockGuard>) -> Option<Arc<LockGuard>> {
        self.short_work(write).await;
        let was_lost = self.is_lost(write);
        let how = if self.more_percent(50) { How::Lock } else { How::Try };
        handle.turn(true);
        let asked_at = self.begin(handle, how);
        let result = handle.acquire(how).await;
        if matches!(result, Ok(None)) && !was_lost && !self.is_lost(write) {
            let now = self.world.now();
            self.world.oracle().is_stopped_by_itself(now, write);
        }
        let outcome = self.end(handle, asked_at, result, false);
        handle.turn(false);
        match outcome {
            Outcome::Held(read) => Some(read),
            Outcome::Nothing => None,
        }
    }

    /// An owner that reads would wait for itself if it wanted to write.
    async fn upgrade(&mut self, handle: &mut Handle, read: &Arc<LockGuard>) {
        let begun = self.world.now();
        handle.turn(false);
        let result = handle.acquire(How::Try).await;
        handle.turn(true);
        let now = self.world.now();
        match result {
            Err(Error::UpgradeWouldDeadlock(_)) => self.world.oracle().count("upgrade"),
            Err(error) => {
                let release = self.world.oracle().before_release(read);
                self.world.oracle().failed(now, begun, self.number, self.process, &release.claims, &error);
            }
            Ok(guard) => {
                if !self.is_lost(read) {
                    let text = format!("worker {} reads, and may write: {}", self.number, guard.is_some());
                    self.world.oracle().violate(now, "errors", text);
                }
            }
        }
    }

    /// A section with another name, or with two.
    pub async fn nested(&mut self, handle: &mut Handle) {
        let (plan, outer) = (self.world.plan.clone(), handle.claims[0].name);
        let name = (outer + 1 + self.more.usize(..plan.names - 1)) % plan.names;
        if handle.is_owner() {
            handle.claims[0].name = name;
            self.inner(handle).await;
            handle.claims[0].name = outer;
            return;
        }
        let reads = plan.kind == Kind::ReadWrite && self.more_percent(50);
        let wanted =
            Wanted { name, members: Vec::new(), reads, permits: 0, term: Term::Renewed, least: None };
        self.inner(&mut Handle::new(&plan, &self.clients, wanted)).await;
    }

    /// Never waits for ever, as other workers have the same names in another order.
    async fn inner(&mut self, handle: &mut Handle) {
        let how = if self.more_percent(30) { How::Try } else { How::For(up_to(&mut self.more, 500 * MS)) };
        let claims = handle.claims.clone();
        self.world.oracle().waits.uses(&claims);
        if let Outcome::Held(guard) = self.acquire(handle, how, true).await {
            if self.more_percent(30) {
                Box::pin(self.nested(handle)).await;
            }
            self.short_work(&guard).await;
            self.end_hold(handle, guard).await;
        }
        self.world.oracle().waits.used(self.world.now(), &claims);
    }

    fn is_lost(&self, guard: &LockGuard) -> bool {
        self.world.processes[self.process].enter(|| guard.is_lost())
    }

    async fn short_work(&mut self, guard: &Arc<LockGuard>) {
        let time = up_to(&mut self.more, 40 * MS);
        self.work(guard, time).await;
    }

    /// Releases or drops a guard.
    async fn end_hold(&mut self, handle: &Handle, guard: Arc<LockGuard>) {
        let begun = self.world.now();
        let release = self.release_of(&guard);
        let guard = Arc::try_unwrap(guard).expect("nobody else has it");
        if self.more_percent(25) {
            return drop(guard);
        }
        self.world.oracle().unlocks(&release.owner);
        let result = guard.unlock().await;
        let is_ok = result.is_ok();
        self.released(&release, begun, result);
        if is_ok && handle.leaked.is_empty() {
            self.check_nothing_left(begun, &release.owner, &release.claims);
        }
    }
}

//! Locks for which no task has to wait.

use std::rc::Rc;

use lockkeeper::LockClient;

use crate::bare::{Bare, BareJava, BareJavaLatch, BareJavaRead, BareJavaReadLatch, BareRead};
use crate::pairs::{Naming, candidate, in_java, table};
use crate::peer::{AsyncRedisLock, Distkit, Read, Relock, Rlock, Rslock};
use crate::redisson::Jvm;
use crate::report::Report;
use crate::rounds::Effort;

const NAMING: Naming = |task| format!("free:{task}");
const READING: Naming = |_| "read".to_owned();

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort, report: &mut Report) {
    let candidates = [
        candidate::<BareJava>("Redisson's scripts", url, NAMING),
        candidate::<BareJavaLatch>("Redisson's scripts, latch", url, NAMING),
        candidate::<Bare>("bare", url, NAMING),
        candidate::<LockClient>("lockkeeper", url, NAMING),
        in_java(jvm, "rlock", NAMING),
        candidate::<Rslock>("rslock", url, NAMING),
        candidate::<Rlock>("rlock", url, NAMING),
        candidate::<Relock>("relock", url, NAMING),
        candidate::<Distkit>("distkit", url, NAMING),
        candidate::<AsyncRedisLock>("async-redis-lock", url, NAMING),
    ];
    report.section(
        "Free locks",
        "Each task locks and unlocks a lock of its own.",
        &table(&candidates, &[1, 4, 16, 64, 128, 512], effort, |name, tasks| {
            lockkeeper(name, tasks, [(1, 0.95), (16, 1.2), (128, 1.6)])
        }),
    );
}

/// Many tasks read under the same lock.
pub fn measure_reading(url: &str, jvm: &Rc<Jvm>, effort: Effort, report: &mut Report) {
    let candidates = [
        candidate::<BareJavaRead>("Redisson's scripts", url, READING),
        candidate::<BareJavaReadLatch>("Redisson's scripts, latch", url, READING),
        candidate::<BareRead>("bare", url, READING),
        candidate::<Read>("lockkeeper", url, READING),
        in_java(jvm, "read", READING),
    ];
    report.section(
        "One read lock",
        "Each task reads with a handle of its own. When no task reads, the lock is free and its key is removed.",
        &table(&candidates, &[1, 4, 16, 64, 128, 512], effort, |name, tasks| {
            lockkeeper(name, tasks, [(16, 1.1), (128, 1.4)])
        }),
    );
}

/// The target of lockkeeper with so many tasks.
fn lockkeeper<const N: usize>(name: &str, tasks: usize, targets: [(usize, f64); N]) -> Option<f64> {
    let target = targets.into_iter().find(|(count, _)| *count == tasks);
    target.filter(|_| name == "lockkeeper").map(|(_, target)| target)
}

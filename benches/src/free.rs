//! Lock and unlock a lock that nobody else wants.

use std::rc::Rc;

use lockkeeper::LockClient;

use crate::bare::{Bare, BareRedisson};
use crate::flavor::Flavor;
use crate::pairs::{Naming, candidate, in_java, report};
use crate::peer::{AsyncRedisLock, Distkit, NewHandles, Relock, Rlock, Rslock};
use crate::redisson::Jvm;
use crate::rounds::Effort;

const NAMING: Naming = |task| format!("free:{task}");

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort) {
    Flavor::ALL.into_iter().for_each(|flavor| measure_on(url, jvm, flavor, effort));
}

fn measure_on(url: &str, jvm: &Rc<Jvm>, flavor: Flavor, effort: Effort) {
    let candidates = [
        candidate::<Bare>("bare", url, flavor, NAMING),
        candidate::<LockClient>("lockkeeper", url, flavor, NAMING),
        candidate::<NewHandles>("lockkeeper, new handles", url, flavor, NAMING),
        candidate::<BareRedisson>("Redisson's scripts, bare", url, flavor, NAMING),
        in_java(jvm, "rlock", NAMING),
        candidate::<Rslock>("rslock", url, flavor, NAMING),
        candidate::<Rlock>("rlock", url, flavor, NAMING),
        candidate::<Relock>("relock", url, flavor, NAMING),
        candidate::<Distkit>("distkit", url, flavor, NAMING),
        candidate::<AsyncRedisLock>("async-redis-lock", url, flavor, NAMING),
    ];
    println!("\n## Free locks, {}\n", flavor.name());
    println!(
        "Each task locks and unlocks a lock of its own. Each candidate has a runtime to itself; Redisson, which"
    );
    println!("knows no runtime, a thread for each task.\n");
    report(&candidates, flavor, effort);
}

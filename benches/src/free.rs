//! Lock and unlock a lock that nobody else wants.

use lockkeeper::LockClient;

use crate::bare::{Bare, BareRedisson};
use crate::flavor::Flavor;
use crate::pairs::{Naming, candidate, report};
use crate::peer::{AsyncRedisLock, Distkit, NewHandles, Relock, Rlock, Rslock};
use crate::rounds::Effort;

const NAMING: Naming = |task| format!("free:{task}");

pub fn measure(url: &str, flavor: Flavor, effort: Effort) {
    let candidates = [
        candidate::<Bare>("bare", url, flavor, NAMING),
        candidate::<LockClient>("lockkeeper", url, flavor, NAMING),
        candidate::<NewHandles>("lockkeeper, new handles", url, flavor, NAMING),
        candidate::<BareRedisson>("Redisson's scripts, bare", url, flavor, NAMING),
        candidate::<Rslock>("rslock", url, flavor, NAMING),
        candidate::<Rlock>("rlock", url, flavor, NAMING),
        candidate::<Relock>("relock", url, flavor, NAMING),
        candidate::<Distkit>("distkit", url, flavor, NAMING),
        candidate::<AsyncRedisLock>("async-redis-lock", url, flavor, NAMING),
    ];
    println!("\n## Free locks, {}\n", flavor.name());
    println!("Each task locks and unlocks a lock of its own. Each candidate has a runtime to itself.\n");
    report(&candidates, flavor, effort);
}

//! Locks that no other task wants.

use std::rc::Rc;

use lockkeeper::LockClient;

use crate::bare::{Bare, BareRedisson};
use crate::flavor::Flavor;
use crate::pairs::{Naming, candidate, in_java, table};
use crate::peer::{AsyncRedisLock, Distkit, NewHandles, Relock, Rlock, Rslock};
use crate::redisson::Jvm;
use crate::report::Report;
use crate::rounds::Effort;

const NAMING: Naming = |task| format!("free:{task}");

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort, report: &mut Report) {
    for flavor in Flavor::ALL {
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
        report.section(
            format!("Free locks, {}", flavor.name()),
            "Each task locks and unlocks a lock of its own. Each candidate has a runtime of its own; Redisson has one\n\
             thread per task.",
        );
        report.table(table(&candidates, flavor, effort));
    }
}

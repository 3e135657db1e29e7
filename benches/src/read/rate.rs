//! Many tasks of one process that read under the same lock.

use std::rc::Rc;

use crate::bare::BareRead;
use crate::flavor::Flavor;
use crate::pairs::{Naming, candidate, in_java, table};
use crate::peer::{Lock, Peer, Read};
use crate::redisson::Jvm;
use crate::report::Report;
use crate::rounds::Effort;

const NAME: &str = "read";
const NAMING: Naming = |_| NAME.to_owned();

pub fn measure(url: &str, jvm: &Rc<Jvm>, flavor: Flavor, effort: Effort, report: &mut Report) {
    let candidates = [
        candidate::<BareRead>("bare", url, flavor, NAMING),
        candidate::<Read>("lockkeeper", url, flavor, NAMING),
        in_java(jvm, "read", NAMING),
    ];
    report.section(
        format!("One read lock, {}", flavor.name()),
        "Each task reads with a handle of its own. When no task reads, the lock is free and its key is removed.",
    );
    report.table(table(&candidates, flavor, effort));

    report.section(
        format!("One read lock beside a permanent reader, {}", flavor.name()),
        "The same, while another client reads all the time. The key is never removed.",
    );
    // A runtime with threads renews the lease of this reader also while the others run.
    let runtime = Flavor::MultiThread.runtime();
    let mut permanent = runtime.block_on(Read::connect(url)).lock(NAME);
    let guard = runtime.block_on(Lock::lock(&mut permanent));
    report.table(table(&candidates, flavor, effort));
    runtime.block_on(permanent.unlock(guard));
}

//! Many tasks of one process that read under the same lock.

use std::rc::Rc;

use crate::bare::BareRead;
use crate::flavor::Flavor;
use crate::pairs::{Naming, candidate, in_java, report};
use crate::peer::{Lock, Peer, Read};
use crate::redisson::Jvm;
use crate::rounds::Effort;

const NAME: &str = "read";
const NAMING: Naming = |_| NAME.to_owned();

pub fn measure(url: &str, jvm: &Rc<Jvm>, flavor: Flavor, effort: Effort) {
    let candidates = [
        candidate::<BareRead>("bare", url, flavor, NAMING),
        candidate::<Read>("lockkeeper", url, flavor, NAMING),
        in_java(jvm, "read", NAMING),
    ];
    println!("\n## One read lock, {}\n", flavor.name());
    println!("Each task reads with a handle of its own. The lock comes and goes with them.\n");
    report(&candidates, flavor, effort);

    println!("\n## One read lock, {}: beside a reader that stays\n", flavor.name());
    // Whose lease is renewed all the time, and not only while its runtime is in use.
    let runtime = Flavor::MultiThread.runtime();
    let mut beside = runtime.block_on(Read::connect(url)).lock(NAME);
    let guard = runtime.block_on(Lock::lock(&mut beside));
    report(&candidates, flavor, effort);
    runtime.block_on(beside.unlock(guard));
}

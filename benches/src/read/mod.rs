//! Read-write locks: what it costs to read, and how soon those enter who wait for a writer.

mod crowd;
mod entry;
mod rate;

pub use entry::{SIDE, side};

use std::rc::Rc;

use crate::flavor::Flavor;
use crate::redisson::Jvm;
use crate::rounds::Effort;

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort) {
    Flavor::ALL.into_iter().for_each(|flavor| rate::measure(url, jvm, flavor, effort));
    crowd::measure(url, effort);
    Flavor::ALL.into_iter().for_each(|flavor| entry::measure(url, flavor, effort));
}

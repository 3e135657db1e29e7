//! Read-write locks: the cost of reading, and how soon readers that wait for a writer are admitted.

mod crowd;
mod entry;
mod rate;

use std::rc::Rc;

pub use self::entry::{SIDE, side};
use crate::flavor::Flavor;
use crate::redisson::Jvm;
use crate::report::Report;
use crate::rounds::Effort;

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort, report: &mut Report) {
    for flavor in Flavor::ALL {
        rate::measure(url, jvm, flavor, effort, report);
    }
    crowd::measure(url, effort, report);
    for flavor in Flavor::ALL {
        entry::measure(url, flavor, effort, report);
    }
}

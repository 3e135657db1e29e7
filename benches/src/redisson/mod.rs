//! Redisson itself, as it is used: with its defaults, by a thread for each task, in a JVM that is warm.

#[path = "../../../tests/interop/jvm.rs"]
mod command;
mod jvm;
mod sections;

use std::rc::Rc;
use std::time::Duration;

pub use jvm::Jvm;
pub use sections::{Done, Section, Work};

use crate::held;
use crate::rounds::Effort;

pub const NAME: &str = "Redisson, JVM";
pub const FAIR: &str = "Redisson fair, JVM";

/// It may need this much, and all else is as Java decides for this machine.
const OPTIONS: [&str; 1] = ["-Xmx1g"];

/// Of each of these, some threads lock what nobody else wants, and as many others the same.
const KINDS: [&str; 3] = ["rlock", "fair", "read"];
const THREADS: usize = 8;

/// Has run for `warming`, and renews as the part that measures that needs it.
pub fn warm(url: &str, effort: Effort) -> Rc<Jvm> {
    let jvm = Jvm::start(url, &OPTIONS, held::lease(effort));
    for kind in KINDS {
        let own = (0..THREADS).map(|thread| format!("warm-{kind}:{thread}"));
        let names = own.chain((0..THREADS).map(|_| format!("warm-{kind}"))).collect();
        let time = warming(effort) / KINDS.len() as u32;
        Work { kind, names, section: Duration::ZERO, pause: Duration::ZERO, time }.run(&jvm);
    }
    Rc::new(jvm)
}

/// The compilers of a JVM need seconds, and after that still get better at what each part does: for this there is the
/// round that is not counted.
pub fn warming(effort: Effort) -> Duration {
    effort.longer(30).slice
}

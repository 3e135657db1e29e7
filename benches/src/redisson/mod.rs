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

/// One that has worked for a while, with the lease of the part that measures renewal.
pub fn warm(url: &str, effort: Effort) -> Rc<Jvm> {
    let lease = format!("watchdog={}", held::lease(effort).as_millis());
    let jvm = Jvm::start(url, &OPTIONS, &[lease]);
    for kind in KINDS {
        let own = (0..THREADS).map(|thread| format!("warm-{kind}:{thread}"));
        let names = own.chain((0..THREADS).map(|_| format!("warm-{kind}"))).collect();
        let time = warming(effort) / KINDS.len() as u32;
        Work { kind, names, section: Duration::ZERO, pause: Duration::ZERO, time }.run(&jvm);
    }
    Rc::new(jvm)
}

/// Measured beside other work on two cores: three times as fast after ten seconds, four times after thirty, and then
/// no faster any more.
pub fn warming(effort: Effort) -> Duration {
    effort.longer(100).slice
}

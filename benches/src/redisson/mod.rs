//! Redisson with its default configuration, in a warm JVM, with one thread per task.

mod jvm;
mod sections;

use std::rc::Rc;
use std::time::Duration;

pub use self::jvm::Jvm;
pub use self::sections::{Done, Section, Work};
use crate::rounds::Effort;

pub const NAME: &str = "Redisson, JVM";
pub const FAIR: &str = "Redisson fair, JVM";

/// The largest heap. Java chooses all else for this machine.
const OPTIONS: [&str; 1] = ["-Xmx1g"];

/// The lock types of the warm-up. For each, some threads lock a lock of their own, and as many share one.
const KINDS: [&str; 3] = ["rlock", "fair", "read"];
const THREADS: usize = 8;

/// Starts a JVM, and lets it work for a while. Its watchdog renews the lease of the part that measures held locks.
pub fn start_warm(url: &str, effort: Effort) -> Rc<Jvm> {
    let lease = format!("watchdog={}", effort.lease().as_millis());
    let jvm = Jvm::start(url, &OPTIONS, &[lease]);
    for kind in KINDS {
        let own = (0..THREADS).map(|thread| format!("warm-{kind}:{thread}"));
        let names = own.chain((0..THREADS).map(|_| format!("warm-{kind}"))).collect();
        let time = warm_up(effort) / KINDS.len() as u32;
        Work { kind, names, section: Duration::ZERO, pause: Duration::ZERO, time }.run(&jvm);
    }
    Rc::new(jvm)
}

/// How long the JVM works before it is measured. On two cores with other work, Redisson was three times as fast after
/// ten seconds, four times after thirty, and not faster later.
pub fn warm_up(effort: Effort) -> Duration {
    effort.longer(100).slice
}

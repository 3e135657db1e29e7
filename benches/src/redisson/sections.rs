//! Threads that acquire a lock and release it over and over.

use std::time::Duration;

use super::jvm::Jvm;

/// What the threads shall do.
pub struct Work {
    /// The lock type, by its name in `Locks.java`.
    pub kind: &'static str,
    /// The name of the lock of each thread.
    pub names: Vec<String>,
    pub section: Duration,
    pub pause: Duration,
    pub time: Duration,
}

/// What the threads did. Times are in nanoseconds of the clock that all processes of a machine share.
pub struct Done {
    pub began: u64,
    /// Nanoseconds of CPU time of the whole process.
    pub cpu_time: u64,
    pub sections: Vec<Section>,
}

pub struct Section {
    pub thread: usize,
    pub asked: u64,
    pub acquired: u64,
    /// Just before the release.
    pub released: u64,
    pub ended: u64,
}

impl Work {
    pub fn begin(&self, jvm: &Jvm) {
        let numbers = [self.section.as_micros(), self.pause.as_micros(), self.time.as_millis()];
        jvm.begin("sections", self.kind, &self.names.join(","), &numbers);
    }

    pub fn run(&self, jvm: &Jvm) -> Done {
        self.begin(jvm);
        Done::of(jvm)
    }
}

impl Done {
    /// Waits until the threads have ended.
    pub fn of(jvm: &Jvm) -> Self {
        let numbers = jvm.result();
        let (head, sections) = numbers.split_at(2);
        let section = |numbers: &[u64]| Section {
            thread: numbers[0] as usize,
            asked: numbers[1],
            acquired: numbers[2],
            released: numbers[3],
            ended: numbers[4],
        };
        Self { began: head[0], cpu_time: head[1], sections: sections.chunks_exact(5).map(section).collect() }
    }
}

//! Sections under locks, over and over, in many threads.

use std::time::Duration;

use super::Jvm;

/// What the threads do.
pub struct Work {
    /// The type of the locks, as `Locks.java` has it.
    pub kind: &'static str,
    /// Of the lock of each thread.
    pub names: Vec<String>,
    pub section: Duration,
    pub pause: Duration,
    pub time: Duration,
}

/// What they did. Times are in nanoseconds of the clock that all processes of a host share.
pub struct Done {
    pub began: u64,
    /// By the whole process, all threads together.
    pub computed: u64,
    pub sections: Vec<Section>,
}

pub struct Section {
    pub thread: usize,
    pub asked: u64,
    pub acquired: u64,
    /// Just before.
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
    /// Once all of it is done.
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
        Self { began: head[0], computed: head[1], sections: sections.chunks_exact(5).map(section).collect() }
    }
}

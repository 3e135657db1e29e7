//! The events that lockkeeper reports through `tracing`.

use std::io::sink;
use std::sync::{Arc, Mutex, Once};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::LevelFilter;

use super::eventually;

/// Collects events as text.
#[derive(Clone, Default)]
pub struct Events(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Events {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Events {
    /// Collects the events of this thread, until the guard is dropped.
    pub fn collect(&self) -> DefaultGuard {
        // Other threads get a subscriber that wants the same events. Without one, a thread that is the first to reach an event
        // can turn the event off for all threads.
        static OTHER_THREADS: Once = Once::new();
        OTHER_THREADS.call_once(|| {
            tracing_subscriber::fmt().with_max_level(LevelFilter::INFO).with_writer(sink).init();
        });
        let events = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(LevelFilter::INFO)
            .with_writer(move || events.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Waits until an event contains this text.
    pub async fn tell(&self, what: &str) {
        eventually(&format!("an event contains {what:?}"), || self.text(), |text| text.contains(what)).await;
    }

    /// Waits until the loss of this lock is reported. There must be one such event, and it must name the cause.
    pub async fn tell_lost(&self, lock: &str, cause: &str) {
        let found = || self.lost(lock);
        let found = eventually("the loss is reported", found, |found| !found.is_empty()).await;
        assert!(found.len() == 1 && found[0].contains(cause), "{found:?}");
    }

    /// All events so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// The events that report the loss of this lock.
    pub fn lost(&self, lock: &str) -> Vec<String> {
        let is_it =
            |line: &&str| line.contains("a lock was lost") && line.contains(&format!("lock=\"{lock}\""));
        self.text().lines().filter(is_it).map(str::to_owned).collect()
    }
}

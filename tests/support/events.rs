//! What is told to `tracing`.

use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::LevelFilter;

use super::eventually;

/// Collects events, as text.
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
    /// For as long as the guard lives, on this thread.
    pub fn collect(&self) -> DefaultGuard {
        let events = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(LevelFilter::INFO)
            .with_writer(move || events.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    pub async fn tell(&self, what: &str) {
        eventually(&format!("an event tells {what:?}"), || self.text(), |text| text.contains(what)).await;
    }

    /// There is one event of the loss of this lock, and it says why.
    pub async fn tell_lost(&self, lock: &str, cause: &str) {
        let found = || self.lost(lock);
        let found = eventually("an event tells of the loss", found, |found| !found.is_empty()).await;
        assert!(found.len() == 1 && found[0].contains(cause), "{found:?}");
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// The events of the loss of this lock.
    pub fn lost(&self, lock: &str) -> Vec<String> {
        let is_it =
            |line: &&str| line.contains("a lock was lost") && line.contains(&format!("lock=\"{lock}\""));
        self.text().lines().filter(is_it).map(str::to_owned).collect()
    }
}

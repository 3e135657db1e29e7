//! A panic in a task that nobody awaits fails no test by itself.

use std::panic::{set_hook, take_hook};
use std::sync::{Mutex, Once, PoisonError};

/// The panics in the library, of all tests of this program.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on, panics in the library are noticed.
pub fn notice() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if panic.location().is_some_and(|at| at.file().starts_with("src/")) {
                PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(panic.to_string());
            }
            before(panic);
        }));
    });
}

/// Fails if the library panicked, perhaps in another test.
pub fn none() {
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(panics.is_empty(), "the library panicked, perhaps in another test: {panics:#?}");
}

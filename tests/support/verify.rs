//! The judge of `lockkeeper verify`, for the histories of tests.

#[path = "../../cli/src/verify/history.rs"]
mod history;
#[path = "../../cli/src/verify/judge.rs"]
mod judge;
#[path = "../../cli/src/verify/picture.rs"]
mod picture;

use history::What::{Asked, Began, Entered, Leaving, Left};
use history::{Event, Examined, MAIN, What};
use tokio::time::Instant;

use super::load::Section;

/// Checks that a section without others overlaps none, and that tokens grow. All sections are of one lock.
pub fn check(name: &str, sections: &[Section]) {
    let Some(begin) = sections.iter().map(|section| section.start).min() else { return };
    let nanos = |at: Instant| u64::try_from((at - begin).as_nanos()).unwrap();
    let event = |at, process, what: What| Event { at, process, what };
    let mut events = vec![event(0, MAIN, Began { lease_ms: 30_000 })];
    for (process, section) in (1..).zip(sections) {
        let (call, token) = (1, section.token.map(|token| token.get()));
        let lock = match section.is_shared {
            true => Examined::Read,
            false if token.is_some() => Examined::Fenced,
            false => Examined::Write,
        };
        let (start, end) = (nanos(section.start), nanos(section.end));
        events.push(event(start, process, Asked { call, lock, number: 0 }));
        events.push(event(start, process, Entered { call, token }));
        events.push(event(end, process, Leaving { call }));
        events.push(event(end, process, Left { call, ok: true }));
    }
    events.sort_by_key(|event| event.at);
    let verdict = judge::judge(&events);
    assert!(verdict.violations.is_empty(), "{name}: {verdict:#?}");
    assert_eq!(verdict.grants, sections.len() as u64);
}

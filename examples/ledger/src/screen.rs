//! The output: a line for each event, and colors on a terminal.

use std::env;
use std::io::{IsTerminal, stdout};
use std::time::Instant;

#[derive(Clone, Copy)]
pub(crate) enum Ink {
    Bold = 1,
    Red = 31,
    Green = 32,
    Yellow = 33,
}

pub(crate) fn ink(ink: Ink, text: &str) -> String {
    let has_colors = stdout().is_terminal() && env::var_os("NO_COLOR").is_none();
    if has_colors { format!("\x1b[{}m{text}\x1b[0m", ink as u8) } else { text.to_owned() }
}

pub(crate) struct Screen {
    start: Instant,
    shown: usize,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), shown: 0 }
    }

    /// Prints an event.
    pub(crate) fn note(&self, text: &str) {
        println!("{:>7.2} s  {text}", self.start.elapsed().as_secs_f64());
    }

    /// Prints the progress, once for each quarter.
    pub(crate) fn progress(&mut self, done: usize, of: usize) {
        if done >= self.shown + of.div_ceil(4) {
            self.shown = done;
            self.note(&format!("{done} of {of} jobs"));
        }
    }
}

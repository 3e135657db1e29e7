//! The output during the run: a line for each event, and the progress.

use std::env;
use std::io::{IsTerminal, Write, stdout};
use std::time::Instant;

pub(crate) struct Screen {
    start: Instant,
    is_terminal: bool,
    shown: usize,
    bar: String,
}

#[derive(Clone, Copy)]
pub(crate) enum Ink {
    Bold = 1,
    Red = 31,
    Green = 32,
    Yellow = 33,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let is_terminal = stdout().is_terminal() && env::var_os("NO_COLOR").is_none();
        Self { start: Instant::now(), is_terminal, shown: 0, bar: String::new() }
    }

    /// Prints an event, above the progress bar.
    pub(crate) fn note(&self, text: &str) {
        self.clear();
        println!("{:>7.2} s  {text}", self.start.elapsed().as_secs_f64());
        self.draw();
    }

    /// Shows the progress: as a bar on a terminal, otherwise as a line for each quarter.
    pub(crate) fn progress(&mut self, done: usize, of: usize) {
        const WIDTH: usize = 40;
        let steps = if self.is_terminal { 2 * WIDTH } else { 4 };
        if done < self.shown + of.div_ceil(steps) {
            return;
        }
        self.shown = done;
        if self.is_terminal {
            let full = WIDTH * done / of;
            self.bar = format!("{:11}{}{} {done} of {of}", "", "█".repeat(full), "░".repeat(WIDTH - full));
            self.draw();
        } else {
            self.note(&format!("{done} of {of} jobs"));
        }
    }

    /// Removes the progress bar.
    pub(crate) fn clear(&self) {
        if self.is_terminal {
            print!("\r\x1b[2K");
            let _ = stdout().flush();
        }
    }

    pub(crate) fn ink(&self, ink: Ink, text: &str) -> String {
        if self.is_terminal { format!("\x1b[{}m{text}\x1b[0m", ink as u8) } else { text.to_owned() }
    }

    fn draw(&self) {
        if self.is_terminal {
            print!("\r{}", self.bar);
            let _ = stdout().flush();
        }
    }
}

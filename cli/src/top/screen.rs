//! The terminal while `top` has it.

use std::io;
use std::thread;

use ratatui::crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::state::Event;

/// A screen of its own, in raw mode. When it is dropped, and when the process panics, the terminal is as it was.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }

    pub(super) fn height(&self) -> io::Result<u16> {
        Ok(self.0.size()?.height)
    }

    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(render).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        ratatui::restore();
    }
}

/// The keys that are pressed. `None`: the size of the terminal has changed. They end if the terminal is gone.
pub(super) fn keys() -> UnboundedReceiver<Option<Event>> {
    let (sender, keys) = unbounded_channel();
    // This thread reads until the process ends, and nobody waits for it.
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            let pressed = match event {
                event::Event::Key(key) if key.kind == KeyEventKind::Press => pressed(key),
                event::Event::Resize(..) => None,
                _ => continue,
            };
            if sender.send(pressed).is_err() {
                return;
            }
        }
    });
    keys
}

/// `None`: the key means nothing.
fn pressed(KeyEvent { code, modifiers, .. }: KeyEvent) -> Option<Event> {
    match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Event::Interrupted),
        KeyCode::Char(_) if modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => None,
        code => Some(Event::Key(code)),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::{env, fs};

    use super::*;

    const PANICS: &str = "LOCKKEEPER_TOP_PANICS";

    /// Not a test, but what the next one runs at a terminal.
    #[test]
    fn panics_at_a_terminal() {
        if env::var_os(PANICS).is_none() {
            return;
        }
        let mut screen = Screen::open().expect("a terminal");
        screen.draw(|frame| frame.render_widget("drawn", frame.area())).expect("a screen");
        panic!("a bug");
    }

    #[test]
    fn a_panic_restores_the_terminal() {
        let dir = env::temp_dir().join(format!("lockkeeper-top-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let program = env::current_exe().expect("this program");
        let line = format!(
            "stty cols 80 rows 24; stty -a > before; {program:?} --exact top::screen::tests::panics_at_a_terminal --nocapture; stty -a > after"
        );
        let mut script = Command::new("script");
        script.args(["-qefc", &line, "/dev/null"]).env("SHELL", "/bin/sh").env(PANICS, "1").current_dir(&dir);
        let output = script.output().expect("script runs");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let (screen, after) = shown.split_once("\u{1b}[?1049l").expect("it leaves the screen");
        assert!(screen.contains("\u{1b}[?1049h") && screen.contains("drawn"), "{shown:?}");
        assert!(after.contains("a bug") && after.contains("\u{1b}[?25h"), "the cursor is shown: {after:?}");
        let read = |file: &str| fs::read_to_string(dir.join(file)).expect("a file");
        assert_eq!(read("after"), read("before"));
        fs::remove_dir_all(&dir).expect("a directory");
    }
}

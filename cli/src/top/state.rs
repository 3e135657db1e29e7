//! What `top` knows, and what a key or an answer of the server changes. No I/O: the clock is an argument.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

use lockkeeper::{Holder, LockInfo};
use ratatui::crossterm::event::KeyCode;

use crate::text::{process, who};

/// After this time without an answer, the user is told.
const SILENCE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub(super) enum Event {
    Key(KeyCode),
    /// Ctrl-C.
    Interrupted,
    /// The locks as the server listed them, and how long that took; or why it did not.
    Listed(Result<(Vec<LockInfo>, Duration), String>),
    /// What the server told of these of them meanwhile. `None`: it is free.
    Looked(Result<Vec<(String, Option<LockInfo>)>, String>),
    /// What `show` prints for a lock.
    Shown {
        name: String,
        text: String,
    },
    /// What became of a release.
    Released(String),
    /// Time has passed.
    Tick,
}

/// What the event asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Ask the server for what `show` prints.
    Show(String),
    /// Release the lock if these owners still hold it.
    Release {
        name: String,
        owners: Vec<String>,
    },
}

/// The column that decides the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Kind,
    Holder,
    Held,
    Lease,
    Waiters,
}

impl Column {
    const fn of_key(key: char) -> Option<Self> {
        Some(match key {
            'n' => Self::Name,
            't' => Self::Kind,
            'o' => Self::Holder,
            'h' => Self::Held,
            'l' => Self::Lease,
            'w' => Self::Waiters,
            _ => return None,
        })
    }

    /// At the first key, the interesting end comes first.
    const fn begins_descending(self) -> bool {
        matches!(self, Self::Held | Self::Waiters)
    }
}

/// A lock, and what was seen of it before.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) row: LockInfo,
    /// When these holders were first seen, or their record.
    since: Duration,
    /// For how long they had held it then, as their clients recorded.
    before: Duration,
    /// They were there at the first look, and there is no record: perhaps they have held it for longer.
    pub(super) is_older: bool,
    /// The longest lease that was seen: the full bar.
    pub(super) longest: Duration,
}

impl Lock {
    fn new(row: LockInfo, now: Duration, is_first: bool) -> Self {
        let recorded = row.holders.iter().filter_map(|holder| holder.held_for).max();
        Self {
            longest: row.remaining_lease.duration().unwrap_or_default(),
            row,
            since: now,
            before: recorded.unwrap_or_default(),
            is_older: is_first && recorded.is_none(),
        }
    }

    pub(super) fn held(&self, now: Duration) -> Duration {
        self.before + now.saturating_sub(self.since)
    }

    pub(super) fn waiters(&self) -> u64 {
        self.row.queued.unwrap_or_default() + self.row.listeners.unwrap_or_default()
    }

    pub(super) fn owners(&self) -> Vec<String> {
        self.row.holders.iter().map(|holder| holder.owner.clone()).collect()
    }

    /// The same lock later.
    fn becomes(self, row: LockInfo, now: Duration) -> Self {
        let owners =
            |row: &LockInfo| row.holders.iter().map(|holder| holder.owner.clone()).collect::<Vec<_>>();
        let new = Self::new(row, now, self.is_older);
        if owners(&self.row) != owners(&new.row) {
            return Self { is_older: false, ..new };
        }
        let longest = self.longest.max(new.longest);
        let is_recorded = self.is_older && !new.is_older;
        if is_recorded { Self { longest, ..new } } else { Self { row: new.row, longest, ..self } }
    }

    fn first_owner(&self) -> Option<&str> {
        self.row.holders.first().map(|holder| &*holder.owner)
    }

    fn contains(&self, text: &str) -> bool {
        let has = |word: &str| word.to_lowercase().contains(text);
        let has_holder = |holder: &Holder| has(&holder.owner) || process(holder).is_some_and(has);
        has(&self.row.name) || has(&self.row.kind.to_string()) || self.row.holders.iter().any(has_holder)
    }
}

/// What the screen shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    Table,
    /// The user types the filter.
    Filter,
    Details {
        name: String,
        /// `None`: the server was asked.
        text: Option<String>,
    },
    /// Release this lock?
    Question {
        name: String,
        owners: Vec<String>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) view: View,
    locks: Vec<Lock>,
    /// The indices of the locks that fit the filter, in order.
    shown: Vec<usize>,
    pub(super) column: Column,
    pub(super) is_descending: bool,
    pub(super) filter: String,
    /// The name of the selected lock, and its place among those that are shown.
    selected: Option<String>,
    place: usize,
    /// The place of the first line.
    first: usize,
    /// How many locks fit on the screen.
    lines: usize,
    /// What became of the last release.
    pub(super) message: String,
    /// When the server last answered. `None`: never.
    answered: Option<Duration>,
    /// How long the last list took.
    pub(super) took: Duration,
    problem: Option<String>,
    pub(super) now: Duration,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            view: View::Table,
            locks: Vec::new(),
            shown: Vec::new(),
            column: Column::Name,
            is_descending: false,
            filter: String::new(),
            selected: None,
            place: 0,
            first: 0,
            lines: 1,
            message: String::new(),
            answered: None,
            took: Duration::ZERO,
            problem: None,
            now: Duration::ZERO,
        }
    }

    /// `now`: the time since the start.
    pub(super) fn update(&mut self, event: Event, now: Duration) -> Option<Action> {
        self.now = now;
        match event {
            Event::Interrupted => return Some(Action::Quit),
            Event::Key(key) => return self.press(key),
            Event::Listed(Ok((rows, took))) => {
                self.took = took;
                self.learn(rows);
                if let View::Details { name, .. } = &self.view {
                    return Some(Action::Show(name.clone()));
                }
            }
            Event::Looked(Ok(looks)) => self.correct(looks),
            Event::Listed(Err(problem)) | Event::Looked(Err(problem)) => self.problem = Some(problem),
            Event::Shown { name: shown, text: new } => {
                if let View::Details { name, text } = &mut self.view
                    && *name == shown
                {
                    *text = Some(new);
                }
            }
            Event::Released(message) => self.message = message,
            Event::Tick => {}
        }
        None
    }

    /// The locks on the screen, and the line that is selected among them.
    pub(super) fn window(&self) -> (impl Iterator<Item = &Lock>, Option<usize>) {
        let lines = self.shown.iter().skip(self.first).take(self.lines).map(|index| &self.locks[*index]);
        (lines, (!self.shown.is_empty()).then(|| self.place - self.first))
    }

    /// How many locks there are, and how many of them fit the filter.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.locks.len(), self.shown.len())
    }

    /// Makes room for so many locks.
    pub(super) fn fit(&mut self, lines: usize) {
        self.lines = lines.max(1);
        self.scroll();
    }

    /// A holder, with its process if that is known. `None`: it does not hold this lock any more.
    pub(super) fn who(&self, name: &str, owner: &str) -> Option<String> {
        let lock = self.locks.iter().find(|lock| lock.row.name == name)?;
        lock.row.holders.iter().find(|holder| holder.owner == owner).map(who)
    }

    /// Why the server does not answer. `None`: it does.
    pub(super) fn problem(&self) -> Option<String> {
        let silence = self.now.saturating_sub(self.answered.unwrap_or_default());
        if self.problem.is_none() && silence < SILENCE {
            return None;
        }
        let cause = self.problem.as_deref().unwrap_or("the server does not answer");
        Some(format!("no answer for {} s: {cause}", silence.as_secs()))
    }

    fn learn(&mut self, rows: Vec<LockInfo>) {
        let is_first = self.answered.is_none();
        let mut before: HashMap<String, Lock> =
            self.locks.drain(..).map(|lock| (lock.row.name.clone(), lock)).collect();
        let now = self.now;
        let learn = |row: LockInfo| match before.remove(&row.name) {
            Some(before) => before.becomes(row, now),
            None => Lock::new(row, now, is_first),
        };
        self.locks = rows.into_iter().map(learn).collect();
        self.has_answered();
    }

    fn correct(&mut self, looks: Vec<(String, Option<LockInfo>)>) {
        let mut looks: HashMap<String, Option<LockInfo>> = looks.into_iter().collect();
        let now = self.now;
        let correct = |lock: Lock| match looks.remove(&lock.row.name) {
            None => Some(lock),
            Some(look) => {
                let look = look.filter(|look| !look.holders.is_empty())?;
                let mut row = lock.row.clone();
                (row.holders, row.remaining_lease) = (look.holders, look.remaining_lease);
                Some(lock.becomes(row, now))
            }
        };
        self.locks = std::mem::take(&mut self.locks).into_iter().filter_map(correct).collect();
        self.has_answered();
    }

    fn has_answered(&mut self) {
        self.answered = Some(self.now);
        self.problem = None;
        self.arrange();
    }

    /// The names of the locks on the screen.
    pub(super) fn names(&self) -> Vec<String> {
        self.window().0.map(|lock| lock.row.name.clone()).collect()
    }

    /// Filters, sorts, and finds the selected lock again.
    fn arrange(&mut self) {
        let filter = self.filter.to_lowercase();
        let fits = |index: &usize| filter.is_empty() || self.locks[*index].contains(&filter);
        self.shown = (0..self.locks.len()).filter(fits).collect();
        let (locks, column, is_descending) = (&self.locks, self.column, self.is_descending);
        self.shown.sort_unstable_by(|a, b| {
            let (a, b) = (&locks[*a], &locks[*b]);
            let order = compare(a, b, column);
            let order = if is_descending { order.reverse() } else { order };
            order.then_with(|| a.row.name.cmp(&b.row.name))
        });
        let selected = self.selected.as_ref();
        let found = self.shown.iter().position(|index| Some(&self.locks[*index].row.name) == selected);
        self.select(found.unwrap_or(self.place));
    }

    fn select(&mut self, place: usize) {
        self.place = place.min(self.shown.len().saturating_sub(1));
        self.selected = self.shown.get(self.place).map(|index| self.locks[*index].row.name.clone());
        self.scroll();
    }

    fn scroll(&mut self) {
        let last = self.shown.len().saturating_sub(self.lines);
        self.first = self.first.clamp((self.place + 1).saturating_sub(self.lines), self.place).min(last);
    }

    fn press(&mut self, key: KeyCode) -> Option<Action> {
        match std::mem::replace(&mut self.view, View::Table) {
            View::Table => return self.press_in_table(key),
            View::Filter => self.press_in_filter(key),
            View::Details { name, text } => match key {
                KeyCode::Char('k') => self.ask(Some(name)),
                KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => {}
                _ => self.view = View::Details { name, text },
            },
            View::Question { name, owners } => match key {
                KeyCode::Char('y' | 'Y') => return Some(Action::Release { name, owners }),
                _ => self.message = "nothing was released".to_owned(),
            },
        }
        None
    }

    fn press_in_table(&mut self, key: KeyCode) -> Option<Action> {
        self.message.clear();
        match key {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Up => self.select(self.place.saturating_sub(1)),
            KeyCode::Down => self.select(self.place + 1),
            KeyCode::PageUp => self.select(self.place.saturating_sub(self.lines)),
            KeyCode::PageDown => self.select(self.place + self.lines),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Enter => {
                let name = self.selected.clone()?;
                self.view = View::Details { name: name.clone(), text: None };
                return Some(Action::Show(name));
            }
            KeyCode::Esc => {
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Char('/') => self.view = View::Filter,
            KeyCode::Char('k') => self.ask(self.selected.clone()),
            KeyCode::Char(char) => {
                if let Some(column) = Column::of_key(char) {
                    self.is_descending =
                        if column == self.column { !self.is_descending } else { column.begins_descending() };
                    self.column = column;
                    self.arrange();
                }
            }
            _ => {}
        }
        None
    }

    fn press_in_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => return,
            KeyCode::Esc => {
                self.filter.clear();
                self.arrange();
                return;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(char) => self.filter.push(char),
            _ => {}
        }
        self.arrange();
        self.view = View::Filter;
    }

    /// Asks whether to release this lock.
    fn ask(&mut self, name: Option<String>) {
        let lock = self.locks.iter().find(|lock| Some(&lock.row.name) == name.as_ref());
        match lock {
            Some(lock) => self.view = View::Question { name: lock.row.name.clone(), owners: lock.owners() },
            None => self.message = "the lock is free".to_owned(),
        }
    }
}

fn compare(a: &Lock, b: &Lock, column: Column) -> Ordering {
    match column {
        Column::Name => a.row.name.cmp(&b.row.name),
        Column::Kind => a.row.kind.to_string().cmp(&b.row.kind.to_string()),
        Column::Holder => a.first_owner().cmp(&b.first_owner()),
        // A lock that was held before the first look has been held for an unknown time, so it comes last.
        Column::Held => (a.is_older, a.before + b.since).cmp(&(b.is_older, b.before + a.since)),
        // A lease without an expiry never ends, so it comes after all others.
        Column::Lease => a.row.remaining_lease.cmp(&b.row.remaining_lease),
        Column::Waiters => a.waiters().cmp(&b.waiters()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    pub(in crate::top) fn row(name: &str, owner: &str, left_ms: u64) -> LockInfo {
        crate::text::tests::lock(name, &[(owner, 1)], left_ms)
    }

    pub(in crate::top) fn listed(rows: Vec<LockInfo>) -> Event {
        Event::Listed(Ok((rows, Duration::ZERO)))
    }

    /// Three locks, with room for so many lines.
    fn three(lines: usize) -> State {
        let mut state = State::new();
        state.fit(lines);
        let mut b = row("b", "2", 20_000);
        b.queued = Some(4);
        assert_eq!(state.update(listed(vec![row("c", "1", 9_000), row("a", "3", 30_000), b]), SECOND), None);
        state
    }

    fn press(state: &mut State, keys: &str) -> Option<Action> {
        keys.chars().fold(None, |_, char| {
            let key = match char {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                'v' => KeyCode::Down,
                '^' => KeyCode::Up,
                '<' => KeyCode::Backspace,
                char => KeyCode::Char(char),
            };
            state.update(Event::Key(key), state.now)
        })
    }

    fn names(state: &State) -> String {
        state.names().concat()
    }

    #[test]
    fn a_key_sorts_and_the_same_key_again_reverses() {
        let mut state = three(9);
        assert_eq!(names(&state), "abc");
        for (keys, order) in
            [("n", "cba"), ("w", "bac"), ("w", "acb"), ("l", "cba"), ("o", "cba"), ("o", "abc")]
        {
            press(&mut state, keys);
            assert_eq!(names(&state), order, "{keys}");
        }
    }

    #[test]
    fn the_selected_lock_stays_selected_and_on_the_screen() {
        let mut state = three(2);
        let selected = |state: &State| {
            let (locks, line) = state.window();
            locks.map(|lock| lock.row.name.clone()).nth(line.expect("a line")).expect("a lock")
        };
        assert_eq!((names(&state), selected(&state)), ("ab".to_owned(), "a".to_owned()));
        press(&mut state, "vvv");
        assert_eq!((names(&state), selected(&state)), ("bc".to_owned(), "c".to_owned()));
        press(&mut state, "n");
        assert_eq!((names(&state), selected(&state)), ("cb".to_owned(), "c".to_owned()));
        state.fit(1);
        assert_eq!(names(&state), "c");
        // The selected lock is gone, so the lock that takes its place is selected.
        state.update(listed(vec![row("a", "3", 1), row("b", "3", 1)]), 2 * SECOND);
        assert_eq!(selected(&state), "b");
        state.update(listed(Vec::new()), 3 * SECOND);
        assert_eq!(state.window().1, None);
        press(&mut state, "v^\nk");
        assert_eq!((&state.view, &*state.message), (&View::Table, "the lock is free"));
    }

    #[test]
    fn a_filter_is_typed_applied_and_cleared() {
        let mut state = three(9);
        press(&mut state, "/q");
        assert_eq!((state.counts(), &state.view), ((3, 0), &View::Filter));
        press(&mut state, "<B\n");
        assert_eq!((names(&state), &state.view), ("b".to_owned(), &View::Table));
        assert_eq!(press(&mut state, "\u{1b}"), None);
        assert_eq!(names(&state), "abc");
        press(&mut state, "/3\u{1b}");
        assert_eq!((names(&state), &state.view), ("abc".to_owned(), &View::Table));
    }

    #[test]
    fn the_time_of_a_hold_begins_when_its_owner_is_first_seen() {
        let mut state = three(9);
        let held = |state: &State| -> Vec<(u64, bool)> {
            state.window().0.map(|lock| (lock.held(state.now).as_secs(), lock.is_older)).collect()
        };
        let rows = || vec![row("a", "3", 25_000), row("b", "9", 1_000), row("d", "1", 1_000)];
        state.update(listed(rows()), 5 * SECOND);
        state.update(listed(rows()), 7 * SECOND);
        assert_eq!(held(&state), [(6, true), (2, false), (2, false)]);
        assert_eq!(state.window().0.next().map(|lock| lock.longest), Some(30 * SECOND));
        let mut recorded = rows();
        recorded[0].holders[0].held_for = Some(60 * SECOND);
        state.update(listed(recorded), 8 * SECOND);
        state.update(listed(rows()), 9 * SECOND);
        assert_eq!(held(&state), [(61, false), (4, false), (4, false)]);
        press(&mut state, "h");
        assert_eq!(names(&state), "abd", "the oldest comes first");
    }

    #[test]
    fn a_look_corrects_the_locks_on_the_screen_and_removes_free_ones() {
        let mut state = three(9);
        let looks = vec![("a".to_owned(), Some(row("a", "8", 7))), ("c".to_owned(), None)];
        state.update(Event::Looked(Ok(looks)), 3 * SECOND);
        assert_eq!(names(&state), "ab");
        let (mut locks, _) = state.window();
        let lock = locks.next().expect("a lock");
        assert_eq!(
            (lock.owners(), lock.row.remaining_lease),
            (vec!["8".to_owned()], row("a", "8", 7).remaining_lease)
        );
    }

    #[test]
    fn details_are_asked_for_again_with_each_list() {
        let mut state = three(9);
        assert_eq!(press(&mut state, "v\n"), Some(Action::Show("b".to_owned())));
        let shown = |name: &str, text: &str| Event::Shown { name: name.to_owned(), text: text.to_owned() };
        state.update(shown("other", "x"), SECOND);
        assert_eq!(state.view, View::Details { name: "b".to_owned(), text: None });
        state.update(shown("b", "y"), SECOND);
        assert_eq!(state.view, View::Details { name: "b".to_owned(), text: Some("y".to_owned()) });
        assert_eq!(state.update(listed(vec![row("b", "2", 1)]), SECOND), Some(Action::Show("b".to_owned())));
        assert_eq!((press(&mut state, "q"), &state.view), (None, &View::Table));
    }

    #[test]
    fn only_y_releases_and_only_for_the_owners_that_were_shown() {
        let mut state = three(9);
        let question = || View::Question { name: "a".to_owned(), owners: vec!["3".to_owned()] };
        for keys in ["k", "\nk"] {
            press(&mut state, keys);
            assert_eq!(state.view, question(), "{keys}");
            assert_eq!((press(&mut state, "\n"), &*state.message), (None, "nothing was released"));
        }
        press(&mut state, "k");
        state.update(listed(vec![row("a", "9", 1)]), SECOND);
        let release = Action::Release { name: "a".to_owned(), owners: vec!["3".to_owned()] };
        assert_eq!(press(&mut state, "y"), Some(release));
        state.update(Event::Released("a: released".to_owned()), SECOND);
        assert_eq!((&state.view, &*state.message), (&View::Table, "a: released"));
    }

    #[test]
    fn q_and_control_c_quit() {
        assert_eq!(press(&mut three(9), "q"), Some(Action::Quit));
        for keys in ["", "/", "\n", "k"] {
            let mut state = three(9);
            press(&mut state, keys);
            assert_eq!(state.update(Event::Interrupted, SECOND), Some(Action::Quit), "{keys:?}");
        }
        let mut state = three(9);
        assert_eq!((press(&mut state, "/q"), &*state.filter), (None, "q"));
    }

    #[test]
    fn a_server_that_is_silent_or_refuses_is_a_problem_until_it_answers() {
        let mut state = three(9);
        state.update(Event::Tick, 3 * SECOND);
        assert_eq!(state.problem(), None);
        state.update(Event::Tick, 4 * SECOND);
        assert_eq!(state.problem().as_deref(), Some("no answer for 3 s: the server does not answer"));
        state.update(Event::Listed(Err("refused".to_owned())), 6 * SECOND);
        assert_eq!(state.problem().as_deref(), Some("no answer for 5 s: refused"));
        assert_eq!(names(&state), "abc", "what was known stays");
        state.update(listed(Vec::new()), 7 * SECOND);
        assert_eq!(state.problem(), None);
    }
}

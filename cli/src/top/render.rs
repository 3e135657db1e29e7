//! Draws what `top` knows.

use std::time::Duration;

use lockkeeper::Holder;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Paragraph, Row, Table, TableState, Wrap};

use super::state::{Column, Lock, State, View};
use crate::table::shorten;
use crate::text::{process, visible, waiters};

/// The columns, and their widths. The names and the holders share what is left.
const COLUMNS: [(Column, &str, u16); 6] = [
    (Column::Name, "NAME", 0),
    (Column::Kind, "TYPE", 9),
    (Column::Holder, "OWNER", 0),
    (Column::Held, "HELD", 8),
    (Column::Lease, "LEASE", BAR + 8),
    (Column::Waiters, "WAITERS", 10),
];

/// The width of a full bar.
const BAR: u16 = 8;

/// A list that takes so long is older than what the screen shows of it.
const SLOW: Duration = Duration::from_secs(2);

/// How many holders a question names.
const NAMED: usize = 8;

const KEYS: &str = "q quit  / filter  enter details  k release  sort by: n t o h l w";

pub(super) fn render(frame: &mut Frame<'_>, state: &State, has_colours: bool) {
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
            .areas(frame.area());
    let painted = |color| if has_colours { Style::new().fg(color) } else { Style::new() };
    frame.render_widget(Line::from(summary(state)), top);
    match &state.view {
        View::Table | View::Filter => table(frame, middle, state, has_colours),
        View::Details { name, text } => {
            let text = text.as_deref().unwrap_or("…");
            boxed(frame, middle, &format!(" {} ", visible(name)), &format!("{text}\nesc back  k release"));
        }
        View::Question { name, owners } => {
            let who = |owner: &String| state.who(name, owner).unwrap_or_else(|| visible(owner).into_owned());
            let mut holders: Vec<_> =
                owners.iter().take(NAMED).map(|owner| format!("  {}", who(owner))).collect();
            if owners.len() > NAMED {
                holders.push(format!("  and {} more", owners.len() - NAMED));
            }
            let text = format!(
                "It is held by\n{}\nThe holder works on until it notices: mostly at once, or at its next renewal.\n\nRelease the lock? [y/N]",
                holders.join("\n")
            );
            boxed(frame, middle, &format!(" {} ", visible(name)), &text);
        }
    }
    let problem = state.problem();
    let last = match (&problem, &state.view) {
        (_, View::Filter) => Line::from(format!("filter: {}▏", state.filter)),
        (Some(problem), _) => Line::styled(visible(problem).into_owned(), painted(Color::Red)),
        (None, View::Table) if !state.message.is_empty() => Line::from(visible(&state.message).into_owned()),
        _ => Line::styled(KEYS, Style::new().add_modifier(Modifier::DIM)),
    };
    frame.render_widget(last, bottom);
}

/// How many locks fit on a screen of this height.
pub(super) fn lines(height: u16) -> usize {
    usize::from(height).saturating_sub(3)
}

fn summary(state: &State) -> String {
    let (all, shown) = state.counts();
    let mut text = format!("lockkeeper top: {all} lock{}", if all == 1 { "" } else { "s" });
    if !state.filter.is_empty() {
        text += &format!(", {shown} with \"{}\"", visible(&state.filter));
    }
    if state.took >= SLOW {
        text += &format!(", all read once in {} s", state.took.as_secs());
    }
    text
}

/// Title and text have no control characters.
fn boxed(frame: &mut Frame<'_>, area: Rect, title: &str, text: &str) {
    let block = Block::bordered().title(title.to_owned());
    let lines = Text::from_iter(text.lines());
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

fn table(frame: &mut Frame<'_>, area: Rect, state: &State, has_colours: bool) {
    let widths = widths(area.width);
    let header = COLUMNS.map(|(column, title, _)| match (column == state.column, state.is_descending) {
        (false, _) => title.to_owned(),
        (true, false) => format!("{title} ▲"),
        (true, true) => format!("{title} ▼"),
    });
    let (locks, selected) = state.window();
    let rows = locks.map(|lock| row(lock, state.now, widths, has_colours));
    let table = Table::new(rows, widths.map(Constraint::Length))
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(selected));
}

/// Divides what the other columns leave among the names and the holders.
fn widths(width: u16) -> [u16; 6] {
    let gaps = u16::try_from(COLUMNS.len() - 1).unwrap_or_default();
    let fixed: u16 = COLUMNS.iter().map(|(_, _, width)| width).sum();
    let left = width.saturating_sub(fixed + gaps);
    COLUMNS.map(|(column, _, width)| match column {
        Column::Name => left.div_ceil(2),
        Column::Holder => left / 2,
        _ => width,
    })
}

fn row(lock: &Lock, now: Duration, widths: [u16; 6], has_colours: bool) -> Row<'static> {
    let [name, _, holder, ..] = widths.map(usize::from);
    let at_least = if lock.is_older { "≥" } else { "" };
    let row = Row::new([
        shorten(&visible(&lock.row.name), name),
        lock.row.kind.to_string(),
        shorten(&owners(lock), holder),
        format!("{at_least}{}", time(lock.held(now))),
        lease(lock),
        waiters(&lock.row),
    ]);
    let colour = match lock.row.remaining_lease.duration() {
        _ if !has_colours => return row,
        None => Color::Red,
        // A lock that is renewed never has less than two thirds of its lease. Less than half shows that renewals fail.
        Some(left) if left < lock.longest / 2 => Color::Yellow,
        Some(_) => return row,
    };
    row.style(Style::new().fg(colour))
}

fn owners(lock: &Lock) -> String {
    match &lock.row.holders[..] {
        [first, rest @ ..] if !rest.is_empty() => format!("{} +{}", name(first), rest.len()),
        all => all.iter().map(name).collect(),
    }
}

/// The process, if it is known.
fn name(holder: &Holder) -> String {
    visible(process(holder).unwrap_or(&holder.owner)).into_owned()
}

fn lease(lock: &Lock) -> String {
    let Some(left) = lock.row.remaining_lease.duration() else { return lock.row.remaining_lease.to_string() };
    let (ms, longest) = (left.as_millis(), lock.longest.as_millis());
    let full = ms.saturating_mul(BAR.into()).div_ceil(longest.max(1)).min(BAR.into());
    let full = usize::try_from(full).unwrap_or_default();
    format!("{}{} {}", "█".repeat(full), "░".repeat(usize::from(BAR) - full), time(left))
}

/// In at most seven characters.
fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) if s < 10 => format!("{s}.{} s", time.subsec_millis() / 100),
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m}m {s:02}s"),
        (0, h, m, _) => format!("{h}h {m:02}m"),
        (d @ 0..100, h, ..) => format!("{d}d {h:02}h"),
        (d, ..) => format!("{d} d"),
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper::{LockKind, RemainingLease};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::super::state::Event;
    use super::super::state::tests::{listed, row};
    use super::*;

    const OWNER: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586";

    fn state() -> State {
        let mut state = State::new();
        let owner = |number: u32| format!("{OWNER}:{number}");
        let mut old = row("lock:report", &owner(1), 30_000);
        old.holders[0].identity = Some("report@worker-3:4711".to_owned());
        state.update(listed(vec![old.clone()]), Duration::ZERO);
        let mut queue = row("lock:jobs", &owner(7), 27_400);
        (queue.kind, queue.queued) = (LockKind::Fair, Some(12));
        let mut readers = row("lock:cache:prices-of-all-articles-in-all-countries", &owner(3), 11_000);
        readers.holders.extend(row("", &owner(4), 1).holders);
        readers.kind = LockKind::Read;
        let mut endless = row("lock:forgotten", &owner(77), 0);
        (endless.remaining_lease, endless.listeners) = (RemainingLease::Endless, Some(1));
        let second = Duration::from_secs(1);
        let rows = |old| vec![old, queue.clone(), readers.clone(), endless.clone()];
        state.update(listed(rows(old.clone())), 80 * second);
        old.remaining_lease = RemainingLease::For(Duration::from_millis(9_500));
        state.update(listed(rows(old)), 125 * second);
        state
    }

    /// The screen as text, one line each.
    fn drawn(state: &mut State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        state.fit(lines(height));
        terminal.draw(|frame| render(frame, state, true)).expect("a screen");
        let text = terminal.backend().to_string();
        text.lines().map(|line| line.trim_matches('"').trim_end().to_owned()).collect()
    }

    fn press(state: &mut State, key: KeyCode) {
        state.update(Event::Key(key), state.now);
    }

    /// The page shows what the program draws.
    #[test]
    fn at_80_columns_each_lock_is_one_line_as_in_the_docs() {
        let drawing = drawn(&mut state(), 80, 7).join("\n");
        let page = include_str!("../../README.md");
        assert!(page.contains(&drawing), "cli/README.md lacks this drawing:\n{drawing}");
        assert!(drawing.lines().all(|line| line.chars().count() <= 80), "{drawing}");
    }

    #[test]
    fn at_200_columns_nothing_is_shortened() {
        let lines = drawn(&mut state(), 200, 9);
        assert!(!lines.iter().any(|line| line.contains('…')), "{lines:#?}");
        assert!(lines[2].starts_with("lock:cache:prices-of-all-articles-in-all-countries "), "{lines:#?}");
        assert!(lines[2].contains(&format!(" {OWNER}:3 +1 ")), "{lines:#?}");
    }

    #[test]
    fn details_the_question_and_a_problem_are_shown() {
        let mut state = state();
        press(&mut state, KeyCode::End);
        press(&mut state, KeyCode::Enter);
        let text =
            "lock:report: held, a lock, ends in 9.5 s, if nobody renews it\n  owner, 1 hold\n".to_owned();
        state.update(Event::Shown { name: "lock:report".to_owned(), text }, state.now);
        let details = drawn(&mut state, 80, 12).join("\n");
        assert!(details.contains("┌ lock:report ─") && details.contains("│  owner, 1 hold "), "{details}");
        press(&mut state, KeyCode::Char('k'));
        let question = drawn(&mut state, 80, 12).join("\n");
        for words in [
            &format!("  report@worker-3:4711 ({OWNER}:1)"),
            "Release the lock? [y/N]",
            "works on until it notices",
        ] {
            assert!(question.contains(words), "{words}: {question}");
        }
        press(&mut state, KeyCode::Char('n'));
        assert!(drawn(&mut state, 80, 12)[11].starts_with("nothing was released"));
        state.update(Event::Listed(Err("the server\u{1b} is gone".to_owned())), state.now);
        assert_eq!(drawn(&mut state, 80, 12)[11], "no answer for 0 s: the server\\u{1b} is gone");
    }

    #[test]
    fn no_size_is_too_small() {
        for (width, height) in [(1, 1), (10, 3), (79, 4), (80, 2), (300, 1)] {
            let mut state = state();
            drawn(&mut state, width, height);
            press(&mut state, KeyCode::Enter);
            drawn(&mut state, width, height);
            press(&mut state, KeyCode::Char('k'));
            drawn(&mut state, width, height);
        }
    }

    #[test]
    fn times_fit_their_column() {
        let shown = [0, 9, 59, 61, 3_599, 3_600, 86_399, 86_400, 99 * 86_400, 100 * 86_400]
            .map(|seconds| time(Duration::from_secs(seconds)));
        let expected = [
            "0.0 s", "9.0 s", "59 s", "1m 01s", "59m 59s", "1h 00m", "23h 59m", "1d 00h", "99d 00h", "100 d",
        ];
        assert_eq!(shown, expected);
        assert!(shown.iter().all(|text| text.len() <= 7));
    }
}

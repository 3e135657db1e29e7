//! Sections as a picture of text: one line for each process.

use std::collections::BTreeMap;

use super::judge::Call;

const WIDTH: u8 = 64;
const MS: u64 = 1_000_000;

/// Shows what the calls of a lock did between two times, and a little before and after.
pub(super) fn picture(calls: &[&Call], from: u64, to: u64) -> Vec<String> {
    let margin = ((to - from) / 4).max(5 * MS);
    let (from, to) = (from.saturating_sub(margin), to + margin);
    let last = usize::from(WIDTH - 1);
    let column = |at: u64| {
        let place = (at.clamp(from, to) - from) * u64::from(WIDTH - 1) / (to - from);
        usize::try_from(place).map_or(last, |place| place.min(last))
    };
    let mut lines: BTreeMap<u32, Vec<char>> = BTreeMap::new();
    for call in calls {
        let waited = call.entered.or(call.told).unwrap_or(call.last);
        if call.asked > to || call.last.max(waited).max(call.told.unwrap_or_default()) < from {
            continue;
        }
        let line = lines.entry(call.process).or_insert_with(|| vec![' '; usize::from(WIDTH)]);
        let mut fill = |begin: u64, end: u64, char: char| {
            if begin <= to && end >= from {
                line[column(begin)..=column(end)]
                    .iter_mut()
                    .filter(|old| **old != '#')
                    .for_each(|old| *old = char);
            }
        };
        fill(call.asked, waited, '.');
        if let Some(entered) = call.entered {
            fill(entered, call.last, '#');
        }
        if let Some(told) = call.told.filter(|told| (from..=to).contains(told)) {
            line[column(told)] = '!';
        }
    }
    let rows = lines
        .into_iter()
        .map(|(process, line)| format!("worker {process:<3} |{}|", line.into_iter().collect::<String>()));
    let legend = format!("{} ms; # holds the lock, . waits for it, ! is told of the loss", (to - from) / MS);
    rows.chain([legend]).collect()
}

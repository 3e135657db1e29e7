//! Tables for people. Programs read JSON.

use std::io::{self, IsTerminal};

/// No column becomes narrower than this.
const NARROWEST: usize = 7;

/// The space between columns.
const GAP: &str = "  ";

/// Where a table goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// A terminal of so many columns. `None`: it does not tell.
    Terminal(Option<usize>),
    /// A file or a pipe.
    Other,
}

impl Output {
    pub(crate) fn of_this_process() -> Self {
        if !io::stdout().is_terminal() {
            return Self::Other;
        }
        let size = terminal_size::terminal_size_of(io::stdout());
        Self::Terminal(size.map(|(width, _)| width.0.into()))
    }
}

/// Lays out rows under a header. `None`: it was printed before. Columns are aligned, and for a terminal, texts are shortened to fit.
/// `widths`: those of the rows before, which grow with wider ones.
pub(crate) fn lay_out<const N: usize>(
    header: Option<[&str; N]>,
    rows: Vec<[String; N]>,
    output: Output,
    widths: &mut [usize; N],
) -> String {
    let rows: Vec<[String; N]> =
        header.into_iter().map(|header| header.map(str::to_owned)).chain(rows).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = len(cell).max(*width);
        }
    }
    if let Output::Terminal(Some(most)) = output {
        fit(widths, most);
    }
    rows.iter().map(|row| line(row, widths)).collect()
}

/// Makes the widest columns narrower until all fit, if that is possible.
fn fit<const N: usize>(widths: &mut [usize; N], most: usize) {
    let most = most.saturating_sub(GAP.len() * (N - 1));
    while widths.iter().sum::<usize>() > most {
        let Some(widest) = widths.iter_mut().max().filter(|width| **width > NARROWEST) else { return };
        *widest -= 1;
    }
}

fn line<const N: usize>(row: &[String; N], widths: &[usize; N]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, width)| {
        let cell = shorten(cell, *width);
        let space = " ".repeat(width - len(&cell));
        cell + &space
    });
    cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned() + "\n"
}

/// Leaves out the middle: the ends of names and owners tell them apart.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    let count = len(text);
    if count <= most {
        return text.to_owned();
    }
    if most == 0 {
        return String::new();
    }
    let (head, tail) = (most / 2, most - most / 2 - 1);
    let chars = text.chars();
    chars.clone().take(head).chain(['…']).chain(chars.skip(count - tail)).collect()
}

/// Most terminals show most characters in one column.
fn len(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<[String; 2]> {
        [["a", "1"], ["a-name-of-24-characters!", "12"]].map(|row| row.map(str::to_owned)).into()
    }

    #[test]
    fn columns_are_aligned_and_stay_so_in_later_rows() {
        for output in [Output::Terminal(None), Output::Other] {
            let mut widths = [0; 2];
            let table = lay_out(Some(["NAME", "N"]), rows(), output, &mut widths);
            assert_eq!(
                table,
                "NAME                      N\n\
                 a                         1\n\
                 a-name-of-24-characters!  12\n"
            );
            let more = lay_out(None, rows()[..1].to_vec(), output, &mut widths);
            assert_eq!(more, "a                         1\n");
        }
    }

    #[test]
    fn long_texts_are_shortened_in_the_middle_to_fit_a_terminal() {
        let table = lay_out(Some(["NAME", "N"]), rows(), Output::Terminal(Some(16)), &mut [0; 2]);
        assert_eq!(
            table,
            "NAME          N\n\
             a             1\n\
             a-name…ters!  12\n"
        );
        assert!(table.lines().all(|line| len(line) <= 16), "{table}");
        // The terminal is narrower than even a shortened name.
        let narrow = lay_out(Some(["NAME", "N"]), rows(), Output::Terminal(Some(3)), &mut [0; 2]);
        assert!(narrow.contains("a-n…rs!"), "{narrow}");
    }
}

//! What a run measured. It is printed while it is measured, and kept in one page.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::plot;
use crate::stats::Ratio;

const PAGE: &str = "benches/RESULTS.md";
const PLOTS: &str = "docs/plots";

const HEAD: &str = "\
# Results

`scripts/bench` measures and writes this page. A ratio compares two candidates in the same round. The tables show the
median of all rounds, and [least..greatest]. Server and clients share one machine. Absolute numbers of different runs
cannot be compared.

Each crate is used as its README shows, with its own defaults for waiting and a lease of 30 s. *Bare* sends lockkeeper's
scripts with nothing around them: it survives no fault, and renews nothing. *Redisson's scripts* are sent in the same
way: what Redisson 4.7 asks of the server, with and without the latch that it sets at an unlock. Redisson itself has its
default configuration. It runs in a warm JVM, with one thread per task.

On a free lock some crates are faster than lockkeeper. A SET costs the server less than a script, and a script without
PUBLISH wakes no waiter. rslock, rlock and distkit acquire with SET NX, and relock and async-redis-lock with a short
script. All five poll: rslock after 0 to 200 ms, rlock and async-redis-lock every 100 ms, relock every 200 ms, distkit
every 50 ms. lockkeeper, bare and Redisson wait for a message.
";

/// With this begins what the page has of a part.
const MARK: &str = "\n# Part ";

/// The results of one run.
pub struct Report {
    run: String,
    /// The name and the text of each part.
    parts: Vec<(String, String)>,
    plots: Vec<(&'static str, String)>,
}

impl Report {
    /// `run`: where, when and how the run is made.
    pub fn new(run: String) -> Self {
        println!("{run}");
        Self { run, parts: Vec::new(), plots: Vec::new() }
    }

    /// Begins a part of the benchmark.
    pub fn part(&mut self, name: &str) {
        self.parts.push((name.to_owned(), format!("`{name}`\n\n{}\n", self.run)));
    }

    /// Adds a section: a heading, a text and a table.
    pub fn section(&mut self, title: impl fmt::Display, text: impl fmt::Display, table: &Table) {
        let section = format!("\n## {title}\n\n{text}\n\n{table}");
        print!("{section}");
        self.parts.last_mut().expect("a part was begun").1 += &section;
    }

    /// Adds a plot for a page of the documentation.
    pub fn plot(&mut self, name: &'static str, title: &str, rows: &[(&str, Ratio)]) {
        self.plots.push((name, plot::svg(title, rows)));
    }

    /// Writes the page, with the parts in this order, and the plots. The page keeps the parts that this run did not measure.
    pub fn save(&self, folder: &Path, order: &[&str]) {
        let old = fs::read_to_string(folder.join(PAGE)).unwrap_or_default();
        let mut page = HEAD.to_owned();
        for part in order {
            let measured = self.parts.iter().find(|(name, _)| name == part).map(|(_, text)| text.as_str());
            let earlier = || old.split(MARK).find(|text| text.starts_with(&format!("`{part}`\n")));
            if let Some(text) = measured.or_else(earlier) {
                page = page + MARK + text.trim_end() + "\n";
            }
        }
        write(&folder.join(PAGE), &page);
        for (name, plot) in &self.plots {
            write(&folder.join(PLOTS).join(name).with_extension("svg"), plot);
        }
    }
}

fn write(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder to write to");
    fs::write(file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// A table, from its titles and rows.
pub struct Table(Vec<Vec<String>>);

impl Table {
    pub fn new<const N: usize>(titles: [&str; N]) -> Self {
        Self(vec![titles.map(str::to_owned).to_vec()])
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(N, self.0[0].len(), "a cell for each column");
        self.0.push(cells.into());
    }
}

/// A number with so many decimal places. Empty if it is not finite: then nothing was measured.
pub fn number(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { String::new() }
}

/// A part of one as a percentage. Empty if it is not finite.
pub fn percent(part: f64, digits: usize) -> String {
    if part.is_finite() { format!("{:.digits$} %", part * 100.0) } else { String::new() }
}

/// Markdown. The first column is aligned to the left, the others to the right.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| {} |", self.0[0].join(" | "))?;
        writeln!(f, "|:--{}|", "|--:".repeat(self.0[0].len() - 1))?;
        self.0[1..].iter().try_for_each(|row| writeln!(f, "| {} |", row.join(" | ")))
    }
}

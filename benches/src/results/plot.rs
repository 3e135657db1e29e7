//! Ratios as an SVG: a dot for the median, a line from the least to the greatest, on a logarithmic scale.

use std::fmt;

pub struct Plot<'a> {
    pub title: &'a str,
    /// What the ratios are to.
    ratio: &'a str,
    rows: Vec<Row>,
}

struct Row {
    label: String,
    median: f64,
    least: f64,
    greatest: f64,
}

const WIDTH: f64 = 800.0;
const LABELS: f64 = 280.0;
const VALUES: f64 = 60.0;
const TOP: f64 = 60.0;
const STEP: f64 = 20.0;

/// What is printed as 0.00 is less than this, and the scale has no zero.
const SMALLEST: f64 = 0.004;

const TICKS: [f64; 15] =
    [0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1_000.0];

impl<'a> Plot<'a> {
    /// Of the first ratio in the table of a section, if it has one.
    pub fn of(section: &'a str) -> Option<Self> {
        let mut rows = section.lines().filter(|line| line.starts_with("| ")).map(cells);
        let titles = rows.next()?;
        let ratio = titles.iter().position(|title| title.starts_with("ratio "))?;
        let tasks = titles.iter().position(|title| *title == "tasks").filter(|column| *column > 0);
        let rows = rows.filter_map(|cells| Row::new(label(&cells, tasks), cells[ratio])).collect();
        Some(Self { title: section.lines().next()?, ratio: titles[ratio], rows })
    }

    fn range(&self) -> (f64, f64) {
        let least = self.rows.iter().map(|row| row.least).fold(0.5, f64::min);
        let greatest = self.rows.iter().map(|row| row.greatest).fold(2.0, f64::max);
        (least / 1.1, greatest * 1.1)
    }
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

fn label(cells: &[&str], tasks: Option<usize>) -> String {
    match tasks {
        Some(column) if cells[column] == "1" => format!("{}, 1 task", cells[0]),
        Some(column) => format!("{}, {} tasks", cells[0], cells[column]),
        None => cells[0].to_owned(),
    }
}

impl Row {
    /// Of a cell such as "0.98 [0.95..1.02]".
    fn new(label: String, cell: &str) -> Option<Self> {
        let numbers = cell.split([' ', '[', ']']).flat_map(|word| word.split(".."));
        let numbers: Vec<f64> = numbers.filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [median, least, greatest] => {
                let [median, least, greatest] = [median, least, greatest].map(|ratio| ratio.max(SMALLEST));
                Some(Self { label, median, least, greatest })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Plot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, greatest) = self.range();
        let x =
            |ratio: f64| LABELS + (ratio / least).ln() / (greatest / least).ln() * (WIDTH - LABELS - VALUES);
        let bottom = TOP + self.rows.len() as f64 * STEP;
        let height = bottom + STEP;
        writeln!(f, r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" "#)?;
        writeln!(f, r#"font-family="sans-serif" font-size="12" fill="black">"#)?;
        writeln!(f, r#"<rect width="{WIDTH}" height="{height}" fill="white"/>"#)?;
        text(f, 10.0, 20.0, "start", &format!("{}: {}", self.title, self.ratio))?;
        for tick in TICKS.into_iter().filter(|tick| (least..=greatest).contains(tick)) {
            let color = if tick == 1.0 { "black" } else { "lightgray" };
            line(f, [x(tick), TOP - 10.0, x(tick), bottom], color)?;
            text(f, x(tick), TOP - 15.0, "middle", &tick.to_string())?;
        }
        for (row, y) in
            self.rows.iter().zip(0..).map(|(row, index)| (row, TOP + f64::from(index) * STEP + 10.0))
        {
            text(f, LABELS - 10.0, y + 4.0, "end", &row.label)?;
            line(f, [x(row.least), y, x(row.greatest), y], "steelblue")?;
            writeln!(f, r#"<circle cx="{:.1}" cy="{y}" r="4" fill="steelblue"/>"#, x(row.median))?;
            text(f, WIDTH - 10.0, y + 4.0, "end", &format!("{:.2}", row.median))?;
        }
        writeln!(f, "</svg>")
    }
}

fn line(f: &mut fmt::Formatter<'_>, [x1, y1, x2, y2]: [f64; 4], color: &str) -> fmt::Result {
    writeln!(f, r#"<path d="M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}" stroke="{color}" stroke-width="1.5"/>"#)
}

fn text(f: &mut fmt::Formatter<'_>, x: f64, y: f64, anchor: &str, text: &str) -> fmt::Result {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(f, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{escaped}</text>"#)
}

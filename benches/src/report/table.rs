//! Tables: values for the plots, and Markdown for the page.

use std::fmt;

use serde::{Deserialize, Serialize};
use tabled::builder::Builder;
use tabled::grid::config::Offset;
use tabled::settings::object::{Cell as CellAt, Columns};
use tabled::settings::style::LineChar;
use tabled::settings::{Alignment, Style};

use crate::stats::Ratio;

#[derive(Clone, Serialize, Deserialize)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    pub plot: Option<Plot>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    Text(String),
    Ratio(Ratio),
    Number { value: f64, digits: usize },
    Percent { percent: f64, digits: usize },
}

/// What the plot of a table shows.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plot {
    /// A row of the plot for each row of the table: the ratio in one column, labelled by the first columns.
    Ratios { column: usize, labels: usize },
    /// A line for each row of the table, labelled by the first column. The columns after it have the values at these x.
    Lines { x: Vec<f64>, x_title: String, y_title: String },
}

impl Table {
    pub fn new<const N: usize>(columns: [&str; N]) -> Self {
        Self { columns: columns.map(str::to_owned).to_vec(), rows: Vec::new(), plot: None }
    }

    /// The plot shows the ratios of this column. The first `labels` columns say what a row is.
    pub fn plot_ratios(self, column: &str, labels: usize) -> Self {
        let column = self.columns.iter().position(|title| title == column).expect("a column of this title");
        Self { plot: Some(Plot::Ratios { column, labels }), ..self }
    }

    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        assert_eq!(N, self.columns.len(), "a cell for each column");
        self.rows.push(cells.into());
    }
}

/// A number with so many decimal places. Empty if it is not finite: then nothing was measured.
pub fn number(value: f64, digits: usize) -> Cell {
    if value.is_finite() { Cell::Number { value, digits } } else { Cell::default() }
}

/// A part of one as a percentage. Empty if it is not finite.
pub fn percent(part: f64, digits: usize) -> Cell {
    if part.is_finite() { Cell::Percent { percent: part * 100.0, digits } } else { Cell::default() }
}

impl Default for Cell {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Ratio> for Cell {
    fn from(ratio: Ratio) -> Self {
        if ratio.is_finite() { Self::Ratio(ratio) } else { Self::default() }
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        number(count as f64, 0)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Ratio(ratio) => ratio.fmt(f),
            Self::Number { value, digits } => write!(f, "{value:.digits$}"),
            Self::Percent { percent, digits } => write!(f, "{percent:.digits$} %"),
        }
    }
}

/// Markdown. The first column is aligned to the left, the others to the right.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut builder = Builder::new();
        builder.push_record(&self.columns);
        for row in &self.rows {
            builder.push_record(row.iter().map(Cell::to_string));
        }
        let mut table = builder.build();
        table.with(Style::markdown()).modify(Columns::new(1..), Alignment::right());
        // GitHub reads the alignment of a column from a colon in the line below the titles.
        table.modify(CellAt::new(1, 0), LineChar::horizontal(':', Offset::Start(0)));
        for column in 1..self.columns.len() {
            table.modify(CellAt::new(1, column), LineChar::horizontal(':', Offset::End(0)));
        }
        writeln!(f, "{table}")
    }
}

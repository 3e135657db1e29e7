//! The plot of a table, as SVG.

use std::error::Error;

use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use super::table::{Cell, Plot, Table};
use crate::stats::Ratio;

const WIDTH: u32 = 860;
const FONT: &str = "sans-serif";

/// A ratio that is smaller is drawn here: a logarithmic scale has no zero.
const LEAST_RATIO: f64 = 0.004;

/// The plot that a table asks for.
pub fn svg(title: &str, table: &Table) -> Option<String> {
    let plot = table.plot.as_ref()?;
    let mut svg = String::new();
    match plot {
        Plot::Ratios { column, labels } => ratios(&mut svg, title, table, *column, *labels),
        Plot::Lines { x, x_title, y_title } => lines(&mut svg, title, table, x, [x_title, y_title]),
    }
    .expect("a plot");
    Some(svg)
}

/// A dot for the median, and a bar from the least to the greatest, on a logarithmic scale.
fn ratios(
    svg: &mut String,
    title: &str,
    table: &Table,
    column: usize,
    labels: usize,
) -> Result<(), Box<dyn Error>> {
    let rows: Vec<(String, Ratio)> = table
        .rows
        .iter()
        .filter_map(|row| match row[column] {
            Cell::Ratio(ratio) => Some((label(&table.columns, row, labels), shown(ratio))),
            _ => None,
        })
        .collect();
    let least = rows.iter().map(|(_, ratio)| ratio.least).fold(0.5, f64::min) / 1.1;
    let greatest = rows.iter().map(|(_, ratio)| ratio.greatest).fold(2.0, f64::max) * 1.1;
    let height = 90 + 20 * rows.len() as u32;
    let area = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let last = rows.len() - 1;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{title}: {}", table.columns[column]), (FONT, 16))
        .margin(10)
        .x_label_area_size(25)
        .y_label_area_size(300)
        .build_cartesian_2d((least..greatest).log_scale().base(2.0), (0..last).into_segmented())?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(WHITE)
        .label_style((FONT, 13))
        .x_label_formatter(&|ratio| format!("{}", (ratio * 1e3).round() / 1e3))
        .y_labels(rows.len())
        .y_label_formatter(&|at| match at {
            // The first row of the table is at the top.
            SegmentValue::CenterOf(index) if *index <= last => {
                let (label, ratio) = &rows[last - index];
                format!("{label}: {:.2}", ratio.median)
            }
            _ => String::new(),
        })
        .draw()?;
    let one = [(1.0, SegmentValue::Exact(0)), (1.0, SegmentValue::Last)];
    chart.draw_series([PathElement::new(one, BLACK)])?;
    chart.draw_series(rows.iter().rev().enumerate().map(|(index, (_, ratio))| {
        let at = SegmentValue::CenterOf(index);
        ErrorBar::new_horizontal(at, ratio.least, ratio.median, ratio.greatest, BLUE.filled(), 6)
    }))?;
    area.present()?;
    Ok(())
}

fn shown(ratio: Ratio) -> Ratio {
    Ratio {
        median: ratio.median.max(LEAST_RATIO),
        least: ratio.least.max(LEAST_RATIO),
        greatest: ratio.greatest.max(LEAST_RATIO),
    }
}

/// Such as "lockkeeper, tasks 16".
fn label(columns: &[String], row: &[Cell], labels: usize) -> String {
    let numbers =
        columns.iter().zip(row).take(labels).skip(1).map(|(title, cell)| format!(", {title} {cell}"));
    format!("{}{}", row[0], numbers.collect::<String>())
}

/// A line with points for each row. Both scales are logarithmic, so a cost that grows with x is a rising line.
fn lines(
    svg: &mut String,
    title: &str,
    table: &Table,
    x: &[f64],
    [x_title, y_title]: [&str; 2],
) -> Result<(), Box<dyn Error>> {
    let rows: Vec<(String, Vec<(f64, f64)>)> = table
        .rows
        .iter()
        .map(|row| {
            let values = x.iter().zip(&row[1..]).filter_map(|(x, cell)| match cell {
                Cell::Number { value, .. } => Some((*x, *value)),
                _ => None,
            });
            (row[0].to_string(), values.collect())
        })
        .collect();
    let values = || rows.iter().flat_map(|(_, values)| values).map(|(_, y)| *y);
    let least = values().fold(f64::INFINITY, f64::min) / 1.5;
    let greatest = values().fold(0.0, f64::max) * 10.0; // with room for the legend
    let area = SVGBackend::with_string(svg, (WIDTH, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 16))
        .margin(10)
        .margin_right(20)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((x[0]..x[x.len() - 1]).log_scale(), (least..greatest).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style((FONT, 13))
        .x_desc(x_title)
        .y_desc(y_title)
        .x_label_formatter(&|x| format!("{x}"))
        .y_label_formatter(&|y| format!("{y}"))
        .draw()?;
    for (index, (label, values)) in rows.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(values.iter().copied(), color.stroke_width(2)).point_size(3))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 13))
        .draw()?;
    area.present()?;
    Ok(())
}

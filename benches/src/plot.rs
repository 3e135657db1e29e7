//! Plots of ratios, as SVG.

use std::error::Error;

use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use crate::stats::Ratio;

const WIDTH: u32 = 860;
const FONT: &str = "sans-serif";

/// A ratio that is smaller is drawn here: a logarithmic scale has no zero.
const LEAST_RATIO: f64 = 0.004;

/// A dot for the median of each row, and a bar from the least to the greatest, on a logarithmic scale.
pub fn svg(title: &str, rows: &[(&str, Ratio)]) -> String {
    let shown = |ratio: &Ratio| Ratio {
        median: ratio.median.max(LEAST_RATIO),
        least: ratio.least.max(LEAST_RATIO),
        greatest: ratio.greatest.max(LEAST_RATIO),
    };
    let rows: Vec<(&str, Ratio)> =
        rows.iter().filter(|row| row.1.is_finite()).map(|(label, ratio)| (*label, shown(ratio))).collect();
    let mut svg = String::new();
    if !rows.is_empty() {
        draw(&mut svg, title, &rows).expect("a plot");
    }
    svg
}

fn draw(svg: &mut String, title: &str, rows: &[(&str, Ratio)]) -> Result<(), Box<dyn Error>> {
    let least = rows.iter().map(|(_, ratio)| ratio.least).fold(0.5, f64::min) / 1.1;
    let greatest = rows.iter().map(|(_, ratio)| ratio.greatest).fold(2.0, f64::max) * 1.1;
    let height = 90 + 20 * rows.len() as u32;
    let area = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let last = rows.len() - 1;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 16))
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
            // The first row is at the top.
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

//! The page with the results, and its plots. Both are made from the values, which are stored beside the page.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::compared;
use super::part::{Block, Part, Run, Section};
use super::plot::svg;

const PAGE: &str = "RESULTS.md";
const PLOTS: &str = "plots";

/// One line of JSON for each part.
const VALUES: &str = "results.jsonl";

const HEAD: &str = "\
# Results

`scripts/bench` measures and writes this page. The values are in `results.jsonl`.

A ratio compares two candidates in the same round. The tables show the median of all rounds, and [least..greatest].
Server and clients share one machine. Absolute numbers of different runs cannot be compared.
";

/// Replaces the results of the measured parts, and writes the page and its plots.
pub(super) fn update(folder: &Path, measured: Vec<Part>, order: &[&str]) {
    fs::create_dir_all(folder).expect("a folder to write to");
    let mut parts = read(folder);
    parts.retain(|old| measured.iter().all(|new| new.part != old.part));
    parts.extend(measured);
    let place = |part: &Part| order.iter().position(|name| *name == part.part);
    parts.retain(|part| place(part).is_some());
    parts.sort_by_key(place);
    let line = |part: &Part| serde_json::to_string(part).expect("values that JSON can have") + "\n";
    write(&folder.join(VALUES), &parts.iter().map(line).collect::<String>());
    render(folder);
}

/// Writes the page and its plots from the values in a folder.
pub fn render(folder: &Path) {
    let parts = read(folder);
    let plots = folder.join(PLOTS);
    let _ = fs::remove_dir_all(&plots); // with those of sections that no longer exist
    fs::create_dir_all(&plots).expect("a folder to write to");
    let runs = distinct_runs(&parts);
    let mut page = HEAD.to_owned();
    for (index, run) in runs.iter().enumerate() {
        let _ = write!(page, "\n## Run{}\n\n{run}", number(&runs, index));
    }
    let _ = write!(page, "\n## {}\n\n{}\n\n{}", compared::TITLE, compared::TEXT, compared::table());
    for part in &parts {
        let run = runs.iter().position(|run| **run == part.run).expect("one of all runs");
        for section in &part.sections {
            page += &markdown(section, &number(&runs, run), &plots);
        }
    }
    write(&folder.join(PAGE), &page);
}

fn read(folder: &Path) -> Vec<Part> {
    let values = fs::read_to_string(folder.join(VALUES)).unwrap_or_default();
    values.lines().map(|line| serde_json::from_str(line).expect("the values of a part")).collect()
}

fn distinct_runs(parts: &[Part]) -> Vec<&Run> {
    let mut runs: Vec<&Run> = Vec::new();
    for part in parts {
        if !runs.contains(&&part.run) {
            runs.push(&part.run);
        }
    }
    runs
}

/// Such as " 2". Nothing if there is only one run.
fn number(runs: &[&Run], index: usize) -> String {
    if runs.len() > 1 { format!(" {}", index + 1) } else { String::new() }
}

fn markdown(Section { title, content }: &Section, run: &str, plots: &Path) -> String {
    let mut text = format!("\n## {title}\n");
    if !run.is_empty() {
        let _ = write!(text, "\nFrom run{run}.\n");
    }
    for block in content {
        let _ = write!(text, "\n{block}");
        if let Block::Table(table) = block
            && let Some(plot) = svg(title, table)
        {
            let file = format!("{}.svg", slug(title));
            write(&plots.join(&file), &plot);
            let _ = write!(text, "\n![{title}]({PLOTS}/{file})\n");
        }
    }
    text
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

fn slug(title: &str) -> String {
    let dashed: String =
        title.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect();
    let words: Vec<&str> = dashed.split('-').filter(|word| !word.is_empty()).collect();
    words.join("-").to_lowercase()
}

//! What is kept of a run: its tables, and a plot for each that has ratios.

mod plot;

use std::fs;
use std::path::Path;

use plot::Plot;

/// The word by which this program is told to write the results of another run of it.
pub const WORD: &str = "write";

const PAGE: &str = "RESULTS.md";
const PLOTS: &str = "plots";

/// What a run printed goes to a page in this folder, with a plot behind each table that has ratios.
pub fn write(text: &str, folder: &str) {
    let text = fs::read_to_string(text).expect("what a run printed");
    let folder = Path::new(folder);
    fs::create_dir_all(folder.join(PLOTS)).expect("a folder to write to");
    let mut page = String::new();
    for (index, section) in text.split("\n## ").enumerate() {
        let mark = if index == 0 { "" } else { "\n## " };
        page = format!("{page}{mark}{section}");
        if let Some(plot) = Plot::of(section) {
            let file = format!("{PLOTS}/{}.svg", slug(plot.title));
            fs::write(folder.join(&file), plot.to_string()).expect("a file that can be written");
            page = format!("{}\n\n![{}]({file})\n", page.trim_end(), plot.title);
        }
    }
    fs::write(folder.join(PAGE), page).expect("a file that can be written");
}

fn slug(title: &str) -> String {
    let dashed: String =
        title.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect();
    let words: Vec<&str> = dashed.split('-').filter(|word| !word.is_empty()).collect();
    words.join("-").to_lowercase()
}

//! What a run measured. It is printed while it is measured, and kept as values for the page and its plots.

mod compared;
mod page;
mod part;
mod plot;
mod table;

use std::path::Path;

pub use self::page::render;
pub use self::part::Run;
use self::part::{Block, Part, Section};
pub use self::table::{Cell, Plot, Table, number, percent};

/// The results of one run.
pub struct Report {
    run: Run,
    parts: Vec<Part>,
}

impl Report {
    pub fn new(run: Run) -> Self {
        println!("{run}");
        Self { run, parts: Vec::new() }
    }

    /// Begins a part of the benchmark.
    pub fn part(&mut self, name: &str) {
        self.parts.push(Part { part: name.to_owned(), run: self.run.clone(), sections: Vec::new() });
    }

    /// Begins a section, with the text under its heading.
    pub fn section(&mut self, title: impl Into<String>, text: impl Into<String>) {
        let title = title.into();
        println!("\n## {title}");
        let part = self.parts.last_mut().expect("a part was begun");
        part.sections.push(Section { title, content: Vec::new() });
        self.text(text);
    }

    /// Adds a paragraph to the section.
    pub fn text(&mut self, text: impl Into<String>) {
        self.add(Block::Text(text.into()));
    }

    /// Adds a table to the section.
    pub fn table(&mut self, table: Table) {
        self.add(Block::Table(table));
    }

    fn add(&mut self, block: Block) {
        print!("\n{block}");
        let section = self.parts.last_mut().and_then(|part| part.sections.last_mut());
        section.expect("a section was begun").content.push(block);
    }

    /// Writes the page, its plots and the values to a folder. The page keeps the parts in this order. Of parts that
    /// this run did not measure, it keeps the results that the folder has.
    pub fn save(self, folder: &Path, order: &[&str]) {
        page::update(folder, self.parts, order);
    }
}

//! The results of a part of the benchmark.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::table::Table;

/// Where, when and how a run was made: names and values.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Run(pub Vec<(String, String)>);

/// The results of one part, and the run that they are from.
#[derive(Serialize, Deserialize)]
pub struct Part {
    pub part: String,
    pub run: Run,
    pub sections: Vec<Section>,
}

#[derive(Serialize, Deserialize)]
pub struct Section {
    pub title: String,
    pub content: Vec<Block>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    Text(String),
    Table(Table),
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| writeln!(f, "- {name}: {value}"))
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => writeln!(f, "{text}"),
            Self::Table(table) => table.fmt(f),
        }
    }
}

//! What `INFO` tells of one server.

use std::collections::BTreeMap;

/// The facts of a server, by their names in `INFO`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a>(pub(super) &'a BTreeMap<String, String>);

impl<'a> Facts<'a> {
    /// `None`: the server does not tell it.
    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

/// Makes facts of the lines of `INFO`.
#[cfg(test)]
pub(super) fn facts(info: &[&str]) -> BTreeMap<String, String> {
    let facts = info.iter().filter_map(|line| line.split_once(':'));
    facts.map(|(name, fact)| (name.to_owned(), fact.to_owned())).collect()
}

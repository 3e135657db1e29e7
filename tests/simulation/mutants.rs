//! Mutants: faults in the engine and in the scripts, which the simulation must notice.
//!
//! Those in Lua are made by the in-memory server. For those in Rust, and for those in Lua that a test has to notice, `scripts/mutants`
//! builds a copy of this repository: those in Rust can be switched on there, and the files in Lua are changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use lockkeeper_memory::MemoryServer;
use lockkeeper_testkit::lua;
use serde::Deserialize;

use crate::plan::Deployment;

#[derive(Deserialize)]
struct File {
    mutant: Vec<Mutant>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    pub name: String,
    file: String,
    find: String,
    replace: String,
    #[serde(default)]
    pub kinds: String,
    #[serde(default)]
    pub mode: String,
    #[serde(default)]
    pub deployment: Deployment,
    /// The worlds have small limits and bursts.
    #[serde(default)]
    pub bursts: bool,
    /// The binary and the name of the test that notices it. Empty: worlds do.
    #[serde(default)]
    test: String,
    /// The world with which to begin.
    #[serde(default)]
    pub seed: u64,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn all() -> Vec<Mutant> {
    let text = fs::read_to_string(root().join("tests/simulation/mutants.toml")).unwrap();
    toml::from_str::<File>(&text).unwrap().mutant
}

impl Mutant {
    /// Finds a mutant, or several whose names are joined by `+`.
    pub fn find(names: &str) -> Vec<Self> {
        let all = all();
        let find = |name| all.iter().find(|mutant| mutant.name == name).cloned();
        names.split('+').map(|name| find(name).unwrap_or_else(|| panic!("no mutant `{name}`"))).collect()
    }

    fn is_lua(&self) -> bool {
        self.file.ends_with(".lua")
    }

    /// Changes the scripts of a server.
    pub fn prepare(&self, server: &MemoryServer) {
        if self.is_lua() {
            server.replace_in_scripts(&self.find, &self.replace);
        }
    }
}

#[test]
fn each_mutant_replaces_a_text_that_occurs_once() {
    let mutants = all();
    let names: BTreeSet<_> = mutants.iter().map(|mutant| &mutant.name).collect();
    assert!(names.len() == mutants.len() && names.len() >= 40);
    for mutant in &mutants {
        let is_switched = mutant.replace.contains("MUTANT");
        assert_ne!(mutant.is_lua(), is_switched, "{}", mutant.name);
        if mutant.is_lua() {
            // As the servers get it: what a script includes stands behind its first line.
            let text = match mutant.file.strip_prefix("lua/").filter(|file| !file.starts_with("includes/")) {
                Some(script) => lua::source(script),
                None => fs::read_to_string(root().join(&mutant.file)).unwrap(),
            };
            assert_eq!(text.matches(&mutant.find).count(), 1, "{} in {}", mutant.name, mutant.file);
        }
    }
    let _all_fit_together = with_mutants();
}

/// The source files that have mutants of Rust, with all of them.
fn with_mutants() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for Mutant { name, file, find, replace, .. } in all().into_iter().filter(|mutant| !mutant.is_lua()) {
        let read = || fs::read_to_string(root().join(&file)).unwrap();
        let text: &mut String = files.entry(file.clone()).or_insert_with(read);
        assert_eq!(text.matches(&find).count(), 1, "{name} in {file}, beside the others");
        let switch = format!("crate::mutant({name:?})");
        *text = text.replace(&find, &replace.replace("MUTANT", &switch));
    }
    files
}

/// Writes the source files with all mutants of Rust into the folder `SIMULATE_COPY`. `scripts/mutants` runs this.
#[test]
#[ignore = "scripts/mutants runs it"]
fn write_copy() {
    let copy = PathBuf::from(std::env::var_os("SIMULATE_COPY").expect("a folder"));
    for (file, text) in with_mutants() {
        fs::write(copy.join(file), text).unwrap();
    }
    // The tests include a file of the program, which has mutants.
    for root in ["src/lib.rs", "cli/src/main.rs", "tests/main.rs"] {
        let text = fs::read_to_string(copy.join(root)).unwrap();
        fs::write(copy.join(root), text + SWITCH).unwrap();
    }
}

/// Breaks a script in the folder `SIMULATE_COPY`, if the mutant `SIMULATE_MUTANT` is in Lua. `scripts/mutants` runs this.
#[test]
#[ignore = "scripts/mutants runs it"]
fn break_script() {
    for mutant in Mutant::find(&std::env::var("SIMULATE_MUTANT").expect("a name")) {
        if !mutant.is_lua() {
            continue;
        }
        let path = PathBuf::from(std::env::var_os("SIMULATE_COPY").expect("a folder")).join(&mutant.file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(&mutant.find, &mutant.replace)).unwrap();
    }
}

/// What the copy has in addition.
const SWITCH: &str = "
/// Whether this mutant is switched on, perhaps beside others.
pub(crate) fn mutant(name: &str) -> bool {
    static ON: std::sync::LazyLock<Option<String>> = std::sync::LazyLock::new(|| std::env::var(\"SIMULATE_MUTANT\").ok());
    ON.as_deref().is_some_and(|on| on.split('+').any(|one| one == name))
}
";

/// Prints the names, and the tests that notice them. `scripts/mutants` runs this.
#[test]
#[ignore = "scripts/mutants runs it"]
fn list() {
    for Mutant { name, test, .. } in all() {
        println!("mutant: {name}|{test}");
    }
}

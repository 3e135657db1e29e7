//! The crate and file that an instruction belongs to.

use std::path::Path;

/// The source of an instruction.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// A crate, or a part of libc.
    pub who: String,
    /// The file, if the crate is lockkeeper.
    pub file: Option<String>,
}

/// Parts of the names of libc functions that allocate and free memory.
const ALLOCATOR: [&str; 7] = ["malloc", "calloc", "realloc", "memalign", "free", "unlink_chunk", "tcache"];

impl Place {
    /// The source of an inlined function is the file of that function.
    pub fn of(object: &str, source: &str, function: &str) -> Self {
        let this = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = Path::new(source);
        if let Ok(file) = source
            .strip_prefix(this.join("../src"))
            .or_else(|_| source.strip_prefix(this.parent().expect("the folder of lockkeeper").join("src")))
        {
            return Self { who: "lockkeeper".to_owned(), file: Some(file.display().to_string()) };
        }
        let who = if source.starts_with(this) {
            "benchmark"
        } else if let Some(name) = crate_of(source) {
            name
        } else if source.starts_with("/rustc") || source.starts_with("/rust") {
            "std"
        } else if !object.contains("/libc.so") {
            "other"
        } else if ALLOCATOR.iter().any(|part| function.contains(part)) {
            "libc, memory"
        } else {
            "libc, other"
        };
        Self { who: who.to_owned(), file: None }
    }
}

/// The crate in a path such as `…/registry/src/<index>/redis-1.8.1/src/cmd.rs`.
fn crate_of(source: &Path) -> Option<&str> {
    let mut parts = source.iter().filter_map(|part| part.to_str());
    parts.find(|part| *part == "registry")?;
    let folder = parts.nth(2)?;
    Some(folder.rsplit_once('-').map_or(folder, |(name, _)| name))
}

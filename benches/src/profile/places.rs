//! Whose code an instruction is.

use std::path::Path;

/// The crate or library, and of this crate the file.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Place {
    pub who: String,
    /// Of lockkeeper.
    pub file: Option<String>,
}

/// Functions of libc that get memory, give it back, or help with that.
const ALLOCATOR: [&str; 7] = ["malloc", "calloc", "realloc", "memalign", "free", "unlink_chunk", "tcache"];

impl Place {
    /// The source is that of an inlined function, if it is one.
    pub fn of(object: &str, source: &str, function: &str) -> Self {
        let this = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = Path::new(source);
        if let Ok(file) = source.strip_prefix(this.join("../src")).or_else(|_| {
            source.strip_prefix(this.parent().expect("the crate that this is a part of").join("src"))
        }) {
            return Self { who: "lockkeeper".to_owned(), file: Some(file.display().to_string()) };
        }
        let who = if source.starts_with(this) {
            "what calls it"
        } else if let Some(name) = crate_of(source) {
            name
        } else if source.starts_with("/rustc") || source.starts_with("/rust") {
            "std"
        } else if !object.contains("/libc.so") {
            "others"
        } else if ALLOCATOR.iter().any(|part| function.contains(part)) {
            "libc, for memory"
        } else {
            "libc, the rest"
        };
        Self { who: who.to_owned(), file: None }
    }
}

/// Of a path such as `…/registry/src/<index>/redis-1.8.1/src/cmd.rs`.
fn crate_of(source: &Path) -> Option<&str> {
    let mut parts = source.iter().filter_map(|part| part.to_str());
    parts.find(|part| *part == "registry")?;
    let folder = parts.nth(2)?;
    Some(folder.rsplit_once('-').map_or(folder, |(name, _)| name))
}

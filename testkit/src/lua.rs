//! The Lua scripts of lockkeeper, read from `lua/` when they are asked for.

use std::path::{Path, PathBuf};

/// The files that other scripts include. They are no scripts themselves.
const SHARED: &str = "shared.lua";

/// The text of a script as the crate sends it, such as that of `"rlock/acquire.lua"`.
///
/// The files that its header names under "With" follow its first line.
pub fn source(file: &str) -> String {
    read_with_shared(&dir().join(file))
}

/// The name under which a server calls a script, such as `"rlock/acquire.lua"`.
pub fn hash(file: &str) -> String {
    redis::Script::new(&source(file)).get_hash().to_owned()
}

/// The text of a script as the crate sends it to a cluster: it publishes only within the shard.
pub fn sharded(source: &str) -> String {
    source.replace("'publish'", "'spublish'")
}

/// The name under which a server of a cluster calls a script.
pub fn sharded_hash(file: &str) -> String {
    redis::Script::new(&sharded(&source(file))).get_hash().to_owned()
}

/// The texts of all scripts.
pub fn sources() -> Vec<String> {
    let mut sources = Vec::new();
    let mut dirs = vec![dir()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("lua/ is readable").flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "lua") && !path.ends_with(SHARED)
            {
                sources.push(read_with_shared(&path));
            }
        }
    }
    sources
}

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lua")
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn read_with_shared(file: &Path) -> String {
    let script = read(file);
    let shared: String = script
        .lines()
        .filter_map(|line| line.strip_prefix("  With  "))
        .flat_map(str::split_whitespace)
        .map(|file| read(&dir().join(file)))
        .collect();
    let (first_line, rest) = script.split_once('\n').expect("more than one line");
    format!("{first_line}\n{shared}{rest}")
}

//! The Lua scripts of lockkeeper, read from `lua/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

#[path = "../../lua/join.rs"]
#[allow(unreachable_pub, reason = "build.rs uses the same file")]
mod join;

pub use join::{batch, includes, lua_files, sharded};

/// The text of a script as the crate sends it, such as that of `"rlock/acquire.lua"`.
pub fn source(file: &str) -> String {
    join::joined(&folder(), file)
}

/// The last argument of the scripts that expire: that of a call that comes in time. No other script has it.
pub fn in_time(file: &str) -> Option<&'static str> {
    (file.ends_with("/acquire.lua") || file == "fair/heartbeat.lua").then_some("9999999999")
}

/// The same argument of a call that comes too late.
pub const TOO_LATE: &str = "1000000000";

/// The name under which a server calls a script, such as `"rlock/acquire.lua"`.
pub fn hash(file: &str) -> String {
    redis::Script::new(&source(file)).get_hash().to_owned()
}

/// The name under which a server of a cluster calls a script.
pub fn sharded_hash(file: &str) -> String {
    redis::Script::new(&sharded(&source(file))).get_hash().to_owned()
}

/// The names under which a server calls a script for several calls: alone, and in a cluster.
pub fn batch_hashes(file: &str) -> [String; 2] {
    let text = batch(&source(file));
    [&text, &sharded(&text)].map(|text| redis::Script::new(text).get_hash().to_owned())
}

/// Whether a script has a form for several calls.
pub fn has_batch(file: &str) -> bool {
    include_str!("../../src/protocol/scripts.rs").contains(&format!("\"{file}\" of "))
}

/// The paths of all scripts below `lua/`.
pub fn files() -> Vec<String> {
    join::scripts(&folder())
}

/// The texts of all scripts.
pub fn sources() -> &'static [String] {
    static SOURCES: LazyLock<Vec<String>> =
        LazyLock::new(|| files().iter().map(|file| source(file)).collect());
    &SOURCES
}

/// The names of the replies that are no amounts, and their numbers.
pub static REPLIES: LazyLock<BTreeMap<String, i64>> = LazyLock::new(|| {
    let text = std::fs::read_to_string(folder().join("includes/replies.lua")).expect("it is there");
    let lines = text.lines().filter_map(|line| line.strip_prefix("local ")?.split_once(" = "));
    let pairs = lines.flat_map(|(names, numbers)| names.split(", ").zip(numbers.split(", ")));
    pairs.map(|(name, number)| (name.to_owned(), number.parse().expect("a number"))).collect()
});

/// The number of a reply, such as `"LOST"`.
pub fn reply(name: &str) -> i64 {
    REPLIES[name]
}

/// The folder of the scripts.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lua")
}

//! Prints the public API that a file of rustdoc's JSON describes, one item a line. `.ci/compile` compares it with `public_api.txt`.
//!
//! Fails if the API names something of another crate. The crates that it may name follow the path of the file.

use std::collections::BTreeSet;
use std::process::ExitCode;

/// Crates that every API may name. tokio is 1.x, and the traits of its streams are those of the ecosystem. serde is 1.x, and only its
/// traits are implemented: no signature takes or returns one of its types.
const ALLOWED: [&str; 5] = ["alloc", "core", "serde_core", "std", "tokio"];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().expect("the path of a file of rustdoc's JSON");
    let mut allowed: BTreeSet<String> = arguments.chain(ALLOWED.map(str::to_owned)).collect();
    let api = public_api::Builder::from_rustdoc_json(file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .expect("JSON of the right format");
    let lines: Vec<String> = api.items().map(ToString::to_string).collect();
    let own = lines[0].strip_prefix("pub mod ").expect("the first item is the crate");
    allowed.insert(own.to_owned());
    let mut result = ExitCode::SUCCESS;
    for line in &lines {
        println!("{line}");
        for name in crates(line) {
            if !allowed.contains(name) {
                eprintln!("the crate `{name}` is in the public API: {line}");
                result = ExitCode::FAILURE;
            }
        }
    }
    result
}

/// The crates that a line names: the first parts of its paths. What it exports again is the last part of a path.
fn crates(line: &str) -> Vec<&str> {
    if let Some(path) = line.strip_prefix("pub use ") {
        return path.rsplit("::").take(1).collect();
    }
    let paths = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':');
    let firsts = paths.filter_map(|path| path.split_once("::")).map(|(first, _)| first);
    // Others are a primitive type, parameters such as `Self` and `__S`, and what follows a `>`.
    firsts.filter(|first| *first != "u64" && first.starts_with(char::is_lowercase)).collect()
}

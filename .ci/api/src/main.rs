//! Prints the public API that a file of rustdoc's JSON describes, one item a line. `.ci/compile` compares it with `public_api.txt`.
//!
//! Fails if the API names something of another crate, or something private. The crates that it may name follow the path of the file.

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
    let declared: BTreeSet<&str> = lines.iter().filter_map(|line| declared(line)).collect();
    let mut result = ExitCode::SUCCESS;
    for line in &lines {
        println!("{line}");
        for name in items(line, own).filter(|name| !declared.contains(name)) {
            eprintln!("`{name}` is private, and is in the public API: {line}");
            result = ExitCode::FAILURE;
        }
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

/// The paths and words of a line.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':');
    words.map(|word| word.trim_end_matches(':'))
}

/// The item that a line declares, if it is one that others can name.
fn declared(line: &str) -> Option<&str> {
    const KINDS: [&str; 5] = ["struct", "enum", "trait", "type", "mod"];
    let mut words = words(line).skip_while(|word| !KINDS.contains(word));
    line.contains("pub ").then(|| words.nth(1)).flatten()
}

/// The types and traits of this crate that a line names. A name without a path is that of a private one.
fn items<'a>(line: &'a str, own: &'a str) -> impl Iterator<Item = &'a str> {
    /// Associated types of other traits, and the type itself.
    const KNOWN: [&str; 3] = ["Item", "Output", "Self"];
    words(line).filter_map(move |word| {
        let is_type = |part: &str| part.starts_with(char::is_uppercase);
        // What follows a `>` begins with `::`, and is an item of a trait or of a type that was named before.
        if !word.contains("::") {
            return Some(word).filter(|word| is_type(word) && word.len() > 1 && !KNOWN.contains(word));
        }
        // A method or a variant is named by the path of its type.
        let path = word.strip_prefix(own)?.strip_prefix("::")?;
        let mut parts = path.split_inclusive("::");
        let ends = parts.position(|part| is_type(part))?;
        let length: usize = path.split_inclusive("::").take(ends + 1).map(str::len).sum();
        Some(word[..own.len() + 2 + length].trim_end_matches(':'))
    })
}

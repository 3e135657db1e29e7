//! Joins the scripts with what they include. Copies the README and the pages of `docs/` for rustdoc, and adapts their links: in the
//! repository, links are relative paths, which lead nowhere in rustdoc.

use std::path::Path;
use std::{env, fs};

#[path = "lua/join.rs"]
#[allow(dead_code, unreachable_pub, reason = "tests use the same file")]
mod join;

fn main() {
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::create_dir_all(Path::new(&out).join("docs")).expect("OUT_DIR is writable");
    copy("README.md", &out);
    for entry in fs::read_dir("docs").expect("the package has docs/") {
        let name = entry.expect("docs/ is readable").file_name();
        if let Some(name) = name.to_str().filter(|name| name.ends_with(".md")) {
            copy(&format!("docs/{name}"), &out);
        }
    }
    join_scripts(&Path::new(&out).join("lua"));
    println!("cargo::rerun-if-changed=README.md");
    println!("cargo::rerun-if-changed=docs");
    println!("cargo::rerun-if-changed=lua");
}

fn join_scripts(folder: &Path) {
    let lua = Path::new("lua");
    for file in join::scripts(lua) {
        let path = folder.join(&file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("OUT_DIR is writable");
        let text = join::joined(lua, &file);
        fs::write(path.with_extension("lua.batch"), join::batch(&text)).expect("OUT_DIR is writable");
        fs::write(path, text).expect("OUT_DIR is writable");
    }
}

fn copy(page: &str, out: &str) {
    let text = fs::read_to_string(page).unwrap_or_else(|error| panic!("{page}: {error}"));
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut is_code = false;
    let mut copy = String::new();
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        copy += &match line.strip_prefix("![").and_then(|image| image.split_once("](")) {
            _ if is_code || is_fence => line.to_owned(),
            Some((_, file)) => image(folder, file.trim_end_matches(')')),
            None => with_links_for_rustdoc(folder, line),
        };
        copy.push('\n');
    }
    fs::write(Path::new(out).join(page), copy).expect("OUT_DIR is writable");
}

/// Returns the text of an SVG file. Pages on docs.rs cannot show files of the package.
fn image(folder: &str, file: &str) -> String {
    let path = Path::new(folder).join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    format!("<div>\n{}\n</div>", text.trim())
}

fn with_links_for_rustdoc(folder: &str, line: &str) -> String {
    let mut parts = line.split("](");
    let mut adapted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (link, rest) =
            part.split_once(')').unwrap_or_else(|| panic!("a link goes on in the next line: {line}"));
        adapted += &format!("]({}){rest}", for_rustdoc(folder, link));
    }
    adapted
}

/// Returns the link to a page of the guide, or to a file of this version on docs.rs.
fn for_rustdoc(folder: &str, link: &str) -> String {
    if link.starts_with('#') || link.contains("://") {
        return link.to_owned();
    }
    let path = match link.strip_prefix("../") {
        Some(path) => path.to_owned(),
        None if folder.is_empty() => link.to_owned(),
        None => format!("{folder}/{link}"),
    };
    let (file, anchor) = path.find('#').map_or((&*path, ""), |at| path.split_at(at));
    let page = file.strip_prefix("docs/").and_then(|name| name.strip_suffix(".md"));
    let version = env!("CARGO_PKG_VERSION");
    match page.filter(|page| !page.contains('/')) {
        Some(page) => format!("crate::guide::{}{anchor}", page.replace('-', "_")),
        None if file == "README.md" => format!("crate{anchor}"),
        None => match path.strip_prefix("cli/") {
            Some(path) => format!("https://docs.rs/crate/lockkeeper-cli/{version}/source/{path}"),
            None => format!("https://docs.rs/crate/lockkeeper/{version}/source/{path}"),
        },
    }
}

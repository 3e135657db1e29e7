//! What holds for the source text: the rooms of `src/`, who reads the clock, the public API, and what the pages refer to. It needs no
//! server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::support::sources::{files, root};
use syn::visit::{self, Visit};

// --- imports -----------------------------------------------------------------------------------------------------------

/// A module as the names from the root of the crate to it.
type Module = Vec<String>;

/// What one file refers to by `crate::`, `super::` or `self::`, and what it exports again.
#[derive(Default)]
struct Imports {
    module: Module,
    /// Modules that are written in this file, such as `tests`.
    inner: Vec<String>,
    paths: BTreeSet<Vec<String>>,
    exported: BTreeMap<String, Vec<String>>,
}

impl Imports {
    fn of(file: &Path, text: &str) -> Self {
        let mut imports = Self { module: module_of(file), ..Self::default() };
        imports.visit_file(&syn::parse_file(text).unwrap());
        imports
    }

    /// The same path from the root of the crate. `None`: it names no module.
    fn path_from_root(&self, path: &[String]) -> Option<Vec<String>> {
        let here: Vec<String> = self.module.iter().chain(&self.inner).cloned().collect();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([&here, &path[1..]].concat()),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                Some([&here[..here.len() - up], &path[up..]].concat())
            }
            // A word alone is a variable or a type of this module.
            _ if path.len() == 1 => None,
            // Perhaps a module below this one. Otherwise the path leads to another crate, and is taken for one to this module.
            _ => Some([&here, path].concat()),
        }
    }

    fn add(&mut self, path: &[String]) {
        self.paths.extend(self.path_from_root(path));
    }

    fn add_tree(&mut self, tree: &syn::UseTree, before: &[String], is_exported: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&path.tree, &with(&path.ident), is_exported),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(tree, before, is_exported);
                }
            }
            syn::UseTree::Glob(_) => self.add(before),
            syn::UseTree::Name(name) if is_exported => self.export(&name.ident, with(&name.ident)),
            syn::UseTree::Rename(name) if is_exported => self.export(&name.rename, with(&name.ident)),
            syn::UseTree::Name(name) => self.add(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.add(&with(&name.ident)),
        }
    }

    /// `mod grant; pub(crate) use grant::Grant;` is no import: whoever uses it imports from `grant`.
    fn export(&mut self, name: &syn::Ident, path: Vec<String>) {
        self.exported.extend(self.path_from_root(&path).map(|path| (name.to_string(), path)));
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_exported = !matches!(item.vis, syn::Visibility::Inherited);
        self.add_tree(&item.tree, &[], is_exported);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident != "tests" {
            self.inner.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.inner.pop();
        }
    }

    /// `pub(super)` is no import.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&parts);
        visit::visit_path(self, path);
    }
}

fn module_of(file: &Path) -> Module {
    let path = file.strip_prefix("src").unwrap().with_extension("");
    let mut module: Module = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if module.last().is_some_and(|last| last == "mod" || last == "lib") {
        module.pop();
    }
    module
}

/// The module that a path leads to, past everything that is only exported again.
fn target(path: &[String], all: &BTreeMap<Module, Imports>) -> Option<Module> {
    let (module, rest) = (0..=path.len())
        .rev()
        .find_map(|len| all.get_key_value(&path[..len]).map(|(module, _)| (module, &path[len..])))?;
    match rest.first().and_then(|name| all[module].exported.get(name)) {
        Some(exported) => target(&[exported, &rest[1..]].concat(), all),
        None => Some(module.clone()),
    }
}

/// Each module, and those that it imports from.
fn import_graph(sources: &BTreeMap<PathBuf, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let all: BTreeMap<Module, Imports> =
        sources.iter().map(|(file, text)| (module_of(file), Imports::of(file, text))).collect();
    let imports = |imports: &Imports| {
        let targets = imports.paths.iter().filter_map(|path| target(path, &all));
        targets.filter(|module| *module != imports.module && !module.is_empty()).collect()
    };
    all.iter().map(|(module, found)| (module.clone(), imports(found))).collect()
}

/// The rooms of `src/`, from the bottom to the top. A file knows its own room and those below it.
const ROOMS: [&str; 9] =
    ["base", "protocol", "telemetry", "store", "engine", "diagnosis", "locks", "api", "leader"];

/// Imports that lead upwards: the file's module, and the one that it imports from.
fn upward(graph: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<(String, String)> {
    let floor = |module: &Module| {
        let room = module.first().map(String::as_str)?;
        Some(ROOMS.iter().position(|known| *known == room).unwrap_or_else(|| panic!("`{room}` is no room")))
    };
    let pairs = graph.iter().flat_map(|(module, imports)| imports.iter().map(move |import| (module, import)));
    pairs
        .filter(|(module, import)| floor(module).is_some_and(|floor_here| floor(import) > Some(floor_here)))
        .map(|(module, import)| (module.join("::"), import.join("::")))
        .collect()
}

#[test]
fn rooms_import_downwards_only() {
    let graph = import_graph(&files("src", &["rs"]));
    assert!(graph.values().map(BTreeSet::len).sum::<usize>() > 100, "imports are not found any more");
    let upward = upward(&graph);
    assert!(upward.is_empty(), "{upward:#?}");
}

#[test]
fn an_import_that_leads_upwards_is_found() {
    let source = |file: &str, text: &str| (PathBuf::from(file), text.to_owned());
    let sources = [
        source("src/store/mod.rs", "mod a; pub(crate) use a::A;"),
        source("src/store/a.rs", "use super::b::B; struct A(B);"),
        source("src/store/b.rs", "fn take(_: super::A, _: crate::locks::L) {}"),
        source("src/locks/mod.rs", "use crate::store::A; struct L(A);"),
    ];
    let found = upward(&import_graph(&sources.into()));
    assert_eq!(found, [("store::b".to_owned(), "locks".to_owned())]);
}

/// Leading is built on a fenced lock and on what a leader announces, which is the one file that names other items of the crate.
#[test]
fn the_room_of_leaders_names_only_what_is_public() {
    for (file, text) in files("src/leader", &["rs"]) {
        if file.ends_with("announcements.rs") {
            continue;
        }
        let inner = text.lines().find(|line| {
            let name = line.split_once("crate::").map_or("", |(_, name)| name);
            name.starts_with(|c: char| c.is_lowercase())
        });
        assert_eq!(inner, None, "{}", file.display());
    }
}

// --- the order inside the engine ---------------------------------------------------------------------------------------------

/// The engine from the bottom to the top. An entry is a file or a folder. A file imports from its own folder and from the entries below.
const ENGINE: [&str; 20] = [
    "visit",
    "retry",
    "names",
    "under_way",
    "recent_releases",
    "tracked",
    "scheduler",
    "waits",
    "hold",
    "background",
    "line",
    "listeners",
    "shared",
    "lock_ref",
    "grant",
    "handle",
    "held",
    "acquire",
    "upkeep",
    "query",
];

/// The imports that lead upwards all the same, each with its reason. The list may only become shorter.
const UPWARD: [(&str, &str, &str); 2] = [
    ("shared", "grant", "a client has lists of its grants, and a grant knows its client"),
    ("shared", "grant::sharing", "a client has lines with the holds that its grants offer"),
];

/// The files of the engine, and those that each of them imports from, by their names below `engine`.
fn engine_graph(graph: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeMap<String, BTreeSet<String>> {
    let name = |module: &Module| match &module[..] {
        [room, file @ ..] if room == "engine" && !file.is_empty() => Some(file.join("::")),
        _ => None,
    };
    let imports = |imports: &BTreeSet<Module>| imports.iter().filter_map(name).collect();
    graph.iter().filter_map(|(module, found)| Some((name(module)?, imports(found)))).collect()
}

/// The imports that lead from an entry of `order` to a later one.
fn upward_in(order: &[&str], graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<(String, String)> {
    let floor = |file: &str| {
        let entry = file.split("::").next();
        order
            .iter()
            .position(|known| Some(*known) == entry)
            .unwrap_or_else(|| panic!("`{file}` has no place in the order"))
    };
    let pairs = graph.iter().flat_map(|(file, imports)| imports.iter().map(move |import| (file, import)));
    let upward = pairs.filter(|(file, import)| floor(import) > floor(file));
    upward.map(|(file, import)| (file.clone(), import.clone())).collect()
}

#[test]
fn files_of_the_engine_import_downwards_except_where_a_reason_is_given() {
    let graph = engine_graph(&import_graph(&files("src", &["rs"])));
    assert!(graph.values().map(BTreeSet::len).sum::<usize>() > 80, "imports are not found any more");
    let known = UPWARD.map(|(file, import, _)| (file.to_owned(), import.to_owned()));
    assert_eq!(upward_in(&ENGINE, &graph), known);
}

// --- machines ------------------------------------------------------------------------------------------------------------

/// What decides, and does nothing else.
const MACHINES: [&str; 7] = [
    "src/engine/acquire/call.rs",
    "src/engine/grant/lease.rs",
    "src/engine/grant/lingering.rs",
    "src/engine/grant/on_server.rs",
    "src/engine/grant/state.rs",
    "src/engine/hold/lease.rs",
    "src/engine/line/state.rs",
];

#[test]
fn the_machines_know_no_future_no_mutex_and_no_clock() {
    const WORDS: [&str; 8] =
        ["async fn", ".await", "Mutex", "Atomic", "Notify", "Instant", "tracing", "clock::now"];
    let found_in = |text: &str| {
        let code = text.split("mod tests {").next().unwrap();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let words = lines.flat_map(|line| WORDS.iter().filter(move |word| line.contains(**word)));
        words.copied().collect::<Vec<_>>()
    };
    for file in MACHINES {
        let text = fs::read_to_string(root().join(file)).unwrap();
        assert_eq!(found_in(&text), [""; 0], "{file}");
    }
    assert_eq!(found_in("// a Mutex\nlet now = clock::now();\nmod tests { .await }"), ["clock::now"]);
}

// --- public items --------------------------------------------------------------------------------------------------------

#[test]
fn every_public_item_has_an_example() {
    for (file, text) in files("src", &["rs"]).into_iter().chain(files("memory/src", &["rs"])) {
        let mut has_example = false;
        for (number, line) in text.lines().map(str::trim).enumerate() {
            if line.starts_with("///") || line.starts_with("#[") {
                has_example |= line.contains("```");
                continue;
            }
            let is_item = ["fn ", "const fn ", "async fn ", "struct ", "enum ", "trait ", "type "]
                .iter()
                .any(|item| line.strip_prefix("pub ").is_some_and(|rest| rest.starts_with(item)));
            // Users cannot name them, or they have no values.
            let sealed = ["pub struct HeldLock {", "pub trait Extra:"];
            let is_kind = line.ends_with(" {}") || line.ends_with(';') && !line.contains(['(', '=']);
            let is_sealed = is_kind || sealed.iter().any(|start| line.starts_with(start));
            assert!(!is_item || has_example || is_sealed, "{}:{}: {line}", file.display(), number + 1);
            has_example = false;
        }
    }
}

// --- pages -------------------------------------------------------------------------------------------------------------

fn pages() -> BTreeMap<PathBuf, String> {
    let mut pages = files("docs", &["md"]);
    pages.extend(files("lua", &["md"]));
    for page in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "cli/README.md",
        "memory/README.md",
    ] {
        pages.insert(page.into(), fs::read_to_string(root().join(page)).unwrap());
    }
    pages
}

/// The lines of a page that are not code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

fn links(text: &str) -> Vec<String> {
    let prose = prose(text).collect::<Vec<_>>().join("\n");
    prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// The anchors of the headings of a page. Hosting sites and rustdoc make the same ones.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(text).filter(|line| line.starts_with('#')) {
        let letters = heading.trim_start_matches('#').trim().chars();
        let kept = letters.filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
        let anchor: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
        assert!(anchors.insert(anchor), "two headings have one anchor: {heading}");
    }
    anchors
}

/// The file that a link leads to, relative to the package.
fn linked_file(page: &Path, link: &str) -> PathBuf {
    let mut file = page.parent().unwrap().to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => assert!(file.pop(), "{}: {link} leaves the repository", page.display()),
            part => file.push(part),
        }
    }
    file
}

fn packaged_files() -> BTreeSet<PathBuf> {
    let list = ["package", "--list", "--allow-dirty", "--offline"];
    let output = Command::new(env!("CARGO")).args(list).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(PathBuf::from).collect()
}

/// Links in other parts of the repository would be dead on docs.rs, on crates.io and in an unpacked package.
#[test]
fn relative_links_lead_to_a_file_and_a_heading() {
    let packaged = packaged_files();
    let mut pages = pages();
    pages.extend(files("benches", &["md"]));
    for (page, text) in pages {
        let name = page.display();
        for link in links(&text) {
            assert!(!is_own_documentation(&link), "{name}: {link} is not a relative path");
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').map_or((&*link, None), |(file, at)| (file, Some(at)));
            let file = if file.is_empty() { page.clone() } else { linked_file(&page, file) };
            assert!(root().join(&file).exists(), "{name}: {link} leads nowhere");
            if let Some(anchor) = anchor {
                let text = fs::read_to_string(root().join(&file)).unwrap();
                assert!(anchors(&text).contains(anchor), "{name}: {link} leads to no heading");
            }
            // The page of the program is in the package of the program, and `build.rs` links to that.
            let is_program = file == Path::new("cli/README.md");
            let is_packaged = !packaged.contains(&page) || packaged.contains(&file) || is_program;
            assert!(is_packaged, "{name}: {link} is not in the package. Name the file without a link");
        }
    }
}

fn is_own_documentation(link: &str) -> bool {
    link.contains("docs.rs/lockkeeper/") || link.contains("docs.rs/crate/lockkeeper/")
}

/// rustdoc checks links to items, and accepts every path to a file.
#[test]
fn doc_comments_link_items_and_not_files() {
    for folder in ["src", "examples", "cli/src", "memory/src", "testkit/src"] {
        for (file, text) in files(folder, &["rs"]) {
            let comments = text.lines().filter_map(|line| {
                let line = line.trim_start();
                line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
            });
            let comments = comments.collect::<Vec<_>>().join("\n");
            for link in links(&comments) {
                let is_path = !link.contains("://") && link.contains(['/', '.']);
                let name = file.display();
                assert!(!is_path && !is_own_documentation(&link), "{name}: link the item and not {link}");
            }
        }
    }
}

#[test]
fn every_page_for_users_is_in_the_guide() {
    let guide = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let is_for_users = |page: &&PathBuf| page.components().count() == 2;
    for page in files("docs", &["md"]).keys().filter(is_for_users) {
        let copy = format!("concat!(env!(\"OUT_DIR\"), \"/{}\")", page.display());
        assert!(guide.contains(&copy), "src/lib.rs lacks {copy}");
    }
}

#[test]
fn every_plot_is_shown_by_a_page() {
    let pages = pages();
    for plot in files("docs/plots", &["svg"]).keys() {
        let link = format!("(plots/{})", plot.file_name().unwrap().display());
        assert!(pages.values().any(|page| page.contains(&link)), "no page shows {}", plot.display());
    }
}

/// A test is quoted as `name_of_the_test`, with at least two words. The names of metrics begin with the name of the crate.
#[test]
fn tests_that_pages_name_exist() {
    let tests: String = ["tests", "src", "cli/tests", "model"]
        .map(|folder| files(folder, &["rs"]))
        .into_iter()
        .flat_map(BTreeMap::into_values)
        .collect();
    let is_name = |word: &&str| {
        word.matches('_').count() >= 3
            && !word.starts_with("lockkeeper_")
            && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
    };
    for (page, text) in pages() {
        for name in text.split('`').skip(1).step_by(2).filter(is_name) {
            assert!(tests.contains(&format!("fn {name}")), "{} names the test {name}", page.display());
        }
    }
}

#[test]
fn tests_that_need_a_real_server_exist() {
    let tests: String = files("tests", &["rs"]).into_values().collect();
    let list = fs::read_to_string(root().join("tests/real_only.txt")).unwrap();
    for line in list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let name = line.rsplit([' ', ':']).next().unwrap();
        assert!(
            tests.contains(&format!("fn {name}")) || tests.contains(name),
            "tests/real_only.txt names {line}"
        );
    }
}

/// Ratios are copied by hand from the page that `scripts/bench` writes.
#[test]
fn ranges_of_the_page_of_performance_are_those_of_the_results() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (page, results) = (read("docs/performance.md"), read("benches/RESULTS.md"));
    let is_range =
        |range: &&str| range.starts_with(|first: char| first.is_ascii_digit()) && range.contains("..");
    let ranges: Vec<&str> =
        page.split('[').filter_map(|part| Some(part.split_once(']')?.0)).filter(is_range).collect();
    assert!(ranges.len() >= 10, "{ranges:?}");
    for range in ranges {
        assert!(results.contains(&format!("[{range}]")), "benches/RESULTS.md lacks [{range}]");
    }
}

/// The crates that a package of this workspace, or one that it uses, needs to run.
fn crates_of(package: &str) -> BTreeSet<String> {
    let tree =
        ["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--no-dedupe"];
    let output = Command::new(env!("CARGO"))
        .args(tree)
        .args(["--package", package])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{package}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_readme_tells_how_many_crates_a_service_gets() {
    let mut further = crates_of("lockkeeper");
    for had in ["redis", "tokio", "serde", "tracing"].map(crates_of) {
        further.retain(|name| !had.contains(name));
    }
    let further = further.len() - 1; // besides this one
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (before, _) = readme.split_once(" crates to a service").expect("a number");
    let told: usize = before.split_whitespace().next_back().unwrap().parse().unwrap();
    assert!(further.abs_diff(told) <= 1, "{further} crates, and the README says {told}");
}

/// The words of the lines that a reader reads. With `is_all`, code counts as well, except recipes in Rust.
fn count_words(text: &str, is_all: bool) -> usize {
    let mut code: Option<&str> = None;
    let mut count = 0;
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            code = if code.is_some() { None } else { Some(language) };
        } else if code.is_none_or(|language| is_all && !language.starts_with("rust")) {
            count += line.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
        }
    }
    count
}

/// `docs/errors.md` is searched and not read, so it has no limit.
#[test]
fn the_pages_for_users_are_short() {
    let pages = pages();
    let is_read = |page: &Path| {
        page == Path::new("README.md")
            || (page.starts_with("docs") && page.components().count() == 2 && !page.ends_with("errors.md"))
    };
    let all: usize =
        pages.iter().filter(|(page, _)| is_read(page)).map(|(_, text)| count_words(text, true)).sum();
    assert!((8_000..=16_000).contains(&all), "all pages: {all} words");
    let words = |page: &str, is_all| count_words(&pages[Path::new(page)], is_all);
    let (readme, program) = (words("README.md", false), words("cli/README.md", true));
    assert!(readme <= 900, "README.md: {readme} words without code");
    assert!(program <= 3_500, "cli/README.md: {program} words");
    assert_eq!(count_words("a b\n```sh\nc d\n```\n```rust,no_run\ne\n```\nf | g |", true), 6);
}

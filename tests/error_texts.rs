//! `docs/errors.md` has every text that the library and the program print when something fails. It needs no server.

use std::collections::BTreeSet;

use crate::support::sources::{files, root};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

/// Files whose texts are no errors, or errors that explain themselves, and why.
const OTHER_TEXTS: [(&str, &str); 21] = [
    ("src/diagnosis/clients.rs", "what a list shows of a holder"),
    ("src/diagnosis/info.rs", "what a list shows of a lock"),
    ("src/diagnosis/waits.rs", "what `why` shows"),
    ("src/diagnosis/watch.rs", "the fields of an event"),
    ("src/engine/grant/explorer.rs", "a test"),
    ("src/engine/visit.rs", "a test"),
    ("src/engine/line/explorer.rs", "a test"),
    ("src/leader/candidate.rs", "the fields of an event"),
    ("src/protocol/rights.rs", "names of commands"),
    ("src/telemetry/", "metrics"),
    ("cli/src/doctor/", "each line says what to do"),
    ("cli/src/follow/changes.rs", "what `watch` shows of a change"),
    ("cli/src/ls.rs", "a list"),
    ("cli/src/text.rs", "a list"),
    ("cli/src/top/render.rs", "the screen"),
    ("cli/src/verify/judge.rs", "each violation says what to look at"),
    ("cli/src/verify/picture.rs", "a picture"),
    ("cli/src/verify/report.rs", "each violation says what to look at"),
    ("cli/src/why.rs", "a list"),
    ("src/base/sync.rs", "a fault of the program, which panics"),
    ("src/base/timer.rs", "replaced by another text"),
];

/// Functions whose argument is no text for a user: a reason for a panic, or the words of another program.
const OTHER_CALLS: [&str; 9] = [
    "contains",
    "debug_struct",
    "ends_with",
    "expect",
    "expecting",
    "split_once",
    "starts_with",
    "strip_prefix",
    "strip_suffix",
];

/// Texts that begin so are no errors.
const NO_ERRORS: [&str; 21] = [
    "a pool makes the connection",
    "a semaphore with",
    "at random for",
    "calls a second. All names begin with",
    "connections are not cut: that needs",
    "Exit codes:",
    "fail over your master meanwhile",
    "if nobody renews it",
    "is a new master, or was started again",
    "its key has no expiry",
    "JSON:",
    "killed and paused",
    "killed, paused and cut off",
    "Source::Pool with an address",
    "The holder works on until it notices",
    "the lock is free",
    "the server of a pool",
    "the server of a stream",
    "TLS, the feature is not enabled",
    "Which names:",
    "worker processes are",
];

/// Macros with texts for users. `tracing` has others, and `docs/operate.md` lists those.
const TEXT_MACROS: [&str; 6] = ["concat", "eprintln", "format", "format_args", "write", "writeln"];

#[derive(Default)]
struct Texts(Vec<String>);

impl<'ast> Visit<'ast> for Texts {
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.visit_expr(&call.receiver);
        if !OTHER_CALLS.iter().any(|name| call.method == name) {
            call.args.iter().for_each(|argument| self.visit_expr(argument));
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        if ["select", "vec"].contains(&name.as_str()) {
            // The content is no list of expressions, so its literals are found in its text.
            self.0.extend(call.tokens.to_string().split('"').skip(1).step_by(2).map(str::to_owned));
        }
        if TEXT_MACROS.contains(&name.as_str()) {
            let arguments =
                call.parse_body_with(Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated).unwrap();
            arguments.iter().for_each(|argument| self.visit_expr(argument));
        }
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.0.push(literal.value());
    }
}

/// The parts of a text between what is filled in, if they have at least three words.
fn fixed_parts(text: &str) -> impl Iterator<Item = String> {
    let plain = text.replace('`', "");
    let parts: Vec<String> = plain
        .split(['{', '}'])
        .step_by(2)
        .map(|part| words(part).trim_matches([',', ':', ';', ' ', '(', ')']).to_owned())
        .collect();
    parts
        .into_iter()
        .filter(|part| part.split(' ').filter(|word| word.chars().all(char::is_alphabetic)).count() >= 3)
}

/// Whether a value follows a word without a space or a bracket, as in `only the script finds{}`.
fn sticks(text: &str) -> bool {
    let letters: Vec<char> = text.chars().collect();
    letters.windows(3).any(|window| window[0].is_lowercase() && window[1] == '{' && window[2] != '{')
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_page_of_errors_has_each_text() {
    let page = words(&std::fs::read_to_string(root().join("docs/errors.md")).unwrap().replace('`', ""));
    let (mut missing, mut stuck, mut count, mut excepted) = (Vec::new(), Vec::new(), 0, BTreeSet::new());
    for (file, source) in files("src", &["rs"]).into_iter().chain(files("cli/src", &["rs"])) {
        let is_test = file.iter().any(|part| part == "tests") || file.ends_with("tests.rs");
        if is_test || OTHER_TEXTS.iter().any(|(path, _)| file.starts_with(path)) {
            continue;
        }
        let mut texts = Texts::default();
        texts.visit_file(&syn::parse_file(&source).unwrap());
        stuck.extend(
            texts.0.iter().filter(|text| sticks(text)).map(|text| format!("{}: {text}", file.display())),
        );
        for part in texts.0.iter().flat_map(|text| fixed_parts(text)) {
            count += 1;
            if page.contains(&part) {
                continue;
            }
            match NO_ERRORS.iter().find(|text| part.starts_with(**text)) {
                Some(text) => _ = excepted.insert(*text),
                None => missing.push(format!("{}: {part}", file.display())),
            }
        }
    }
    assert!(count >= 150, "only {count} texts were found");
    assert!(stuck.is_empty(), "a space or a bracket is missing before a value:\n{}", stuck.join("\n"));
    assert!(missing.is_empty(), "docs/errors.md lacks {} texts:\n{}", missing.len(), missing.join("\n"));
    assert_eq!(excepted, BTreeSet::from(NO_ERRORS), "an exception that nothing needs any longer");
}

#[test]
fn a_value_behind_a_word_without_a_space_is_found() {
    for text in ["only the script finds{}: {refusal}", "a{b}", "a {b} c{d}"] {
        assert!(sticks(text), "{text}");
    }
    for text in ["finds ({}): {a}", "`{a}`{}", "redisson_lock:{{x}}", "a{{x}}", "{a}s", "a{"] {
        assert!(!sticks(text), "{text}");
    }
}

#[test]
fn texts_are_found_where_they_are_printed() {
    let source = r#"
        #[must_use = "an attribute is no error"]
        fn f() -> E {
            warn!("an event is no error");
            select! { _ = a => g("in an arm of select"), }
            x.expect("a reason is no error");
            E::new(format!("the {} cannot be used here: {}", a, b("as a second argument"))).or(CONST)
        }
        const CONST: &str = "as a const item";
        mod tests { const T: &str = "a test is no error"; }
    "#;
    let mut texts = Texts::default();
    texts.visit_file(&syn::parse_file(source).unwrap());
    let parts: Vec<String> = texts.0.iter().flat_map(|text| fixed_parts(text)).collect();
    assert_eq!(
        parts,
        ["in an arm of select", "cannot be used here", "as a second argument", "as a const item"]
    );
}

#[test]
fn the_files_without_texts_of_errors_exist() {
    for (path, _) in OTHER_TEXTS {
        assert!(root().join(path).exists(), "{path}");
    }
}

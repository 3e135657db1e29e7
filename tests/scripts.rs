//! Compares the header and the body of each Lua script with the table in `src/protocol/scripts.rs`, and with what the script
//! includes. It needs no server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_testkit::lua;

const FLAGS: [&str; 3] = ["#!lua", "#!lua flags=allow-oom", "#!lua flags=allow-oom,allow-cross-slot-keys"];
const SECTIONS: [&str; 3] = ["  Returns", "  Publishes", "  Repeating"];

/// One row of the table, and the text of its file.
#[derive(Clone)]
struct Entry {
    file: String,
    source: String,
    keys: Vec<String>,
    /// The name of each further key. A call has any number of them.
    further: Option<String>,
    args: Vec<String>,
    /// The arguments of a row. None: the script is no batch.
    row_args: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows `name("file"; keys; arguments);` of the table.
fn table() -> Vec<Entry> {
    let source = read("src/protocol/scripts.rs");
    let (_, table) = source.split_once("\nscripts! {\n").expect("the table");
    let (table, _) = table.split_once("\n}\n").expect("its end");
    let (calls, batches) = table.split_once("batches {").expect("calls, then batches");
    let rows = |text: &str, is_batch: bool| -> Vec<Entry> {
        text.lines()
            .filter_map(|line| line.trim().strip_suffix(");"))
            .map(|row| entry(row, is_batch))
            .collect()
    };
    let mut all = rows(calls, false);
    all.extend(rows(batches, true));
    all
}

fn entry(row: &str, is_batch: bool) -> Entry {
    let (_, row) = row.split_once('(').expect("name(");
    let columns: Vec<&str> = row.split(';').collect();
    // Perhaps followed by `of`, and how many calls one command can have.
    let file = columns[0].split('"').nth(1).expect("a file").to_owned();
    let names = |column: &str| -> Vec<String> {
        column.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let (keys, further) = columns[1].split_once("..").unzip();
    Entry {
        source: read(&format!("lua/{file}")),
        file,
        keys: names(keys.unwrap_or(columns[1])),
        further: further.map(str::to_owned),
        args: names(columns[2]),
        row_args: if is_batch { names(columns[3]) } else { Vec::new() },
    }
}

impl Entry {
    fn is_batch(&self) -> bool {
        !self.row_args.is_empty()
    }

    /// The lines that the header must have, `KEYS[1] lock` and so on, in this order.
    fn parameters(&self) -> Vec<String> {
        let lines = |list: &str, names: &[String], index: &dyn Fn(usize) -> String| -> Vec<String> {
            names.iter().enumerate().map(|(i, name)| format!("{list}[{}] {name}", index(i))).collect()
        };
        let first = |i: usize| (i + 1).to_string();
        let each = |i: usize| self.key_index(i).replace([' ', '*'], "");
        let mut all = lines("KEYS", &self.keys, if self.is_batch() { &each } else { &first });
        all.extend(self.further.iter().map(|name| format!("KEYS[{}+i] {name}", self.keys.len())));
        all.extend(lines("ARGV", &self.args, &first));
        all.extend(lines("ARGV", &self.row_args, &|i| self.row_index(i).replace([' ', '*'], "")));
        all
    }

    /// The index of an argument of row `i`, as the body writes it. The shared argument stands before the rows.
    fn row_index(&self, argument: usize) -> String {
        let columns = self.row_args.len();
        match (columns, argument + 2) {
            (1, _) => "1 + i".to_owned(),
            (_, place) if place < columns => format!("{columns} * i - {}", columns - place),
            (_, place) if place == columns => format!("{columns} * i"),
            (_, place) => format!("{columns} * i + {}", place - columns),
        }
    }

    /// The index of a key of row `i`, as the body writes it.
    fn key_index(&self, key: usize) -> String {
        match (self.keys.len(), key + 1) {
            (1, _) => "i".to_owned(),
            (columns, place) if place < columns => format!("{columns} * i - {}", columns - place),
            (columns, _) => format!("{columns} * i"),
        }
    }

    /// The lines with which the body of a batch goes over its rows, and binds the keys of a row.
    fn rows(&self) -> Vec<String> {
        let names = self.keys.join(", ");
        let columns = self.keys.len();
        if columns == 1 {
            return vec![format!("for i, {names} in ipairs(KEYS) do")];
        }
        let indices: Vec<String> = (0..columns).map(|i| format!("KEYS[{}]", self.key_index(i))).collect();
        vec![format!("for i = 1, #KEYS / {columns} do"), format!("local {names} = {}", indices.join(", "))]
    }

    /// Returns the first difference between the table, the header and the body.
    fn check(&self) -> Result<(), String> {
        let (flags, rest) = self.source.split_once("\n--[[\n").ok_or("no header after the first line")?;
        let (header, body) = rest.split_once("\n]]\n").ok_or("the header does not end")?;
        if !FLAGS.contains(&flags) {
            return Err(format!("unknown first line {flags:?}"));
        }
        let named: Vec<String> = header
            .lines()
            .filter(|line| line.starts_with("  KEYS[") || line.starts_with("  ARGV["))
            .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
            .collect();
        if named != self.parameters() {
            return Err(format!("the header names {named:?}, the table {:?}", self.parameters()));
        }
        let publishes = body.contains("'publish'");
        let found: Vec<usize> = SECTIONS.iter().filter_map(|section| header.find(section)).collect();
        if found.len() != SECTIONS.len() - usize::from(!publishes) || !found.is_sorted() {
            return Err(
                "the header lacks a section, has one too many, or has them in another order".to_owned()
            );
        }
        check_commands(header, body)?;
        check_includes("", &self.source)?;
        check_replies(header, body)?;
        self.check_body(body)
    }

    /// A body binds each parameter once to the name that the header gives it, and uses KEYS and ARGV nowhere else.
    fn check_body(&self, body: &str) -> Result<(), String> {
        let numbered =
            |list: &str, len: usize| (1..=len).map(|i| format!("{list}[{i}]")).collect::<Vec<_>>().join(", ");
        let mut expected = Vec::new();
        if !self.is_batch() && !self.keys.is_empty() {
            expected.push(format!("local {} = {}", self.keys.join(", "), numbered("KEYS", self.keys.len())));
        }
        if !self.args.is_empty() {
            expected.push(format!("local {} = {}", self.args.join(", "), numbered("ARGV", self.args.len())));
        }
        if let Some(name) = &self.further {
            let first = self.keys.len() + 1;
            expected.extend([format!("for i = {first}, #KEYS do"), format!("local {name} = KEYS[i]")]);
        }
        if self.is_batch() {
            expected.extend(self.rows());
            let indices: Vec<String> =
                (0..self.row_args.len()).map(|i| format!("ARGV[{}]", self.row_index(i))).collect();
            expected.push(format!("local {} = {}", self.row_args.join(", "), indices.join(", ")));
        }
        let bindings: Vec<String> = body
            .lines()
            .filter(|line| line.contains("KEYS") || line.contains("ARGV"))
            .map(|line| without_tonumber(line.trim()))
            .collect();
        if bindings != expected {
            return Err(format!("the body binds {bindings:?}, the table wants {expected:?}"));
        }
        Ok(())
    }
}

/// The names that each included file defines, by the name of the file.
fn included() -> BTreeMap<String, Vec<String>> {
    let folder = lua::folder().join("includes");
    let names = |file: &String| {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let locals = text.lines().filter_map(|line| line.strip_prefix("local "));
        let defined = locals.flat_map(|rest| match rest.strip_prefix("function ") {
            Some(function) => vec![function.split('(').next().unwrap().to_owned()],
            None => rest.split(" = ").next().unwrap().split(", ").map(str::to_owned).collect(),
        });
        (file.trim_end_matches(".lua").to_owned(), defined.collect())
    };
    lua::lua_files(&folder).iter().map(names).collect()
}

/// Code and comments, apart.
fn split(text: &str) -> (String, String) {
    let (header, body) = text.split_once("\n]]\n").unwrap_or(("", text));
    let (mut code, mut comments) = (String::new(), header.to_owned());
    for line in body.lines() {
        let (before, after) = line.split_once("--").unwrap_or((line, ""));
        code.extend([before, "\n"]);
        comments.extend([after, "\n"]);
    }
    (code, comments)
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect()
}

/// A script or an included file includes exactly the files whose names it uses: what is included costs time in each call. `own` is
/// the name of an included file.
fn check_includes(own: &str, text: &str) -> Result<(), String> {
    let (code, _) = split(text);
    let (words, included) = (words(&code), included());
    let is_used = |names: &[String]| names.iter().any(|name| words.contains(&**name));
    let used = included.iter().filter(|(file, names)| *file != own && is_used(names));
    let used: BTreeSet<&str> = used.map(|(file, _)| &**file).collect();
    let stated: Vec<&str> = lua::includes(text).collect();
    if stated.len() == used.len() && stated.iter().all(|file| used.contains(file)) {
        return Ok(());
    }
    Err(format!("under With is {stated:?}, and used is {used:?}"))
}

/// A header lists each reply that the body names. It can list more: those of functions that the script includes.
fn check_replies(header: &str, body: &str) -> Result<(), String> {
    let (code, _) = split(body);
    let names = included().remove("replies").expect("a file");
    let listed = |name: &&String| {
        let starts = |line: &str| line.trim_start().split(' ').next() == Some(name.as_str());
        header.lines().any(starts)
    };
    let is_compared =
        |name: &&String| code.contains(&format!("== {name}")) || code.contains(&format!("< {name}"));
    let lacking =
        names.iter().filter(|name| words(&code).contains(&***name) && !is_compared(name) && !listed(name));
    let lacking: Vec<_> = lacking.collect();
    if !lacking.is_empty() {
        return Err(format!("the header does not list {lacking:?}"));
    }
    check_numbers(&code)
}

/// A reply that is no amount has a name.
fn check_numbers(code: &str) -> Result<(), String> {
    let is_bare = |line: &&str| {
        let numbers = ["return -", "and -", "or -"].iter().flat_map(|before| line.split(before).skip(1));
        line.contains("return")
            && numbers.into_iter().any(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
    };
    code.lines().find(is_bare).map_or(Ok(()), |line| Err(format!("a reply without a name: {line}")))
}

/// In a cluster, `'publish'` is replaced in the whole text. So it has to stand wherever a script publishes, and nowhere else: it
/// is the name of a command, and each command is called by a name in quotes.
fn check_commands(comment: &str, body: &str) -> Result<(), String> {
    let (code, comments) = split(body);
    let comments = comment.to_owned() + &comments;
    let calls = |start: &str| code.matches(start).count();
    let publishes = calls("redis.call('publish', ") + calls("redis.pcall('publish', ");
    if code.to_lowercase().matches("publish").count() != publishes {
        return Err("something else than a command is called `publish`".to_owned());
    }
    if comments.contains("'publish'") {
        return Err("a comment has `'publish'` in quotes".to_owned());
    }
    let named = calls("redis.call('") + calls("redis.pcall('");
    let others = calls("redis.acl_check_cmd(");
    if calls("redis") - calls("'redisson_") != named + others {
        return Err("a command is not called by a name in quotes".to_owned());
    }
    Ok(())
}

/// Removes `tonumber(…)`, through which a script binds the numbers that it calculates with.
fn without_tonumber(line: &str) -> String {
    let mut plain = line.to_owned();
    while let Some(start) = plain.find("tonumber(") {
        plain.replace_range(start..start + "tonumber(".len(), "");
        if let Some(end) = plain[start..].find(')') {
            plain.remove(start + end);
        }
    }
    plain
}

#[test]
fn header_body_and_table_name_the_same_parameters_in_the_same_order() {
    let wrong: Vec<String> = table()
        .iter()
        .filter_map(|entry| entry.check().err().map(|problem| format!("{}: {problem}", entry.file)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_script_that_disagrees_with_the_table_is_found() {
    let table = table();
    let entry = table.iter().find(|entry| entry.file == "rlock/acquire.lua").expect("a script");
    let changed = |from: &str, to: &str| {
        assert!(entry.source.contains(from), "{from}");
        Entry { source: entry.source.replacen(from, to, 1), ..entry.clone() }
    };
    assert_eq!(changed("", "").check(), Ok(()));
    for (from, to) in [
        ("ARGV[2]  lease_ms", "ARGV[2]  lease"),
        ("local lock = KEYS[1]", "local key = KEYS[1]"),
        ("lease_ms, valid_until = ARGV[1], ARGV[2]", "lease_ms, valid_until = ARGV[2], ARGV[1]"),
        ("  Repeating", "  Retrying"),
        ("  Repeating", "  Publishes  something\n  Repeating"),
        ("  With  create_hold occupied_reply", "  With  create_hold"),
        ("  With  create_hold occupied_reply", "  With  create_hold occupied_reply keeps_data"),
        ("return occupied_reply(lock, left_ms)", "return -3"),
        ("return occupied_reply(lock, left_ms)", "return QUEUED"),
        ("#!lua\n", "#!lua flags=allow-stale\n"),
        ("redis.call('pttl', lock)", "redis.call('pttl', KEYS[1])"),
        ("redis.call('pttl', lock)", "redis.call(PTTL, lock)"),
        ("redis.call('pttl', lock)", "redis.call('PUBLISH', lock)"),
        ("redis.call('pttl', lock)", "redis.call('pttl', lock) -- not 'publish'"),
        ("local left_ms", "local call = redis.call\nlocal left_ms"),
    ] {
        assert!(changed(from, to).check().is_err(), "not found: {to}");
    }
}

/// An included file has no header, and publishes nothing: only the header of a script says what it publishes.
#[test]
fn included_files_are_used_and_include_what_they_use() {
    let files = included();
    assert!(files.len() > 20, "{files:?}");
    let mut used: BTreeSet<String> = BTreeSet::new();
    for file in files.keys() {
        let text = read(&format!("lua/includes/{file}.lua"));
        assert_eq!(check_commands("", &text), Ok(()), "{file}");
        assert_eq!(check_includes(file, &text), Ok(()), "{file}");
        assert_eq!(check_numbers(&split(&text).0), Ok(()), "{file}");
        assert!(!text.contains("'publish'"), "{file}");
        used.extend(lua::includes(&text).map(str::to_owned));
    }
    for entry in table() {
        used.extend(lua::includes(&entry.source).map(str::to_owned));
    }
    assert_eq!(used, files.into_keys().collect());
}

/// An owner has one form for all scripts.
#[test]
fn one_file_knows_the_form_of_an_owner() {
    let has_pattern =
        |file: &&String| fs::read_to_string(lua::folder().join(file)).unwrap().contains("%x+%-");
    let all = lua::lua_files(&lua::folder());
    assert_eq!(all.iter().filter(has_pattern).collect::<Vec<_>>(), ["includes/is_holder.lua"]);
}

/// A unit test compares the same texts with those that the crate sends.
#[test]
fn scripts_lua_prints_what_a_server_gets() {
    let print = |args: &[&str]| {
        let output = Command::new(root().join("scripts/lua")).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = lua::source("fair/release.lua");
    assert_eq!(print(&["fair/release"]), text);
    assert_eq!(print(&["fair/release", "--cluster"]), lua::sharded(&text));
    assert_eq!(print(&["fair/release", "--batch"]), lua::batch(&text));
    let wrong = Command::new(root().join("scripts/lua")).arg("fair/none").output().unwrap();
    assert!(!wrong.status.success() && String::from_utf8_lossy(&wrong.stderr).contains("fair/acquire.lua"));
}

/// While a slot moves, keys of one lock can be on two servers. If a script names a key that never exists, such as a channel,
/// beside another, both servers refuse the script. So a script needs it in `KEYS` if it derives keys, and must not have it if it
/// has to work meanwhile.
#[test]
fn scripts_that_look_for_read_holds_declare_the_channel() {
    for entry in table() {
        let has_channel = entry.keys.iter().any(|key| key == "channel");
        let derives_keys = lua::source(&entry.file).contains("rwlock_timeout");
        let expected = match entry.file.as_str() {
            // It does not know the type of the lock, so it checks this by itself.
            "inspect.lua" => false,
            // It looks at the queue alone.
            "fair/waiters.lua" => false,
            file => derives_keys || file.starts_with("fair/"),
        };
        assert_eq!(has_channel, expected, "{}", entry.file);
    }
}

#[test]
fn every_file_is_in_the_table_and_every_entry_is_a_file() {
    let named: BTreeSet<String> = table().into_iter().map(|entry| entry.file).collect();
    assert_eq!(lua::files().into_iter().collect::<BTreeSet<_>>(), named);
}

//! Compares the header and the body of each Lua script with the table in `src/protocol/scripts.rs`. It needs no server.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const FLAGS: [&str; 3] = ["#!lua", "#!lua flags=allow-oom", "#!lua flags=allow-oom,allow-cross-slot-keys"];
const SECTIONS: [&str; 3] = ["  Returns", "  Publishes", "  Repeating"];

/// One row of the table, and the text of its file.
#[derive(Clone)]
struct Entry {
    file: String,
    /// The files that are inserted into it.
    shared: Vec<String>,
    source: String,
    keys: Vec<String>,
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

/// The rows `name("file" with "shared" "shared"; keys; arguments);` of the table.
fn table() -> Vec<Entry> {
    let source = read("src/protocol/scripts.rs");
    let (_, table) = source.split_once("\nscripts! {\n").expect("the table");
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
    let files: Vec<String> = columns[0].split('"').skip(1).step_by(2).map(str::to_owned).collect();
    let names = |column: &str| -> Vec<String> {
        column.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    Entry {
        source: read(&format!("lua/{}", files[0])),
        file: files[0].clone(),
        shared: files[1..].to_vec(),
        keys: names(columns[1]),
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
        let with: Vec<&str> = header
            .lines()
            .filter_map(|line| line.strip_prefix("  With  "))
            .flat_map(str::split_whitespace)
            .collect();
        if with != self.shared {
            return Err(format!("the header names {with:?} under With, the table {:?}", self.shared));
        }
        let found: Vec<usize> = SECTIONS.iter().filter_map(|section| header.find(section)).collect();
        if found.len() != SECTIONS.len() || !found.is_sorted() {
            return Err("the header lacks a section, or has them in another order".to_owned());
        }
        if header.contains("  Publishes  nothing") == body.contains("'publish'") {
            return Err("header and body disagree about what is published".to_owned());
        }
        check_commands(header, body)?;
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

/// In a cluster, `'publish'` is replaced in the whole text. So it has to stand wherever a script publishes, and nowhere else: it
/// is the name of a command, and each command is called by a name in quotes.
fn check_commands(comment: &str, body: &str) -> Result<(), String> {
    let (mut code, mut comments) = (String::new(), comment.to_owned());
    for line in body.lines() {
        let (before, after) = line.split_once("--").unwrap_or((line, ""));
        code.extend([before, "\n"]);
        comments.extend([after, "\n"]);
    }
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
    if calls("redis") != named + others {
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
        ("local owner, lease_ms = ARGV[1], ARGV[2]", "local owner, lease_ms = ARGV[2], ARGV[1]"),
        ("  Repeating", "  Retrying"),
        ("  Publishes  nothing", "  Publishes  something"),
        ("  With  rlock/shared.lua", "  With  fair/shared.lua"),
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

/// Shared files have no header, and publish nothing: only the header of a script says what it publishes.
#[test]
fn shared_files_call_commands_by_name_and_publish_nothing() {
    let shared: BTreeSet<String> = table().into_iter().flat_map(|entry| entry.shared).collect();
    for file in shared {
        let text = read(&format!("lua/{file}"));
        assert_eq!(check_commands("", &text), Ok(()), "{file}");
        assert!(!text.contains("'publish'"), "{file}");
    }
}

/// While a slot moves, keys of one lock can be on two servers. If a script names a key that never exists, such as a channel,
/// beside another, both servers refuse the script. So a script needs it in `KEYS` if it derives keys, and must not have it if it
/// has to work meanwhile.
#[test]
fn scripts_that_look_for_read_holds_declare_the_channel() {
    for entry in table() {
        let has_channel = entry.keys.iter().any(|key| key == "channel");
        let derives_keys = entry.shared.iter().any(|file| file == "read/shared.lua");
        let expected = match entry.file.as_str() {
            // `inspect` does not know the type of the lock, so it checks this by itself. `write/state` looks at the hash alone.
            "inspect.lua" | "write/state.lua" => false,
            file => derives_keys || file.starts_with("fair/"),
        };
        assert_eq!(has_channel, expected, "{}", entry.file);
    }
}

#[test]
fn every_file_is_in_the_table_and_every_entry_is_a_file() {
    let folder = root().join("lua");
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("lua/ is readable") {
            let path = entry.expect("lua/ is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "lua") {
                found.insert(path.strip_prefix(&folder).expect("below lua/").display().to_string());
            }
        }
    }
    let table = table();
    let named = table.iter().flat_map(|entry| entry.shared.iter().chain([&entry.file]));
    assert_eq!(found, named.cloned().collect());
}

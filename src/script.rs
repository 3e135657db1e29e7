//! The Lua scripts, and a call of one as plain data.
//!
//! Each script is a file under `lua/`, embedded when the crate is compiled. The table below names its keys and
//! arguments once more, as the parameters of the function that builds the call; a test compares both with the
//! file's header and body.

use std::fmt;
use std::sync::{Arc, OnceLock};

use smallvec::{SmallVec, smallvec};
use uuid::Uuid;

#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) file: &'static str,
    pub(crate) source: &'static str,
    /// What the server calls it; computed by the store.
    pub(crate) hash: OnceLock<String>,
}

/// One call of a script.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) keys: SmallVec<[Arc<str>; 2]>,
    pub(crate) args: SmallVec<[Arg; 3]>,
}

#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Number(u64),
    /// Redisson's `UUID:threadId`.
    Owner(Uuid, u64),
    Text(Arc<str>),
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            // Each part by itself: nearly every command has one, and `write!` with a format is slower by half.
            Self::Owner(client, number) => {
                f.write_str(client.hyphenated().encode_lower(&mut Uuid::encode_buffer()))?;
                f.write_str(":")?;
                number.fmt(f)
            }
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl From<u64> for Arg {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Arg {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<&Self> for Arg {
    fn from(arg: &Self) -> Self {
        arg.clone()
    }
}

/// What a script answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Int(i64),
    List(Vec<Self>),
    Nil,
    Text(String),
}

/// A script that does the same for many rows in one command.
#[derive(Debug)]
pub(crate) struct Batch(Script);

/// What one row adds to the keys and to the arguments of a [`Batch`].
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) keys: SmallVec<[Arc<str>; 1]>,
    pub(crate) args: SmallVec<[Arg; 3]>,
}

impl Batch {
    pub(crate) fn call(&'static self, shared: impl Into<Arg>, rows: impl IntoIterator<Item = Row>) -> Call {
        let mut call = Call { script: &self.0, keys: SmallVec::new(), args: smallvec![shared.into()] };
        for row in rows {
            call.keys.extend(row.keys);
            call.args.extend(row.args);
        }
        call
    }
}

macro_rules! source {
    ($file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $file))
    };
}

macro_rules! script {
    ($file:literal) => {
        Script { file: $file, source: source!($file), hash: OnceLock::new() }
    };
    ($file:literal with $shared:literal) => {{
        const LEN: usize = source!($file).len() + source!($shared).len();
        const BYTES: [u8; LEN] = with_shared(source!($file).as_bytes(), source!($shared).as_bytes());
        const SOURCE: &str = match std::str::from_utf8(&BYTES) {
            Ok(source) => source,
            Err(_) => unreachable!(),
        };
        Script { file: $file, source: SOURCE, hash: OnceLock::new() }
    }};
}

/// Puts what several scripts share behind the first line of one, which has to stay the first.
const fn with_shared<const LEN: usize>(script: &[u8], shared: &[u8]) -> [u8; LEN] {
    let mut first_line = 0;
    while script[first_line] != b'\n' {
        first_line += 1;
    }
    first_line += 1;
    let mut joined = [0; LEN];
    let mut at = 0;
    while at < LEN {
        joined[at] = if at < first_line {
            script[at]
        } else if at < first_line + shared.len() {
            shared[at - first_line]
        } else {
            script[at - shared.len()]
        };
        at += 1;
    }
    joined
}

/// `name(file; keys; arguments)`, with `with` a file that stands in it as well; and for a batch
/// `NAME(file; keys of a row; shared argument; arguments of a row)`.
macro_rules! scripts {
    (
        calls { $( $name:ident($file:literal $(with $shared_file:literal)?; $($key:ident),*; $($arg:ident),*); )* }
        batches { $( $batch:ident($batch_file:literal $(with $batch_shared:literal)?; $($row_key:ident),*; $shared:ident; $($row_arg:ident),*); )* }
    ) => {
        $(
            #[allow(clippy::too_many_arguments, reason = "so many keys and arguments has the script")]
            pub(crate) fn $name($($key: &Arc<str>,)* $($arg: impl Into<Arg>,)*) -> Call {
                static SCRIPT: Script = script!($file $(with $shared_file)?);
                Call { script: &SCRIPT, keys: smallvec![$(Arc::clone($key)),*], args: smallvec![$($arg.into()),*] }
            }
        )*
        $( pub(crate) static $batch: Batch = Batch(script!($batch_file $(with $batch_shared)?)); )*

        #[cfg(test)]
        static TABLE: &[tests::Entry] = &[
            $( tests::Entry {
                file: $file,
                shared: &[$($shared_file)?],
                source: source!($file),
                keys: &[$(stringify!($key)),*],
                args: &[$(stringify!($arg)),*],
                row_args: &[],
            }, )*
            $( tests::Entry {
                file: $batch_file,
                shared: &[$($batch_shared)?],
                source: source!($batch_file),
                keys: &[$(stringify!($row_key)),*],
                args: &[stringify!($shared)],
                row_args: &[$(stringify!($row_arg)),*],
            }, )*
        ];
    };
}

scripts! {
    calls {
        fair_acquire("fair/acquire.lua" with "fair/shared.lua"; lock, queue, scores, places, channel; owner, lease_ms, allowance_ms, java_wait_ms);
        fair_beat("fair/beat.lua" with "fair/shared.lua"; lock, queue, scores, places, channel; allowance_ms, java_wait_ms, owners);
        fair_release("fair/release.lua" with "fair/shared.lua"; lock, queue, scores, places, channel; owner, keep, java_wait_ms);
        fenced_acquire("fenced/acquire.lua"; lock, counter; owner, lease_ms);
        inspect("inspect.lua" with "read/shared.lua"; lock; );
        read_acquire("read/acquire.lua" with "read/shared.lua"; lock; owner, grant, lease_ms);
        read_reenter("read/reenter.lua" with "read/shared.lua"; lock; owner, grant, want, lease_ms);
        read_release("read/release.lua" with "read/shared.lua"; lock, channel; owner, grant, keep, usual_ms);
        rlock_acquire("rlock/acquire.lua"; lock; owner, lease_ms);
        rlock_reenter("rlock/reenter.lua"; lock; owner, want, lease_ms);
        rlock_release("rlock/release.lua"; lock, channel; owner, keep);
        write_acquire("write/acquire.lua" with "read/shared.lua"; lock; writer, lease_ms);
        write_release("write/release.lua" with "read/shared.lua"; lock, channel; writer, keep);
    }
    batches {
        READ_RENEW("read/renew.lua" with "read/shared.lua"; lock; lease_ms; owner, grant, keep_ms);
        RLOCK_RENEW("rlock/renew.lua"; lock; lease_ms; owner);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    pub(super) struct Entry {
        pub(super) file: &'static str,
        /// The file that is put into it.
        pub(super) shared: &'static [&'static str],
        pub(super) source: &'static str,
        pub(super) keys: &'static [&'static str],
        pub(super) args: &'static [&'static str],
        pub(super) row_args: &'static [&'static str],
    }

    impl Entry {
        fn is_batch(&self) -> bool {
            !self.row_args.is_empty()
        }

        /// The lines that the header must hold, `KEYS[1] lock` and so on, in this order.
        fn parameters(&self) -> Vec<String> {
            let lines = |list: &str, names: &[&str], index: &dyn Fn(usize) -> String| -> Vec<String> {
                names.iter().enumerate().map(|(i, name)| format!("{list}[{}] {name}", index(i))).collect()
            };
            let first = |i: usize| (i + 1).to_string();
            let each = |i: usize| if i == 0 { "i".to_owned() } else { format!("i+{i}") };
            let mut all = lines("KEYS", self.keys, if self.is_batch() { &each } else { &first });
            all.extend(lines("ARGV", self.args, &first));
            all.extend(lines("ARGV", self.row_args, &|i| self.row_index(i).replace([' ', '*'], "")));
            all
        }

        /// Where an argument of row `i` stands, as the body says it: behind the shared one, row by row.
        fn row_index(&self, argument: usize) -> String {
            let columns = self.row_args.len();
            match (columns, argument + 2) {
                (1, _) => "1 + i".to_owned(),
                (_, place) if place < columns => format!("{columns} * i - {}", columns - place),
                (_, place) if place == columns => format!("{columns} * i"),
                (_, place) => format!("{columns} * i + {}", place - columns),
            }
        }
    }

    const FLAGS: [&str; 2] = ["#!lua", "#!lua flags=allow-oom"];
    const SECTIONS: [&str; 3] = ["  Returns", "  Publishes", "  Repeating"];

    /// What the header and the body of a script say of themselves, or what is wrong with it.
    fn check(entry: &Entry) -> Result<(), String> {
        let source = entry.source;
        let (flags, rest) = source.split_once("\n--[[\n").ok_or("no header after the first line")?;
        let (header, body) = rest.split_once("\n]]\n").ok_or("the header does not end")?;
        if !FLAGS.contains(&flags) {
            return Err(format!("unknown first line {flags:?}"));
        }

        let named: Vec<String> = header
            .lines()
            .filter(|line| line.starts_with("  KEYS[") || line.starts_with("  ARGV["))
            .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
            .collect();
        if named != entry.parameters() {
            return Err(format!("the header names {named:?}, the table {:?}", entry.parameters()));
        }
        let with: Vec<_> = header.lines().filter_map(|line| line.strip_prefix("  With  ")).collect();
        if with != entry.shared {
            return Err(format!("the header says that it is with {with:?}, the table {:?}", entry.shared));
        }
        let found: Vec<usize> = SECTIONS.iter().filter_map(|section| header.find(section)).collect();
        if found.len() != SECTIONS.len() || !found.is_sorted() {
            return Err("the header lacks a section, or has them in another order".to_owned());
        }
        if header.contains("  Publishes  nothing") == body.contains("'publish'") {
            return Err("header and body disagree about what is published".to_owned());
        }
        check_body(entry, body)
    }

    /// A body binds each parameter to the name that the header gives it, once, and uses KEYS and ARGV nowhere else.
    fn check_body(entry: &Entry, body: &str) -> Result<(), String> {
        let mut expected = Vec::new();
        if !entry.is_batch() {
            let values: Vec<_> = (1..=entry.keys.len()).map(|i| format!("KEYS[{i}]")).collect();
            expected.push(format!("local {} = {}", entry.keys.join(", "), values.join(", ")));
        }
        if !entry.args.is_empty() {
            let values: Vec<_> = (1..=entry.args.len()).map(|i| format!("ARGV[{i}]")).collect();
            expected.push(format!("local {} = {}", entry.args.join(", "), values.join(", ")));
        }
        if entry.is_batch() {
            expected.push(format!("in ipairs(KEYS) do {}", entry.keys.join(", ")));
        }
        if entry.is_batch() {
            let values: Vec<_> =
                (0..entry.row_args.len()).map(|i| format!("ARGV[{}]", entry.row_index(i))).collect();
            expected.push(format!("local {} = {}", entry.row_args.join(", "), values.join(", ")));
        }

        let bindings: Vec<String> = body
            .lines()
            .filter(|line| line.contains("KEYS") || line.contains("ARGV"))
            .map(|line| {
                match line.strip_prefix("for i, ").and_then(|rest| rest.split_once(" in ipairs(KEYS)")) {
                    Some((key, end)) => format!("in ipairs(KEYS){end} {key}"),
                    None => unconverted(line.trim()),
                }
            })
            .collect();
        if bindings != expected {
            return Err(format!("the body binds {bindings:?}, the table wants {expected:?}"));
        }
        Ok(())
    }

    /// Numbers that a script counts with are bound through `tonumber`.
    fn unconverted(line: &str) -> String {
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
        let wrong: Vec<_> =
            TABLE.iter().filter_map(|e| check(e).err().map(|e2| format!("{}: {e2}", e.file))).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn a_script_that_disagrees_is_found() {
        let entry = TABLE.iter().find(|entry| entry.file == "rlock/acquire.lua").expect("a script");
        let renamed = |from: &str, to: &str| {
            let source: &'static str = entry.source.replacen(from, to, 1).leak();
            Entry { source, ..*entry }
        };
        assert_eq!(check(&renamed("", "")), Ok(()));
        for (from, to) in [
            ("ARGV[2]  lease_ms", "ARGV[2]  lease"),
            ("local lock = KEYS[1]", "local key = KEYS[1]"),
            ("local owner, lease_ms = ARGV[1], ARGV[2]", "local owner, lease_ms = ARGV[2], ARGV[1]"),
            ("  Repeating", "  Retrying"),
            ("  Publishes  nothing", "  Publishes  something"),
            ("#!lua\n", "#!lua flags=allow-stale\n"),
            ("redis.call('pttl', lock)", "redis.call('pttl', KEYS[1])"),
        ] {
            assert!(check(&renamed(from, to)).is_err(), "not found: {to}");
        }
    }

    #[test]
    fn every_file_is_in_the_table_and_every_entry_is_a_file() {
        fn files(dir: &Path, root: &Path, found: &mut BTreeSet<String>) {
            for entry in fs::read_dir(dir).expect("lua/ is readable") {
                let path = entry.expect("lua/ is readable").path();
                if path.is_dir() {
                    files(&path, root, found);
                } else if path.extension().is_some_and(|ext| ext == "lua") {
                    found.insert(path.strip_prefix(root).expect("below lua/").display().to_string());
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
        let mut found = BTreeSet::new();
        files(&root, &root, &mut found);
        let named = TABLE.iter().flat_map(|entry| entry.shared.iter().chain([&entry.file]));
        assert_eq!(found, named.map(|&file| file.to_owned()).collect());
    }
}

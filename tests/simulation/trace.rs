//! Everything that happens in a world, as a hash and, if it is asked for, as text.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use lockkeeper_testkit::lua;

/// The scripts that tell the oracle something, and those that a reader of a trace wants to know.
const FILES: [&str; 24] = [
    "check.lua",
    "fair/acquire.lua",
    "fair/heartbeat.lua",
    "fair/release.lua",
    "fenced/acquire.lua",
    "inspect.lua",
    "read/acquire.lua",
    "read/confirm.lua",
    "read/release.lua",
    "read/renew.lua",
    "read/show.lua",
    "read/state.lua",
    "rlock/acquire.lua",
    "rlock/release.lua",
    "rlock/renew.lua",
    "rlock/show.lua",
    "semaphore/acquire.lua",
    "semaphore/release.lua",
    "semaphore/renew.lua",
    "semaphore/resize.lua",
    "semaphore/state.lua",
    "write/acquire.lua",
    "write/release.lua",
    "write/state.lua",
];

/// By its hash: the file, and whether the script is the form for several calls.
static SCRIPTS: LazyLock<HashMap<String, (&'static str, bool)>> = LazyLock::new(|| {
    let forms = [lua::hash, lua::sharded_hash];
    let of_one = FILES.iter().flat_map(|file| forms.map(|hash| (hash(file), (*file, false))));
    let together = FILES.iter().filter(|file| lua::has_batch(file));
    of_one
        .chain(together.flat_map(|file| lua::batch_hashes(file).map(|hash| (hash, (*file, true)))))
        .collect()
});

/// A call of a script, as the server saw it.
pub struct Script<'a> {
    pub file: &'static str,
    pub keys: &'a [Arc<[u8]>],
    pub args: &'a [Arc<[u8]>],
    /// It was sent with others in one command.
    pub is_with_others: bool,
}

impl<'a> Script<'a> {
    pub fn of(words: &'a [Arc<[u8]>]) -> Option<Self> {
        let [name, hash, count, rest @ ..] = words else { return None };
        let file = match &**name {
            b"EVALSHA" => SCRIPTS.get(std::str::from_utf8(hash).ok()?),
            b"EVAL" => SCRIPTS.get(redis::Script::new(std::str::from_utf8(hash).ok()?).get_hash()),
            _ => return None,
        };
        let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
        let (keys, args) = rest.split_at(count);
        let (file, is_with_others) = file.copied().unwrap_or(("an unknown script", false));
        Some(Self { file, keys, args, is_with_others })
    }

    /// Whom an acquire or a release is about: an owner, or the ids of permits.
    pub fn owners(&self) -> Vec<String> {
        if !self.file.starts_with("semaphore/") {
            return vec![self.arg(0).to_owned()];
        }
        let hexadecimal = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
        self.args.first().map(|ids| ids.chunks(16).map(hexadecimal).collect()).unwrap_or_default()
    }

    /// Whether it can change a lock or a semaphore.
    pub fn is_about(&self, name: &str) -> bool {
        let is_it = |key: &[u8]| {
            let rest = key.strip_prefix(b"{").and_then(|key| key.strip_prefix(name.as_bytes()));
            key == name.as_bytes() || rest.is_some_and(|rest| rest == b"}:timeout")
        };
        self.keys.iter().any(|key| is_it(key))
    }

    pub fn last_arg(&self) -> &str {
        self.arg(self.args.len().saturating_sub(1))
    }

    pub fn arg(&self, index: usize) -> &str {
        self.args.get(index).and_then(|arg| std::str::from_utf8(arg).ok()).unwrap_or("")
    }
}

pub struct Trace {
    hash: DefaultHasher,
    pub events: u64,
    is_printed: bool,
}

impl Trace {
    pub fn new(is_printed: bool) -> Self {
        Self { hash: DefaultHasher::new(), events: 0, is_printed }
    }

    pub fn hash(&self) -> u64 {
        self.hash.clone().finish()
    }

    pub fn event(&mut self, now: Duration, who: &dyn Display, text: &dyn Display) {
        self.events += 1;
        now.hash(&mut self.hash);
        if self.is_printed {
            println!("{:>11.6} {who}: {text}", now.as_secs_f64());
        } else {
            // Without the cost of a text.
            self.events.hash(&mut self.hash);
        }
    }

    pub fn command(
        &mut self,
        now: Duration,
        server: usize,
        client: u64,
        words: &[Arc<[u8]>],
        script: Option<&Script<'_>>,
        reply: &[u8],
    ) {
        self.events += 1;
        (now, client).hash(&mut self.hash);
        let words = match script {
            Some(script) => {
                script.file.hash(&mut self.hash);
                &words[2..]
            }
            None => words,
        };
        // The name of a connection also says which process of which host it is.
        let hashed = if matches!(words, [client, set, _] if **client == *b"CLIENT" && **set == *b"SETNAME") {
            &words[..2]
        } else {
            words
        };
        hashed.hash(&mut self.hash);
        reply.hash(&mut self.hash);
        if self.is_printed {
            let texts: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
            let file = script.map_or("", |script| script.file);
            let reply = String::from_utf8_lossy(reply).replace("\r\n", " ");
            println!(
                "{:>11.6} server {server}, connection {client}: {file} {} -> {reply}",
                now.as_secs_f64(),
                texts.join(" ")
            );
        }
    }
}

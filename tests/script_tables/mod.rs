//! Tables of what each script replies, changes and publishes, for the locks that one owner holds alone. `read_write_model` does the
//! same for the read-write lock. The in-memory server is compared with a real one in `memory_server`, so these run on a real one.
//!
//! A row is: the state before | the command | the reply | the state after | what is published | the reply to a second copy. The
//! second copy runs at once, and must leave the state as it is.
//!
//! In a state, `A` to `F` are owners, and `J` to `L` owners of Java clients:
//!
//! - `free`, or the fields of the lock's hash and its lease: `A=1 20s`, `A=2 endless`. `text` is a key of another type.
//! - `counter N`: the counter of a fenced lock. `clock` is the server's time in µs.
//! - `queue A J B`: the list of a fair lock. A waiter of ours has a record, a ticket and a score, and a Java client a score. `A.dead`
//!   and `J.dead` are no longer alive, and `A.noscore`, `A.noticket` and `A.norecord` lack something. `A/2` queued behind two Java
//!   clients, and `A+600s` has a score that is so much later than usual.
//! - `missing A`: these waiters have a ticket, and are not in the list. They are in front of it.
//! - `tickets B A`: the order of the tickets, if it is not that of the list.
//! - `list endless`, `records endless`: this key of the queue, and the one that belongs to it, have no expiry although our waiters
//!   are in the queue; `list expires`: it has one although only Java clients are.

mod claims;
mod fair;
mod fenced;
mod rlock;
mod state;

use std::time::Duration;

use lockkeeper_testkit::{Server, lua};
use redis::{Connection, PubSub, Value, cmd};
use state::{CHANNEL, owner};

/// A call of a script: its file, its keys and its arguments.
type Call = (&'static str, Vec<String>, Vec<String>);

/// The last message of each row.
const MARK: &str = "end of the row";

struct Table<'a> {
    call: fn(&[&str]) -> Call,
    connection: Connection,
    messages: PubSub<'a>,
}

/// Checks each row of a table.
fn check(table: &str, call: fn(&[&str]) -> Call) {
    let server = Server::start();
    let mut listening = server.connect().unwrap();
    let mut messages = listening.as_pubsub();
    messages.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    messages.psubscribe("*").unwrap();
    let mut table_of_server = Table { call, connection: server.connect().unwrap(), messages };
    let (mut rows, mut wrong) = (0, Vec::new());
    for row in table.lines().filter(|line| line.contains('|')) {
        let columns: Vec<String> = row.split('|').map(plain).collect();
        let [before, command, expected @ ..] = &columns[..] else { panic!("{row}") };
        assert_eq!(expected.len(), 4, "{row}");
        let found = table_of_server.run(before, command);
        if found != expected {
            wrong.push(format!(
                "{before} | {command}\n  expected {}\n  found    {}",
                expected.join(" | "),
                found.join(" | ")
            ));
        }
        rows += 1;
    }
    assert!(wrong.is_empty(), "{} of {rows} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows > 10, "there are few rows");
}

/// One space between words.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Table<'_> {
    /// Returns the last four columns of a row.
    fn run(&mut self, before: &str, command: &str) -> [String; 4] {
        state::build(&mut self.connection, before);
        let words: Vec<&str> = command.split_whitespace().collect();
        let state_before = state::read(&mut self.connection);
        if lua::in_time((self.call)(&words).0).is_some() {
            assert_eq!(self.call_until(&words, Some(lua::TOO_LATE)), ("LATE".to_owned(), "-".to_owned()));
            assert_eq!(
                state::read(&mut self.connection),
                state_before,
                "a late copy changes the state: {before} | {command}"
            );
        }
        let (reply, published) = self.call(&words);
        let after = state::read(&mut self.connection);
        let (again, published_again) = self.call(&words);
        let after_both = state::read(&mut self.connection);
        assert_eq!(after, after_both, "a second copy changes the state: {before} | {command}");
        if words[0] == "release" && again == "LOST" {
            assert_eq!(published_again, "-", "a command without an effect publishes: {before} | {command}");
        }
        [reply, after, published, again]
    }

    /// Returns the reply of a script, and what it published.
    fn call(&mut self, words: &[&str]) -> (String, String) {
        self.call_until(words, lua::in_time((self.call)(words).0))
    }

    fn call_until(&mut self, words: &[&str], valid_until: Option<&str>) -> (String, String) {
        let (file, keys, args) = (self.call)(words);
        let mut eval = cmd("EVAL");
        eval.arg(lua::source(file)).arg(keys.len()).arg(keys).arg(args).arg(valid_until);
        let reply: Value =
            eval.query(&mut self.connection).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        cmd("PUBLISH").arg("mark").arg(MARK).exec(&mut self.connection).unwrap();
        let mut published = Vec::new();
        loop {
            let message = self.messages.get_message().expect("the mark arrives");
            let text: String = message.get_payload().unwrap();
            if text == MARK {
                break;
            }
            let channel = message.get_channel_name().strip_prefix(CHANNEL).expect("a channel of the lock");
            let waiter = channel.strip_prefix(':').map(|id| format!(" to {}", state::letter(id)));
            published.push(format!("{text}{}", waiter.unwrap_or_default()));
        }
        let published = if published.is_empty() { "-".to_owned() } else { published.join(", ") };
        (self.show(&reply), published)
    }

    fn show(&mut self, reply: &Value) -> String {
        match reply {
            Value::Nil => "granted".to_owned(),
            Value::Int(number @ ..0) => name(*number),
            // No row has so many listeners.
            Value::Int(number @ ..1000) => number.to_string(),
            Value::Int(ms) => state::lease(*ms),
            Value::BulkString(text) => state::token(&mut self.connection, &String::from_utf8_lossy(text)),
            Value::Array(list) => list.iter().map(|reply| self.show(reply)).collect::<Vec<_>>().join(" "),
            other => panic!("{other:?}"),
        }
    }
}

fn name(number: i64) -> String {
    let known = lua::REPLIES.iter().find(|(_, known)| **known == number);
    known.map_or_else(|| number.to_string(), |(name, _)| name.clone())
}

/// `30s` in ms, as the scripts want it.
fn ms(text: &str) -> String {
    let seconds: u64 = text.strip_suffix('s').and_then(|number| number.parse().ok()).expect("seconds");
    (1_000 * seconds).to_string()
}

/// The calls that all these locks have in common.
fn common(words: &[&str]) -> Call {
    let lock = vec![state::LOCK.to_owned()];
    match words {
        ["show", who, count, lease] => {
            ("rlock/show.lua", lock, vec![owner(who), (*count).to_owned(), ms(lease)])
        }
        ["release", who] => ("rlock/release.lua", lock, vec![owner(who), CHANNEL.to_owned()]),
        ["renew", lease, who] => ("rlock/renew.lua", lock, vec![ms(lease), owner(who)]),
        ["state"] => ("rlock/state.lua", lock, Vec::new()),
        _ => panic!("what is {words:?}?"),
    }
}

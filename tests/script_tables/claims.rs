//! The table of `claims/acquire`. A claim is released and renewed like an RLock.

use lockkeeper_testkit::{Server, lua};
use redis::{Connection, Value, cmd};

use super::state::{lease, owner, token};
use super::{ms, name, plain};

const COUNTER: &str = "lockkeeper_claims:{jobs}";

/// A row is: the keys of the list before | the counter before | the reply to A, which wants 30 s | the keys after | the counter after.
///
/// A key is `-`: it does not exist; a holder and its lease; or `text`, `data`, `reader` or `writer`: something else. `A+` has a field of
/// another program beside the hold of A.
const TABLE: &str = "
    The first free one.
    - - -            | -                | 1 clock | A/30s - -            | clock
    B/20s - -        | -                | 2 clock | B/20s A/30s -        | clock
    B/20s C/20s -    | -                | 3 clock | B/20s C/20s A/30s    | clock
    B/20s - C/20s    | -                | 2 clock | B/20s A/30s C/20s    | clock
    J/20s -          | -                | 2 clock | J/20s A/30s          | clock
    B/20s C/20s      | 9000000000000000 | nil     | B/20s C/20s          | 9000000000000000
    B/endless        | -                | nil     | B/endless            | -

    The token is one more than the last, and at least the server's clock.
    -                | 7                   | 1 clock            | A/30s | clock
    -                | -5                  | 1 clock            | A/30s | clock
    -                | 9000000000000000    | 1 9000000000000001 | A/30s | 9000000000000001
    -                | 9223372036854775805 | 1 9223372036854775806 | A/30s | 9223372036854775806
    -                | 9223372036854775807 | CANNOT_COUNT       | -     | 9223372036854775807
    - B/20s          | x                   | CANNOT_COUNT       | - B/20s | x
    B/20s            | x                   | nil                | B/20s | x
    A/20s            | x                   | CANNOT_COUNT       | A/20s | x

    A copy finds its own hold, wherever it is in the list, and takes a new token.
    A/20s            | 9000000000000000 | 1 9000000000000001 | A/30s            | 9000000000000001
    - A/20s          | 9000000000000000 | 2 9000000000000001 | - A/30s          | 9000000000000001
    - B/20s A/20s -  | 9000000000000000 | 3 9000000000000001 | - B/20s A/30s -  | 9000000000000001
    - A/60s          | 9000000000000000 | 2 9000000000000001 | - A/60s          | 9000000000000001
    - A/endless      | 9000000000000000 | 2 9000000000000001 | - A/30s          | 9000000000000001
    - A+/20s         | 9000000000000000 | 2 9000000000000001 | - A+/30s         | 9000000000000001

    Another kind of lock is in use. Other data is an error, wherever it is, and changes nothing.
    reader writer -  | 9000000000000000 | 3 9000000000000001 | reader writer A/30s | 9000000000000001
    reader writer    | 9000000000000000 | nil          | reader writer    | 9000000000000000
    text -           | 9000000000000000 | NOT_A_LOCK 1 | text -           | 9000000000000000
    - data           | 9000000000000000 | NOT_A_LOCK 2 | - data           | 9000000000000000
    B/20s - text     | 9000000000000000 | NOT_A_LOCK 3 | B/20s - text     | 9000000000000000
";

/// The fields of a hash, and its lease.
fn hash(key: &str) -> (Vec<String>, &str) {
    let fields = |fields: &[&str]| fields.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>();
    let reader = owner("F");
    match key {
        "data" => (fields(&["items", "3"]), "endless"),
        "reader" => (fields(&["mode", "read", &reader, "1"]), "60s"),
        "writer" => (fields(&["mode", "write", &format!("{reader}:write"), "1"]), "60s"),
        _ => {
            let (who, lease) = key.split_once('/').expect("a holder and a lease");
            let mut all = fields(&[&owner(who.trim_end_matches('+')), "1"]);
            if who.ends_with('+') {
                all.extend(fields(&["items", "3"]));
            }
            (all, lease)
        }
    }
}

struct Locks<'a> {
    connection: Connection,
    /// The states that a key of this row can have.
    before: Vec<&'a str>,
}

impl<'a> Locks<'a> {
    fn build(&mut self, keys: &'a str, counter: &str) {
        cmd("FLUSHALL").exec(&mut self.connection).unwrap();
        self.before = keys.split(' ').collect();
        for (key, state) in self.keys().into_iter().zip(self.before.clone()) {
            match state {
                "-" => {}
                "text" => cmd("SET").arg(key).arg("x").exec(&mut self.connection).unwrap(),
                state => {
                    let (fields, lease) = hash(state);
                    cmd("HSET").arg(&key).arg(fields).exec(&mut self.connection).unwrap();
                    if lease != "endless" {
                        cmd("PEXPIRE").arg(&key).arg(ms(lease)).exec(&mut self.connection).unwrap();
                    }
                }
            }
        }
        if counter != "-" {
            cmd("SET").arg(COUNTER).arg(counter).exec(&mut self.connection).unwrap();
        }
    }

    fn keys(&self) -> Vec<String> {
        (1..=self.before.len()).map(|job| format!("{{jobs}}:{job}")).collect()
    }

    fn claim(&mut self, valid_until: &str) -> String {
        let keys = self.keys();
        let mut eval = cmd("EVAL");
        eval.arg(lua::source("claims/acquire.lua")).arg(keys.len() + 1).arg(COUNTER).arg(keys);
        let reply: Value =
            eval.arg(owner("A")).arg(ms("30s")).arg(valid_until).query(&mut self.connection).unwrap();
        self.show(&reply)
    }

    fn show(&mut self, reply: &Value) -> String {
        match reply {
            Value::Nil => "nil".to_owned(),
            Value::Int(number) => name(*number),
            Value::BulkString(text) => token(&mut self.connection, &String::from_utf8_lossy(text)),
            Value::Array(list) => list.iter().map(|reply| self.show(reply)).collect::<Vec<_>>().join(" "),
            other => panic!("{other:?}"),
        }
    }

    /// The keys and the counter, as a row has them.
    fn read(&mut self) -> [String; 2] {
        let keys = self.keys().into_iter().map(|key| self.read_key(&key)).collect::<Vec<_>>().join(" ");
        let counter: Option<String> = cmd("GET").arg(COUNTER).query(&mut self.connection).unwrap();
        let counter = counter.map_or_else(|| "-".to_owned(), |counter| token(&mut self.connection, &counter));
        [keys, counter]
    }

    fn read_key(&mut self, key: &str) -> String {
        let kind: String = cmd("TYPE").arg(key).query(&mut self.connection).unwrap();
        if kind != "hash" {
            return if kind == "none" { "-" } else { "text" }.to_owned();
        }
        let fields: Vec<String> = cmd("HGETALL").arg(key).query(&mut self.connection).unwrap();
        let left = lease(cmd("PTTL").arg(key).query(&mut self.connection).unwrap());
        let who = ["A", "A+", "B", "C", "J"].map(|who| format!("{who}/{left}"));
        let known = who.into_iter().chain(["data", "reader", "writer"].map(str::to_owned));
        let mut known = known.filter(|state| hash(state).0 == fields && hash(state).1 == left);
        known.next().unwrap_or_else(|| format!("{fields:?}/{left}"))
    }
}

#[test]
fn claims_follow_their_table() {
    let server = Server::start();
    let rows: Vec<Vec<String>> = TABLE
        .lines()
        .filter(|line| line.contains('|'))
        .map(|row| row.split('|').map(plain).collect())
        .collect();
    let mut locks = Locks { connection: server.connect().unwrap(), before: Vec::new() };
    for row in &rows {
        let [before, counter, reply, after @ ..] = &row[..] else { panic!("{row:?}") };
        // The script looks at one field of a hash, whichever it finds.
        for _ in 0..8 {
            locks.build(before, counter);
            let (in_time, seen) = (lua::in_time("claims/acquire.lua").unwrap(), locks.read());
            assert_eq!((&*locks.claim(lua::TOO_LATE), locks.read()), ("LATE", seen), "{before} | {counter}");
            assert_eq!((&locks.claim(in_time), &locks.read()[..]), (reply, after), "{before} | {counter}");
            let (again, [keys, _]) = (locks.claim(in_time), locks.read());
            let place = |reply: &str| reply.split(' ').next().map(str::to_owned);
            assert_eq!((place(&again), &keys), (place(reply), &after[0]), "a copy: {before} | {counter}");
        }
    }
    assert!(rows.len() > 20);
}

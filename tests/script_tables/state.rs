//! What is on the server, as the text of a table's cell.

use std::collections::BTreeMap;

use redis::{Connection, Pipeline, cmd, pipe};

pub const LOCK: &str = "a";
pub const CHANNEL: &str = "redisson_lock__channel:{a}";
pub const QUEUE: &str = "redisson_lock_queue:{a}";
pub const SCORES: &str = "redisson_lock_timeout:{a}";
pub const RECORDS: &str = "lockkeeper_fair:{a}";
pub const TICKETS: &str = "lockkeeper_fair_tickets:{a}";
pub const COUNTER: &str = "redisson_lock_token:{a}";

/// How long a waiter counts as alive after a heartbeat, and how far its usual score is from now.
const ALIVE_MS: i64 = 40_000;
const SCORE_MS: i64 = 90_000;
/// The score of a Java client when it queues.
const JAVA_MS: i64 = 300_000;
const DAY_MS: i64 = 86_400_000;

/// The id of the owner with this letter.
pub fn owner(letter: &str) -> String {
    match letter.as_bytes() {
        [letter @ b'A'..=b'F'] => format!("00000000-0000-4000-8000-{:012x}:1", letter - b'A' + 10),
        [letter @ b'J'..=b'L'] => format!("00000000-0000-4000-9000-000000000000:{letter}"),
        _ => panic!("who is {letter}?"),
    }
}

/// The letter of the owner with this id.
pub fn letter(id: &str) -> String {
    let letters = "ABCDEFJKL".chars().map(String::from);
    letters.into_iter().find(|letter| owner(letter) == id).unwrap_or_else(|| id.to_owned())
}

fn is_java(letter: &str) -> bool {
    letter >= "J"
}

/// A lease as a table has it: in tens of seconds, because some time has passed.
pub fn lease(ms: i64) -> String {
    match ms {
        -1 => "endless".to_owned(),
        ms => format!("{}s", (ms + 9_999) / 10_000 * 10),
    }
}

/// `clock`, if a token is the server's time.
pub fn token(connection: &mut Connection, token: &str) -> String {
    let now_us = now_ms(connection) * 1_000;
    let is_clock = token.parse().is_ok_and(|token: i64| (now_us - token).abs() < 10_000_000);
    if is_clock { "clock".to_owned() } else { token.to_owned() }
}

fn now_ms(connection: &mut Connection) -> i64 {
    let (seconds, micros): (i64, i64) = cmd("TIME").query(connection).unwrap();
    seconds * 1_000 + micros / 1_000
}

// --- building ----------------------------------------------------------------------------------------------------------

/// Replaces all data of the server by this state.
pub fn build(connection: &mut Connection, state: &str) {
    let now = now_ms(connection);
    let mut pipe = pipe();
    pipe.cmd("FLUSHALL");
    let (mut listed, mut ticket_order) = (Vec::new(), Vec::new());
    let mut is_endless = Vec::new();
    for part in state.split(';') {
        match part.split_whitespace().collect::<Vec<_>>()[..] {
            ["free"] => {}
            ["text"] => drop(pipe.cmd("SET").arg(LOCK).arg("x")),
            ["counter", value] => {
                let value = if value == "clock" { (now * 1_000).to_string() } else { value.to_owned() };
                pipe.cmd("SET").arg(COUNTER).arg(value);
            }
            ["counter"] => drop(pipe.cmd("HSET").arg(COUNTER).arg("x").arg("1")),
            ["queue", ref waiters @ ..] => listed = waiters.to_vec(),
            ["missing", ref waiters @ ..] => {
                for waiter in waiters {
                    add_waiter(&mut pipe, waiter, now, ticket_order.len(), false);
                    ticket_order.push(Waiter::parse(waiter).letter);
                }
            }
            ["tickets", ref order @ ..] => {
                ticket_order = order.iter().map(|letter| (*letter).to_owned()).collect();
            }
            [key, "endless"] if key == "list" || key == "records" => is_endless.push(key),
            [ref fields @ .., lease] => add_hash(&mut pipe, fields, lease),
            [] => panic!("{state}: an empty part"),
        }
    }
    for (place, waiter) in listed.iter().enumerate() {
        let letter = Waiter::parse(waiter).letter;
        let ticket = ticket_order.iter().position(|other| *other == letter);
        add_waiter(&mut pipe, waiter, now, ticket.unwrap_or(place + 10), true);
    }
    let has_ours = listed.iter().any(|waiter| !is_java(waiter)) || state.contains("missing");
    if has_ours && !is_endless.contains(&"list") {
        pipe.cmd("PEXPIRE")
            .arg(QUEUE)
            .arg(DAY_MS + SCORE_MS)
            .cmd("PEXPIRE")
            .arg(SCORES)
            .arg(DAY_MS + SCORE_MS);
    }
    if has_ours && !is_endless.contains(&"records") {
        let ms = SCORE_MS + ALIVE_MS;
        pipe.cmd("PEXPIRE").arg(RECORDS).arg(ms).cmd("PEXPIRE").arg(TICKETS).arg(ms);
    }
    pipe.exec(connection).unwrap();
}

fn add_hash(pipe: &mut Pipeline, fields: &[&str], lease: &str) {
    for field in fields {
        let (name, value) = field.split_once('=').unwrap_or_else(|| panic!("{field} is no field"));
        let name = if name.len() == 1 { owner(name) } else { name.to_owned() };
        pipe.cmd("HSET").arg(LOCK).arg(name).arg(value);
    }
    if lease != "endless" {
        pipe.cmd("PEXPIRE").arg(LOCK).arg(super::ms(lease));
    }
}

/// `A.dead.noticket/2+600s`
struct Waiter {
    letter: String,
    marks: Vec<String>,
    java_before: u32,
    later_ms: i64,
}

impl Waiter {
    fn parse(text: &str) -> Self {
        let (text, later) = text.split_once('+').unwrap_or((text, "0s"));
        let (text, before) = text.split_once('/').unwrap_or((text, "0"));
        let mut words = text.split('.').map(str::to_owned);
        Self {
            letter: words.next().unwrap(),
            marks: words.collect(),
            java_before: before.parse().unwrap(),
            later_ms: super::ms(later).parse().unwrap(),
        }
    }

    fn has(&self, mark: &str) -> bool {
        self.marks.iter().any(|other| other == mark)
    }
}

fn add_waiter(pipe: &mut Pipeline, text: &str, now: i64, ticket: usize, is_listed: bool) {
    let waiter = Waiter::parse(text);
    let (id, is_java, is_dead) = (owner(&waiter.letter), is_java(&waiter.letter), waiter.has("dead"));
    if is_listed {
        pipe.cmd("RPUSH").arg(QUEUE).arg(&id);
    }
    let score = match (is_java, is_dead) {
        (true, true) => now - 1_000,
        (true, false) => now + JAVA_MS,
        (false, _) => now + SCORE_MS,
    };
    if !waiter.has("noscore") {
        pipe.cmd("ZADD").arg(SCORES).arg(score + waiter.later_ms).arg(&id);
    }
    if is_java {
        return;
    }
    if !waiter.has("norecord") {
        let until = if is_dead { now - 1_000 } else { now + ALIVE_MS };
        pipe.cmd("HSET").arg(RECORDS).arg(&id).arg(format!("{until} {}", waiter.java_before));
    }
    if !waiter.has("noticket") {
        let hour = if waiter.has("ahead") { 3_600_000 } else { -60_000 };
        let ticket = (now + hour) * 1_000 + i64::try_from(ticket).unwrap();
        pipe.cmd("ZADD").arg(TICKETS).arg(ticket).arg(&id);
    }
}

// --- reading -----------------------------------------------------------------------------------------------------------

/// Returns what is on the server.
pub fn read(connection: &mut Connection) -> String {
    let now = now_ms(connection);
    let mut parts = vec![read_lock(connection)];
    let kind: String = cmd("TYPE").arg(COUNTER).query(connection).unwrap();
    match &*kind {
        "none" => {}
        "string" => {
            let value: String = cmd("GET").arg(COUNTER).query(connection).unwrap();
            parts.push(format!("counter {}", token(connection, &value)));
            assert_eq!(left(connection, COUNTER), -1, "the counter has an expiry");
        }
        _ => parts.push("counter".to_owned()),
    }
    read_queue(connection, now, &mut parts);
    let mut keys: Vec<String> = cmd("KEYS").arg("*").query(connection).unwrap();
    keys.retain(|key| ![LOCK, COUNTER, QUEUE, SCORES, RECORDS, TICKETS].contains(&&**key));
    assert!(keys.is_empty(), "there are other keys: {keys:?}");
    parts.join("; ")
}

fn left(connection: &mut Connection, key: &str) -> i64 {
    cmd("PTTL").arg(key).query(connection).unwrap()
}

fn read_lock(connection: &mut Connection) -> String {
    let kind: String = cmd("TYPE").arg(LOCK).query(connection).unwrap();
    match &*kind {
        "none" => return "free".to_owned(),
        "string" => return "text".to_owned(),
        _ => {}
    }
    let hash: Vec<(String, String)> = cmd("HGETALL").arg(LOCK).query(connection).unwrap();
    let mut fields: Vec<_> = hash.iter().map(|(field, value)| format!("{}={value}", letter(field))).collect();
    fields.sort();
    format!("{} {}", fields.join(" "), lease(left(connection, LOCK)))
}

fn read_queue(connection: &mut Connection, now: i64, parts: &mut Vec<String>) {
    let list: Vec<String> = cmd("LRANGE").arg(QUEUE).arg(0).arg(-1).query(connection).unwrap();
    let range = |key: &str| cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES").clone();
    let scores: Vec<(String, i64)> = range(SCORES).query(connection).unwrap();
    let tickets: Vec<(String, i64)> = range(TICKETS).query(connection).unwrap();
    let records: BTreeMap<String, String> = cmd("HGETALL").arg(RECORDS).query(connection).unwrap();
    let (scores, order): (BTreeMap<_, _>, Vec<_>) =
        (scores.into_iter().collect(), tickets.iter().map(|(id, _)| id.clone()).collect());
    let waiter = |id: &String| {
        let (letter, mut text) = (letter(id), letter(id));
        let record = records.get(id).map(|record| record.split_once(' ').expect("two numbers"));
        let score = scores.get(id).copied();
        let is_java = is_java(&letter);
        let is_dead = match (is_java, record) {
            (true, _) => score.is_some_and(|score| score <= now),
            (false, record) => record.is_some_and(|(until, _)| until.parse::<i64>().unwrap() <= now),
        };
        let alive_ms = record.map_or(ALIVE_MS, |(until, _)| until.parse::<i64>().unwrap() - now);
        for (is_marked, mark) in [
            (is_dead, ".dead"),
            (!is_dead && alive_ms < ALIVE_MS - 10_000, ".early"),
            (score.is_none(), ".noscore"),
            (!is_java && record.is_none(), ".norecord"),
            (!is_java && !order.contains(id), ".noticket"),
        ] {
            text.push_str(if is_marked { mark } else { "" });
        }
        if let Some((_, before)) = record.filter(|(_, before)| *before != "0") {
            text.push_str(&format!("/{before}"));
        }
        let usual = if is_java { JAVA_MS } else { SCORE_MS };
        let later = score.map_or(0, |score| (score - now - usual + 15_000).div_euclid(30_000) * 30);
        if later != 0 && !(is_java && is_dead) {
            text.push_str(&format!("{later:+}s"));
        }
        text
    };
    if !list.is_empty() {
        parts.push(format!("queue {}", list.iter().map(waiter).collect::<Vec<_>>().join(" ")));
    }
    let others = order.iter().chain(records.keys()).chain(scores.keys());
    let mut missing: Vec<&String> = Vec::new();
    for id in others {
        if !list.contains(id) && !missing.contains(&id) {
            missing.push(id);
        }
    }
    if !missing.is_empty() {
        parts.push(format!("missing {}", missing.iter().map(|id| waiter(id)).collect::<Vec<_>>().join(" ")));
    }
    let in_list: Vec<&String> = list.iter().filter(|id| order.contains(id)).collect();
    let by_ticket: Vec<&String> = order.iter().filter(|id| list.contains(id)).collect();
    if in_list != by_ticket {
        let letters: Vec<String> = by_ticket.iter().map(|id| letter(id)).collect();
        parts.push(format!("tickets {}", letters.join(" ")));
    }
    let has_ours = list.iter().chain(&order).any(|id| !is_java(&letter(id)));
    for (keys, name, usual) in
        [([QUEUE, SCORES], "list", DAY_MS..), ([RECORDS, TICKETS], "records", 60_000..)]
    {
        let mut lefts = keys.map(|key| left(connection, key)).to_vec();
        lefts.retain(|ms| *ms != -2);
        if lefts.iter().any(|ms| has_ours && *ms == -1) {
            parts.push(format!("{name} endless"));
        } else if lefts.iter().any(|ms| !has_ours && *ms != -1) {
            parts.push(format!("{name} expires"));
        } else {
            assert!(
                !has_ours || lefts.iter().all(|ms| usual.contains(ms)),
                "{name} expires early: {lefts:?}"
            );
        }
    }
}

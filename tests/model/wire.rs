//! The state of the model on a server, and its calls as commands.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use lockkeeper_model::{
    Announcement, Call, Counter, Hash, Holder, Intent, Key, Lock, Mode, Owner, Permit, Read, Record, Reply,
    State,
};
use lockkeeper_testkit::lua;

use crate::memory_server::resp::Reply as Found;

pub type Words = Vec<String>;

/// Owners 1 to 3 hold locks alone, 4 to 7 read and write, and 8 and 9 are Java's.
pub const JAVA: [Owner; 2] = [8, 9];
/// The readers of which a key can exist, and how many keys of each.
const READERS: std::ops::RangeInclusive<Owner> = 4..=8;
const KEYS: u8 = 3;

/// The scripts of version 0.1.0 by which clients acquire, keep and release locks, as a server gets them, without comments.
static FROZEN: LazyLock<String> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/versions/0.1.0.lua");
    std::fs::read_to_string(file).expect("the frozen scripts")
});

pub fn id(owner: Owner) -> String {
    format!("00000000-0000-4000-8000-0000000000{owner:02}:{owner}")
}

fn owner(id: &str) -> Owner {
    id.rsplit_once(':').and_then(|(_, number)| number.parse().ok()).unwrap_or_else(|| panic!("who is {id}?"))
}

fn field(holder: Holder) -> String {
    match holder {
        Holder::Owner(owner) => id(owner),
        Holder::Writer(owner) => id(owner) + ":write",
    }
}

fn permit(number: Permit) -> String {
    format!("permit........{number:02}")
}

fn name(lock: usize) -> String {
    ["a", "{a}:1", "{a}:2"][lock].to_owned()
}

fn read_key(owner: Owner, number: u8) -> String {
    format!("{{a}}:{}:rwlock_timeout:{number}", id(owner))
}

const INTENT: &str = "{a}:lockkeeper_intent";
const QUEUE: [&str; 4] = ["queue", "scores", "records", "tickets"];
/// Fields of other programs.
const DATA: [[&str; 2]; 4] =
    [["items", "3"], ["item:1", "2"], ["mode ", "read"], ["00000000-0000-4000-8000-000000000099:1", "x"]];

fn words(words: &[&str]) -> Words {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The script of a call, its keys and its arguments.
pub fn script(call: &Call) -> (&'static str, Words, Words) {
    let ids = |ids: &[Permit]| ids.iter().copied().map(permit).collect::<String>();
    let (fair, rw, sc) = (
        words(&[&["a"], &QUEUE[..], &["fair"]].concat()),
        words(&["a", "rw"]),
        words(&["semaphore", "permits"]),
    );
    let text = |number: i64| number.to_string();
    let (file, keys, mut args) = match call {
        Call::Acquire { lock, owner, lease, .. } => {
            ("rlock/acquire.lua", vec![name(*lock)], vec![id(*owner), text(*lease)])
        }
        Call::Show { lock, holder, count, lease } => {
            ("rlock/show.lua", vec![name(*lock)], vec![field(*holder), text(*count), text(*lease)])
        }
        Call::Renew { lock, holder, lease } => {
            ("rlock/renew.lua", vec![name(*lock)], vec![text(*lease), field(*holder)])
        }
        Call::Release { lock, owner } => {
            ("rlock/release.lua", vec![name(*lock)], vec![id(*owner), "lock".to_owned()])
        }
        Call::State { lock } => ("rlock/state.lua", vec![name(*lock)], vec![]),
        Call::Fence { owner, lease, .. } => {
            ("fenced/acquire.lua", words(&["a", "counter"]), vec![id(*owner), text(*lease)])
        }
        Call::Claim { locks, owner, lease, .. } => {
            let names = locks.iter().map(|lock| name(*lock));
            (
                "claims/acquire.lua",
                std::iter::once("claims".to_owned()).chain(names).collect(),
                vec![id(*owner), text(*lease)],
            )
        }
        Call::Queue { owner, lease, allowance, .. } => {
            ("fair/acquire.lua", fair, vec![id(*owner), text(*lease), text(*allowance)])
        }
        Call::Heartbeat { owners, allowance, .. } => {
            let ids: Vec<_> = owners.iter().copied().map(id).collect();
            ("fair/heartbeat.lua", fair, vec![text(*allowance), ids.join(" ")])
        }
        Call::Leave { owner } => ("fair/release.lua", fair, vec![id(*owner)]),
        Call::Waiters => ("fair/waiters.lua", words(&["queue"]), vec![]),
        Call::Place { owner } => ("place.lua", words(&["queue"]), vec![id(*owner)]),
        Call::Read { owner, grant, lease, .. } => {
            ("read/acquire.lua", rw, vec![id(*owner), text(*grant), text(*lease)])
        }
        Call::ReadShow { owner, grant, count, lease } => {
            ("read/show.lua", rw, vec![id(*owner), text(*grant), text(*count), text(*lease)])
        }
        Call::ReadConfirm { owner, grant, lease, stop, calm, is_gap } => {
            let times = [*grant, *lease, *stop, *calm, i64::from(*is_gap)].map(text);
            ("read/confirm.lua", rw, [vec![id(*owner)], times.to_vec()].concat())
        }
        Call::ReadRenew { owner, grant, lease, keep } => {
            ("read/renew.lua", rw, vec![text(*lease), id(*owner), text(*grant), text(*keep)])
        }
        Call::ReadRelease { owner, grant, usual } => {
            ("read/release.lua", rw, vec![id(*owner), text(*grant), text(*usual)])
        }
        Call::ReadState => ("read/state.lua", rw, vec![]),
        Call::Write { owner, lease, turn, .. } => {
            ("write/acquire.lua", rw, vec![field(Holder::Writer(*owner)), text(*lease), text(*turn)])
        }
        Call::WriteRelease { owner } => ("write/release.lua", rw, vec![field(Holder::Writer(*owner))]),
        Call::WriteState => ("write/state.lua", words(&["a"]), vec![]),
        Call::Take { ids: all, total, lease, .. } => {
            ("semaphore/acquire.lua", sc, vec![ids(all), text(*total), text(*lease), "sc".to_owned()])
        }
        Call::TakeRenew { ids: all, lease } => {
            ("semaphore/renew.lua", words(&["permits"]), vec![text(*lease), ids(all)])
        }
        Call::Give { ids: all } => ("semaphore/release.lua", sc, vec![ids(all), "sc".to_owned()]),
        Call::Resize { total } => ("semaphore/resize.lua", sc, vec![text(*total), "sc".to_owned()]),
        Call::Delete { total } => ("semaphore/delete.lua", sc, vec![text(*total), "sc".to_owned()]),
        Call::Available { total } => ("semaphore/state.lua", sc, vec![text(*total)]),
        Call::Announce { owner, text } => {
            ("announcements/write.lua", words(&["a", "announced"]), vec![id(*owner), format!("me {text}")])
        }
        Call::Announced => ("announcements/read.lua", words(&["announced"]), vec![]),
        Call::Unannounce { owner } => ("announcements/remove.lua", words(&["announced"]), vec![id(*owner)]),
    };
    args.extend(call.valid_until().map(text));
    (file, keys, args)
}

/// The frozen script that does the same in this state, and its arguments.
pub fn frozen(call: &Call, before: &State) -> Option<(Words, Words)> {
    let (file, keys, mut args) = script(call);
    let mut file = file.to_owned();
    if call.valid_until().is_some() && args.pop().as_deref() == Some(lua::TOO_LATE) {
        return None;
    }
    let holds = |lock: usize, owner: Owner| {
        before.hash(lock).is_some_and(|hash| hash.holders.contains_key(&Holder::Owner(owner)))
    };
    match call {
        // It knew its own hold, also where none can be met any more.
        Call::Acquire { lock, owner, .. } if holds(*lock, *owner) => return None,
        Call::Fence { owner, .. } | Call::Queue { owner, .. } if holds(0, *owner) => return None,
        Call::Read { owner, .. } if before.reads.contains_key(&(*owner, 1)) => return None,
        Call::Take { ids, .. } if ids.iter().any(|id| before.permits.contains_key(id)) => return None,
        Call::Show { lock, holder, count, .. } => {
            let shown = before.hash(*lock).and_then(|hash| hash.holders.get(holder));
            if shown.is_some_and(|shown| shown > count) {
                return None; // it showed only more
            }
            file = "rlock/reenter.lua".to_owned();
        }
        Call::Release { .. } | Call::WriteRelease { .. } => args.insert(1, "0".to_owned()),
        // These were arguments: the longest wait of a Java client, and for how much its clock can be ahead.
        Call::Queue { .. } => args.push("300000".to_owned()),
        Call::Heartbeat { .. } => args.insert(1, "300000".to_owned()),
        Call::Leave { .. } => args.extend(["0", "300000"].map(str::to_owned)),
        Call::TakeRenew { .. } => args.push("500".to_owned()),
        Call::ReadRelease { .. } => args.insert(2, "0".to_owned()),
        // It replied other numbers if none is available, and it did not expect text.
        Call::Take { .. } | Call::Give { .. } if !matches!(before.available, Some(Counter::Number(1..))) => {
            return None;
        }
        Call::Take { .. } => args.insert(3, "500".to_owned()),
        Call::ReadShow { .. } => return None, // it had a key for each hold
        _ => {}
    }
    // It did not know these two.
    let has_new = before.intent.is_some_and(|intent| intent.writer.is_none())
        || before.reads.keys().any(|key| key.1 > 1);
    if has_new && (file.starts_with("read/") || file.starts_with("write/")) {
        return None;
    }
    let (_, text) = FROZEN.split_once(&format!("=== {file}\n"))?;
    Some((
        vec!["EVAL".to_owned(), text.split("=== ").next()?.to_owned(), keys.len().to_string()],
        [keys, args].concat(),
    ))
}

/// A script that keeps what it publishes in a list, and finds as many listeners.
pub fn observed(script: &str, listeners: i64) -> String {
    let (first, rest) = script.split_once('\n').expect("lines");
    let publish = format!(
        "local function publish(to, what) redis.call('rpush', 'published', to .. ' ' .. what) return {listeners} end"
    );
    let rest = rest.replace("redis.pcall('publish', ", "publish(");
    let rest =
        rest.replace("redis.pcall('pubsub', 'numsub', channel)", &format!("{{ channel, {listeners} }}"));
    format!("{first}\n{publish}\n{rest}")
}

/// The commands that make this state. Expiries are times, or from `now` on if the server knows only those.
pub fn build(state: &State, now: Option<i64>) -> Vec<Words> {
    let mut all = vec![words(&["FLUSHALL"])];
    let expire = |key: &str, ends: i64| match now {
        Some(now) => words(&["PEXPIRE", key, &(ends - now).to_string()]),
        None => words(&["PEXPIREAT", key, &ends.to_string()]),
    };
    let mut set = |command: &str, key: &str, values: Vec<String>, ends: Option<i64>| {
        if !values.is_empty() {
            all.push([words(&[command, key]), values].concat());
            all.extend(ends.map(|ends| expire(key, ends)));
        }
    };
    for (number, lock) in state.locks.iter().enumerate() {
        match lock {
            None => {}
            Some(Lock::Other) => set("SET", &name(number), words(&["x"]), None),
            Some(Lock::Hash(hash)) => {
                let mut fields: Words = hash
                    .holders
                    .iter()
                    .flat_map(|(holder, count)| [field(*holder), count.to_string()])
                    .collect();
                fields.extend(
                    hash.mode.iter().flat_map(|mode| {
                        words(&["mode", if *mode == Mode::Read { "read" } else { "write" }])
                    }),
                );
                if hash.has_data {
                    fields.extend(words(&DATA[hash.holders.len() % DATA.len()]));
                }
                set("HSET", &name(number), fields, hash.ends);
            }
        }
    }
    for ((owner, number), read) in &state.reads {
        set("SET", &read_key(*owner, *number), vec![read.grant.to_string()], Some(read.ends));
    }
    if let Some(intent) = state.intent {
        let writer =
            intent.writer.map_or_else(|| "somebody".to_owned(), |writer| field(Holder::Writer(writer)));
        set("SET", INTENT, vec![format!("{} {writer}", intent.calm)], Some(intent.ends));
    }
    let by_score = |scores: &BTreeMap<Owner, i64>| {
        scores.iter().flat_map(|(owner, score)| [score.to_string(), id(*owner)]).collect()
    };
    let queue = &state.queue;
    set("RPUSH", QUEUE[0], queue.list.value.iter().copied().map(id).collect(), queue.list.ends);
    set("ZADD", QUEUE[1], by_score(&queue.scores.value), queue.scores.ends);
    let records = queue
        .records
        .value
        .iter()
        .flat_map(|(owner, record)| [id(*owner), format!("{} {}", record.until, record.java_before)]);
    set("HSET", QUEUE[2], records.collect(), queue.records.ends);
    set("ZADD", QUEUE[3], by_score(&queue.tickets.value), queue.tickets.ends);
    for (key, counter) in
        [("counter", state.counter), ("claims", state.claims), ("semaphore", state.available)]
    {
        let text = counter.map(|counter| match counter {
            Counter::Number(number) => number.to_string(),
            Counter::Text => {
                ["x", "9223372036854775808", "1.5"][usize::try_from(state.listeners).expect("few")].to_owned()
            }
        });
        set("SET", key, text.into_iter().collect(), None);
    }
    set(
        "ZADD",
        "permits",
        state.permits.iter().flat_map(|(id, ends)| [ends.to_string(), permit(*id)]).collect(),
        None,
    );
    if let Some(said) = state.announcement {
        set("SET", "announced", vec![format!("{} me {}", id(said.owner), said.text)], Some(said.ends));
    }
    all
}

/// The commands that read the state. Each is followed by one that reads the expiry of the same key.
pub fn look(is_memory: bool) -> Vec<Words> {
    let mut all = Vec::new();
    let mut add = |command: &[&str]| {
        all.extend([words(command), words(&[if is_memory { "PTTL" } else { "PEXPIRETIME" }, command[1]])])
    };
    (0..3).for_each(|lock| add(&["HGETALL", &name(lock)]));
    for owner in READERS {
        (1..=KEYS).for_each(|number| add(&["GET", &read_key(owner, number)]));
    }
    add(&["GET", INTENT]);
    add(&["LRANGE", QUEUE[0], "0", "-1"]);
    add(&["ZRANGE", QUEUE[1], "0", "-1", "WITHSCORES"]);
    add(&["HGETALL", QUEUE[2]]);
    add(&["ZRANGE", QUEUE[3], "0", "-1", "WITHSCORES"]);
    ["counter", "claims", "semaphore"].iter().for_each(|key| add(&["GET", key]));
    add(&["ZRANGE", "permits", "0", "-1", "WITHSCORES"]);
    add(&["GET", "announced"]);
    add(&["LRANGE", "published", "0", "-1"]);
    all
}

/// Reads the replies to `look`: the state, and what was published.
pub fn seen(replies: Vec<Found>, now: Option<i64>) -> (State, Words) {
    let mut replies = replies.into_iter();
    let mut next = || {
        let (found, Some(Found::Int(ends))) = (replies.next().expect("a reply"), replies.next()) else {
            panic!("no expiry")
        };
        let ends = (ends >= 0).then(|| ends + now.unwrap_or(0));
        let all: Option<Words> = match found {
            Found::Text(text) => text.map(|text| vec![String::from_utf8(text).expect("text")]),
            Found::List(items) => items.map(|items| items.iter().map(Found::text).collect()),
            Found::Error(_) => None,
            other => panic!("{other:?}"),
        };
        (all, ends)
    };
    let number = |text: &str| text.parse::<i64>().unwrap_or_else(|_| panic!("no number: {text}"));
    let pairs = |all: Option<Words>| {
        all.unwrap_or_default().chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect::<Vec<_>>()
    };
    let mut state = State::default();
    for lock in &mut state.locks {
        let (fields, ends) = next();
        *lock = match fields {
            None => Some(Lock::Other),
            Some(fields) if fields.is_empty() => None,
            fields => {
                let mut hash = Hash { ends, ..Hash::default() };
                for (field, value) in pairs(fields) {
                    match (&*field, field.strip_suffix(":write")) {
                        ("mode", _) => {
                            hash.mode = Some(if value == "read" { Mode::Read } else { Mode::Write })
                        }
                        (_, Some(writer)) => {
                            hash.holders.insert(Holder::Writer(owner(writer)), number(&value));
                        }
                        (data, _) if DATA.iter().any(|other| other[0] == data) => hash.has_data = true,
                        (reader, _) => {
                            hash.holders.insert(Holder::Owner(owner(reader)), number(&value));
                        }
                    }
                }
                Some(Lock::Hash(hash))
            }
        };
    }
    for owner in READERS {
        for key in 1..=KEYS {
            if let (Some(grant), ends) = next() {
                let ends = ends.expect("the key of a reader expires");
                state.reads.insert((owner, key), Read { grant: number(&grant[0]), ends });
            }
        }
    }
    if let (Some(text), ends) = next() {
        let (calm, writer) = text[0].split_once(' ').expect("a writer");
        let writer = writer.strip_suffix(":write").map(owner);
        state.intent = Some(Intent { calm: number(calm), writer, ends: ends.expect("an intent expires") });
    }
    let scores = |all| pairs(all).iter().map(|(id, score)| (owner(id), number(score))).collect();
    let (list, ends) = next();
    state.queue.list = Key { value: list.unwrap_or_default().iter().map(|id| owner(id)).collect(), ends };
    let (all, ends) = next();
    state.queue.scores = Key { value: scores(all), ends };
    let (all, ends) = next();
    let record = |text: &str| {
        text.split_once(' ').map(|(until, java)| Record { until: number(until), java_before: number(java) })
    };
    let records =
        pairs(all).iter().map(|(id, text)| (owner(id), record(text).expect("two numbers"))).collect();
    state.queue.records = Key { value: records, ends };
    let (all, ends) = next();
    state.queue.tickets = Key { value: scores(all), ends };
    for counter in [&mut state.counter, &mut state.claims, &mut state.available] {
        let (text, ends) = next();
        assert_eq!(ends, None, "a counter has no expiry");
        *counter = text.map(|text| text[0].parse().map_or(Counter::Text, Counter::Number));
    }
    let permits = pairs(next().0);
    state.permits =
        permits.iter().map(|(id, ends)| (id[14..].parse().expect("a permit"), number(ends))).collect();
    if let (Some(text), ends) = next() {
        let said: Vec<_> = text[0].split(' ').collect();
        let ends = ends.expect("an announcement expires");
        state.announcement =
            Some(Announcement { owner: owner(said[0]), text: said[2].parse().expect("a text"), ends });
    }
    (state, next().0.unwrap_or_default())
}

/// Whether a server replied what the model says, give or take the milliseconds and microseconds that the script took.
pub fn fits(expected: &Reply, found: &Found, ms: i64, us: i64) -> bool {
    let text = |found: &Found| matches!(found, Found::Text(Some(_))).then(|| found.text());
    let token = |token: i64, found: &Found| {
        text(found)
            .and_then(|text| text.parse().ok())
            .is_some_and(|found: i64| (found - token).unsigned_abs() <= us.unsigned_abs())
    };
    let ints = |numbers: [i64; 2]| *found == Found::List(Some(numbers.map(Found::Int).to_vec()));
    match (expected, found) {
        (Reply::Done, found) => *found == Found::Text(None),
        (Reply::Token(expected), found) => token(*expected, found),
        (Reply::Claimed(place, expected), Found::List(Some(found))) => {
            found[0] == Found::Int(*place as i64) && token(*expected, &found[1])
        }
        (Reply::Permits(one, other), _) => ints([*one, *other]),
        (Reply::NotALockAt(place), _) => ints([lua::reply("NOT_A_LOCK"), *place as i64]),
        (Reply::TooMany(total), _) => ints([lua::reply("TOO_MANY"), *total]),
        (Reply::Left(left), Found::Int(found)) => *found >= 0 && (found - left).abs() <= ms,
        (Reply::Number(number), found) => *found == Found::Int(*number),
        (Reply::Text(owner, said), found) => text(found) == Some(format!("{} me {said}", id(*owner))),
        (Reply::List(expected), Found::List(Some(found))) => {
            expected.len() == found.len()
                && expected.iter().zip(found).all(|(one, other)| fits(one, other, ms, us))
        }
        // In a batch, a list of its text stands for an error.
        (Reply::Error, found) => matches!(found, Found::Error(_) | Found::List(Some(_))),
        (named, Found::Int(found)) => {
            let camel = format!("{named:?}");
            let words = camel.chars().enumerate().flat_map(|(at, letter)| {
                let space = (at > 0 && letter.is_uppercase()).then_some('_');
                space.into_iter().chain(letter.to_uppercase())
            });
            lua::REPLIES.get(&words.collect::<String>()) == Some(found)
        }
        _ => false,
    }
}

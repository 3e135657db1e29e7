//! Random commands. All are about a few keys, so that they meet.

use fastrand::Rng;

pub const LOCK: &str = "a";

/// The keys of a fair lock, a fenced lock, a semaphore, an announcement, and the snapshot of a client.
const KEYS: [&str; 10] = [
    "queue",
    "scores",
    "records",
    "tickets",
    "counter",
    "channel",
    "semaphore",
    "permits",
    "announcement",
    "client",
];

/// Ids of permits have 16 bytes.
const IDS: [&str; 4] = ["permit........01", "permit........02", "permit........03", "permit........04"];

const OWNERS: [&str; 4] = ["0-0-0-0-a:1", "0-0-0-0-a:2", "0-0-0-0-a:3", "item:4"];

/// All keys that anything here uses.
pub fn all_keys() -> Vec<String> {
    let holds = OWNERS.iter().flat_map(|owner| (1..=3).map(move |i| hold(owner, i)));
    let intent = format!("{{{LOCK}}}:lockkeeper_intent");
    [LOCK].iter().chain(&KEYS).map(|key| (*key).to_owned()).chain([intent]).chain(holds).collect()
}

fn hold(owner: &str, number: usize) -> String {
    format!("{{{LOCK}}}:{owner}:rwlock_timeout:{number}")
}

pub fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

pub struct Dice {
    pub rng: Rng,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed) }
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.rng.usize(..from.len())]
    }

    fn key(&mut self) -> String {
        let all = all_keys();
        let often = if self.rng.bool() { 2 } else { all.len() };
        all[self.rng.usize(..often)].clone()
    }

    /// The key that has the right type, mostly.
    fn key_of(&mut self, names: &[&str]) -> String {
        if self.rng.u8(..12) == 0 { self.key() } else { self.pick(names).to_owned() }
    }

    fn owner(&mut self) -> String {
        self.pick(&OWNERS).to_owned()
    }

    fn lease(&mut self) -> String {
        self.pick(&["1", "2", "5", "20", "1000", "30000", "60000"]).to_owned()
    }

    fn integer(&mut self) -> String {
        if self.rng.u8(..10) == 0 {
            return self
                .pick(&["", "abc", "1.5", "01", "+1", "9223372036854775807", "-9223372036854775807"])
                .to_owned();
        }
        self.pick(&["0", "1", "-1", "2", "-2", "3", "5", "-100", "100"]).to_owned()
    }

    fn field(&mut self) -> String {
        match self.rng.u8(..8) {
            0 | 1 => "mode".to_owned(),
            2 | 3 => self.owner() + ":write",
            4 if self.rng.u8(..4) == 0 => self.pick(&["", "x", "no holder"]).to_owned(),
            _ => self.owner(),
        }
    }

    /// Never a large number: scripts count up to it.
    fn value(&mut self, field: &str) -> String {
        match (field, self.rng.u8(..12)) {
            (_, 0) => self.pick(&["", "x", "1.5", "-1", "read"]).to_owned(),
            ("mode", _) => self.pick(&["read", "write"]).to_owned(),
            _ => self.pick(&["1", "1", "2", "3"]).to_owned(),
        }
    }

    /// Milliseconds around now.
    fn time(&mut self, now_ms: u64) -> u64 {
        let around = [0, 1, 5, 1_000, 70_000];
        let by = around[self.rng.usize(..around.len())];
        if self.rng.bool() { now_ms + by } else { now_ms - by }
    }

    fn holds(&mut self) -> Vec<String> {
        let owner = self.owner();
        (1..=3).map(|i| hold(&owner, i)).collect()
    }

    /// A command that changes or asks. Now and then one that is wrong.
    pub fn command(&mut self, now_ms: u64) -> Vec<String> {
        let mut command = self.right_command(now_ms);
        match self.rng.u8(..40) {
            0 => drop(command.pop()),
            2 => command.push(self.integer()),
            3 => command[0] = command[0].to_lowercase(),
            4 if command.len() > 1 => command[1] = self.key(),
            _ => {}
        }
        // A negative count is more than the in-memory server can.
        let is_beyond =
            command[0] == "HRANDFIELD" && command.get(2).is_some_and(|count| count.starts_with('-'));
        if is_beyond { words(["PING"]) } else { command }
    }

    fn right_command(&mut self, now_ms: u64) -> Vec<String> {
        let hash = self.key_of(&[LOCK, LOCK, LOCK, "records"]);
        let list = self.key_of(&["queue"]);
        let set = self.key_of(&["scores", "tickets"]);
        let holds = self.holds();
        let text = self.key_of(&["counter", &holds[0], &holds[1], &holds[2]]);
        let any = self.key();
        let field = self.field();
        let is_record = hash == "records";
        let value = if is_record { self.record(now_ms) } else { self.value(&field) };
        let (owner, other, lease) = (self.owner(), self.owner(), self.lease());
        let (one, two) = (self.integer(), self.integer());
        let score = if self.rng.bool() { self.time(now_ms) } else { self.time(now_ms) * 1_000 }.to_string();
        let list_of = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self.rng.u8(..47) {
            0 => list_of(&["DEL", &any, &text]),
            1 => list_of(&["EXISTS", &any, &any, &list]),
            2 => list_of(&["GET", &text]),
            3 => list_of(&["HDEL", &hash, &field, &owner]),
            4 => list_of(&["HEXISTS", &hash, &field]),
            5 => list_of(&["HGET", &hash, &field]),
            6 => list_of(&["HGETALL", &hash]),
            7 => list_of(&["HKEYS", &hash]),
            8 => list_of(&["HLEN", &hash]),
            9 => list_of(&["HMGET", &hash, &field, &owner]),
            10 => {
                let count = self.pick(&["0", "1", "2", "3", "8", "abc"]);
                list_of(&["HRANDFIELD", &hash, count, "WITHVALUES"][..self.rng.usize(2..=4)])
            }
            11 => {
                let cursor = self.pick(&["0", "0", "0", "x"]);
                list_of(&["HSCAN", &hash, cursor, "count", &one][..if self.rng.bool() { 5 } else { 3 }])
            }
            12..=15 => list_of(&["HSET", &hash, &field, &value]),
            16 => list_of(&["HSET", LOCK, "mode", "read", &owner, "1", &other, "2"]),
            17 => list_of(&["INCR", &text]),
            18 => list_of(&["LINDEX", &list, &one]),
            19 => list_of(&["LLEN", &list]),
            20 => list_of(&["LPOP", &list, &one][..2 + usize::from(self.rng.bool())]),
            21 => list_of(&["LPUSH", &list, &owner, &other]),
            22 => list_of(&["LRANGE", &list, &one, &two]),
            23 => list_of(&["LREM", &list, &one, &owner]),
            24 => list_of(&["PERSIST", &any]),
            25..=28 => {
                let option = self.pick(&["NX", "xx", "GT", "lt", "GT", "never"]);
                let time = if self.rng.u8(..4) == 0 { &one } else { &lease };
                list_of(&["PEXPIRE", &any, time, option][..3 + usize::from(self.rng.bool())])
            }
            29 => list_of(&["PTTL", &any]),
            30 | 31 => list_of(&["RPUSH", &list, &owner, &other]),
            32 => list_of(&["SET", &text, &value]),
            33 | 34 => {
                let time = if self.rng.u8(..4) == 0 { &one } else { &lease };
                let value = self.pick(&["1", "2", "3"]);
                list_of(&["SET", &text, value, "px", time, "nx"][..5 + usize::from(self.rng.bool())])
            }
            35..=37 => {
                let score =
                    if self.rng.u8(..6) == 0 { self.pick(&["x", "1.5", "inf", "-3", "nan"]) } else { &score };
                let option = self.pick(&["NX", "xx"]);
                let command = list_of(&["ZADD", &set, option, score, &owner, "7", &other]);
                if self.rng.bool() { command } else { [&command[..2], &command[3..]].concat() }
            }
            38 => list_of(&["ZCARD", &set]),
            39 => list_of(&["ZRANGE", &set, &one, &two, "WITHSCORES"][..4 + usize::from(self.rng.bool())]),
            40 => list_of(&["ZRANK", &set, &owner]),
            41 => list_of(&["ZREM", &set, &owner, &other]),
            42 => list_of(&["ZSCORE", &set, &owner]),
            43 => list_of(&["INCRBY", &text, &one]),
            44 => list_of(&["SET", "semaphore", &one]),
            45 => {
                let (id, other) = (self.pick(&IDS), self.pick(&IDS));
                list_of(&["ZADD", "permits", &self.time(now_ms).to_string(), id, "922337203685477", other])
            }
            _ => list_of(&["PUBLISH", "channel", "0"]),
        }
    }

    fn record(&mut self, now_ms: u64) -> String {
        if self.rng.u8(..20) == 0 {
            return "x".to_owned();
        }
        format!("{} {}", self.time(now_ms), self.rng.u8(..3))
    }
}

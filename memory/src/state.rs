//! The state of a server, and the commands that need more than its keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::channels::{Channels, ClientId};
use crate::clock::WallClock;
use crate::commands::{find, takes, wrong_number};
use crate::history::History;
use crate::keyspace::Keyspace;
use crate::lua::Host;
use crate::scripts::Scripts;
use crate::value::Bytes;
use crate::wire::{Outcome, Reply};

/// The version of Redis that the server behaves as.
const VERSION: &str = "7.0.15";

/// The commands that are not about keys, and the number of their words. A negative number: at least so many.
pub(crate) const COMMANDS: [(&str, isize); 12] = [
    ("client", -2),
    ("eval", -3),
    ("evalsha", -3),
    ("hello", -1),
    ("info", -1),
    ("ping", -1),
    ("publish", 3),
    ("pubsub", -2),
    ("script", -2),
    ("select", 2),
    ("subscribe", -2),
    ("unsubscribe", -1),
];

/// The commands that a connection with a subscription is allowed to send.
const OF_SUBSCRIBERS: [&str; 3] = ["ping", "subscribe", "unsubscribe"];

/// Everything that the process of a server has.
pub(crate) struct State {
    pub(crate) data: Data,
    pub(crate) scripts: Scripts,
    /// Earlier states of the keys, if they are kept.
    pub(crate) history: Option<History>,
    pub(crate) observer: Option<Observer>,
    next_client: ClientId,
    run_id: String,
    clock: WallClock,
}

/// Sees each command of a connection and its reply, and can ask the server.
pub(crate) type Observer =
    Box<dyn FnMut(ClientId, &[Bytes], &[u8], &mut dyn FnMut(&[&str]) -> Vec<u8>) + Send>;

/// What scripts can use.
pub(crate) struct Data {
    pub(crate) keyspace: Keyspace,
    pub(crate) channels: Channels,
    /// The connections, and the bytes that go to them.
    pub(crate) clients: BTreeMap<ClientId, UnboundedSender<Vec<u8>>>,
    /// The names of those that have one.
    pub(crate) names: BTreeMap<ClientId, Bytes>,
    /// How often each command was called.
    pub(crate) calls: BTreeMap<&'static str, u64>,
}

fn new_run_id() -> String {
    format!("{:032x}{:08x}", fastrand::u128(..), fastrand::u32(..))
}

impl State {
    pub(crate) fn new(clock: WallClock, seed: u64) -> Self {
        let data = Data {
            keyspace: Keyspace::new(seed),
            channels: Channels::default(),
            clients: BTreeMap::new(),
            names: BTreeMap::new(),
            calls: BTreeMap::new(),
        };
        Self {
            data,
            scripts: Scripts::default(),
            history: None,
            observer: None,
            next_client: 0,
            run_id: new_run_id(),
            clock,
        }
    }

    /// Adds a connection. Returns its number and what the server sends to it.
    pub(crate) fn connect(&mut self) -> (ClientId, UnboundedReceiver<Vec<u8>>) {
        let (sender, receiver) = unbounded_channel();
        self.next_client += 1;
        self.data.clients.insert(self.next_client, sender);
        (self.next_client, receiver)
    }

    pub(crate) fn disconnect(&mut self, client: ClientId) {
        self.data.channels.unsubscribe_all(client);
        self.data.clients.remove(&client);
        self.data.names.remove(&client);
    }

    /// Starts the server's process again. The keys stay.
    pub(crate) fn restart(&mut self) {
        self.scripts.forget();
        self.run_id = new_run_id();
    }

    /// Lets a key expire, and those that belong to it. Returns whether there was such a key.
    pub(crate) fn expire(&mut self, key: &[u8]) -> bool {
        self.update_time();
        let exists = self.data.keyspace.exists(key);
        if exists {
            let parts = self.data.keyspace.keys().filter(|other| belongs_to(key, other));
            for part in parts.cloned().collect::<Vec<_>>() {
                self.data.keyspace.remove(&part);
            }
            self.data.keyspace.remove(key);
        }
        exists
    }

    /// Sets the time of the keys to that of the clock.
    pub(crate) fn update_time(&mut self) {
        self.data.keyspace.set_now(self.clock.now());
    }

    /// Runs a command of a connection, and sends the reply.
    pub(crate) fn serve(&mut self, client: ClientId, words: &[Bytes]) {
        let replies = self.replies(Some(client), words);
        if let Some(history) = &mut self.history {
            history.keep(&self.data.keyspace);
        }
        if let Some(mut observer) = self.observer.take() {
            let mut ask = |question: &[&str]| {
                let question: Vec<Bytes> = question.iter().map(|word| word.as_bytes().into()).collect();
                bytes(&self.replies(None, &question))
            };
            observer(client, words, &bytes(&replies), &mut ask);
            self.observer = Some(observer);
        }
        self.data.send(client, &replies);
    }

    /// The number of the last connection.
    pub(crate) const fn last_client(&self) -> ClientId {
        self.next_client
    }

    /// Runs a command, and returns its replies: more than one if it subscribes to more than one channel.
    pub(crate) fn replies(&mut self, client: Option<ClientId>, words: &[Bytes]) -> Vec<Reply> {
        self.update_time();
        let Some(name) = words.first() else { return Vec::new() };
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if let Some(client) = client
            && self.data.channels.count(client) > 0
            && !OF_SUBSCRIBERS.contains(&&*name)
        {
            return vec![Reply::Error(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context"
            ))];
        }
        let Some((name, arity)) = COMMANDS.into_iter().find(|(other, _)| *other == name) else {
            return vec![self.data.run_on_keys(&name, words).unwrap_or_else(|| Reply::Error(unknown(words)))];
        };
        if !takes(arity, words.len()) {
            return vec![Reply::Error(wrong_number(name))];
        }
        self.data.count_call(name);
        let outcome = match (name, client) {
            ("subscribe", Some(client)) => return self.subscribe(client, &words[1..]),
            ("unsubscribe", Some(client)) => return self.unsubscribe(client, &words[1..]),
            ("subscribe" | "unsubscribe", None) => Err("ERR only a connection subscribes".to_owned()),
            ("client", _) => self.data.client(words, client),
            ("eval", _) => self.scripts.eval(words, self.data.ticked()),
            ("evalsha", _) => self.scripts.eval_hash(words, self.data.ticked()),
            ("hello", _) => self.hello(words, client),
            ("info", _) => self.info(words),
            ("ping", _) => self.ping(words, client),
            ("publish", _) => Ok(self.data.publish(&words[1], &words[2])),
            ("pubsub", _) => self.data.pubsub(words),
            ("script", _) => self.script(words),
            _ => select(words),
        };
        vec![outcome.into()]
    }

    fn subscribe(&mut self, client: ClientId, channels: &[Bytes]) -> Vec<Reply> {
        let subscribe = |channel: &Bytes| {
            self.data.channels.subscribe(client, channel);
            self.confirmation("subscribe", client, Some(channel))
        };
        channels.iter().map(subscribe).collect()
    }

    fn unsubscribe(&mut self, client: ClientId, channels: &[Bytes]) -> Vec<Reply> {
        let all = self.data.channels.of(client);
        let channels = if channels.is_empty() { &all } else { channels };
        if channels.is_empty() {
            return vec![self.confirmation("unsubscribe", client, None)];
        }
        let unsubscribe = |channel: &Bytes| {
            self.data.channels.unsubscribe(client, channel);
            self.confirmation("unsubscribe", client, Some(channel))
        };
        channels.iter().map(unsubscribe).collect()
    }

    fn confirmation(&self, what: &str, client: ClientId, channel: Option<&Bytes>) -> Reply {
        let count = Reply::count(self.data.channels.count(client));
        Reply::List(vec![Reply::bulk(what), Reply::found(channel), count])
    }

    fn ping(&self, words: &[Bytes], client: Option<ClientId>) -> Outcome {
        let is_subscriber = client.is_some_and(|client| self.data.channels.count(client) > 0);
        match &words[1..] {
            text @ ([] | [_]) if is_subscriber => {
                let text = text.first().map_or_else(|| Reply::bulk(""), |text| Reply::found(Some(text)));
                Ok(Reply::List(vec![Reply::bulk("pong"), text]))
            }
            [] => Ok(Reply::Status("PONG".to_owned())),
            [text] => Ok(Reply::found(Some(text))),
            _ => Err(wrong_number("ping")),
        }
    }

    fn hello(&self, words: &[Bytes], client: Option<ClientId>) -> Outcome {
        match &words[1..] {
            [] => {}
            [version] if **version == *b"2" => {}
            _ => return Err("NOPROTO unsupported protocol version".to_owned()),
        }
        // Pairs in a list, as version 2 of the protocol has no maps.
        Ok(Reply::List(vec![
            Reply::bulk("server"),
            Reply::bulk("redis"),
            Reply::bulk("version"),
            Reply::bulk(VERSION),
            Reply::bulk("proto"),
            Reply::Int(2),
            Reply::bulk("id"),
            Reply::Int(client.and_then(|client| client.try_into().ok()).unwrap_or(0)),
            Reply::bulk("mode"),
            Reply::bulk("standalone"),
            Reply::bulk("role"),
            Reply::bulk("master"),
            Reply::bulk("modules"),
            Reply::List(Vec::new()),
        ]))
    }

    fn info(&self, words: &[Bytes]) -> Outcome {
        match &words[1..] {
            [section] if section.eq_ignore_ascii_case(b"server") => Ok(Reply::bulk(format!(
                "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nrun_id:{}\r\n",
                self.run_id
            ))),
            _ => Err("ERR this server takes INFO server only".to_owned()),
        }
    }

    fn script(&mut self, words: &[Bytes]) -> Outcome {
        match &words[1..] {
            [load, source] if load.eq_ignore_ascii_case(b"load") => {
                self.scripts.load(source).map(Reply::bulk)
            }
            _ => Err(unknown_subcommand(words)),
        }
    }
}

impl Data {
    /// Time passes before a script.
    fn ticked(&mut self) -> &mut Self {
        self.keyspace.tick();
        self
    }

    fn count_call(&mut self, name: &'static str) {
        *self.calls.entry(name).or_default() += 1;
    }

    /// Runs a command on keys. Its name is in small letters. `None`: there is no such command.
    fn run_on_keys(&mut self, name: &str, words: &[Bytes]) -> Option<Reply> {
        let command = find(name)?;
        if !command.takes(words.len()) {
            return Some(Reply::Error(wrong_number(name)));
        }
        self.count_call(command.name);
        Some(command.run(&mut self.keyspace, words).into())
    }

    fn publish(&mut self, channel: &Bytes, message: &Bytes) -> Reply {
        let frame = Reply::List(vec![
            Reply::bulk("message"),
            Reply::Bulk(Arc::clone(channel)),
            Reply::Bulk(Arc::clone(message)),
        ]);
        let subscribers: Vec<_> = self.channels.subscribers(channel).collect();
        for subscriber in &subscribers {
            self.send(*subscriber, std::slice::from_ref(&frame));
        }
        Reply::count(subscribers.len())
    }

    fn client(&mut self, words: &[Bytes], client: Option<ClientId>) -> Outcome {
        let is = |word: &Bytes, text: &str| word.eq_ignore_ascii_case(text.as_bytes());
        match (&words[1..], client) {
            ([set, what, _], _) if is(set, "setinfo") && (is(what, "lib-name") || is(what, "lib-ver")) => {
                Ok(Reply::ok())
            }
            ([set, name], Some(client)) if is(set, "setname") => {
                if !name.iter().all(u8::is_ascii_graphic) {
                    return Err(
                        "ERR Client names cannot contain spaces, newlines or special characters.".to_owned()
                    );
                }
                self.names.insert(client, Arc::clone(name));
                Ok(Reply::ok())
            }
            ([list], _) if is(list, "list") => Ok(self.client_list()),
            _ => Err(unknown_subcommand(words)),
        }
    }

    /// The connections: their numbers, their names, and how many channels each listens to.
    pub(crate) fn client_list(&self) -> Reply {
        let line = |client: &ClientId| {
            let name = self.names.get(client).map(|name| String::from_utf8_lossy(name));
            format!("id={client} name={} sub={}\n", name.unwrap_or_default(), self.channels.count(*client))
        };
        Reply::bulk(self.clients.keys().map(line).collect::<String>())
    }

    /// Counts the subscribers of channels. There are no channels of slots, as in a cluster.
    fn pubsub(&self, words: &[Bytes]) -> Outcome {
        let is_sharded = match words.get(1) {
            Some(word) if word.eq_ignore_ascii_case(b"numsub") => false,
            Some(word) if word.eq_ignore_ascii_case(b"shardnumsub") => true,
            _ => return Err("ERR unknown subcommand of PUBSUB".to_owned()),
        };
        let count = |channel| if is_sharded { 0 } else { self.channels.subscribers(channel).count() };
        let pairs = words[2..]
            .iter()
            .flat_map(|channel| [Reply::Bulk(Arc::clone(channel)), Reply::count(count(channel))]);
        Ok(Reply::List(pairs.collect()))
    }

    pub(crate) fn send(&self, client: ClientId, replies: &[Reply]) {
        // Fails if the connection is about to be removed.
        if let Some(client) = self.clients.get(&client) {
            let _ = client.send(bytes(replies));
        }
    }
}

impl Host for Data {
    fn call(&mut self, words: &[Bytes]) -> Reply {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        let is_publish = name == "publish";
        if name == "pubsub" {
            self.count_call("pubsub");
            return self.pubsub(words).into();
        }
        if !is_publish && COMMANDS.iter().any(|(other, _)| *other == name) {
            return Reply::Error("ERR This Redis command is not allowed from script".to_owned());
        }
        if (is_publish && words.len() != 3) || find(&name).is_some_and(|command| !command.takes(words.len()))
        {
            return Reply::Error("ERR Wrong number of args calling Redis command from script".to_owned());
        }
        if is_publish {
            self.count_call("publish");
            return self.publish(&words[1], &words[2]);
        }
        let reply = self.run_on_keys(&name, words);
        reply.unwrap_or_else(|| Reply::Error("ERR Unknown Redis command called from script".to_owned()))
    }

    fn takes(&self, name: &str, words: usize) -> Option<bool> {
        let other = || Some(takes(COMMANDS.iter().find(|(other, _)| *other == name)?.1, words));
        find(name).map(|command| command.takes(words)).or_else(other)
    }
}

fn bytes(replies: &[Reply]) -> Vec<u8> {
    let mut bytes = Vec::new();
    replies.iter().for_each(|reply| reply.write(&mut bytes));
    bytes
}

/// Whether the name of a key begins with `{key}:`. Such a key is in the slot of the other one. A key that has braces
/// needs no more.
fn belongs_to(key: &[u8], other: &[u8]) -> bool {
    let (open, close): (&[u8], &[u8]) = if key.contains(&b'{') { (b"", b"") } else { (b"{", b"}") };
    other.starts_with(&[open, key, close, b":"].concat())
}

fn select(words: &[Bytes]) -> Outcome {
    if *words[1] == *b"0" { Ok(Reply::ok()) } else { Err("ERR DB index is out of range".to_owned()) }
}

fn unknown(words: &[Bytes]) -> String {
    let text = |word: &Bytes| String::from_utf8_lossy(word).into_owned();
    let args: String = words[1..].iter().map(|word| format!("'{}' ", text(word))).collect();
    format!("ERR unknown command '{}', with args beginning with: {args}", text(&words[0]))
}

fn unknown_subcommand(words: &[Bytes]) -> String {
    let [command, subcommand] = [&words[0], &words[1]].map(|word| String::from_utf8_lossy(word));
    format!("ERR unknown subcommand '{subcommand}'. Try {} HELP.", command.to_ascii_uppercase())
}

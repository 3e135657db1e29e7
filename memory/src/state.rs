//! The state of a server, and the commands that need more than its keys.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::channels::{Channels, ClientId};
use crate::clock::WallClock;
use crate::cluster::{Asked, Kind, Node, slot};
use crate::commands::{find, takes, wrong_number};
use crate::history::History;
use crate::keyspace::{Entry, Keyspace};
use crate::lua::{Host, crosses_slots};
use crate::scripts::{Scripts, parameters};
use crate::value::Bytes;
use crate::wait::{self, Wait};
use crate::wire::{Outcome, Reply};

/// The version of Redis that the server behaves as.
const VERSION: &str = "7.0.15";

/// The commands that are not about keys, and the number of their words. A negative number: at least so many.
pub(crate) const COMMANDS: [(&str, isize); 19] = [
    ("asking", 1),
    ("client", -2),
    ("cluster", -2),
    ("eval", -3),
    ("evalsha", -3),
    ("hello", -1),
    ("info", -1),
    ("ping", -1),
    ("publish", 3),
    ("pubsub", -2),
    ("script", -2),
    ("select", 2),
    ("sentinel", -2),
    ("spublish", 3),
    ("ssubscribe", -2),
    ("subscribe", -2),
    ("sunsubscribe", -1),
    ("unsubscribe", -1),
    ("wait", 3),
];

/// The commands that a connection with a subscription is allowed to send.
const OF_SUBSCRIBERS: [&str; 5] = ["ping", "ssubscribe", "subscribe", "sunsubscribe", "unsubscribe"];

/// Everything that the process of a server has.
pub(crate) struct State {
    pub(crate) data: Data,
    pub(crate) scripts: Scripts,
    /// Earlier states of the keys, if they are kept.
    pub(crate) history: Option<History>,
    pub(crate) observer: Option<Observer>,
    next_client: ClientId,
    /// The most connections that there can be. `None`: any number.
    pub(crate) most_clients: Option<usize>,
    /// How many replicas follow it.
    replicas: usize,
    run_id: String,
    clock: WallClock,
}

/// Sees each command of a connection and its reply, and can ask the server. Of a script that does its work in parts, each with
/// `pcall`, it sees each part as a command: with the keys and arguments of the part, and with the keys of the server after it.
pub(crate) type Observer =
    Box<dyn FnMut(ClientId, &[Bytes], &[u8], &mut dyn FnMut(&[&str]) -> Vec<u8>) + Send>;

/// What scripts can use.
pub(crate) struct Data {
    pub(crate) keyspace: Keyspace,
    /// `None`: the server is in no cluster.
    pub(crate) node: Option<Node>,
    pub(crate) channels: Channels,
    /// Those that stay in their slot of a cluster.
    pub(crate) shard_channels: Channels,
    /// Another node sent these connections here, for their next command.
    asking: BTreeSet<ClientId>,
    /// The connections that use version 3 of the protocol.
    new_protocol: BTreeSet<ClientId>,
    /// It refuses `HELLO 3`, as an older server.
    pub(crate) lacks_version_3: bool,
    /// Its users may not send `CLIENT TRACKING`.
    pub(crate) denies_tracking: bool,
    /// What the cluster allows the script that runs. `None`: everything.
    script: Option<InCluster>,
    /// The connections, and the bytes that go to them.
    pub(crate) clients: BTreeMap<ClientId, UnboundedSender<Vec<u8>>>,
    /// The names of those that have one.
    pub(crate) names: BTreeMap<ClientId, Bytes>,
    /// How often each command was called.
    pub(crate) calls: BTreeMap<&'static str, u64>,
    /// The parts of the script that runs, if somebody observes.
    parts: Option<Vec<Part>>,
}

/// A part that a script ran with `pcall`: its values, its reply, and the keys after it.
struct Part {
    values: Vec<Bytes>,
    reply: Reply,
    entries: HashMap<Bytes, Entry>,
}

/// What a cluster allows a script.
#[derive(Clone, Copy, Default)]
struct InCluster {
    is_asking: bool,
    /// The slot of its keys so far.
    slot: Option<u16>,
    crosses_slots: bool,
}

fn new_run_id() -> String {
    format!("{:032x}{:08x}", fastrand::u128(..), fastrand::u32(..))
}

impl State {
    pub(crate) fn new(clock: WallClock, seed: u64) -> Self {
        let data = Data {
            keyspace: Keyspace::new(seed),
            node: None,
            channels: Channels::default(),
            shard_channels: Channels::default(),
            asking: BTreeSet::new(),
            new_protocol: BTreeSet::new(),
            lacks_version_3: false,
            denies_tracking: false,
            script: None,
            clients: BTreeMap::new(),
            names: BTreeMap::new(),
            calls: BTreeMap::new(),
            parts: None,
        };
        Self {
            data,
            scripts: Scripts::default(),
            history: None,
            observer: None,
            next_client: 0,
            most_clients: None,
            replicas: 0,
            run_id: new_run_id(),
            clock,
        }
    }

    /// Adds a connection. Returns its number and what the server sends to it.
    pub(crate) fn connect(&mut self) -> (ClientId, UnboundedReceiver<Vec<u8>>) {
        let (sender, receiver) = unbounded_channel();
        let client = self.next_client();
        self.data.clients.insert(client, sender);
        (client, receiver)
    }

    /// Returns the number of a new connection.
    pub(crate) const fn next_client(&mut self) -> ClientId {
        self.next_client += 1;
        self.next_client
    }

    /// Whether there can be no other connection.
    pub(crate) fn has_no_place(&self) -> bool {
        self.most_clients.is_some_and(|most| self.data.clients.len() >= most)
    }

    pub(crate) fn disconnect(&mut self, client: ClientId) {
        self.data.channels.unsubscribe_all(client);
        self.data.shard_channels.unsubscribe_all(client);
        self.data.clients.remove(&client);
        self.data.names.remove(&client);
        self.data.asking.remove(&client);
        self.data.new_protocol.remove(&client);
        self.data.keyspace.tracking.forget(client);
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
            self.data.keyspace.remove_all(|other| belongs_to(key, other));
            self.data.keyspace.remove(key);
        }
        exists
    }

    /// Lets keys expire of which a connection is told. Returns how long it takes until the next one does.
    pub(crate) fn expire_read(&mut self, client: ClientId) -> Option<Duration> {
        self.update_time();
        self.data.keyspace.expire_read(client)
    }

    /// Sets the time of the keys to that of the clock.
    pub(crate) fn update_time(&mut self) {
        self.data.keyspace.set_now(self.clock.now());
    }

    /// Sets the clock forward by these seconds, or back.
    pub(crate) fn step_clock(&mut self, seconds: i64) {
        self.clock.step(seconds);
        self.data.keyspace.reset_now(self.clock.now());
    }

    /// The keys that there were a while ago.
    pub(crate) fn entries_as_of(&mut self, age: Duration) -> HashMap<Bytes, Entry> {
        self.update_time();
        match &self.history {
            Some(history) if !age.is_zero() => history.as_of(age, &self.data.keyspace),
            _ => self.data.keyspace.copy(),
        }
    }

    /// Runs a command of a connection, and sends the reply.
    pub(crate) fn serve(&mut self, client: ClientId, words: &[Bytes]) {
        self.data.parts = self.observer.as_ref().map(|_| Vec::new());
        self.data.keyspace.tracking.running = Some(client);
        let replies = self.replies(Some(client), words);
        self.data.keyspace.tracking.running = None;
        let parts = self.data.parts.take().unwrap_or_default();
        let reply = bytes(&replies, false);
        // A node of a cluster that has no replicas loses its writes when it fails, so the history does not keep them.
        if self.replicas > 0 || self.data.node.is_none() {
            self.keep_state();
        }
        if let Some(mut observer) = self.observer.take() {
            if parts.is_empty() {
                self.show(&mut observer, client, words, &reply);
            } else {
                self.show_parts(&mut observer, client, words, parts);
            }
            self.observer = Some(observer);
        }
        if self.data.new_protocol.contains(&client) {
            self.data.send(client, &replies);
        } else {
            self.data.send_bytes(client, reply);
        }
    }

    fn show(&mut self, observer: &mut Observer, client: ClientId, words: &[Bytes], reply: &[u8]) {
        let mut ask = |question: &[&str]| {
            let question: Vec<Bytes> = question.iter().map(|word| word.as_bytes().into()).collect();
            bytes(&self.replies(None, &question), false)
        };
        observer(client, words, reply, &mut ask);
    }

    fn show_parts(&mut self, observer: &mut Observer, client: ClientId, words: &[Bytes], parts: Vec<Part>) {
        let now = self.data.keyspace.copy();
        // Nothing changes: what a question finds expired in an earlier state was changed since then.
        let tracking = mem::take(&mut self.data.keyspace.tracking);
        let keys = parameters(words).map_or(0, |(keys, _)| keys.len() / parts.len());
        for Part { values, reply, entries } in parts {
            self.data.keyspace.restore(entries);
            let count: Bytes = keys.to_string().as_bytes().into();
            let of_part: Vec<Bytes> = words[..2].iter().cloned().chain([count]).chain(values).collect();
            self.show(observer, client, &of_part, &bytes(&[reply], false));
        }
        self.data.keyspace.restore(now);
        self.data.keyspace.tracking = tracking;
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
        let is_asking = client.is_some_and(|client| self.data.asking.remove(&client));
        if let Some(refusal) = client.and_then(|client| self.data.refuses(client, &name)) {
            return vec![Reply::Error(refusal)];
        }
        let found = COMMANDS.into_iter().find(|(other, _)| *other == name);
        if let Some((name, arity)) = found
            && !takes(arity, words.len())
        {
            return vec![Reply::Error(wrong_number(name))];
        }
        let slot = match client.map(|_| self.data.slot_of(&name, words, is_asking)) {
            Some(Err(refusal)) => return vec![Reply::Error(refusal)],
            Some(Ok(slot)) => slot,
            None => None,
        };
        let Some((name, _)) = found else {
            return vec![self.data.run_on_keys(&name, words).unwrap_or_else(|| Reply::Error(unknown(words)))];
        };
        self.data.script = client.map(|_| InCluster { is_asking, slot, crosses_slots: false });
        self.data.count_call(name);
        let outcome = match (name, client) {
            ("subscribe" | "ssubscribe", Some(client)) => {
                return self.data.subscribe(name, client, &words[1..]);
            }
            ("unsubscribe" | "sunsubscribe", Some(client)) => {
                return self.data.unsubscribe(name, client, &words[1..]);
            }
            ("asking" | "ssubscribe" | "subscribe" | "sunsubscribe" | "unsubscribe", None) => {
                Err("ERR only for a connection".to_owned())
            }
            ("asking", Some(client)) => self.data.asks(client),
            ("client", _) => self.data.client(words, client),
            ("cluster", _) => self.data.cluster(words),
            ("eval", _) => self.scripts.eval(words, self.data.ticked()),
            ("evalsha", _) => self.scripts.eval_hash(words, self.data.ticked()),
            ("hello", _) => self.hello(words, client),
            ("info", _) => self.info(words),
            ("ping", _) => self.ping(words, client),
            ("publish" | "spublish", _) => Ok(self.data.publish(name, &words[1], &words[2])),
            ("pubsub", _) => self.data.pubsub(words),
            ("script", _) => self.script(words),
            ("sentinel", _) => self.data.sentinel(words),
            ("wait", _) => self.acknowledge(words),
            _ => select(words),
        };
        vec![outcome.into()]
    }

    /// What a `WAIT` waits for. `None`: it waits for nothing, or is refused.
    pub(crate) fn wait_of(&self, words: &[Bytes]) -> Option<Wait> {
        let wait = if self.is_replica() { None } else { Wait::parse(words).ok() };
        wait.filter(|wait| self.replicas < wait.replicas)
    }

    /// Answers a `WAIT`. The replicas have all that was written, so no earlier state comes back.
    fn acknowledge(&mut self, words: &[Bytes]) -> Outcome {
        if self.is_replica() {
            return Err(wait::OF_REPLICA.to_owned());
        }
        Wait::parse(words)?;
        if self.replicas > 0 {
            self.begin_history();
        }
        Ok(Reply::count(self.replicas))
    }

    fn keep_state(&mut self) {
        if let Some(history) = &mut self.history {
            history.keep(&self.data.keyspace);
        }
    }

    /// Changes how many replicas follow it. A new one begins with the present state.
    pub(crate) fn set_replicas(&mut self, count: usize) {
        self.update_time();
        if count > self.replicas {
            self.begin_history();
        } else {
            self.keep_state();
        }
        self.replicas = count;
    }

    /// Forgets earlier states.
    fn begin_history(&mut self) {
        if let Some(history) = &mut self.history {
            history.begin(&self.data.keyspace);
        }
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.role() == "replica"
    }

    fn ping(&self, words: &[Bytes], client: Option<ClientId>) -> Outcome {
        let is_subscriber = client.is_some_and(|client| self.data.is_only_subscriber(client));
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

    fn hello(&mut self, words: &[Bytes], client: Option<ClientId>) -> Outcome {
        match (words.get(1).map(|version| &**version), client) {
            (None | Some(b"2"), None) | (None, Some(_)) => {}
            (Some(b"2"), Some(client)) => {
                self.data.new_protocol.remove(&client);
                self.data.keyspace.tracking.end(client);
            }
            (Some(b"3"), Some(client)) if !self.data.lacks_version_3 => {
                _ = self.data.new_protocol.insert(client)
            }
            _ => return Err("NOPROTO unsupported protocol version".to_owned()),
        }
        if words.len() > 2 {
            return Err("ERR this server takes no option of HELLO".to_owned());
        }
        let is_new = client.is_some_and(|client| self.data.new_protocol.contains(&client));
        Ok(Reply::Map(vec![
            Reply::bulk("server"),
            Reply::bulk("redis"),
            Reply::bulk("version"),
            Reply::bulk(VERSION),
            Reply::bulk("proto"),
            Reply::Int(if is_new { 3 } else { 2 }),
            Reply::bulk("id"),
            Reply::Int(client.and_then(|client| client.try_into().ok()).unwrap_or(0)),
            Reply::bulk("mode"),
            Reply::bulk(self.mode()),
            Reply::bulk("role"),
            Reply::bulk(self.role()),
            Reply::bulk("modules"),
            Reply::List(Vec::new()),
        ]))
    }

    fn mode(&self) -> &'static str {
        match self.data.kind() {
            Some(Kind::NodeOfCluster) => "cluster",
            Some(Kind::Sentinel) => "sentinel",
            _ => "standalone",
        }
    }

    fn role(&self) -> &'static str {
        match &self.data.node {
            Some(node) if node.kind == Kind::Sentinel => "sentinel",
            Some(node) if !node.is_master() => "replica",
            _ => "master",
        }
    }

    fn info(&self, words: &[Bytes]) -> Outcome {
        match &words[1..] {
            [section] if section.eq_ignore_ascii_case(b"server") => Ok(Reply::Verbatim(format!(
                "# Server\r\nredis_version:{VERSION}\r\nredis_mode:{}\r\nrun_id:{}\r\n",
                self.mode(),
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
        let reply = command.run(&mut self.keyspace, words).into();
        if command.only_reads() {
            command.keys(words).iter().for_each(|key| self.keyspace.tracking.read(key));
        }
        Some(reply)
    }

    /// What its clients see, if it is more than a single server.
    fn kind(&self) -> Option<Kind> {
        self.node.as_ref().map(|node| node.kind)
    }

    /// Why a connection cannot send this command.
    fn refuses(&self, client: ClientId, name: &str) -> Option<String> {
        (self.is_only_subscriber(client) && !OF_SUBSCRIBERS.contains(&name)).then(|| {
            format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context"
            )
        })
    }

    /// The slot of the keys of a command. An error if another node of the cluster has to run the command, or none can.
    fn slot_of(&mut self, name: &str, words: &[Bytes], is_asking: bool) -> Result<Option<u16>, String> {
        let Some(node) = &self.node else { return Ok(None) };
        let is_channel = matches!(name, "spublish" | "ssubscribe" | "sunsubscribe");
        let keys = match name {
            "eval" | "evalsha" => parameters(words).map_or(&[][..], |(keys, _)| keys),
            _ if is_channel => {
                words.get(1..if name == "spublish" { 2 } else { words.len() }).unwrap_or_default()
            }
            _ => find(name)
                .filter(|command| command.takes(words.len()))
                .map_or(&[][..], |command| command.keys(words)),
        };
        let asked = Asked { is_asking, is_channel };
        node.check(keys, asked, &mut self.keyspace).map_err(|refusal| refusal.of_command())
    }

    /// Why the cluster does not let a script run this command.
    fn problem_in_script(&mut self, keys: &[Bytes], is_channel: bool) -> Option<String> {
        let (node, script) = (self.node.as_ref()?, self.script.as_mut()?);
        let asked = Asked { is_asking: script.is_asking, is_channel };
        match node.check(keys, asked, &mut self.keyspace) {
            Err(refusal) => Some(refusal.in_script()),
            Ok(slot) => {
                let before = script.slot;
                script.slot = before.or(slot);
                (!script.crosses_slots && slot.is_some() && before.is_some_and(|before| Some(before) != slot))
                    .then(|| {
                        "ERR Script attempted to access keys that do not hash to the same slot".to_owned()
                    })
            }
        }
    }

    fn asks(&mut self, client: ClientId) -> Outcome {
        if self.node.is_none() {
            return Err(NO_CLUSTER.to_owned());
        }
        self.asking.insert(client);
        Ok(Reply::ok())
    }

    fn cluster(&mut self, words: &[Bytes]) -> Outcome {
        let Some(node) = &mut self.node else { return Err(NO_CLUSTER.to_owned()) };
        let outcome = node.command(words, &self.keyspace);
        self.leave_slots();
        outcome.unwrap_or_else(|| Err(unknown_subcommand(words)))
    }

    fn sentinel(&self, words: &[Bytes]) -> Outcome {
        match &self.node {
            Some(node) if node.kind == Kind::Sentinel => {
                node.sentinel(words).unwrap_or_else(|| Err(unknown_subcommand(words)))
            }
            _ => Err(unknown(words)),
        }
    }

    /// Ends the subscriptions to channels of slots that another node has now, and removes their keys.
    pub(crate) fn leave_slots(&mut self) {
        let Some(node) = &mut self.node else { return };
        let (lost, is_master) = (node.take_lost(), node.is_master());
        let is_lost = |key: &Bytes| lost.iter().any(|slots| slots.contains(&slot(key)));
        if lost.is_empty() {
            return;
        }
        let channels: Vec<Bytes> =
            self.shard_channels.all().filter(|channel| is_lost(channel)).cloned().collect();
        for channel in channels {
            for client in self.shard_channels.subscribers(&channel).collect::<Vec<_>>() {
                let notice = self.unsubscribe("sunsubscribe", client, std::slice::from_ref(&channel));
                self.send(client, &notice);
            }
        }
        self.keyspace.remove_all(|key| !is_master || is_lost(key));
    }

    /// Has these keys from now on, of those that are in its slots.
    pub(crate) fn take_data(&mut self, mut entries: HashMap<Bytes, Entry>) {
        if let Some(node) = &self.node {
            entries.retain(|key, _| node.has(slot(key)));
        }
        self.keyspace.restore(entries);
    }

    /// Whether a connection can only subscribe, because replies and messages look alike.
    fn is_only_subscriber(&self, client: ClientId) -> bool {
        !self.new_protocol.contains(&client)
            && self.channels.count(client) + self.shard_channels.count(client) > 0
    }

    fn channels(&mut self, command: &str) -> &mut Channels {
        if matches!(command, "ssubscribe" | "sunsubscribe") {
            &mut self.shard_channels
        } else {
            &mut self.channels
        }
    }

    fn subscribe(&mut self, name: &str, client: ClientId, channels: &[Bytes]) -> Vec<Reply> {
        let subscribe = |channel: &Bytes| {
            self.channels(name).subscribe(client, channel);
            self.confirmation(name, client, Some(channel))
        };
        channels.iter().map(subscribe).collect()
    }

    fn unsubscribe(&mut self, name: &str, client: ClientId, channels: &[Bytes]) -> Vec<Reply> {
        let all = self.channels(name).of(client);
        let channels = if channels.is_empty() { &all } else { channels };
        if channels.is_empty() {
            return vec![self.confirmation(name, client, None)];
        }
        let unsubscribe = |channel: &Bytes| {
            self.channels(name).unsubscribe(client, channel);
            self.confirmation(name, client, Some(channel))
        };
        channels.iter().map(unsubscribe).collect()
    }

    fn confirmation(&mut self, name: &str, client: ClientId, channel: Option<&Bytes>) -> Reply {
        let count = Reply::count(self.channels(name).count(client));
        Reply::Push(vec![Reply::bulk(name), Reply::found(channel), count])
    }

    fn publish(&mut self, name: &str, channel: &Bytes, message: &Bytes) -> Reply {
        let is_sharded = name == "spublish";
        if self.kind() == Some(Kind::NodeOfCluster) && !is_sharded {
            return Reply::Error("ERR in a cluster, this server takes SPUBLISH only".to_owned());
        }
        let frame = Reply::Push(vec![
            Reply::bulk(if is_sharded { "smessage" } else { "message" }),
            Reply::Bulk(Arc::clone(channel)),
            Reply::Bulk(Arc::clone(message)),
        ]);
        let channels = if is_sharded { &self.shard_channels } else { &self.channels };
        let subscribers: Vec<_> = channels.subscribers(channel).collect();
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
            ([tracking, how @ ..], Some(client)) if is(tracking, "tracking") => self.track(how, client),
            _ => Err(unknown_subcommand(words)),
        }
    }

    fn track(&mut self, how: &[Bytes], client: ClientId) -> Outcome {
        let how: Vec<_> = how.iter().map(|word| word.to_ascii_lowercase()).collect();
        let how: Vec<_> = how.iter().map(|word| &**word).collect();
        match (&*how, self.clients.get(&client)) {
            _ if self.denies_tracking => {
                return Err(
                    "NOPERM this user has no permissions to run the 'client|tracking' command".to_owned()
                );
            }
            ([b"on", b"noloop"], Some(outbox)) if self.new_protocol.contains(&client) => {
                self.keyspace.tracking.begin(client, outbox.clone());
            }
            ([b"off"], _) => self.keyspace.tracking.end(client),
            _ => {
                let takes = "CLIENT TRACKING ON NOLOOP, over version 3 of the protocol, and OFF";
                return Err(format!("ERR this server takes {takes}"));
            }
        }
        Ok(Reply::ok())
    }

    /// The connections: their numbers, their names, and how many channels each listens to.
    pub(crate) fn client_list(&self) -> Reply {
        let line = |client: &ClientId| {
            let name = self.names.get(client).map(|name| String::from_utf8_lossy(name));
            let [sub, ssub] = [&self.channels, &self.shard_channels].map(|channels| channels.count(*client));
            format!("id={client} name={} sub={sub} ssub={ssub}\n", name.unwrap_or_default())
        };
        Reply::Verbatim(self.clients.keys().map(line).collect())
    }

    /// Counts the subscribers of channels.
    fn pubsub(&self, words: &[Bytes]) -> Outcome {
        let is_sharded = match words.get(1) {
            Some(word) if word.eq_ignore_ascii_case(b"numsub") => false,
            Some(word) if word.eq_ignore_ascii_case(b"shardnumsub") => true,
            _ => return Err("ERR unknown subcommand of PUBSUB".to_owned()),
        };
        let channels = if is_sharded { &self.shard_channels } else { &self.channels };
        let count = |channel| channels.subscribers(channel).count();
        let pairs = words[2..]
            .iter()
            .flat_map(|channel| [Reply::Bulk(Arc::clone(channel)), Reply::count(count(channel))]);
        Ok(Reply::List(pairs.collect()))
    }

    pub(crate) fn send(&self, client: ClientId, replies: &[Reply]) {
        self.send_bytes(client, bytes(replies, self.new_protocol.contains(&client)));
    }

    fn send_bytes(&self, client: ClientId, bytes: Vec<u8>) {
        // The send fails if the connection is about to be removed.
        if let Some(sender) = self.clients.get(&client) {
            let _ = sender.send(bytes);
        }
    }
}

impl Host for Data {
    fn begin(&mut self, source: &[u8]) -> Result<(), String> {
        if self.parts.is_some() && !is_in_parts(source) {
            self.parts = None;
        }
        let (Some(node), Some(script)) = (&self.node, &mut self.script) else { return Ok(()) };
        script.crosses_slots = crosses_slots(source);
        if source.starts_with(b"#!") && !node.is_master() {
            return Err("READONLY You can't write against a read only replica.".to_owned());
        }
        Ok(())
    }

    fn call(&mut self, words: &[Bytes]) -> Reply {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        let is_publish = name == "publish" || name == "spublish";
        if name == "pubsub" {
            self.count_call("pubsub");
            return self.pubsub(words).into();
        }
        if !is_publish && COMMANDS.iter().any(|(other, _)| *other == name) {
            return Reply::Error("ERR This Redis command is not allowed from script".to_owned());
        }
        let command = find(&name);
        if (is_publish && words.len() != 3) || command.is_some_and(|command| !command.takes(words.len())) {
            return Reply::Error("ERR Wrong number of args calling Redis command from script".to_owned());
        }
        let keys = match command {
            Some(command) => command.keys(words),
            None if name == "spublish" => &words[1..2],
            None => &[],
        };
        if let Some(problem) = self.problem_in_script(keys, is_publish) {
            return Reply::Error(problem);
        }
        if is_publish {
            let name = if name == "publish" { "publish" } else { "spublish" };
            self.count_call(name);
            return self.publish(name, &words[1], &words[2]);
        }
        let reply = self.run_on_keys(&name, words);
        reply.unwrap_or_else(|| Reply::Error("ERR Unknown Redis command called from script".to_owned()))
    }

    fn ran_part(&mut self, values: Vec<Bytes>, reply: Reply) {
        if let Some(parts) = &mut self.parts {
            parts.push(Part { values, reply, entries: self.keyspace.copy() });
        }
    }

    fn takes(&self, name: &str, words: usize) -> Option<bool> {
        let other = || Some(takes(COMMANDS.iter().find(|(other, _)| *other == name)?.1, words));
        find(name).map(|command| command.takes(words)).or_else(other)
    }
}

const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";

/// Whether a script does the same for many parts of its keys and arguments.
fn is_in_parts(source: &[u8]) -> bool {
    str::from_utf8(source).is_ok_and(|source| source.contains("\nlocal function of_one("))
}

fn bytes(replies: &[Reply], is_new_protocol: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    replies.iter().for_each(|reply| reply.write(is_new_protocol, &mut bytes));
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

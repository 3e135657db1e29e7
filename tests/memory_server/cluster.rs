//! An in-memory cluster beside a real one: the same commands to the same nodes, while a slot moves and a master is replaced.

use lockkeeper_memory::{MemoryCluster, MemoryServer};
use lockkeeper_testkit::Cluster;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::memory_server::resp::{Connection, Reply};
use crate::support::{eventually, soon};

/// The slot of these keys moves from the last of three masters to the first.
const KEYS: [&str; 3] = ["a", "{a}1", "{a}2"];
const FROM: usize = 2;
const TO: usize = 0;
const REPLICA: usize = FROM + 3;

/// Both clusters.
struct Both {
    real: Cluster,
    memory: MemoryCluster,
    /// The ids and the ports of the nodes of both.
    names: [Vec<(String, u16)>; 2],
    /// What the two answered differently.
    different: Vec<String>,
    asked: usize,
}

impl Both {
    fn start() -> Self {
        let real = Cluster::start(3, 1);
        let memory = MemoryCluster::new(3, 1, |_| MemoryServer::new());
        let names = [
            real.servers.iter().map(|server| (server.run(&["CLUSTER", "MYID"]), server.port())).collect(),
            (0..6).zip(7_000..).map(|(node, port)| (memory.id(node).to_string(), port)).collect(),
        ];
        Self { real, memory, names, different: Vec::new(), asked: 0 }
    }

    async fn connect(&self, node: usize) -> [Connection; 2] {
        let real = TcpStream::connect(("127.0.0.1", self.real.servers[node].port())).await.unwrap();
        let memory = self.memory.nodes()[node].connect().await.unwrap();
        [Connection::new(real), Connection::new(memory)]
    }

    /// Asks this node of both clusters, and notes where they differ.
    async fn ask(&mut self, state: &str, node: usize, commands: &[Vec<&str>]) {
        let mut both = self.connect(node).await;
        self.ask_on(state, &mut both, commands).await;
    }

    async fn ask_on(&mut self, state: &str, [real, memory]: &mut [Connection; 2], commands: &[Vec<&str>]) {
        let mut replies = [real.run(commands).await, memory.run(commands).await];
        // A real replica passes messages on to its master, sooner or later.
        let is_message = |reply: &Reply| matches!(reply, Reply::Push(words) if words[0].text() == "smessage");
        replies.iter_mut().for_each(|replies| replies.retain(|reply| !is_message(reply)));
        let [real, memory] = [0, 1].map(|which| self.without_names(which, format!("{:?}", replies[which])));
        self.asked += commands.len();
        if real != memory {
            self.different.push(format!("{state}, {commands:?}\nreal:   {real}\nmemory: {memory}\n"));
        }
    }

    /// The text with the numbers of nodes in place of their ids and ports, and without what changes with the time.
    fn without_names(&self, which: usize, mut text: String) -> String {
        for (node, (id, port)) in self.names[which].iter().enumerate() {
            text =
                text.replace(id, &format!("node-{node}")).replace(&port.to_string(), &format!("port-{node}"));
        }
        text
    }

    /// Asks the nodes of both clusters everything that depends on the slot.
    async fn compare(&mut self, state: &str) {
        for server in &self.real.servers {
            let slots = || format!("{:?}", server.run::<redis::Value>(&["CLUSTER", "SLOTS"]));
            let expected =
                format!("{:?}", Reply::read(&mut &*self.memory.nodes()[0].execute(&["CLUSTER", "SLOTS"])));
            let expected = expected.matches("127.0.0.1").count();
            let has_all = |slots: &String| slots.matches("127.0.0.1").count() == expected;
            eventually("all nodes are named", slots, has_all).await;
        }
        let exists = "return redis.call('exists', unpack(KEYS))";
        let undeclared = |flags: &str| format!("{flags}return redis.call('exists', unpack(ARGV))");
        let [plain, strict, loose] =
            ["", "#!lua\n", "#!lua flags=allow-oom,allow-cross-slot-keys\n"].map(undeclared);
        let caught = "#!lua\nreturn redis.pcall('exists', ARGV[1])";
        let two = "local one = redis.pcall('exists', ARGV[1]); return {one, redis.pcall('exists', ARGV[2])}";
        let [strict_two, loose_two] =
            ["#!lua", "#!lua flags=allow-oom,allow-cross-slot-keys"].map(|first| format!("{first}\n{two}"));
        let publish = "return redis.call('spublish', ARGV[1], 'x')";
        let unknown = "ffffffffffffffffffffffffffffffffffffffff";
        let commands: Vec<Vec<&str>> = vec![
            vec!["GET", "a"],
            vec!["GET", "{a}1"],
            vec!["GET", "{a}none"],
            vec!["GET", "b"],
            vec!["EXISTS", "a", "a"],
            vec!["EXISTS", "a", "{a}1"],
            vec!["EXISTS", "{a}1", "{a}2"],
            vec!["EXISTS", "{a}none", "{a}neither"],
            vec!["EXISTS", "a", "b"],
            vec!["EXISTS"],
            vec!["EVAL", exists, "1", "a"],
            vec!["EVAL", exists, "2", "a", "{a}1"],
            vec!["EVAL", exists, "2", "a", "b"],
            vec!["EVAL", exists, "2", "a", "{a}channel"],
            vec!["EVAL", exists, "1"],
            vec!["EVAL", &plain, "0", "a"],
            vec!["EVAL", &plain, "0", "{a}1"],
            vec!["EVAL", &plain, "1", "b", "a"],
            vec!["EVAL", &strict, "0", "a"],
            vec!["EVAL", &strict, "0", "a", "{a}2"],
            vec!["EVAL", &strict, "1", "a", "{a}1"],
            vec!["EVAL", &strict, "0", "a", "b"],
            vec!["EVAL", &loose, "0", "a"],
            vec!["EVAL", &loose, "0", "a", "b"],
            vec!["EVAL", caught, "0", "a"],
            vec!["EVAL", &strict_two, "0", "a", "b"],
            vec!["EVAL", &loose_two, "0", "a", "b"],
            vec!["EVAL", publish, "0", "{a}channel"],
            vec!["EVAL", publish, "1", "a", "{a}channel"],
            vec!["EVALSHA", unknown, "1", "a"],
            vec!["EVALSHA", unknown, "0"],
            vec!["SPUBLISH", "{a}channel", "x"],
            vec!["SPUBLISH", "{a}channel"],
            vec!["PING"],
            vec!["SCRIPT", "LOAD", "return 1"],
            vec!["CLUSTER", "KEYSLOT", "{a}channel"],
            vec!["CLUSTER", "MYID"],
            vec!["CLUSTER", "NOSUCH"],
            vec!["CLUSTER"],
            vec!["CLUSTER", "SLOTS"],
            vec!["CLUSTER", "SETSLOT", "15495", "MIGRATING", unknown],
            vec!["CLUSTER", "SETSLOT", "15495", "IMPORTING", unknown],
            vec!["CLUSTER", "SETSLOT", "15495", "NODE", unknown],
            vec!["CLUSTER", "SETSLOT", "16384", "STABLE"],
            vec!["CLUSTER", "SETSLOT", "15495", "NOSUCH"],
            vec!["ASKING"],
            vec!["ASKING", "x"],
            vec!["WAIT", "1", "5000"],
            vec!["WAIT", "2", "20"],
            vec!["WAIT", "1", "-1"],
            vec!["WAIT", "1", "x"],
            vec!["WAIT", "x", "x"],
            vec!["WAIT", "1"],
            vec!["EVAL", "return redis.call('wait', 0, 1)", "0"],
        ];
        for node in [FROM, TO, 1, REPLICA] {
            let state = format!("{state}, node {node}");
            // A real node learns of a change from others, sooner or later.
            self.agree(&state, node).await;
            for command in &commands {
                self.ask(&state, node, std::slice::from_ref(command)).await;
                let asking = vec![vec!["ASKING"], command.clone(), command.clone()];
                self.ask(&format!("{state}, asking"), node, &asking).await;
            }
            let mut both = self.connect(node).await;
            for command in [["HELLO", "3"], ["SSUBSCRIBE", "{a}channel"], ["SUNSUBSCRIBE", "{a}channel"]] {
                // Its reply names the connection.
                if command[0] == "HELLO" {
                    let [real, memory] = &mut both;
                    let real = real.run(&[command.to_vec()]).await;
                    let facts = ["mode", "role"].map(|fact| (real[0].fact(fact), fact));
                    let memory = memory.run(&[command.to_vec()]).await;
                    assert_eq!(facts, ["mode", "role"].map(|fact| (memory[0].fact(fact), fact)), "{state}");
                } else {
                    self.ask_on(&state, &mut both, &[command.to_vec()]).await;
                }
            }
            for command in &commands {
                let state = format!("{state}, over version 3");
                self.ask_on(&state, &mut both, std::slice::from_ref(command)).await;
            }
        }
    }

    /// Waits until a node of the real cluster says of all nodes what the same node of the other says. The times do not count.
    async fn agree(&mut self, state: &str, node: usize) {
        let lines = |text: String| {
            let words = |line: &str| {
                let words: Vec<_> = line.split(' ').map(|word| word.split('@').next().unwrap()).collect();
                format!("{:?} {:?}", &words[..4], &words[6..])
            };
            let mut lines: Vec<_> = text.lines().map(words).collect();
            lines.sort();
            lines.join("\n")
        };
        let memory = Reply::read(&mut &*self.memory.nodes()[node].execute(&["CLUSTER", "NODES"])).text();
        let memory = lines(self.without_names(1, memory));
        let real = || lines(self.without_names(0, self.real.servers[node].run(&["CLUSTER", "NODES"])));
        eventually(&format!("{state}, both say\n{memory}\n"), real, |real| *real == memory).await;
    }

    fn gossip(&self) {
        for _ in 0..2 {
            for from in 0..6 {
                (0..6).filter(|to| *to != from).for_each(|to| self.memory.tell(from, to));
            }
        }
    }
}

/// Everything that a client sees of a slot that moves, and of a master that is replaced.
#[tokio::test]
async fn a_slot_that_moves_looks_the_same_in_both() {
    let mut both = Both::start();
    let slot = MemoryCluster::slot_of("a");
    for key in KEYS {
        both.ask("at the start", FROM, &[vec!["SET", key, "1"]]).await;
    }
    // A replica without any data is not named.
    for (node, key) in [(0, "b"), (1, "c")] {
        both.ask("at the start", node, &[vec!["SET", key, "1"]]).await;
    }
    both.compare("stable").await;

    // The messages of the slot.
    let mut listening = both.connect(FROM).await;
    let subscribe = [vec!["HELLO", "3"], vec!["SSUBSCRIBE", "{a}channel"]];
    for connection in &mut listening {
        connection.run(&subscribe).await;
    }
    both.ask("somebody listens", FROM, &[vec!["SPUBLISH", "{a}channel", "x"]]).await;
    let message =
        Reply::Push(["smessage", "{a}channel", "x"].map(|word| Reply::Text(Some(word.into()))).to_vec());
    for connection in &mut listening {
        assert_eq!(connection.run(&[]).await[0], message);
    }

    both.real.open_slot(slot, TO);
    both.memory.open_slot(slot, FROM, TO);
    both.compare("nothing has moved").await;
    both.real.move_key("{a}1", TO);
    assert!(both.memory.move_key("{a}1", FROM, TO));
    both.compare("one key has moved").await;
    for key in ["a", "{a}2"] {
        both.real.move_key(key, TO);
        assert!(both.memory.move_key(key, FROM, TO));
    }
    both.compare("all keys have moved").await;
    both.ask_on("before the slot is closed", &mut listening, &[]).await;
    both.real.close_slot(slot, TO);
    both.memory.close_slot(slot, TO);
    both.gossip();
    both.compare("the slot has moved").await;
    both.ask_on("the slot has moved", &mut listening, &[vec!["SSUBSCRIBE", "{a}channel"]]).await;

    let promoted = both.real.fail_over(slot);
    assert_eq!(promoted, TO + 3);
    both.memory.take_over(TO, promoted, std::time::Duration::ZERO);
    both.memory.set_replicas(promoted, 1);
    both.gossip();
    both.compare("a replica has taken the place of its master").await;

    println!("{} commands", both.asked);
    assert!(both.different.is_empty(), "{} differ: {}", both.different.len(), both.different.join("\n"));
}

/// A proxy says that there is a single server.
#[tokio::test]
async fn what_a_proxy_in_front_of_a_cluster_passes_on_looks_the_same_in_both() {
    let mut both = Both::start();
    both.memory.hide(FROM);
    let publish = "return redis.call('publish', ARGV[1], 'x')";
    let commands: [&[&str]; 6] = [
        &["PUBLISH", "{a}channel", "x"],
        &["EVAL", publish, "1", "a", "{a}channel"],
        &["EVAL", publish, "1", "a", "b"],
        &["EXISTS", "a", "b"],
        &["EVAL", "return redis.call('exists', unpack(KEYS))", "2", "a", "b"],
        &["EVAL", "#!lua\nreturn redis.call('exists', unpack(KEYS))", "2", "a", "b"],
    ];
    for command in commands {
        both.ask("behind a proxy", FROM, &[command.to_vec()]).await;
    }
    assert!(both.different.is_empty(), "{}", both.different.join("\n"));
}

/// Most masters are gone.
#[tokio::test]
async fn a_cluster_without_a_majority_looks_the_same_in_both() {
    let mut both = Both::start();
    both.ask("at the start", FROM, &[vec!["SET", "a", "1"]]).await;
    [0, 1].into_iter().for_each(|node| both.real.kill(node));
    let info = || both.real.servers[FROM].run::<String>(&["CLUSTER", "INFO"]);
    eventually("the cluster is down", info, |info| info.contains("cluster_state:fail")).await;
    both.memory.set_down(FROM, true);
    let read = |flags: &str| format!("{flags}return redis.pcall('get', ARGV[1])");
    let [plain, strict] = ["", "#!lua\n"].map(read);
    let commands: [&[&str]; 9] = [
        &["GET", "a"],
        &["GET", "b"],
        &["EXISTS", "a", "b"],
        &["EVAL", &plain, "1", "a", "a"],
        &["EVAL", &plain, "0", "a"],
        &["EVAL", &strict, "0", "a"],
        &["EVAL", "return redis.call('spublish', ARGV[1], 'x')", "0", "{a}channel"],
        &["SPUBLISH", "{a}channel", "x"],
        &["SSUBSCRIBE", "{a}channel"],
    ];
    for command in commands {
        both.ask("down", FROM, &[command.to_vec()]).await;
    }
    assert!(both.different.is_empty(), "{}", both.different.join("\n"));
}

/// Its master waits for more replicas than there are.
#[tokio::test]
async fn a_client_that_waits_for_replicas_is_told_that_its_server_becomes_one() {
    let both = Both::start();
    let slot = MemoryCluster::slot_of("a");
    let mut waiting = both.connect(FROM).await;
    for connection in &mut waiting {
        connection.run(&[vec!["SET", "a", "1"]]).await;
        connection.stream.write_all(b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n0\r\n").await.unwrap();
    }
    let clients = || both.real.servers[FROM].run::<String>(&["INFO", "clients"]);
    eventually("it waits", clients, |clients| clients.contains("blocked_clients:1")).await;
    // The server in memory runs in this thread.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let promoted = both.real.fail_over(slot);
    both.memory.take_over(FROM, promoted, std::time::Duration::ZERO);
    both.memory.tell(promoted, FROM);
    let mut told = Vec::new();
    for connection in &mut waiting {
        let mut text = String::new();
        soon(connection.stream.read_to_string(&mut text)).await.unwrap();
        told.push(text);
    }
    assert!(told[0].starts_with("-UNBLOCKED"), "{told:?}");
    assert_eq!(told[0], told[1]);
}

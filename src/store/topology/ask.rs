//! Asks sentinels or the nodes of a cluster who the masters are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Cmd, FromRedisValue, RedisResult, Value, cmd};

use super::address::{Address, UNKNOWN};
use super::group::{Discovery, Group};
use super::map::{Rank, Vote, is_decided};
use super::slots::{Map, Range};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::timer::{Instant, timeout};
use crate::store::connection::{ClientName, Endpoint, Multiplexed, connect, connect_to_master, wire};
use crate::store::task::Task;

/// When more than half agree, the others have this time to answer. So a silent server delays nothing.
const GRACE: Duration = Duration::from_millis(50);

impl Discovery {
    /// Whether these votes are enough, of so many who were asked: the others would hardly change the result.
    fn is_decided(&self, votes: &[Vote], asked: usize) -> bool {
        match self {
            Self::Fixed(_) => true,
            Self::Cluster => votes.len() * 2 > asked,
            Self::Sentinel { .. } => is_decided(votes, asked),
        }
    }
}

/// The servers that are asked. None if there is a single server.
pub(super) struct Pollees {
    how: Arc<How>,
    servers: Vec<Pollee>,
    /// Who was asked last when only one was asked.
    turn: usize,
}

/// What all questions have in common.
struct How {
    discovery: Discovery,
    name: Arc<ClientName>,
}

struct Pollee {
    how: Arc<How>,
    endpoint: Endpoint,
    address: Address,
    /// Makes a connection, with a time limit of its own: that can take longer than a question.
    connecting: Option<Task<Result<Multiplexed, Fault>>>,
    open: Option<Open>,
}

/// A connection stays when the time for a question is up: perhaps the server is only slow. A late answer counts for nothing.
struct Open {
    connection: Multiplexed,
    /// The first question without an answer, and when it was sent.
    unanswered: Option<(Instant, Question)>,
}

type Question = Shared<BoxFuture<'static, RedisResult<Vec<Value>>>>;

impl Pollees {
    pub(super) fn new(group: &Group, name: &Arc<ClientName>) -> Self {
        let how = Arc::new(How { discovery: group.discovery.clone(), name: Arc::clone(name) });
        let mut pollees = Self { how, servers: Vec::new(), turn: 0 };
        pollees.replace(group.pollees.clone());
        pollees
    }

    /// Asks these from now on.
    pub(super) fn replace(&mut self, servers: Vec<(Address, Endpoint)>) {
        let mut before = std::mem::take(&mut self.servers);
        let server = |(address, endpoint): (Address, Endpoint)| {
            let known = before.iter().position(|server| server.address == address);
            let new = || {
                let how = Arc::clone(&self.how);
                Pollee { how, endpoint, address, connecting: None, open: None }
            };
            known.map_or_else(new, |known| before.swap_remove(known))
        };
        self.servers = servers.into_iter().map(server).collect();
    }

    /// Asks all at once, with this time limit. Returns their votes, and the fault of each that gave no answer.
    pub(super) async fn ask(&mut self, limit: Duration) -> (Vec<Vote>, Vec<Fault>) {
        let (discovery, all) = (&self.how.discovery, self.servers.len());
        let (mut votes, mut faults) = (Vec::new(), Vec::new());
        let mut asking: FuturesUnordered<_> =
            self.servers.iter_mut().map(|server| server.ask_in_time(limit)).collect();
        loop {
            let next = asking.next();
            let answer = if discovery.is_decided(&votes, all) {
                timeout(GRACE, next).await.unwrap_or_default()
            } else {
                next.await
            };
            match answer {
                Some(Ok(vote)) => votes.push(vote),
                Some(Err(fault)) => faults.push(fault),
                None => return (votes, faults),
            }
        }
    }

    /// Asks the one whose turn it is.
    pub(super) async fn ask_next(&mut self, limit: Duration) -> Result<Vote, Fault> {
        self.turn = (self.turn + 1) % self.servers.len();
        self.servers[self.turn].ask_in_time(limit).await
    }

    /// Closes the connections, so that the next question is asked with the latest credentials.
    pub(super) fn disconnect(&mut self) {
        self.servers.iter_mut().for_each(|server| (server.connecting, server.open) = (None, None));
    }
}

impl Pollee {
    async fn ask_in_time(&mut self, limit: Duration) -> Result<Vote, Fault> {
        self.take_connection();
        self.leave_if_silent(limit);
        let late = |_| Err(Fault::new(FaultKind::TimedOut, Sent::Unknown, "no answer in time"));
        let answer = timeout(limit, self.ask()).await.unwrap_or_else(late);
        answer.map_err(|fault| fault.at(&self.address.to_string().into()))
    }

    async fn ask(&mut self) -> Result<Vote, Fault> {
        match &Arc::clone(&self.how).discovery {
            Discovery::Fixed(_) => Ok(Vote::one(Rank::default(), self.address.clone())),
            Discovery::Cluster => self.ask_cluster().await,
            Discovery::Sentinel { master, server } => self.ask_sentinel(master, server).await,
        }
    }

    async fn ask_cluster(&mut self) -> Result<Vote, Fault> {
        // Sent together: if the node that is asked became a master between the two commands, its slots would get the
        // epoch of an earlier claim.
        let [nodes, slots] = self.send([cmd("CLUSTER").arg("NODES"), cmd("CLUSTER").arg("SLOTS")]).await?;
        let nodes = String::from_redis_value(nodes).map_err(|error| Fault::unexpected(&error))?;
        vote_of_node(&nodes, &slots, &self.address).ok_or_else(|| Fault::unexpected(&slots))
    }

    async fn ask_sentinel(&mut self, master: &str, server: &Endpoint) -> Result<Vote, Fault> {
        let facts = match self.send([cmd("SENTINEL").arg("MASTER").arg(master)]).await {
            Err(fault) if fault.to_string().contains("No such master") => {
                let problem = format!("the sentinels know no master `{master}`");
                return Err(Fault::new(FaultKind::Configuration, Sent::Refused, problem));
            }
            replies => {
                let [facts] = replies?;
                Facts::of(facts)?
            }
        };
        let failover = facts.text("config-epoch").parse().unwrap_or_default();
        if facts.has_flag("failover_in_progress")
            && let Some(promoted) = self.promoted(master, server).await?
        {
            return Ok(Vote::one(Rank { failover, is_promotion: true }, promoted));
        }
        let named = facts.address(&self.address)?;
        Ok(Vote::one(Rank { failover, is_promotion: false }, named))
    }

    /// The replica that the sentinel promotes at this moment, if it is a master already. The sentinel itself finds that out up to a
    /// second later.
    async fn promoted(&mut self, master: &str, server: &Endpoint) -> Result<Option<Address>, Fault> {
        let [replicas] = self.send([cmd("SENTINEL").arg("REPLICAS").arg(master)]).await?;
        let replicas: Vec<Value> =
            FromRedisValue::from_redis_value_ref(&replicas).map_err(|_| Fault::unexpected(&replicas))?;
        for replica in replicas {
            let facts = Facts::of(replica)?;
            if facts.has_flag("promoted") {
                let promoted = facts.address(&self.address)?;
                let server = server.at(&promoted.host, promoted.port);
                let is_master = connect_to_master(&server, &self.how.name).await.is_ok();
                return Ok(Some(promoted).filter(|_| is_master));
            }
        }
        Ok(None)
    }

    /// Sends commands in one write.
    async fn send<const N: usize>(&mut self, commands: [&Cmd; N]) -> Result<[Value; N], Fault> {
        let open = self.open().await?;
        let (mut connection, commands) = (open.connection.clone(), commands.map(Cmd::clone));
        let asking = async move { wire::send_together(&mut connection.redis, &commands.each_ref()).await };
        let question = asking.boxed().shared();
        open.unanswered.get_or_insert_with(|| (Instant::now(), question.clone()));
        let values = match question.await {
            Ok(values) => values,
            Err(error) => {
                self.open = None;
                return Err(wire::fault(error));
            }
        };
        // The server answers in order, so it has also answered the questions that were given up before.
        open.unanswered = None;
        values.try_into().map_err(|values: Vec<Value>| Fault::unexpected(&values))
    }

    /// Returns the connection. Makes it if there is none.
    async fn open(&mut self) -> Result<&mut Open, Fault> {
        if self.open.is_none() {
            let (endpoint, name) = (&self.endpoint, &self.how.name);
            let start = || Task::spawn(connected(endpoint.clone(), Arc::clone(name)));
            let connecting = self.connecting.get_or_insert_with(start);
            let gone = |gone| Err(Fault::new(FaultKind::RuntimeGone, Sent::No, gone));
            let made = (&mut connecting.0).await.unwrap_or_else(gone);
            self.connecting = None;
            self.open = Some(Open { connection: made?, unanswered: None });
        }
        Ok(self.open.as_mut().expect("just made"))
    }

    /// Takes the connection that was made since the last question. A failure to connect in that time is no answer to
    /// the next question.
    fn take_connection(&mut self) {
        let Some(connecting) = &mut self.connecting else { return };
        let Some(made) = (&mut connecting.0).now_or_never() else { return };
        self.connecting = None;
        if let Ok(Ok(connection)) = made {
            self.open = Some(Open { connection, unanswered: None });
        }
    }

    /// Closes the connection if an earlier question has got no answer for this time.
    fn leave_if_silent(&mut self, limit: Duration) {
        let Some(open) = &mut self.open else { return };
        let Some((sent, question)) = &open.unanswered else { return };
        match question.clone().now_or_never() {
            Some(Ok(_)) => open.unanswered = None,
            None if sent.elapsed() < limit => {}
            _ => self.open = None,
        }
    }
}

/// Makes a connection.
async fn connected(endpoint: Endpoint, name: Arc<ClientName>) -> Result<Multiplexed, Fault> {
    let connecting = async {
        let mut connection = connect(&endpoint).await?;
        name.set(&mut connection.redis, &endpoint.address()).await.map_err(wire::connect_fault)?;
        Ok(connection)
    };
    let late = |_| Err(Fault::new(FaultKind::Unreachable, Sent::No, "no connection in time"));
    timeout(endpoint.limit, connecting).await.unwrap_or_else(late)
}

/// What a sentinel says about one server.
struct Facts(HashMap<String, String>);

impl Facts {
    fn of(reply: Value) -> Result<Self, Fault> {
        FromRedisValue::from_redis_value_ref(&reply).map(Self).map_err(|_| Fault::unexpected(&reply))
    }

    fn text(&self, fact: &str) -> &str {
        self.0.get(fact).map_or("", String::as_str)
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.text("flags").split(',').any(|other| other == flag)
    }

    fn address(&self, asked: &Address) -> Result<Address, Fault> {
        let port = self.text("port").parse().map_err(|_| Fault::unexpected(&self.0))?;
        Ok(Address::announced(self.text("ip").to_owned(), port, asked))
    }
}

/// Reads the replies of `CLUSTER NODES`, which has the epochs, and of `CLUSTER SLOTS`, which has the addresses for clients.
fn vote_of_node(nodes: &str, slots: &Value, asked: &Address) -> Option<Vote> {
    let fields = nodes.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let epochs: HashMap<String, u64> =
        fields.filter_map(|node| Some(((*node.first()?).to_owned(), node.get(6)?.parse().ok()?))).collect();
    let Value::Array(slots) = slots else { return None };
    let (mut ranges, mut others) = (Vec::new(), Vec::new());
    for range in slots {
        let Value::Array(range) = range else { return None };
        let [first, last, servers @ ..] = &range[..] else { return None };
        let number = |value| u16::from_redis_value_ref(value).ok();
        for (index, server) in servers.iter().enumerate() {
            let Value::Array(server) = server else { return None };
            let [host, port, id, about @ ..] = &server[..] else { return None };
            let host = Option::<String>::from_redis_value_ref(host).ok()?.unwrap_or_default();
            // The cluster prefers a kind of name that this server lacks, and announces `?`. The IP is used, and a
            // server without one is skipped.
            let Some(host) = (if host == UNKNOWN { ip(about) } else { Some(host) }) else { continue };
            let address = Address::announced(host, number(port)?, asked);
            if index == 0 {
                let id = String::from_redis_value_ref(id).ok()?;
                let epoch = epochs.get(&id).copied().unwrap_or_default();
                ranges.push(Range::new(number(first)?, number(last)?, epoch, address)?);
            } else if !others.contains(&address) {
                others.push(address);
            }
        }
    }
    Some(Vote { rank: Rank::default(), map: Map::of_ranges(ranges), others })
}

/// Returns the IP address from the further facts that a node announces about a server.
fn ip(about: &[Value]) -> Option<String> {
    HashMap::<String, String>::from_redis_value_ref(about.first()?).ok()?.remove("ip")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    /// What the node at `s:7000` says if the first master is announced like this.
    fn vote(host: Value, about: Vec<Value>) -> Option<Vote> {
        let nodes = "one s:7001@1 master - 0 0 1 connected 0-8191\n\
                     two s:7000@1 myself,master - 0 0 2 connected 8192-16383\n";
        let server =
            |host, port, id, about| Value::Array(vec![host, Value::Int(port), text(id), Value::Array(about)]);
        let range = |first, last, servers| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], servers].concat())
        };
        let first = server(host.clone(), 7001, "one", about.clone());
        let replica = server(host, 7002, "three", about);
        let second = server(text("b"), 7000, "two", Vec::new());
        let slots =
            Value::Array(vec![range(0, 8_191, vec![first]), range(8_192, 16_383, vec![second, replica])]);
        vote_of_node(nodes, &slots, &Address { host: "s".to_owned(), port: 7000 })
    }

    /// It counts for the question during which it came.
    #[tokio::test]
    async fn a_failure_to_connect_before_a_question_is_no_answer_to_it() {
        let endpoint = Endpoint::new("redis://127.0.0.1:1/", None, Duration::from_secs(1)).unwrap();
        let address = Address { host: "s".to_owned(), port: 6379 };
        let how = Arc::new(How { discovery: Discovery::Cluster, name: Arc::default() });
        let mut pollee = Pollee { how, endpoint, address, connecting: None, open: None };
        for has_failed in [false, true] {
            let refused = async { Err(Fault::new(FaultKind::Unreachable, Sent::No, "refused")) };
            let task = pollee.connecting.insert(Task::spawn(refused));
            // The end of the runtime also ends the task, and then nobody would ever make this connection.
            if !has_failed {
                task.end();
            }
            tokio::task::yield_now().await;
            pollee.take_connection();
            assert!(pollee.connecting.is_none() && pollee.open.is_none());
        }
    }

    #[test]
    fn a_node_without_the_preferred_name_is_at_its_ip_or_claims_nothing() {
        let about = |ip: &str| vec![text("ip"), text(ip)];
        let cases = [
            (text("a"), Vec::new(), Some("a")),
            (text("a"), about("10.0.0.1"), Some("a")),
            (text("?"), about("10.0.0.1"), Some("10.0.0.1")),
            (text("?"), vec![text("shard"), text("x")], None),
            (text("?"), Vec::new(), None),
            (Value::Nil, about("10.0.0.1"), Some("s")),
            (text(""), Vec::new(), Some("s")),
            // The node does not know its own IP either, so the address counts at which it was asked.
            (text("?"), about(""), Some("s")),
        ];
        for (host, about, expected) in cases {
            let vote = vote(host.clone(), about).unwrap();
            let at = |port| expected.map(|host| format!("{host}:{port}"));
            assert_eq!(vote.map.master(0).map(Address::to_string), at(7001), "{host:?}");
            assert_eq!(vote.others.first().map(Address::to_string), at(7002), "{host:?}");
            assert_eq!(vote.map.master(9_000).unwrap().to_string(), "b:7000");
        }
    }
}

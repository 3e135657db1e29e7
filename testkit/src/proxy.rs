//! A TCP proxy that makes the faults that a network can make, and no others.
//!
//! It holds bytes and delivers them late, or cuts their connection. It never drops bytes from the middle of a
//! connection. To swallow a reply, it holds the reply, and all bytes that follow, until the connection is cut. Only
//! published messages can be dropped one by one: no command waits for them, and Redis can lose them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::resp::{byte_words, command, frame_len, words};

/// A proxy in front of one server. Dropping the proxy cuts its connections.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What happens to the bytes on a connection. The default is no fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tests build it from its fields")]
pub struct Faults {
    /// What the client sends is held.
    pub hold_requests: bool,
    /// What the server sends is held.
    pub hold_replies: bool,
    /// Each command and each reply is delayed by this.
    pub delay: Duration,
    /// Published messages are dropped.
    pub lose_messages: bool,
}

impl Faults {
    /// The connection stays open, and nothing passes in either direction.
    pub fn black_hole() -> Self {
        Self { hold_requests: true, hold_replies: true, ..Self::default() }
    }

    /// Commands reach the server, and no reply reaches the client.
    pub fn replies_held() -> Self {
        Self { hold_replies: true, ..Self::default() }
    }
}

type Matches = Box<dyn Fn(&[String]) -> bool + Send + Sync>;
type Answers = Box<dyn Fn(&[String]) -> Option<String> + Send + Sync>;
type Replaces = Box<dyn Fn(&[&[u8]]) -> Option<Vec<Vec<u8>>> + Send + Sync>;

struct Shared {
    upstream: Mutex<u16>,
    /// The faults of a new connection.
    new: Mutex<Faults>,
    refuses: Mutex<bool>,
    links: Mutex<Vec<Arc<Link>>>,
    swallow: Mutex<Option<Swallow>>,
    answers: Mutex<Option<Answers>>,
    replaces: Mutex<Option<Replaces>>,
    /// How many replies were swallowed.
    swallowed: AtomicUsize,
    lost_messages: AtomicUsize,
    accepted: AtomicUsize,
    /// How many commands came from clients.
    commands: AtomicUsize,
    /// The words of each command, if they are recorded.
    recorded: Mutex<Option<Vec<Vec<String>>>>,
    /// The code of each reply that was an error, such as `BUSY`.
    errors: Mutex<Vec<String>>,
    /// The first bytes are replaced by the second in each reply. Both have the same length.
    doctored: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
}

struct Swallow {
    matches: Matches,
    /// Matching commands that pass first.
    skip: usize,
    then_cut: bool,
}

struct Link {
    faults: watch::Sender<Faults>,
    cut: watch::Sender<bool>,
    /// What to do with the reply of each command under way, in their order.
    verdicts: Mutex<Vec<Verdict>>,
}

enum Verdict {
    Pass,
    /// The server got another command, and its reply is replaced by this one.
    Answer(String),
    Swallow {
        then_cut: bool,
    },
}

impl Proxy {
    /// Listens on a free port, and forwards to the server on this port.
    pub async fn to(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            new: Mutex::default(),
            refuses: Mutex::default(),
            links: Mutex::default(),
            swallow: Mutex::default(),
            answers: Mutex::default(),
            replaces: Mutex::default(),
            swallowed: AtomicUsize::new(0),
            lost_messages: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            commands: AtomicUsize::new(0),
            recorded: Mutex::default(),
            errors: Mutex::default(),
            doctored: Mutex::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// The port on which it listens, of the address 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets the faults of all connections, existing and new.
    pub fn set(&self, faults: Faults) {
        *self.shared.new.lock().unwrap() = faults;
        self.set_existing(faults);
    }

    /// Sets the faults of existing connections only.
    pub fn set_existing(&self, faults: Faults) {
        for link in &*self.shared.links.lock().unwrap() {
            link.faults.send_replace(faults);
        }
    }

    /// Forwards new connections to the server on another port.
    pub fn lead_to(&self, upstream: u16) {
        *self.shared.upstream.lock().unwrap() = upstream;
    }

    /// Sets whether new connections are closed at once.
    pub fn refuse(&self, refuses: bool) {
        *self.shared.refuses.lock().unwrap() = refuses;
    }

    /// Closes all existing connections. The bytes that were held on them are lost.
    pub fn cut(&self) {
        for link in &*self.shared.links.lock().unwrap() {
            link.cut.send_replace(true);
        }
    }

    /// Swallows the reply to a command that matches, after it let `skip` others that match pass.
    ///
    /// The connection then passes no more replies, or is closed at once if `then_cut` is set.
    pub fn swallow(
        &self,
        skip: usize,
        then_cut: bool,
        matches: impl Fn(&[String]) -> bool + Send + Sync + 'static,
    ) {
        *self.shared.swallow.lock().unwrap() = Some(Swallow { matches: Box::new(matches), skip, then_cut });
    }

    /// Answers commands instead of the server, with the replies that `answer` returns for their words. `None`: the server answers.
    pub fn answer(&self, answer: impl Fn(&[String]) -> Option<String> + Send + Sync + 'static) {
        *self.shared.answers.lock().unwrap() = Some(Box::new(answer));
    }

    /// Sends another command in place of one, with the words that `replace` returns for its words. `None`: the command itself.
    pub fn replace(&self, replace: impl Fn(&[&[u8]]) -> Option<Vec<Vec<u8>>> + Send + Sync + 'static) {
        *self.shared.replaces.lock().unwrap() = Some(Box::new(replace));
    }

    /// How many replies were swallowed.
    pub fn swallowed(&self) -> usize {
        self.shared.swallowed.load(Ordering::SeqCst)
    }

    /// How many published messages were dropped.
    pub fn lost_messages(&self) -> usize {
        self.shared.lost_messages.load(Ordering::SeqCst)
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many commands came from clients. On a connection whose requests are held, only the first held one is counted.
    pub fn commands(&self) -> usize {
        self.shared.commands.load(Ordering::SeqCst)
    }

    /// Records all commands from now on.
    pub fn record(&self) {
        *self.shared.recorded.lock().unwrap() = Some(Vec::new());
    }

    /// The words of each command that was recorded.
    pub fn recorded(&self) -> Vec<Vec<String>> {
        self.shared.recorded.lock().unwrap().clone().expect("commands are recorded")
    }

    /// How many replies were an error with this code, such as `BUSY`.
    pub fn errors(&self, code: &str) -> usize {
        self.shared.errors.lock().unwrap().iter().filter(|error| *error == code).count()
    }

    /// Replaces these bytes in each reply by others. The reply must stay valid.
    pub fn doctor(&self, from: &str, to: &str) {
        *self.shared.doctored.lock().unwrap() = Some((from.into(), to.into()));
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        if *shared.refuses.lock().unwrap() {
            continue;
        }
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        let link = Arc::new(Link {
            faults: watch::Sender::new(*shared.new.lock().unwrap()),
            cut: watch::Sender::new(false),
            verdicts: Mutex::default(),
        });
        shared.links.lock().unwrap().push(Arc::clone(&link));
        tokio::spawn(serve(client, link, Arc::clone(&shared)));
    }
}

async fn serve(client: TcpStream, link: Arc<Link>, shared: Arc<Shared>) {
    // If no server listens on that port, the connection is closed.
    let upstream = *shared.upstream.lock().unwrap();
    if let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)).await {
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let mut cut = link.cut.subscribe();
        tokio::select! {
            () = requests(from_client, to_server, &link, &shared) => {}
            () = replies(from_server, to_client, &link, &shared) => {}
            _ = cut.wait_for(|cut| *cut) => {}
        }
    }
    shared.links.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &link));
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: &Link, shared: &Shared) {
    let mut bytes = Vec::new();
    while from.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
        while let Some(len) = frame_len(&bytes) {
            let mut frame: Vec<u8> = bytes.drain(..len).collect();
            let words = words(&frame);
            if let Some(recorded) = &mut *shared.recorded.lock().unwrap() {
                recorded.push(words.clone());
            }
            shared.commands.fetch_add(1, Ordering::SeqCst);
            link.pass(|faults| faults.hold_requests).await;
            let verdict = shared.verdict(&words);
            if let Verdict::Answer(_) = verdict {
                frame = b"*1\r\n$4\r\nPING\r\n".to_vec();
            } else if let Some(other) = shared.replaced(&frame) {
                frame = command(&other);
            }
            link.verdicts.lock().unwrap().push(verdict);
            if to.write_all(&frame).await.is_err() {
                return;
            }
        }
    }
}

async fn replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: &Link, shared: &Shared) {
    let mut bytes = Vec::new();
    while from.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
        while let Some(len) = frame_len(&bytes) {
            let mut frame: Vec<u8> = bytes.drain(..len).collect();
            shared.treat(&mut frame);
            shared.record(&frame);
            if frame.starts_with(b"*3\r\n$7\r\nmessage\r\n") {
                if link.faults.borrow().lose_messages {
                    shared.lost_messages.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
            } else {
                match link.next_verdict() {
                    Verdict::Pass => {}
                    Verdict::Answer(reply) => frame = reply.into_bytes(),
                    Verdict::Swallow { then_cut } => {
                        shared.swallowed.fetch_add(1, Ordering::SeqCst);
                        if then_cut {
                            return;
                        }
                        std::future::pending().await // held until the connection is cut
                    }
                }
            }
            link.pass(|faults| faults.hold_replies).await;
            if to.write_all(&frame).await.is_err() {
                return;
            }
        }
    }
}

impl Shared {
    fn verdict(&self, command: &[String]) -> Verdict {
        let answer = self.answers.lock().unwrap().as_ref().and_then(|answer| answer(command));
        if let Some(answer) = answer {
            return Verdict::Answer(answer);
        }
        let mut swallow = self.swallow.lock().unwrap();
        let Some(rule) = swallow.as_mut().filter(|rule| (rule.matches)(command)) else {
            return Verdict::Pass;
        };
        if rule.skip > 0 {
            rule.skip -= 1;
            return Verdict::Pass;
        }
        let then_cut = rule.then_cut;
        *swallow = None;
        Verdict::Swallow { then_cut }
    }

    fn replaced(&self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        self.replaces.lock().unwrap().as_ref().and_then(|replace| replace(&byte_words(frame)))
    }

    fn record(&self, reply: &[u8]) {
        if let Some(error) = reply.strip_prefix(b"-") {
            let code = error.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
            self.errors.lock().unwrap().push(String::from_utf8_lossy(code).into_owned());
        }
    }

    fn treat(&self, frame: &mut Vec<u8>) {
        if let Some((from, to)) = &*self.doctored.lock().unwrap()
            && let Some(at) = frame.windows(from.len()).position(|part| part == from)
        {
            frame.splice(at..at + from.len(), to.iter().copied());
        }
    }
}

impl Link {
    async fn pass(&self, held: fn(&Faults) -> bool) {
        let delay = self.faults.borrow().delay;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let _ = self.faults.subscribe().wait_for(|faults| !held(faults)).await;
    }

    fn next_verdict(&self) -> Verdict {
        let mut verdicts = self.verdicts.lock().unwrap();
        // A command that subscribes has one reply for each channel. So there can be more replies than commands, and
        // those without a verdict pass.
        if verdicts.is_empty() { Verdict::Pass } else { verdicts.remove(0) }
    }
}

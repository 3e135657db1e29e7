//! Replies of both servers, as data.

use std::fmt::{self, Write as _};
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

#[derive(Clone, PartialEq)]
pub enum Reply {
    Double(String),
    Error(String),
    Int(i64),
    List(Option<Vec<Self>>),
    /// Keys and values.
    Map(Vec<Self>),
    /// A message, or what belongs to a subscription.
    Push(Vec<Self>),
    Status(String),
    Text(Option<Vec<u8>>),
    Verbatim(Vec<u8>),
}

impl Reply {
    pub fn read(from: &mut impl BufRead) -> Self {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        let (first, rest) = line.trim_end_matches("\r\n").split_at(1);
        let mut items = |count: usize| (0..count).map(|_| Self::read(from)).collect();
        let len = || rest.parse::<i64>().ok().and_then(|len| usize::try_from(len).ok());
        match first {
            "-" => Self::Error(rest.to_owned()),
            "+" => Self::Status(rest.to_owned()),
            ":" => Self::Int(rest.parse().unwrap()),
            "$" => Self::Text(len().map(|len| text(from, len))),
            "=" => Self::Verbatim(text(from, len().unwrap())),
            "," => Self::Double(rest.to_owned()),
            "*" => Self::List(len().map(items)),
            ">" => Self::Push(items(len().unwrap())),
            "%" => Self::Map(items(2 * len().unwrap())),
            "_" => Self::Text(None),
            _ => panic!("{line:?}"),
        }
    }

    pub fn list(self) -> Vec<Self> {
        match self {
            Self::List(Some(items)) => items,
            other => panic!("{other:?}"),
        }
    }

    /// The value of a key of a map.
    pub fn fact(&self, key: &str) -> String {
        let Self::Map(facts) = self else { panic!("{self:?}") };
        facts.chunks(2).find(|fact| fact[0].text() == key).expect("it is there")[1].text()
    }

    pub fn text(&self) -> String {
        match self {
            Self::Text(Some(text)) => String::from_utf8(text.clone()).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

fn text(from: &mut impl BufRead, len: usize) -> Vec<u8> {
    let mut text = vec![0; len + 2];
    from.read_exact(&mut text).unwrap();
    text.truncate(len);
    text
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(text) => write!(f, "-{text}"),
            Self::Double(number) => write!(f, ",{number}"),
            Self::Verbatim(text) => write!(f, "={:?}", String::from_utf8_lossy(text)),
            Self::Int(number) => number.fmt(f),
            Self::List(Some(items)) => items.fmt(f),
            Self::Map(items) => write!(f, "map {items:?}"),
            Self::Push(items) => write!(f, "push {items:?}"),
            Self::List(None) => f.write_str("no list"),
            Self::Status(text) => write!(f, "+{text}"),
            Self::Text(Some(text)) => write!(f, "{:?}", String::from_utf8_lossy(text)),
            Self::Text(None) => f.write_str("nil"),
        }
    }
}

/// A connection to a real server.
pub struct Real(BufReader<TcpStream>);

impl Real {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    pub fn is_redis_7(&mut self) -> bool {
        let info = self.run(&[vec!["INFO".to_owned(), "server".to_owned()]]).remove(0).text();
        info.contains("redis_version:7.0") && !info.contains("valkey")
    }

    /// Sends commands together.
    pub fn run(&mut self, commands: &[Vec<String>]) -> Vec<Reply> {
        let mut bytes = Vec::new();
        for words in commands {
            write!(bytes, "*{}\r\n", words.len()).unwrap();
            for word in words {
                write!(bytes, "${}\r\n{word}\r\n", word.len()).unwrap();
            }
        }
        self.0.get_mut().write_all(&bytes).unwrap();
        commands.iter().map(|_| Reply::read(&mut self.0)).collect()
    }
}

/// A connection to a real server or to one in memory.
pub struct Connection {
    pub stream: Box<dyn Stream>,
    /// Bytes that arrived after the last awaited reply, such as a message.
    unread: Vec<u8>,
}

pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The reply of the last command.
const END: &[u8] = b"$3\r\nend\r\n";

impl Connection {
    pub fn new(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), unread: Vec::new() }
    }

    /// Sends commands together. Returns the replies, and the messages that arrived before them.
    pub async fn run(&mut self, commands: &[Vec<&str>]) -> Vec<Reply> {
        let mut text = String::new();
        for words in commands.iter().chain([&vec!["PING", "end"]]) {
            write!(text, "*{}\r\n", words.len()).unwrap();
            words.iter().for_each(|word| write!(text, "${}\r\n{word}\r\n", word.len()).unwrap());
        }
        self.stream.write_all(text.as_bytes()).await.unwrap();
        let end = |bytes: &[u8]| bytes.windows(END.len()).position(|part| part == END);
        let end = loop {
            if let Some(end) = end(&self.unread) {
                break end + END.len();
            }
            assert_ne!(self.stream.read_buf(&mut self.unread).await.unwrap(), 0, "it ended");
        };
        let bytes: Vec<_> = self.unread.drain(..end).collect();
        let mut rest = &bytes[..];
        let mut replies = Vec::new();
        while !rest.is_empty() {
            replies.push(Reply::read(&mut rest));
        }
        replies
    }
}

//! Replies of both servers, as data.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

#[derive(Clone, PartialEq)]
pub enum Reply {
    Error(String),
    Int(i64),
    List(Option<Vec<Self>>),
    /// Keys and values.
    Map(Vec<Self>),
    /// A message, or what belongs to a subscription.
    Push(Vec<Self>),
    Status(String),
    Text(Option<Vec<u8>>),
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
            "$" => Self::Text(len().map(|len| {
                let mut text = vec![0; len + 2];
                from.read_exact(&mut text).unwrap();
                text.truncate(len);
                text
            })),
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

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(text) => write!(f, "-{text}"),
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

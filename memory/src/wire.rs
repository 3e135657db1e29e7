//! Versions 2 and 3 of the Redis protocol.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;

use crate::value::Bytes;

/// A reply of the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Bulk(Bytes),
    /// A number. In version 2 of the protocol, a text.
    Double(String),
    /// Its text begins with the code, such as `ERR`.
    Error(String),
    Int(i64),
    List(Vec<Self>),
    /// Keys and values. In version 2 of the protocol, a list.
    Map(Vec<Self>),
    Nil,
    /// Nothing, in place of a list.
    NilList,
    /// Lists of two. In version 2 of the protocol, one list.
    Pairs(Vec<Self>),
    /// What belongs to a subscription. In version 2 of the protocol, a list.
    Push(Vec<Self>),
    Status(String),
    /// A text for people.
    Verbatim(String),
}

/// The reply of a command, or the text of its error.
pub(crate) type Outcome = Result<Reply, String>;

impl Reply {
    pub(crate) fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().into())
    }

    pub(crate) fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// The bytes, or nil.
    pub(crate) fn found(bytes: Option<&Bytes>) -> Self {
        bytes.map_or(Self::Nil, |bytes| Self::Bulk(Arc::clone(bytes)))
    }

    /// A list of these bytes.
    pub(crate) fn list<'a>(items: impl IntoIterator<Item = &'a Bytes>) -> Self {
        Self::List(items.into_iter().map(|item| Self::Bulk(Arc::clone(item))).collect())
    }

    pub(crate) fn write(&self, is_version_3: bool, out: &mut Vec<u8>) {
        let mut list = |first: u8, len: usize, items: &[Self]| {
            line(out, first, len);
            items.iter().for_each(|item| item.write(is_version_3, out));
        };
        match self {
            Self::Bulk(bytes) => {
                line(out, b'$', bytes.len());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Double(number) if is_version_3 => line(out, b',', number),
            Self::Verbatim(text) if is_version_3 => {
                line(out, b'=', text.len() + 4);
                line(out, b't', format_args!("xt:{text}"));
            }
            Self::Double(text) | Self::Verbatim(text) => Self::bulk(text).write(false, out),
            // An error reply is one line, whatever text the error quotes.
            Self::Error(text) => line(out, b'-', text.replace(['\r', '\n'], " ")),
            Self::Int(number) => line(out, b':', number),
            Self::Map(items) if is_version_3 => list(b'%', items.len() / 2, items),
            Self::Push(items) if is_version_3 => list(b'>', items.len(), items),
            Self::Pairs(items) if is_version_3 => {
                line(out, b'*', items.len() / 2);
                items.chunks(2).for_each(|pair| Self::List(pair.to_vec()).write(true, out));
            }
            Self::List(items) | Self::Map(items) | Self::Pairs(items) | Self::Push(items) => {
                list(b'*', items.len(), items);
            }
            Self::Nil | Self::NilList if is_version_3 => out.extend_from_slice(b"_\r\n"),
            Self::Nil => line(out, b'$', -1),
            Self::NilList => line(out, b'*', -1),
            Self::Status(text) => line(out, b'+', text),
        }
    }
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Self {
        outcome.unwrap_or_else(Self::Error)
    }
}

fn line(out: &mut Vec<u8>, first: u8, text: impl Display) {
    // Writing to a `Vec` never fails.
    let _ = write!(out, "{}{text}\r\n", char::from(first));
}

/// Takes the first command off `bytes`, as its words. `None`: the command is not complete yet.
///
/// # Errors
///
/// The bytes are not a command in the form that clients send: a list of texts.
pub(crate) fn take_command(bytes: &mut Vec<u8>) -> Result<Option<Vec<Bytes>>, String> {
    let mut at = 0;
    let Some(count) = header(bytes, &mut at, b'*')? else { return Ok(None) };
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(len) = header(bytes, &mut at, b'$')? else { return Ok(None) };
        let Some(word) = bytes.get(at..at + len) else { return Ok(None) };
        if bytes.len() < at + len + 2 {
            return Ok(None);
        }
        words.push(word.into());
        at += len + 2;
    }
    bytes.drain(..at);
    Ok(Some(words))
}

/// Reads a line such as `$5` at a position, and moves the position to the end of the line.
fn header(bytes: &[u8], at: &mut usize, first: u8) -> Result<Option<usize>, String> {
    let rest = bytes.get(*at..).unwrap_or_default();
    let Some(len) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let number = rest[..len].strip_prefix(&[first]).and_then(|digits| std::str::from_utf8(digits).ok());
    let number = number.and_then(|digits| digits.parse().ok());
    *at += len + 2;
    number.map(Some).ok_or_else(|| "ERR Protocol error: this server takes lists of texts".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_when_they_are_complete() {
        let two = b"*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n*1\r\n$0\r\n\r\n";
        let first = two.len() - 10;
        for end in 0..=two.len() {
            let mut bytes = two[..end].to_vec();
            let words = take_command(&mut bytes).unwrap();
            assert_eq!(words.is_some(), end >= first, "{end}");
            assert!(words.is_none_or(|words| *words[0] == *b"PING" && *words[1] == *b"hi"));
            assert_eq!(bytes, &two[if end >= first { first } else { 0 }..end]);
        }
        assert!(take_command(&mut b"PING\r\n".to_vec()).is_err());
    }

    #[test]
    fn replies_are_written() {
        let reply = Reply::List(vec![
            Reply::bulk("a"),
            Reply::Int(-2),
            Reply::Nil,
            Reply::NilList,
            Reply::ok(),
            Reply::Error("ERR two\nlines".to_owned()),
        ]);
        let mut out = Vec::new();
        reply.write(false, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "*6\r\n$1\r\na\r\n:-2\r\n$-1\r\n*-1\r\n+OK\r\n-ERR two lines\r\n");
    }
}

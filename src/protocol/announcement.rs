//! What the holder of a lock announces: its keys, and how it is written.

use std::fmt::Write;
use std::sync::Arc;

use super::keys::announcement_key;
use super::script::{Call, Reply};
use super::scripts;
use crate::base::fault::Fault;

/// How many bytes a holder can announce.
pub(crate) const MOST_BYTES: usize = 4_096;

/// What an owner announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The identity of the owner's client, without spaces. With it, those who watch who leads need not ask for the list
    /// of all connections.
    pub(crate) identity: String,
    /// `None`: only that it holds the lock.
    pub(crate) said: Option<Vec<u8>>,
}

pub(crate) fn announcement_write(lock: &Arc<str>, owner: &str, identity: &str, said: &[u8]) -> Call {
    let (key, text) = (announcement_key(lock), format!("{identity} {}", escape(said)));
    scripts::announcement_write([lock, &key], owner.to_owned(), text)
}

pub(crate) fn announcement_read(lock: &str) -> Call {
    scripts::announcement_read([&announcement_key(lock)])
}

pub(crate) fn announcement_remove(lock: &str, owner: &str) -> Call {
    scripts::announcement_remove([&announcement_key(lock)], owner.to_owned())
}

/// Returns what this owner announced. `None`: nothing, or what is there is of another owner.
pub(crate) fn parse_announced(reply: &Reply, owner: &str) -> Result<Option<Announced>, Fault> {
    match reply {
        Reply::Nil => Ok(None),
        Reply::Text(found) => {
            let rest = found.strip_prefix(owner).and_then(|rest| rest.strip_prefix(' '));
            Ok(rest.and_then(|rest| rest.split_once(' ')).map(|(identity, said)| Announced {
                identity: identity.to_owned(),
                said: Some(unescape(said)).filter(|said| !said.is_empty()),
            }))
        }
        other => Err(Fault::unexpected(other)),
    }
}

/// Bytes as text that people can read on the server: an address stays as it is.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte != b'%' && (byte == b' ' || byte.is_ascii_graphic()) {
            text.push(byte.into());
        } else {
            let _ = write!(text, "%{byte:02x}");
        }
    }
    text
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = (*first == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_is_written_as_it_is() {
        assert_eq!(escape(b"http://10.0.0.7:9000/a b"), "http://10.0.0.7:9000/a b");
        assert_eq!(escape("ü%\n".as_bytes()), "%c3%bc%25%0a");
    }

    #[test]
    fn only_the_announcement_of_the_holder_counts() {
        let found = |text: &str| parse_announced(&Reply::Text(text.to_owned()), "x:1").unwrap();
        let announced = |said: Option<&[u8]>| {
            Some(Announced { identity: "billing-7".to_owned(), said: said.map(<[u8]>::to_vec) })
        };
        assert_eq!(found("x:1 billing-7 here we are"), announced(Some(b"here we are")));
        assert_eq!(found("x:1 billing-7 "), announced(None));
        for other in ["x:2 i here", "x:11 i here", "x:1i here", "x:1 here", "x:1", "x:1 ", ""] {
            assert_eq!(found(other), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn all_bytes_come_back(bytes: Vec<u8>) {
            prop_assert_eq!(unescape(&escape(&bytes)), bytes);
        }

        /// Another program can write anything.
        #[test]
        fn any_text_can_be_read(text: String) {
            unescape(&text);
        }
    }
}

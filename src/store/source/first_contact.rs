//! Why the first connection to a server failed, when the failure itself does not tell.
//!
//! A server that refuses a client before its first command says why and closes the connection. The library writes first, so it sees
//! only that the connection broke. A port that expects TLS, or does not know it, says nothing at all. So this looks at the port once
//! more.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::timer::timeout;
use crate::store::connection::{Endpoint, wire};

/// The time limit of the whole look.
const LIMIT: Duration = Duration::from_secs(2);

/// By this time, words that a server says unasked have arrived.
const QUIET: Duration = Duration::from_millis(300);

/// The first bytes of the records of TLS with which a server answers: an alert, or its part of the handshake.
const TLS_ANSWERS: [u8; 2] = [0x15, 0x16];

/// A greeting of TLS 1.2 with one cipher suite and no extensions (RFC 5246, 7.4.1.2). A server accepts it or answers with an alert.
const TLS_GREETING: &[u8] =
    b"\x16\x03\x01\0\x2d\x01\0\0\x29\x03\x03lockkeeper asks: TLS, or no TLS?\0\0\x02\xc0\x2f\x01\0";

/// Returns the fault that this port names, or this fault if it names none.
pub(crate) async fn explained(fault: Fault, endpoint: Option<&Endpoint>) -> Fault {
    use FaultKind::{Broken, Configuration, TimedOut, Unreachable};
    if wire::is_no_redis(&fault) {
        let server = fault.server().unwrap_or("this address");
        let text = format!("a program that is no Redis server answers at {server}: check host and port");
        return Fault::new(Configuration, Sent::No, text);
    }
    let Some(endpoint) = endpoint else { return fault };
    let is_vague = match fault.kind {
        Broken | TimedOut | Unreachable => true,
        Configuration => endpoint.is_tls(), // perhaps a certificate is missing, or the server has no TLS
        _ => false,
    };
    if !is_vague {
        return fault;
    }
    let Ok(Ok(heard)) = timeout(LIMIT, heard(endpoint)).await else { return fault };
    let explained = explain(endpoint.is_tls(), &heard).map(|better| better.at(&endpoint.address().into()));
    explained.unwrap_or(fault)
}

/// What the port says: unasked, or when it is greeted in the way that the address does not expect.
async fn heard(endpoint: &Endpoint) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    let Some(address) = endpoint.host_and_port() else { return Ok(bytes) };
    let mut stream = TcpStream::connect(address).await?;
    if timeout(QUIET, stream.read_buf(&mut bytes)).await.is_err() {
        stream.write_all(if endpoint.is_tls() { b"PING\r\n" } else { TLS_GREETING }).await?;
        stream.read_buf(&mut bytes).await?;
    }
    Ok(bytes)
}

fn explain(is_tls: bool, heard: &[u8]) -> Option<Fault> {
    let mistaken = |text: &str| Some(Fault::new(FaultKind::Configuration, Sent::No, text));
    match (heard.first()?, is_tls) {
        (b'-', _) if heard.starts_with(b"-DENIED") || heard.starts_with(b"-ERR max number of clients") => {
            Some(wire::refused_contact(&String::from_utf8_lossy(&heard[1..])))
        }
        (b'+' | b'-', true) => mistaken("this port does not speak TLS: use `redis://`"),
        (first, false) if TLS_ANSWERS.contains(first) => mistaken("this port wants TLS: use `rediss://`"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_and_text(is_tls: bool, heard: &[u8]) -> Option<(FaultKind, String)> {
        explain(is_tls, heard).map(|fault| (fault.kind, fault.to_string()))
    }

    #[test]
    fn what_a_port_says_is_explained() {
        for is_tls in [false, true] {
            let (kind, text) =
                kind_and_text(is_tls, b"-DENIED Redis is running in protected mode. Do this.\r\n").unwrap();
            assert_eq!(kind, FaultKind::Permission);
            assert!(text.contains("protected mode") && !text.contains("Do this"), "{text}");
            let (kind, text) = kind_and_text(is_tls, b"-ERR max number of clients reached\r\n").unwrap();
            assert_eq!(kind, FaultKind::Unavailable);
            assert!(text.contains("`maxclients`"), "{text}");
            for nothing in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n", b"\0"] {
                assert_eq!(kind_and_text(is_tls, nothing), None);
            }
        }
        for answer in [&b"+PONG\r\n"[..], b"-NOAUTH Authentication required.\r\n", b"-NOPERM no\r\n"] {
            assert!(kind_and_text(true, answer).unwrap().1.contains("`redis://`"));
            assert_eq!(kind_and_text(false, answer), None);
        }
        for answer in [&b"\x15\x03\x03\0\x02\x02\x28"[..], b"\x16\x03\x03\0\x10"] {
            assert!(kind_and_text(false, answer).unwrap().1.contains("`rediss://`"));
            assert_eq!(kind_and_text(true, answer), None);
        }
    }
}

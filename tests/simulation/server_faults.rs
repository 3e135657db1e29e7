//! Faults that only simulations make: too few places for connections, and connections for messages that fail alone.

use std::time::Duration;

use lockkeeper_memory::{MemoryServer, Network, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const SUBSCRIBE: &str = "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n";
const SUBSCRIBED: &str = "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
const PING: &str = "*1\r\n$4\r\nPING\r\n";
const FULL: &str = "-ERR max number of clients reached\r\n";

async fn send(stream: &mut Stream, command: &str) {
    stream.write_all(command.as_bytes()).await.unwrap();
}

/// What the server says next. `None`: nothing. An empty text: it has closed the connection.
async fn heard(stream: &mut Stream) -> Option<String> {
    let mut bytes = Vec::new();
    timeout(Duration::from_secs(1), stream.read_buf(&mut bytes)).await.ok()?.unwrap();
    Some(String::from_utf8(bytes).unwrap())
}

async fn answer(stream: &mut Stream, command: &str) -> Option<String> {
    send(stream, command).await;
    heard(stream).await
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_place_closes_new_connections_and_keeps_the_others() {
    let server = MemoryServer::new();
    let mut first = server.connect().await.unwrap();
    server.limit_clients(Some(1));
    let mut heard_before_the_end = Vec::new();
    for _ in 0..32 {
        heard_before_the_end.push(heard(&mut server.connect().await.unwrap()).await.unwrap());
    }
    heard_before_the_end.sort();
    heard_before_the_end.dedup();
    assert_eq!(heard_before_the_end, ["", FULL], "the words are sometimes lost");
    assert_eq!((answer(&mut first, PING).await.unwrap(), server.clients()), ("+PONG\r\n".to_owned(), 1));
    server.limit_clients(None);
    assert_eq!(answer(&mut server.connect().await.unwrap(), PING).await.unwrap(), "+PONG\r\n");
}

#[tokio::test(start_paused = true)]
async fn connections_for_messages_fail_alone() {
    let server = MemoryServer::new().over_network(1);
    let network = Network { only_messages: true, ..Network::default() };
    let (mut commands, mut messages) = (server.connect().await.unwrap(), server.connect().await.unwrap());
    assert_eq!(answer(&mut messages, SUBSCRIBE).await.unwrap(), SUBSCRIBED);

    server.set_network(Network { holds_replies: true, ..network });
    assert_eq!(answer(&mut messages, PING).await, None, "it is silent");
    let mut new = server.connect().await.unwrap();
    assert_eq!(answer(&mut new, SUBSCRIBE).await, None, "and so is a new one");
    assert_eq!(answer(&mut commands, PING).await.unwrap(), "+PONG\r\n");
    server.set_network(Network::default());
    assert_eq!(heard(&mut messages).await.unwrap(), "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    assert_eq!(heard(&mut new).await.unwrap(), SUBSCRIBED);

    server.set_network(Network { refuses: true, ..network });
    server.cut_messages();
    assert_eq!(heard(&mut messages).await.unwrap(), "", "it is cut");
    let mut new = server.connect().await.unwrap();
    assert_eq!(answer(&mut new, PING).await.unwrap(), "+PONG\r\n");
    assert_eq!(answer(&mut new, SUBSCRIBE).await.unwrap(), "", "it is closed when it subscribes");

    server.set_network(Network { denies_messages: true, ..Network::default() });
    let denied = answer(&mut commands, SUBSCRIBE).await.unwrap();
    assert!(denied.starts_with("-NOPERM"), "{denied}");
    assert_eq!(answer(&mut commands, PING).await.unwrap(), "+PONG\r\n");
}

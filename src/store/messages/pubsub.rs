//! A connection for messages.
//!
//! A cluster has messages of its own, which stay in one slot. The connection for those gets replies and messages in one stream, and
//! the `redis` crate takes the notice that a slot has moved away for the reply of a command. So there is nothing on this connection
//! but subscriptions and `PING`, every reply is compared with its command, and one that does not fit ends the connection.

use std::sync::Arc;

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{FromRedisValue, PushInfo, PushKind, RedisError, RedisResult, Value, cmd};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::store::connection::{Dial, Multiplexed, TopologyLink, wire};

/// Sends the commands.
#[derive(Clone)]
pub(super) enum Sink {
    /// For messages that all servers of a cluster pass on to each other.
    Plain(PubSubSink),
    /// For messages in one slot of a cluster.
    Sharded(Multiplexed),
}

/// Receives the messages.
pub(super) enum Stream {
    Plain(PubSubStream),
    Sharded(UnboundedReceiver<PushInfo>),
}

/// What a connection received.
pub(super) enum Received {
    /// Somebody published on this channel.
    Message(String),
    /// The subscription to this channel has ended.
    Left(String),
    Other,
    /// The connection has ended.
    End,
}

/// What became of a command for several channels.
#[derive(Default)]
pub(super) struct Changed {
    /// The subscriptions that began or ended.
    pub(super) done: Vec<Arc<str>>,
    /// The user may not subscribe: either to one of these, or to each.
    pub(super) refused: Option<(Vec<Arc<str>>, RedisError)>,
    /// Another server has their slots, or the slots are under way, or the cluster has no majority.
    pub(super) elsewhere: Vec<Arc<str>>,
}

/// Opens a connection for the messages of one server.
pub(super) async fn connect(dial: &Dial, link: &TopologyLink) -> RedisResult<(Sink, Stream)> {
    match dial {
        Dial::Endpoint(endpoint) if link.is_sharded() => {
            let (pushes, received) = unbounded_channel();
            let mut connection = endpoint.with_pushes(pushes).await?;
            link.name.set(&mut connection.redis, &endpoint.address()).await?;
            Ok((Sink::Sharded(connection), Stream::Sharded(received)))
        }
        _ => {
            let (sink, stream) = dial.messages().await?.split();
            Ok((Sink::Plain(sink), Stream::Plain(stream)))
        }
    }
}

impl Sink {
    /// Whether [`Received::Left`] comes for each channel that is unsubscribed.
    pub(super) const fn tells_what_it_leaves(&self) -> bool {
        matches!(self, Self::Sharded(_))
    }

    pub(super) async fn ping(&mut self) -> RedisResult<()> {
        match self {
            Self::Plain(sink) => sink.ping::<Value>().await.map(drop),
            Self::Sharded(connection) => match wire::send(&mut connection.redis, &cmd("PING")).await? {
                Value::SimpleString(_) => Ok(()),
                _ => Err(wire::broken(MIXED_UP)),
            },
        }
    }

    pub(super) async fn subscribe(&mut self, channels: Vec<Arc<str>>) -> RedisResult<Changed> {
        let connection = match self {
            Self::Sharded(connection) => connection,
            Self::Plain(sink) => {
                let refused = match sink.subscribe(names(&channels)).await {
                    Ok(()) => return Ok(Changed { done: channels, ..Changed::default() }),
                    // Only a missing right is final. Other refusals are temporary, such as that of a busy server: the
                    // caller makes a new connection and asks again.
                    Err(error) if is_permission(&error) => error,
                    Err(error) => return Err(error),
                };
                return Ok(Changed { refused: Some((channels, refused)), ..Changed::default() });
            }
        };
        let mut subscribed = Changed::default();
        let replies = each(connection, "SSUBSCRIBE", &channels).await?;
        for (channel, reply) in channels.into_iter().zip(replies) {
            match reply.extract_error() {
                Ok(reply) if is_push(&reply, &PushKind::SSubscribe, &channel) => {
                    subscribed.done.push(channel)
                }
                Ok(_) => return Err(wire::broken(MIXED_UP)),
                Err(error) if is_permission(&error) => {
                    subscribed.refused.get_or_insert((Vec::new(), error)).0.push(channel);
                }
                Err(error) if wire::fault(error.clone()).is_transient() => subscribed.elsewhere.push(channel),
                Err(error) => return Err(error),
            }
        }
        Ok(subscribed)
    }

    pub(super) async fn unsubscribe(&mut self, channels: Vec<Arc<str>>) -> RedisResult<Changed> {
        let connection = match self {
            Self::Sharded(connection) => connection,
            Self::Plain(sink) => {
                sink.unsubscribe(names(&channels)).await?;
                return Ok(Changed { done: channels, ..Changed::default() });
            }
        };
        let mut unsubscribed = Changed::default();
        let replies = each(connection, "SUNSUBSCRIBE", &channels).await?;
        for (channel, reply) in channels.into_iter().zip(replies) {
            match reply.extract_error() {
                Ok(reply) if is_push(&reply, &PushKind::SUnsubscribe, &channel) => {
                    unsubscribed.done.push(channel);
                }
                Ok(_) => return Err(wire::broken(MIXED_UP)),
                // The slot of the channel has moved to another server, so this server has ended the subscription.
                Err(error) if error.code() == Some("MOVED") => unsubscribed.done.push(channel),
                // The server keeps the subscription. Redis 8 does so.
                Err(_) => unsubscribed.elsewhere.push(channel),
            }
        }
        Ok(unsubscribed)
    }
}

impl Stream {
    pub(super) async fn next(&mut self) -> Received {
        match self {
            Self::Plain(stream) => {
                let message = stream.next().await;
                message
                    .map_or(Received::End, |message| Received::Message(message.get_channel_name().to_owned()))
            }
            Self::Sharded(pushes) => {
                let Some(PushInfo { kind, data }) = pushes.recv().await else { return Received::End };
                let channel = || data.first().and_then(|channel| String::from_redis_value_ref(channel).ok());
                match (kind, channel()) {
                    (PushKind::SMessage, Some(channel)) => Received::Message(channel),
                    (PushKind::SUnsubscribe, Some(channel)) => Received::Left(channel),
                    (PushKind::Disconnection, _) => Received::End,
                    _ => Received::Other,
                }
            }
        }
    }
}

const MIXED_UP: &str = "a reply does not belong to its command";

/// Sends one command for each channel, all in one write: the channels of one command would have to be in one slot.
async fn each(connection: &mut Multiplexed, name: &str, channels: &[Arc<str>]) -> RedisResult<Vec<Value>> {
    let mut commands = redis::pipe();
    for channel in channels {
        commands.cmd(name).arg(channel.as_bytes());
    }
    connection.redis.send_packed_commands(&commands, 0, channels.len()).await
}

fn is_push(reply: &Value, expected: &PushKind, channel: &str) -> bool {
    let Value::Push { kind, data } = reply else { return false };
    let first = data.first().and_then(|first| String::from_redis_value_ref(first).ok());
    kind == expected && first.as_deref() == Some(channel)
}

fn is_permission(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

fn names(channels: &[Arc<str>]) -> Vec<&str> {
    channels.iter().map(|channel| &**channel).collect()
}

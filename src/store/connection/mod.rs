//! Connections to one server: sends commands, and knows what became of each.
//!
//! # How it works
//!
//! A [`Server`] has a fixed number of multiplexed connections for commands. The key of a lock selects one of them
//! ([`ConnectionIndex`]), so the commands about one lock stay in order. A task opens a connection when the first command needs it,
//! and all callers that need it meanwhile share that task. No command checks its connection first, because that would cost a round
//! trip. Instead, a connection is replaced after an error, or after a time-out if it does not answer a `PING`.
//!
//! While nothing is in flight on a connection, the future of a call sends its command at once. Otherwise the call enters the outbox of the
//! connection. One task for each connection sends what is there: at most 64 calls in one write, those of one script in one command (in a
//! cluster: those of one script and slot), and eight writes at a time. So no call depends on a caller that nobody polls. What waits was not
//! sent.
//!
//! Renewals have a connection of their own to each master, which the thread of the client drives. There the server also tells which keys
//! others change (`CLIENT TRACKING`). Where it refuses that, the connection is made again without it.
//!
//! No command is sent twice here, except one with several calls that the server did not run: it did not know the script, or refused one
//! of the keys. A command that fails returns a [`Fault`](crate::base::fault::Fault), and `Fault::sent` tells what
//! became of it:
//!
//! | [`Sent`](crate::base::fault::Sent) | meaning | example |
//! |---|---|---|
//! | `No` | the command was not sent | no connection |
//! | `Refused` | the server answered that it did not run the command | `MOVED`, `READONLY` |
//! | `Unknown` | the command possibly ran, or still runs later | a time-out, a broken connection |
//!
//! Each [`Connection`] has a number. The engine records it with every attempt: a later command about the same lock on the
//! same connection cannot overtake the attempt, and one on another connection can.
//!
//! The name of a single server can lead to another server later. So the loss of one connection, the answer of a replica, or a new
//! connection to another server ends a *generation* of connections ([`TopologyLink`]): all of them are made anew, with new look-ups
//! of the name. Otherwise a client could talk to two servers about one lock. The connection for messages follows when the first one for commands was made, because only
//! the reply to `HELLO` tells that a server is a master. Sentinels and clusters say who the master is, so there the other connections stay.
//!
//! A server that is no longer the master is left: from then on every command in flight fails with an unknown outcome, and no
//! reply counts.
//!
//! # Files
//!
//! `server.rs` sends commands and replaces connections. `server/sending.rs` sends calls of scripts, and `outbox/` decides which go out
//! together. `wire.rs` translates calls, replies and errors. `dial.rs` makes connections
//! from an [`Endpoint`], a pool, or streams of the application (`stream.rs`). `multiplexed.rs` closes a connection that nobody uses.
//! `clock.rs` is the server's clock as a connection knows it: a call that expires gets its end when it is written. `topology_link.rs` is what a
//! server reports to its topology.

mod client_name;
mod clock;
mod connection_index;
mod dial;
mod endpoint;
mod multiplexed;
mod outbox;
mod server;
mod stream;
mod topology_link;
pub(crate) mod wire;

pub(crate) use client_name::{ClientName, identity, in_line};
pub(crate) use connection_index::{ConnectionCount, ConnectionIndex, Route};
pub(crate) use dial::{Dial, connect, connect_to_master};
pub(crate) use endpoint::Endpoint;
pub(crate) use multiplexed::Multiplexed;
pub(crate) use server::{Connection, Server, TimeLimit};
pub(crate) use stream::StreamDial;
pub(crate) use topology_link::{TopologyLink, Upkeep};

//! An in-memory server, for tests. It needs the feature `memory`.
//!
//! The server speaks the Redis protocol over streams in memory, so everything above these streams is what runs in production:
//! the client library, the connections, the scripts. It knows the commands that lockkeeper uses, with the replies of Redis 7;
//! every other command or option is an error.

mod channels;
mod clock;
mod commands;
mod glob;
mod history;
mod keyspace;
mod link;
mod look;
mod lua;
mod net;
mod number;
mod scripts;
mod server;
mod simulated;
mod state;
mod sync;
mod value;
mod wire;

#[doc(hidden)]
pub use link::Network;
pub use net::Stream;
pub use server::{Connecting, Data, MemoryServer};

//! `lockkeeper run`: two processes watch over the command, so that it ends before the lock does.
//!
//! ```text
//! front   the process that the user started: starts the other two, forwards signals, returns the exit code
//! keeper  acquires, renews and releases the lock; tells the front until when the command may run
//! command in a process group of its own
//! ```
//!
//! - The command waits at a gate until the keeper knows its process group: both can stop it from its first moment on.
//! - The front stops the command if the keeper says that the lock is lost, says nothing any more, or is stopped.
//! - The keeper stops the command if the front is gone, or is stopped when the time is over.
//! - On Linux, the kernel ends the command when the front is gone, even if the keeper ended at the same time.

mod acquire;
mod clock;
mod command;
mod front;
mod gate;
mod group;
mod keeper;
mod keeper_handle;
mod lines;
mod loss;
mod message;
mod record;
mod signals;
mod stop;
mod suspension;
mod terminal;
mod times;
mod watch;

pub(crate) use command::{become_command, end_with_parent, this_program};
pub(crate) use front::run;
pub(crate) use keeper::keep;
